"""A pool of image files, some of which a site's file lists in a CSV."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median_low

import numpy as np

from fedward.errors import DataError, in_shell, option
from fedward.lab.partition.left_out import by_kind
from fedward.lab.partition.pool import (
    OTHER_CLASS,
    LeftOutImage,
    Listing,
    OpenedImage,
    Origin,
    Pool,
    Rows,
    check_groups,
    findings_in,
    is_label,
    proposed_size,
    take_classes,
    take_findings,
)
from fedward.lab.partition.subgroup_columns import WRITTEN_COLUMNS
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.labels import NO_FINDING
from fedward.sites.dark_images import nearly_black
from fedward.sites.decoding import BadRow, SeveralImages, fit
from fedward.sites.files import is_volume
from fedward.sites.headers import dicom_patients
from fedward.sites.hiding_windows import (
    Better,
    Hidden,
    better_window,
    hiding_note,
    naming_window,
    showing_window,
    window_words,
)
from fedward.sites.images import decode_file, open_parts
from fedward.sites.leaks import digest
from fedward.sites.path_patients import folders_of_few, patients_in_paths
from fedward.sites.rendering import Rendering, Window
from fedward.sites.split import owners
from fedward.text import natural

_LOOKED_AT = 16
"""Images that are opened to find out their size and colour."""
_THREADS = 4
"""Files that are opened at the same time; Pillow works without Python's lock."""
_MOST_UNUSABLE = 0.05
"""Share, as ``max_rejected`` of a site file."""
_MOST_KINDS = 5
"""Kinds of reasons that a refusal has."""


@dataclass(frozen=True)
class ListedImage:
    """One image file, as a data set lists it."""

    sample_id: str
    image: str
    """Path in the folder of the images."""
    label: str = ""
    group: str = ""
    split: str = ""
    further: Mapping[str, str] = field(default_factory=dict)
    """Column of subgroups -> its cell; all images of a data set have the same columns."""
    line: int | None = None
    """Line of the CSV that lists it; None: the data set is no CSV."""

    @property
    def origin(self) -> Origin:
        """Where the data set lists it."""
        return Origin(self.image, self.line)


def image_pool(
    name: str,
    folder: Path,
    images: Sequence[ListedImage],
    classes: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    rendering: Rendering,
    notes: Sequence[str],
    label_kind: LabelKind = ONE_LABEL,
) -> Pool:
    """Return the pool of these images.

    An image without a group stays with those of its DICOM file's patient, or else of the patient
    that its path names.

    Args:
        name: of the data set.
        folder: of the images.
        images: what the data set lists.
        classes: classes to use; empty: all.
        columns: further columns, with a value for each image.
        rendering: how files become images.
        notes: further notes.
        label_kind: what an image may show.

    Raises:
        ConfigError: see :func:`fedward.lab.partition.pool.take_classes`.
        DataError: a group is in two splits, or no image can be read.
    """
    take = take_classes if label_kind.exclusive else take_findings
    chosen = take([image.label for image in images], classes)
    of_other_classes = sorted(set(range(len(images))).difference(chosen.rows))
    kept, patient_notes = _grouped_by_patient(folder, [images[row] for row in chosen.rows])
    splits = [image.split or "train" for image in kept]
    check_groups(f"{folder}", _owners(kept), splits)
    kept, path_notes = _grouped_by_path(kept)
    patient_notes += path_notes
    groups = _owners(kept)
    class_of = _class_of(kept, chosen.classes, label_kind)
    side, channels = _size_and_channels(folder, [image.image for image in kept], rendering)
    return Pool(
        name=name,
        classes=chosen.classes,
        labels=chosen.labels,
        groups=groups,
        splits=splits,
        side=side,
        channels=channels,
        listing=partial(_listing, folder, kept, groups, class_of, rendering),
        rendering=rendering,
        columns={
            column: [values[row] for row in chosen.rows] for column, values in columns.items()
        },
        alone=[not image.group for image in kept],
        notes=(*notes, *chosen.notes, *patient_notes),
        open_images=partial(_opened, folder, kept, rendering, proposed_size(side), channels),
        listed_as="file" if kept[0].line is None else "row",
        origins=[image.origin for image in kept],
        left_out=tuple(LeftOutImage(images[row].origin, OTHER_CLASS) for row in of_other_classes),
    )


