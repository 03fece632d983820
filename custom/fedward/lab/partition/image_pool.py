"""A pool of image files: what they look like, and the CSV with which a site's file lists some of
them.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedward.errors import DataError
from fedward.lab.partition.pool import (
    Listing,
    Pool,
    Rows,
    check_groups,
    findings_in,
    is_label,
    take_classes,
    take_findings,
)
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.sites.decoding import BadRow, fit
from fedward.sites.files import is_volume
from fedward.sites.headers import patient_numbers
from fedward.sites.images import open_parts
from fedward.sites.labels import NO_FINDING
from fedward.sites.rendering import Rendering

_LOOKED_AT = 16
_MOST_BAD = 0.05
"""As ``max_rejected`` of a site file."""
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What data sets call their splits, in lower case -> ours."""


@dataclass(frozen=True)
class ListedImage:
    """One image file, as a data set lists it."""

    sample_id: str
    image: str
    """Path in the folder of the images."""
    label: str = ""
    group: str = ""
    split: str = ""


def image_pool(
    name: str,
    folder: Path,
    images: Sequence[ListedImage],
    classes: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    rendering: Rendering,
    notes: Sequence[str] = (),
    label_kind: LabelKind = ONE_LABEL,
) -> Pool:
    """Return the pool of these images.

    Where none has a group, images of one patient are together, if they are DICOM files that say so.

    Args:
        name: of the data set.
        folder: of the images.
        images: N of them.
        classes: those to use; none: all.
        columns: further columns of N values each.
        rendering: how files become images.
        notes: what to tell besides.
        label_kind: what an image may show.

    Raises:
        ConfigError: see :func:`fedward.lab.partition.pool.take_classes`.
        DataError: a group is in two splits; some images have a split and others none; no image can
            be read.
    """
    take = take_classes if label_kind.exclusive else take_findings
    chosen = take([image.label for image in images], classes)
    kept, by_patient = _by_patient(folder, [images[row] for row in chosen.rows])
    groups = [image.group or image.sample_id for image in kept]
    splits = [image.split or "train" for image in kept]
    check_groups(f"{folder}", groups, splits)
    side, channels = _look(folder, [image.image for image in kept], rendering)
    return Pool(
        name=name,
        classes=chosen.classes,
        labels=chosen.labels,
        groups=groups,
        splits=splits,
        side=side,
        channels=channels,
        listing=partial(
            _listing, folder, kept, _names(kept, chosen.classes, label_kind), rendering
        ),
        rendering=rendering,
        columns={
            column: [values[row] for row in chosen.rows] for column, values in columns.items()
        },
        grouped=any(image.group for image in kept),
        notes=(*notes, *chosen.notes, *by_patient),
    )


def refuse_many(where: str, bad: Sequence[str], total: int, remedy: str) -> tuple[str, ...]:
    """Return a note of the images that cannot be used, the first with its reason.

    Raises:
        DataError: they are more than 5 % of ``total``, or all.
    """
    if len(bad) > _MOST_BAD * total or len(bad) == total:
        expected = f"images, of which at most {_MOST_BAD:.0%} cannot be used"
        found = f"{len(bad)} of {total} that cannot" + "".join(
            f", the first: {reason}" for reason in bad[:1]
        )
        raise DataError(where, expected=expected, found=found, remedy=remedy)
    return (f"{len(bad)} of {total} images are left out, the first: {bad[0]}.",) if bad else ()


def _by_patient(folder: Path, images: list[ListedImage]) -> tuple[list[ListedImage], list[str]]:
    """Return images without groups in those of their patients, and a note if there are any."""
    if any(image.group for image in images):
        return images, []
    numbers = patient_numbers(folder / image.image for image in images)
    patients = len(set(numbers) - {None})
    named = sum(number is not None for number in numbers)
    if not patients:
        return images, []
    if patients == 1 < named:
        return images, [f"{named} DICOM files have the same PatientID, which is taken for none."]
    grouped = [
        image if number is None else replace(image, group=f"patient-{number}")
        for image, number in zip(images, numbers, strict=True)
    ]
    return grouped, [
        f"{named} DICOM files are grouped by PatientID, as {patients} patients with numbers of our own."
    ]


def _look(folder: Path, names: Sequence[str], rendering: Rendering) -> tuple[int, int]:
    """Return the smallest side and the channels of some images: one channel where all of them are
    grey 2D images.
    """
    sides = []
    grey = True
    problem = ""
    for name in names[:: max(1, len(names) // _LOOKED_AT)][:_LOOKED_AT]:
        try:
            _, image = next(open_parts(folder / name, rendering, neighbours=True))
        except BadRow as error:
            problem = problem or f"{name}: {error}"
            continue
        sides.append(min(image.size))
        pixels = fit(image, 32, 3)
        grey &= not is_volume(folder / name) and bool((pixels == pixels[..., :1]).all())
    if not sides:
        remedy = "Convert the images to PNG, JPEG or TIFF, or see docs/data.md."
        raise DataError(
            f"{folder}", expected="images that can be read", found=problem or "none", remedy=remedy
        )
    return min(sides), 1 if grey else 3


def _names(
    images: Sequence[ListedImage], classes: Sequence[str], label_kind: LabelKind
) -> dict[str, str]:
    """Return what a site calls things -> the class; what is none of the classes is no finding."""
    names = {name: name for name in classes}
    if label_kind.exclusive:
        return names
    for image in images:
        for finding in findings_in(image.label):
            names.setdefault(finding, NO_FINDING)
    return names


def _listing(
    folder: Path,
    images: Sequence[ListedImage],
    names: Mapping[str, str],
    rendering: Rendering,
    site: str,
    mine: Mapping[str, Rows],
    out: Path,
) -> Listing:
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(["sample_id", "image", "label", "group", "split"])
    for split, rows in mine.items():
        for image in (images[row] for row in rows):
            label = image.label if is_label(image.label) else ""
            writer.writerow(
                [image.sample_id, image.image, label, image.group or image.sample_id, split]
            )
    content = {
        "kind": "manifest",
        "folder": str(folder.resolve()),
        "manifest": str(out.resolve() / f"{site}.csv"),
        "labels": dict(names),
        **rendering.plain(),
    }
    return Listing(content, {}, table.getvalue())
