"""A pool that is one npz file: in the MedMNIST layout, or images and labels without splits."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedward.errors import ConfigError, DataError, listed, option
from fedward.lab.npz_columns import NpzColumns
from fedward.lab.partition.faults import Faults
from fedward.lab.partition.image_pool import refuse_many
from fedward.lab.partition.label_choices import NO_CHOICES, LabelChoices, with_decisions
from fedward.lab.partition.pool import (
    OTHER_CLASS,
    Classes,
    ClassesError,
    LeftOutImage,
    Listing,
    OpenedImage,
    Origin,
    Pool,
    Rows,
    check_groups,
    findings_note,
    is_label,
    take_classes,
)
from fedward.label_kinds import kind_of_labels
from fedward.labels import Labels
from fedward.sites.dark_images import nearly_black
from fedward.sites.decoding import is_blank
from fedward.sites.leaks import digest
from fedward.sites.npz import is_one_hot, read_arrays
from fedward.sites.patient_names import patient_names
from fedward.sites.stored_images import StoredImages, array_names, refusing_broken_bytes
from fedward.sites.table_notes import group_notes
from fedward.sites.unused_columns import torn_patients


@dataclass(frozen=True, eq=False)
class _File:
    """The arrays of a file, which holds the N images of one or more splits."""

    prefixes: Sequence[str]
    """Start of the names of each split's arrays, as ``train_``; one empty text without splits."""
    images: Sequence[StoredImages]
    """Of each split."""
    labels: Labels
    """(N,), or (N, C), of all splits, one after the other."""
    columns: NpzColumns
    """What else it says of each image."""
    label_names: Sequence[str] | None
    """Names of the labels by their numbers; None: the file has none."""

    @property
    def counts(self) -> list[int]:
        """Number of images of each split."""
        return [len(images) for images in self.images]

    @property
    def side(self) -> int:
        """Pixels of the shorter side of the images."""
        return min(self.images[0].shape[1:3])

    @property
    def channels(self) -> int:
        """Channels of the images; arrays (N, height, width) hold grey ones."""
        shape = self.images[0].shape
        return shape[3] if len(shape) == 4 else 1

    def splits(self) -> list[str]:
        """Return the split of each image, which is ``train`` in a file without splits."""
        splits: list[str] = []
        for prefix, count in zip(self.prefixes, self.counts, strict=True):
            splits += [prefix.removesuffix("_") or "train"] * count
        return splits

    def of_all(self, texts: Mapping[str, Sequence[str]]) -> list[str]:
        """Return a text for each image; ``texts`` of a split's images are by its prefix.

        Images of other splits have an empty text.
        """
        of_all: list[str] = []
        for prefix, count in zip(self.prefixes, self.counts, strict=True):
            of_all += texts.get(prefix, [""] * count)
        return of_all

    def places_in_splits(self) -> list[int]:
        """Return the place of each image in the array of its split."""
        places: list[int] = []
        for count in self.counts:
            places += range(count)
        return places