def _opened(
    folder: Path, images: Sequence[ListedImage], rendering: Rendering, size: int, channels: int
) -> Iterator[OpenedImage]:
    """Open all files of a pool, and yield what was seen of each, as the network would see it."""

    def opened(image: ListedImage) -> OpenedImage:
        path = folder / image.image
        try:
            parts = decode_file(path, size, channels, rendering)
        except Hidden as problem:
            return OpenedImage(
                image.image, problem=str(problem), path=path, shown_in=problem.window
            )
        except BadRow as problem:
            several = isinstance(problem, SeveralImages)
            return OpenedImage(image.image, problem=str(problem), path=path, several=several)
        pixels = np.stack(list(parts.values()))
        dark = bool(nearly_black(pixels).all())
        shown_in = showing_window(path, rendering) if dark else None
        return OpenedImage(image.image, digest(pixels), path=path, dark=dark, shown_in=shown_in)

    # Volumes are large: only one at a time is in memory.
    with ThreadPoolExecutor(1 if rendering.slices else _THREADS) as threads:
        yield from threads.map(opened, images)


def refuse_many(where: str, unusable: Sequence[LeftOutImage], total: int, remedy: str) -> None:
    """Refuse a data set of which too many images cannot be used.

    Args:
        where: names the data set.
        unusable: its images that cannot be used.
        total: number of all its images.
        remedy: what to do.

    Raises:
        DataError: they are more than 5 % of ``total``, or all. The text says how many there are of
            each kind of reason.
    """
    number = len(unusable)
    if number <= _MOST_UNUSABLE * total and number < total:
        return
    kinds = by_kind(unusable)
    # One kind alone is of the number that is said already.
    parts = [kind.text if len(kinds) == 1 else f"{kind.images}: {kind.text}" for kind in kinds]
    if len(kinds) > _MOST_KINDS:
        others = sum(kind.images for kind in kinds[_MOST_KINDS:])
        parts[_MOST_KINDS:] = [f"{others} for other reasons"]
    reasons = f": {'; '.join(parts)}" if parts else ""
    raise DataError(
        where,
        remedy,
        expected=f"images, of which at most {_MOST_UNUSABLE:.0%} cannot be used",
        found=f"{number} of {total} that cannot{reasons}",
    )


def frames_remedy() -> str:
    """Return what to do where files hold several frames."""
    return (
        f"Say how many images of each are used: {option('frames', 'all')}, or a number, or leave "
        "these files out."
    )


def hidden_by(used: Window | None, better: Better) -> str:
    """Return which window hides images, and how they can be seen.

    Args:
        used: the window of the command; None: the files' own.
        better: how they can be seen.
    """
    return hiding_note(used, better, _window_option, f"leave out {option('window')}")


def _window_option(window: Window) -> str:
    """Return a window as the caller names it."""
    return option("window", *(window_words(window) if in_shell() else window))


def _owners(images: Sequence[ListedImage]) -> list[str]:
    """Return what each image stays together with: its group, or the image alone."""
    return owners([image.group for image in images], [image.sample_id for image in images])


def _grouped_by_patient(
    folder: Path, images: list[ListedImage]
) -> tuple[list[ListedImage], list[str]]:
    """Return images, of which those without a group get that of their DICOM file's patient."""
    if all(image.group for image in images):
        return images, []
    found = dicom_patients(folder / image.image for image in images)
    patients = ["" if number is None else f"DICOM patient {number}" for number in found.numbers]
    files, named = _named_anew(images, patients)
    if not files:
        return images, found.notes
    note = (
        f"{files} DICOM files are grouped by their headers into {len(named)} patients, who get new "
        "numbers."
    )
    return _filled(images, patients), [note, *found.notes]


def _named_anew(images: Sequence[ListedImage], patients: Sequence[str]) -> tuple[int, set[str]]:
    """Return the number of images without a group that have a patient, and these patients."""
    named = [
        patient
        for image, patient in zip(images, patients, strict=True)
        if patient and not image.group
    ]
    return len(named), set(named)


def _filled(images: Sequence[ListedImage], patients: Sequence[str]) -> list[ListedImage]:
    """Return images, of which those without a group stay with all of their patient.

    Their group is that of the patient's first image that has one, or else the patient.
    """
    pairs = list(zip(images, patients, strict=True))
    group_of: dict[str, str] = {}
    for image, patient in pairs:
        if image.group and patient:
            group_of.setdefault(patient, image.group)
    return [
        replace(image, group=image.group or group_of.get(patient, patient))
        for image, patient in pairs
    ]


def _grouped_by_path(images: list[ListedImage]) -> tuple[list[ListedImage], list[str]]:
    """Return images, of which those without a group get the patient that their path names."""
    paths = [image.image for image in images]
    patients = patients_in_paths(paths, [image.label for image in images])
    number, named = _named_anew(images, patients)
    if not named:
        return images, _folders_note([image for image in images if not image.group])
    notes = [
        f"{number} images are grouped by the patients that their paths name, such as "
        f"{min(named, key=natural)}: {len(named)} patients."
    ]
    grouped = _filled(images, patients)
    splits_of = defaultdict[str, set[str]](set)
    for image in grouped:
        splits_of[image.group].add(image.split)
    torn = [name for name in sorted(splits_of, key=natural) if name and len(splits_of[name]) > 1]
    if torn:
        notes.append(
            f"LEAK: {len(torn)} of these patients are in several splits of the data set, such as "
            f"{torn[0]}, unless they are other people there. New splits keep each together: "
            f"{option('resplit', True)}."
        )
    return grouped, notes


