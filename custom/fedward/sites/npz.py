"""A site whose data is a file in the MedMNIST layout (Yang et al., 2023): arrays of images and
labels by split.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError, reason_of
from fedward.sites.data import NO_LABEL_TO_EVALUATE, SPLITS, Labels, Listed, Rejected, Row
from fedward.sites.decoding import BadRow, Pixels, as_image, check_not_blank, fit
from fedward.sites.labels import strata
from fedward.sites.site_file import NpzSite, check_places
from fedward.sites.split import even_parts

if TYPE_CHECKING:
    from fedward.config import DataSpec
    from fedward.label_kinds import LabelKind


def load_npz(file: NpzSite, spec: "DataSpec") -> Listed:
    """Read the site's images; see :func:`fedward.sites.load_site`. Sample ids are ``<split>-<index
    in the file>``.
    """
    rows: list[Row] = []
    pixels: list[Pixels] = []
    rejected: list[Rejected] = []
    total = 0
    for split in (
        SPLITS if file.indices is None else [name for name in SPLITS if file.indices.get(name)]
    ):
        images, labels = read_split(file, split, spec.label_kind)
        wanted = _wanted(file, split, labels)
        total += len(wanted)
        for index in wanted:
            sample_id = f"{split}-{index}"
            try:
                label = spec.label_kind.encode_numbers(labels[index], file.labels, spec.classes)
            except BadRow as problem:
                rejected.append(Rejected(index, sample_id, str(problem)))
                continue
            if np.min(label) < 0 and split != "train":
                rejected.append(Rejected(index, sample_id, NO_LABEL_TO_EVALUATE, counted=False))
                continue
            row = Row(sample_id, label, split)
            try:
                image = fitted(images[index], spec)
            except BadRow as problem:
                rejected.append(Rejected(index, sample_id, str(problem)))
                rows.append(row._replace(parts=()))
            else:
                rows.append(row)
                pixels.append(image)
    shape = (len(pixels), spec.image_size, spec.image_size, spec.channels)
    return Listed(rows, np.array(pixels, np.uint8).reshape(shape), rejected, total)


def fitted(image: Pixels, spec: "DataSpec") -> Pixels:
    """Return an image of a file, uint8 (H, W) or (H, W, C), as the network sees it; BadRow where it
    is blank.
    """
    pixels = fit(as_image(image), spec.image_size, spec.channels)
    check_not_blank(pixels)
    return pixels


def read_split(file: NpzSite, split: str, label_kind: "LabelKind") -> tuple[Pixels, Labels]:
    """Return the arrays that hold one split: uint8 images (N, H, W) or (N, H, W, 3), int64 labels
    (N,).

    In a multi-label job labels are (N, C) of 0 and 1, and the site file says what each column is.

    Where a site file lists ``indices``, a split without arrays of its own is a part of the training
    images, or of images that have no splits.

    Raises:
        DataError: no such file or arrays, pickled content, other shapes or types, labels of the
            other kind.
    """
    check_places(file)
    prefixes = [f"{split}_", *(() if file.indices is None else ("train_", ""))]
    images, labels = read_arrays(file.file, prefixes, f"site {file.site}, {file.file}, {split}")
    _check_kind(file, split, labels, label_kind)
    return images, labels


def check_layout(file: NpzSite, label_kind: "LabelKind") -> None:
    """Refuse a file that :func:`read_split` would refuse for its labels, without reading an image.

    Raises:
        DataError: it cannot be read, or its labels are of the other kind.
    """
    for name, labels in _labels(file).items():
        _check_kind(file, name.removesuffix("labels").rstrip("_"), _flat(labels), label_kind)


def labels_in(file: NpzSite) -> int:
    """Return how many labels the file holds, of all its splits, whatever their kind; no image is
    read.

    Raises:
        DataError: it is not there, cannot be read, or holds no labels.
    """
    found = _labels(file)
    if found:
        return sum(map(len, found.values()))
    where = f"site {file.site}, {file.file}"
    expected = "an npz file with train_labels or labels"
    raise DataError(
        where, expected=expected, found="none", remedy="Fetch the file again, or name another."
    )


def _labels(file: NpzSite) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of labels in the file, by name."""
    check_places(file)
    try:
        with np.load(file.file, allow_pickle=False) as arrays:
            names = [f"{split}{'_' * bool(split)}labels" for split in (*SPLITS, "")]
            return {name: arrays[name] for name in names if name in arrays}
    except Exception as error:  # as in read_arrays
        where = f"site {file.site}, {file.file}"
        remedy = "Fetch the file again, or name another."
        raise DataError(
            where, expected="an npz file", found=reason_of(error), remedy=remedy
        ) from None