def read_npz(
    path: Path,
    classes: Sequence[str] = (),
    choices: LabelChoices = NO_CHOICES,
    *,
    resplit: bool = False,
    faults: Faults,
) -> Pool:
    """Read a file of arrays as a pool.

    It has ``train_images`` and ``train_labels``, perhaps ``val_...`` and ``test_...``, or just
    ``images`` and ``labels``. Other arrays with one value for each image are columns (``source``,
    or ``train_source``); one of them may say which images stay together (``groups``, ``patient``).
    ``label_names`` has the names of the labels, and ``NAME_names`` the names of the numbers in the
    column ``NAME``. Images whose label is called ``unlabelled`` have none. Labels (N, C) of 0 and 1
    are those of a multi-label data set, and their names are those of the C findings.

    Args:
        path: of the file.
        classes: names of the labels in the order of their numbers, by default the numbers. If the
            file has ``label_names``: names of the classes to use, in their order; images of other
            classes are left out.
        choices: what numbers mean that may be no label, as -1 and 255; and whether labels (N, C)
            with one 1 in each row are findings, although they look like one class each.
        resplit: whether the file's splits count for nothing, so that any image may be in any split
            of a site.
        faults: gets what is wrong with the arrays.

    Raises:
        DataError: the arrays cannot be used, and the text has all that is wrong with them; see
            :func:`fedward.sites.npz.read_arrays`; or a group is in two splits, or a patient in two
            groups.
        ConfigError: the classes are not as many as the labels, or see :func:`~.pool.take_classes`.
    """
    file = _read_file(path, faults)
    used = _used_labels(path, file, classes, choices, faults)
    chosen = used.chosen

    splits_in_file = file.splits()
    places_in_splits = file.places_in_splits()
    # Where images may change their splits, they are counted through all of them.
    indices = list(range(len(splits_in_file))) if resplit else places_in_splits
    splits = ["train"] * len(splits_in_file) if resplit else splits_in_file
    ids = [f"{split}-{index}" for split, index in zip(splits_in_file, indices, strict=True)]

    named_groups, notes_of_groups = _named_groups(file)
    # An image without a group is one of its own.
    groups = [group or id_ for group, id_ in zip(named_groups, ids, strict=True)]
    columns = {name: file.of_all(file.columns.texts(name)) for name in file.columns.names}
    used_columns = frozenset(file.columns.of_groups[:1])
    _refuse_torn_patients(path, columns, used_columns, groups)
    check_groups(f"{path}", groups, splits)

    places = _Places.of(splits_in_file, places_in_splits, chosen.rows)
    return Pool(
        name=path.stem,
        classes=chosen.classes,
        labels=chosen.labels,
        groups=[groups[row] for row in chosen.rows],
        splits=[splits[row] for row in chosen.rows],
        side=file.side,
        channels=file.channels,
        listing=partial(_listing, path, used.class_of, places, resplit),
        columns={name: [texts[row] for row in chosen.rows] for name, texts in columns.items()},
        used_columns=used_columns,
        alone=[not named_groups[row] for row in chosen.rows],
        notes=(*used.notes, *notes_of_groups),
        open_images=partial(_opened, file.images, ids, chosen.rows),
        origins=[Origin(ids[row]) for row in chosen.rows],
        left_out=tuple(
            LeftOutImage(Origin(ids[row]), _why_left_out(used.of_all[row]))
            for row in sorted(set(range(len(ids))).difference(chosen.rows))
        ),
    )


def _read_file(path: Path, faults: Faults) -> _File:
    """Return the arrays of a file.

    Raises:
        DataError: it cannot be read, or its arrays cannot be used; the text has all faults.
    """
    with refusing_broken_bytes(f"{path}", "an npz file of arrays"):
        prefixes = _prefixes(array_names(path))
    columns = NpzColumns(path, f"{path}", prefixes)
    label_names = columns.value_names("label")
    images, labels_of_splits = _images_and_labels(path, prefixes, label_names, faults)
    with faults.noted():
        columns.check_lengths()
    faults.refuse()
    return _File(prefixes, images, _joined(path, labels_of_splits), columns, label_names)


class _UsedLabels(NamedTuple):
    """Which labels of a file are used, and as which classes."""

    of_all: Labels
    """(N,) numbers of classes, or (N, C) answers to findings, of all images of the file."""
    chosen: Classes
    class_of: Mapping[int, str]
    """Number in the file -> class, empty for none; see :func:`_class_of`."""
    notes: Sequence[str]


def _used_labels(
    path: Path, file: _File, classes: Sequence[str], choices: LabelChoices, faults: Faults
) -> _UsedLabels:
    """Return which labels are used; see :func:`read_npz` for the arguments and errors."""
    labels, one_hot_notes = _without_one_hot(file.labels, choices)
    meanings: dict[int, str] = {}
    are_unnamed_numbers = labels.ndim == 1 and file.label_names is None
    if are_unnamed_numbers:
        meanings = _meanings(path, labels, classes, choices, faults)
    elif choices.meanings:
        faults.note(
            ConfigError(
                option("labels"),
                f"Remove it. {option('classes')} names the classes to use.",
                expected="numbers without names as labels",
                found="findings" if file.label_names is None else "names in label_names",
            )
        )
    name_of = _name_of(labels, file.label_names, classes, meanings)
    if are_unnamed_numbers:
        # The person may have called a number unlabelled, which is a name but no class to use.
        classes = [name for name in classes if is_label(name)]

    multi_label = not kind_of_labels(labels).exclusive
    chosen: Classes | None = None
    with faults.noted_unless(ClassesError):
        if multi_label:
            chosen = _take_findings(path, labels, name_of, classes)
        else:
            chosen = _take_numbers(labels, name_of, classes)
    if chosen is None:
        raise faults.together()
    notes = [*one_hot_notes, *chosen.notes]
    if not classes and file.label_names is None:
        notes.append(f"The labels are numbers. {option('classes')} names them, in this order.")
    return _UsedLabels(labels, chosen, _class_of(name_of, chosen.classes, multi_label), notes)