def _folders_note(images: Sequence[ListedImage]) -> list[str]:
    """Return a note of folders that may each be a patient's, though their names do not say so."""
    folders = folders_of_few([image.image for image in images], [image.label for image in images])
    if not folders:
        return []
    return [
        f"{len(folders)} folders, such as {folders[0]}, hold {len(images) / len(folders):.0f} "
        "images each, perhaps of one patient, who would then be in training and in test. If so, "
        "list the images in a CSV with a column of patients, and name it: "
        f"{option('columns', {'group': 'NAME'})}."
    ]


def _size_and_channels(folder: Path, names: Sequence[str], rendering: Rendering) -> tuple[int, int]:
    """Return the usual shorter side in pixels, and the channels, of some evenly chosen images.

    The side is their lower median, so that a few thumbnails or large photographs decide nothing.
    Images have one channel if all of them are grey 2D images, else three.
    """
    sides = []
    grey = True
    first_problem = ""
    holds_several = False
    hidden: dict[Path, Window] = {}
    number = min(len(names), _LOOKED_AT)
    for name in [names[place * len(names) // number] for place in range(number)]:
        try:
            with naming_window(folder / name, rendering):
                _, image = next(open_parts(folder / name, rendering, neighbours=True))
        except Hidden as error:
            hidden[folder / name] = error.window
            first_problem = first_problem or f"{name}: {error}"
            continue
        except BadRow as error:
            holds_several |= isinstance(error, SeveralImages)
            first_problem = first_problem or f"{name}: {error}"
            continue
        sides.append(min(image.size))
        pixels = fit(image, 32, 3)
        if is_volume(folder / name) or (pixels != pixels[..., :1]).any():
            grey = False
    if not sides and any(is_volume(folder / name) for name in names) and not rendering.slices:
        raise DataError(
            f"{folder}",
            f"Say how many slices of each become images, as in {option('slices', 16)}. NIfTI needs "
            "pip install 'fedward[volumes]'.",
            expected="2D images",
            found=f"volumes, such as {next(name for name in names if is_volume(folder / name))}",
        )
    if not sides:
        remedy = "Convert the images to PNG, JPEG or TIFF, or see docs/data.md."
        if holds_several:
            remedy = frames_remedy()
        elif hidden:
            remedy = hidden_by(rendering.window, better_window(hidden, (), rendering))
        raise DataError(
            f"{folder}",
            remedy,
            expected="images that can be read",
            found=first_problem or "none",
        )
    channels = 1 if grey else 3
    return median_low(sides), channels


def _class_of(
    images: Sequence[ListedImage], classes: Sequence[str], label_kind: LabelKind
) -> dict[str, str]:
    """Return label at a site -> class; findings that are not among the classes are no finding."""
    class_of = {name: name for name in classes}
    if label_kind.exclusive:
        return class_of
    for image in images:
        for finding in findings_in(image.label):
            class_of.setdefault(finding, NO_FINDING)
    return class_of


def _listing(
    folder: Path,
    images: Sequence[ListedImage],
    groups: Sequence[str],
    class_of: Mapping[str, str],
    rendering: Rendering,
    site: str,
    site_rows: Mapping[str, Rows],
    out: Path,
) -> Listing:
    """Return how a site's file names its images; see :class:`fedward.lab.partition.pool.Pool`.

    Args:
        folder: of the images.
        images: of the pool.
        groups: what each of them stays together with.
        class_of: label -> class.
        rendering: how files become images.
        site: its name.
        site_rows: split -> rows of the site.
        out: folder of the site files.
    """
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow([*WRITTEN_COLUMNS, *images[0].further])
    # A patient that a path names may be in several splits of the data set, which the notes say.
    splits_of = defaultdict[str, set[str]](set)
    for split, rows in site_rows.items():
        for row in rows:
            splits_of[images[row].group].add(split)
    torn = {group for group, splits in splits_of.items() if group and len(splits) > 1}
    for split, rows in site_rows.items():
        for row in rows:
            image = images[row]
            label = image.label if is_label(image.label) else ""
            group = groups[row]
            if group in torn:
                group = f"{group} ({split})"
            cells = [image.sample_id, image.image, label, group, split]
            writer.writerow([*cells, *image.further.values()])
    content = {
        "kind": "manifest",
        "folder": str(folder.resolve()),
        "manifest": str(out.resolve() / f"{site}.csv"),
        "labels": dict(class_of),
        **rendering.plain(),
    }
    return Listing(content, {}, table.getvalue())