def _flat(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return labels.reshape(-1) if labels.shape[1:] == (1,) else labels


def _check_kind(
    file: NpzSite, split: str, labels: npt.NDArray[Any], label_kind: "LabelKind"
) -> None:
    if label_kind.exclusive != (labels.ndim == 1):
        other = str(label_kind.exclusive).lower()
        raise DataError(
            f"site {file.site}, {file.file}, {split}{'_' * bool(split)}labels",
            f"Use a file of such labels, or set data.multi_label={other} in the job.",
            expected=label_kind.label_shape,
            found=f"{labels.shape}",
        )
    columns = label_kind.columns(labels)
    if columns and set(file.labels) != columns:
        expected = f"the class of each column from 0 to {max(columns)}"
        found = ", ".join(map(str, file.labels))
        remedy = "Leave the name of a column empty where the job has no such class."
        raise DataError(
            f"site {file.site}, field labels", expected=expected, found=found, remedy=remedy
        )


def read_arrays(path: Path, prefixes: Sequence[str], where: str) -> tuple[Pixels, Labels]:
    """Return images and labels, (N,) or (N, C), of the first prefix under which the file has
    images.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            prefix = next((start for start in prefixes if f"{start}images" in arrays), prefixes[0])
            images = arrays[f"{prefix}images"]
            labels = arrays[f"{prefix}labels"]
    except Exception as error:  # broken bytes end in a dozen kinds, from the archive, its compression and the header
        expected = f"an npz file with {prefixes[0]}images and {prefixes[0]}labels"
        remedy = "Fetch the file again, or name another."
        raise DataError(where, expected=expected, found=reason_of(error), remedy=remedy) from None
    pictures = are_pictures(images)
    each = labels.ndim in (1, 2) and labels.shape[:1] == images.shape[:1]
    whole = each and np.issubdtype(labels.dtype, np.integer)
    if not (pictures and whole):
        expected = (
            "uint8 images (N, H, W) or (N, H, W, 1 or 3), and whole-number labels (N,) or (N, C)"
        )
        found = f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
        raise DataError(
            where, expected=expected, found=found, remedy="Use a file of 2D images with labels."
        )
    return images, _flat(labels.astype(np.int64))


def are_pictures(images: npt.NDArray[Any]) -> bool:
    """Return whether an array can be images: uint8 (N, H, W), (N, H, W, 1) or (N, H, W, 3)."""
    shaped = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
    return images.dtype == np.uint8 and shaped


def _wanted(file: NpzSite, split: str, labels: Labels) -> list[int]:
    if file.indices is not None:
        wanted = file.indices.get(split, ())
        if wanted and (
            min(wanted) < 0 or max(wanted) >= len(labels) or len(set(wanted)) < len(wanted)
        ):
            expected = f"different numbers from 0 to {len(labels) - 1}"
            remedy = "Write the site file for this file anew."
            found = f"{len(wanted)} numbers from {min(wanted)} to {max(wanted)}"
            raise DataError(
                f"site {file.site}, field indices.{split}",
                expected=expected,
                found=found,
                remedy=remedy,
            )
        return sorted(wanted)
    if file.share is None:
        return list(range(len(labels)))
    part, parts = file.share
    owner = even_parts(
        [f"{split}-{index}" for index in range(len(labels))], strata(labels), parts, file.split.seed
    )
    return np.flatnonzero(owner == part - 1).tolist()