def _named_groups(file: _File) -> tuple[list[str], list[str]]:
    """Return what each image of a file stays together with, empty for nothing, and notes of it."""
    in_file = file.columns.groups()
    groups = file.of_all(in_file.by_prefix)
    notes = [
        *_group_notes(file),
        *_further_groups_note(file, groups, in_file.further_columns),
    ]
    return groups, notes


def _refuse_torn_patients(
    path: Path, columns: Mapping[str, Sequence[str]], used: Collection[str], groups: Sequence[str]
) -> None:
    """Raise DataError if there is an array of patients, some of whom have several groups."""
    patients = torn_patients(columns, used, groups)
    if patients:
        others = f", and leave out {listed(used)}" if used else ""
        raise DataError(
            f"{path}",
            "Images of one patient must not be in training and in test. If it names patients, "
            f"call it patient{others}. If not, give it another name, or leave it out.",
            expected="the array of patients to be named",
            found=f"{listed(patients)}, whose images would not stay together",
        )


def _group_notes(file: _File) -> list[str]:
    """Return notes of the names of groups in the first column of them; none without one."""
    if not file.columns.of_groups:
        return []
    cells = file.of_all(file.columns.texts(file.columns.of_groups[0]))
    return group_notes(filter(None, cells), patient_names(cells))


def _further_groups_note(
    file: _File, groups: Sequence[str], further_columns: Sequence[str]
) -> list[str]:
    """Return a note of the images without a group in the first column that have one by others."""
    if not further_columns:
        return []
    first = file.columns.of_groups[0]
    in_first = file.of_all(file.columns.groups_in(first))
    number = sum(bool(group) and not own for group, own in zip(groups, in_first, strict=True))
    return [f"Images without {first} that stay together by {listed(further_columns)}: {number}."]


def _without_one_hot(labels: Labels, choices: LabelChoices) -> tuple[Labels, list[str]]:
    """Return labels (N, C) as classes (N,) if each row has one 1, and a note that says so.

    Other labels are returned as they are, and so are all where a person has called them findings.
    """
    if choices.kind == "several" or not is_one_hot(labels):
        return labels, []
    note = (
        "Each row of the labels has one 1, which is its class. If an image may show several: "
        f"{option('label-kind', 'several')}."
    )
    return labels.argmax(axis=1), [note]


def _name_of(
    labels: Labels,
    label_names: Sequence[str] | None,
    classes: Sequence[str],
    meanings: Mapping[int, str],
) -> dict[int, str]:
    """Return number -> name of labels (N,), or place -> name of the C findings of labels (N, C).

    Args:
        labels: of all images.
        label_names: the file's names of them, which count; None: it has none.
        classes: names of all others than ``meanings``, in their order; empty: the numbers.
        meanings: number -> class, empty for none, as a person has decided.

    Raises:
        ConfigError: there are not as many classes as labels to be named.
    """
    if labels.ndim == 2:
        numbers = list(range(labels.shape[1]))
    else:
        numbers = sorted(set(labels.tolist()) - set(meanings))
    return {**_label_names(numbers, label_names, classes), **meanings}


def _class_of(
    name_of: Mapping[int, str], classes: Sequence[str], multi_label: bool
) -> dict[int, str]:
    """Return number in the file -> class, empty for none; numbers of unused classes are left out.

    Findings are told apart by their place, so that unused ones are kept without a class.
    """
    class_of: dict[int, str] = {}
    for number, name in name_of.items():
        if name in classes:
            class_of[number] = name
        elif multi_label or not is_label(name):
            class_of[number] = ""
    return class_of


def _images_and_labels(
    path: Path, prefixes: Sequence[str], label_names: Sequence[str] | None, faults: Faults
) -> tuple[list[StoredImages], list[Labels]]:
    """Return the images and the labels of each split; a fault for each that cannot be used."""
    images = []
    labels = []
    whole_prefixes = []
    for prefix in prefixes:
        with faults.noted():
            split_images, split_labels = read_arrays(path, prefix, f"{path}, {prefix}images")
            images.append(split_images)
            labels.append(split_labels)
            whole_prefixes.append(prefix)
    for prefix, split_labels in zip(whole_prefixes, labels, strict=True):
        with faults.noted():
            _require_names(path, prefix, split_labels, label_names)
    return images, labels


def _meanings(
    path: Path,
    labels: Labels,
    classes: Sequence[str],
    choices: LabelChoices,
    faults: Faults,
) -> dict[int, str]:
    """Return number -> class, empty for none, of the numbers that a person has decided.

    A number that may be no label is a fault until then, unless each number is named and nothing is
    decided.
    """
    words = [str(number) for number in sorted(labels.tolist())]
    numbers = set(words)
    if len(classes) == len(numbers) and not choices.meanings:
        return {}
    decided = with_decisions(f"{path}", words, choices, [], faults)
    return {int(text): name for text, name in decided.meanings.items() if text in numbers}


def _opened(
    images_of_splits: Sequence[StoredImages], ids: Sequence[str], rows: Sequence[int]
) -> Iterator[OpenedImage]:
    """Read the images of a file, and yield what was seen of each row that is used.

    Args:
        images_of_splits: the arrays, one after the other.
        ids: of each image, its split and its place in the site files.
        rows: those that are used, ascending.
    """
    images = chain.from_iterable(part.read(range(len(part))) for part in images_of_splits)
    used = set(rows)
    for row, pixels in enumerate(images):
        if row not in used:
            continue
        # A channel of its own for grey images.
        image = pixels.reshape(*pixels.shape[:2], -1)
        if is_blank(image):
            yield OpenedImage(ids[row], problem="a blank image: every pixel is the same")
        else:
            yield OpenedImage(ids[row], digest(image), dark=bool(nearly_black(image[None])[0]))


def _prefixes(names: frozenset[str]) -> list[str]:
    """Return the prefixes of the splits' arrays; the empty one for a file without splits."""
    if "images" in names and "train_images" not in names:
        return [""]
    further = [prefix for prefix in ("val_", "test_") if f"{prefix}images" in names]
    return ["train_", *further]


def _joined(path: Path, labels_of_splits: Sequence[Labels]) -> Labels:
    """Return the labels of all splits; DataError if they are not of one kind."""
    shapes = {labels.shape[1:] for labels in labels_of_splits}
    if len(shapes) > 1:
        raise DataError(
            f"{path}",
            "Use a file whose splits are labelled alike.",
            expected="labels of one shape in all splits",
            found=", ".join(map(str, shapes)),
        )
    return np.concatenate(labels_of_splits)


def _why_left_out(label: Labels) -> str:
    """Return why the image of a label is left out: a number (), or those of its findings (C,)."""
    if label.ndim:
        return f"expected 0 or 1 for each finding, or -1 for all of them, found {label.tolist()}"
    return OTHER_CLASS


def _take_numbers(labels: Labels, name_of: Mapping[int, str], classes: Sequence[str]) -> Classes:
    """Return the classes of labels (N,), and the images that have one of them or no label."""
    order = [name for name in name_of.values() if is_label(name)]
    return take_classes([name_of[number] for number in labels.tolist()], classes or order)


def _take_findings(
    path: Path, labels: Labels, name_of: Mapping[int, str], classes: Sequence[str]
) -> Classes:
    """Return the classes of labels (N, C), and the images that show some, none, or have no label.

    Raises:
        DataError: more than 5 % of the images have other labels, which no site can read, or the
            file calls several findings alike.
    """
    are_answers = ((labels == 0) | (labels == 1)).all(axis=1)
    is_readable = are_answers | (labels == -1).all(axis=1)
    unusable = [
        LeftOutImage(Origin(f"image {row}"), _why_left_out(labels[row]))
        for row in np.flatnonzero(~is_readable)
    ]
    refuse_many(
        f"{path}, labels",
        unusable,
        len(labels),
        "Write 0 or 1 for each finding, or -1 for all of them where an image has no label.",
    )
    names = list(name_of.values())
    repeated = [name for name, number in Counter(names).items() if number > 1]
    if repeated and names != list(classes):
        raise DataError(
            f"{path}, label_names",
            "Give each finding a name of its own.",
            expected="different names of findings",
            found=f"{listed(repeated)} several times",
        )
    order = take_classes(names, classes or names).classes
    number_of = {name: number for number, name in name_of.items()}
    left_out = [name for name in names if name not in order]
    rows = np.flatnonzero(is_readable)
    chosen = labels[rows][:, [number_of[name] for name in order]]
    return Classes(order, chosen, rows.tolist(), findings_note(left_out))


def _require_names(
    path: Path, prefix: str, labels: Labels, label_names: Sequence[str] | None
) -> None:
    """Raise DataError if a split has labels that ``label_names`` does not name."""
    if label_names is None:
        return
    numbers = np.arange(labels.shape[1]) if labels.ndim == 2 else np.unique(labels)
    outside = numbers[(numbers < 0) | (numbers >= len(label_names))]
    if len(outside):
        raise DataError(
            f"{path}, {prefix}labels",
            "Complete label_names.",
            expected=f"labels from 0 to {len(label_names) - 1}, as label_names has them",
            found=f"{outside[0]} to {outside[-1]}" if len(outside) > 1 else f"{outside[0]}",
        )


def _label_names(
    numbers: Sequence[int],
    label_names: Sequence[str] | None,
    classes: Sequence[str],
) -> dict[int, str]:
    """Return number -> name of all labels, from ``label_names`` or else from ``classes``."""
    if label_names is None:
        names = list(classes or map(str, numbers))
        if len(names) != len(numbers):
            raise ConfigError(
                option("classes"),
                "Name them in this order.",
                expected=f"a name for each of the labels {', '.join(map(str, numbers))}",
                found=listed(names),
            )
        return dict(zip(numbers, names, strict=True))
    return {number: label_names[number] for number in numbers}


@dataclass(frozen=True)
class _Places:
    """Where the rows of a pool are in the file's arrays."""

    split: npt.NDArray[np.str_]
    """(N,) split whose arrays have the image."""
    in_split: Rows
    """(N,) its place in these arrays."""
    in_file: Rows
    """(N,) its place in the arrays of all splits, one after the other."""

    @classmethod
    def of(cls, splits: Sequence[str], in_split: Sequence[int], rows: Sequence[int]) -> "_Places":
        """Return the places of the rows that are used, of all images of a file."""
        used = np.array(rows, np.int64)
        return cls(np.array(splits, np.str_)[used], np.array(in_split, np.int64)[used], used)

    def is_elsewhere(self, split: str, rows: Rows) -> bool:
        """Return whether an image would be sought in a split's arrays that are not its own.

        A split without arrays is sought in those of the training images.
        """
        return split in self.split and bool((self.split[rows] != split).any())


def _listing(
    path: Path,
    class_of: Mapping[int, str],
    places: _Places,
    joined: bool,
    _site: str,
    site_rows: Mapping[str, Rows],
    _out: Path,
) -> Listing:
    """Return how a site's file names its images; see :class:`fedward.lab.partition.pool.Pool`.

    Args:
        path: of the npz file.
        class_of: label -> class.
        places: of the pool's rows.
        joined: whether any image may be in any split. Of a server, whose validation images are
            training images of the file, they are counted through all splits in any case.
    """
    content: dict[str, Any] = {"kind": "npz", "file": str(path.resolve()), "labels": dict(class_of)}
    through_all = joined or any(places.is_elsewhere(*item) for item in site_rows.items())
    if through_all:
        content["joined"] = True
    indices = places.in_file if through_all else places.in_split
    chosen = {split: indices[rows].tolist() for split, rows in site_rows.items()}
    return Listing(content, {"indices": chosen})
