"""A site whose data is a file in the MedMNIST layout (Yang et al., 2023): arrays by split."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedward.errors import DataError, FedwardError, together
from fedward.labels import Labels
from fedward.sites.data import NO_LABEL_TO_EVALUATE, SPLITS, Listed, Rejected, Row
from fedward.sites.decoding import BadRow, Fit, Pixels, as_image, check_not_blank, fit
from fedward.sites.site_file import NpzSite, check_places
from fedward.sites.stored_images import (
    ImagesOnDisk,
    JoinedImages,
    StoredArray,
    StoredImages,
    array_names,
    refusing_broken_bytes,
)
from fedward.text import count

if TYPE_CHECKING:
    from fedward.config import DataSpec
    from fedward.label_kinds import LabelKind


_MOST_SEARCHED = 2**24
"""Numbers of an array that are searched for NaN at most."""
_MOST_IMAGES = 2**20
"""Images of an array at most: a small file may hold any number of tiny ones.

The largest set of MedMNIST has 236,386 images.
"""
_MOST_LABELS = 2**24
"""Numbers of an array of labels at most: 16 for each of so many images."""


def load_npz(file: NpzSite, spec: "DataSpec") -> Listed:
    """Read the site's images; see :func:`fedward.sites.load_site`.

    Sample ids are those of :func:`site_images`.
    """
    arrays = _used_arrays(file, spec.label_kind)
    wanted = _wanted(file, arrays)
    total = sum(map(len, wanted.values()))
    # All of them at once: there is no memory for a second copy of a large file's images.
    pixels = np.empty((total, spec.image_size, spec.image_size, spec.channels), np.uint8)
    rows: list[Row] = []
    rejected: list[Rejected] = []
    count_read = 0
    for split, (images, labels) in arrays.items():
        usable, unusable = _labelled_rows(file, split, wanted[split], labels, spec)
        for (index, row), image in zip(usable.items(), images.read(usable), strict=True):
            try:
                pixels[count_read] = fitted(image, spec, file.fit)
            except BadRow as problem:
                unusable.append(Rejected(index, row.sample_id, str(problem)))
                rows.append(row._replace(parts=()))
            else:
                rows.append(row)
                count_read += 1
        rejected += sorted(unusable, key=lambda row: row.row)
    return Listed(rows, pixels[:count_read], rejected, total)


def site_images(
    file: NpzSite, label_kind: "LabelKind"
) -> Iterator[tuple[ImagesOnDisk, dict[int, str]]]:
    """Yield for each split the arrays that hold it, and index -> sample id of the site's images.

    Indices ascend. Sample ids are ``SPLIT-INDEX``, by the index in the file; ``image-INDEX`` where
    a site's splits are other ones than the file's.

    Raises:
        DataError: the arrays of some splits cannot be used, or an index of the site file is wrong.
    """
    arrays = _used_arrays(file, label_kind)
    for split, indices in _wanted(file, arrays).items():
        images, _ = arrays[split]
        yield images, {index: _sample_id(file, split, index) for index in indices}


def _sample_id(file: NpzSite, split: str, index: int) -> str:
    """Return the id of an image; see :func:`site_images`."""
    return f"{'image' if file.joined else split}-{index}"


def usable_rows(file: NpzSite, spec: "DataSpec") -> list[Row]:
    """Return the rows of the site whose labels can be used, without reading an image.

    :func:`load_npz` returns the same rows, and names no part of those whose images are blank.

    Raises:
        DataError: the arrays of some splits cannot be used, or an index of the site file is wrong.
    """
    rows: list[Row] = []
    arrays = _used_arrays(file, spec.label_kind)
    for split, indices in _wanted(file, arrays).items():
        _, labels = arrays[split]
        usable, _ = _labelled_rows(file, split, indices, labels, spec)
        rows += usable.values()
    return rows


def _used_arrays(file: NpzSite, label_kind: "LabelKind") -> dict[str, tuple[ImagesOnDisk, Labels]]:
    """Return split -> the arrays that hold it, for the splits of which the site has images.

    They are uint8 images (N, H, W[, 3]) and int64 labels (N,). In a multi-label job labels are
    (N, C) of 0 and 1, and the site file says what each column is.

    Raises:
        DataError: the file or the arrays are missing, pickled, of other shapes or types, or have
            labels of the other kind; the text has all that is wrong, each fault once.
    """
    check_places(file)
    splits = _used_splits(file)
    if file.joined:
        return dict.fromkeys(splits, _read_all(file, label_kind))
    with refusing_broken_bytes(f"site {file.site}, {file.file}", "an npz file"):
        present = array_names(file.file)
    prefixes = {split: _prefix(file, split, present) for split in splits}
    arrays = {}
    faults: list[FedwardError] = []
    for prefix in dict.fromkeys(prefixes.values()):
        try:
            arrays[prefix] = _read(file, prefix, label_kind)
        except DataError as error:
            faults.append(error)
    if faults:
        raise together(faults)
    return {split: arrays[prefix] for split, prefix in prefixes.items()}


def _labelled_rows(
    file: NpzSite, split: str, wanted: Sequence[int], labels: Labels, spec: "DataSpec"
) -> tuple[dict[int, Row], list[Rejected]]:
    """Return index -> row of the images whose labels can be used, and the others."""
    usable: dict[int, Row] = {}
    unusable: list[Rejected] = []
    for index in wanted:
        sample_id = _sample_id(file, split, index)
        try:
            label = spec.label_kind.encode_numbers(labels[index], file.labels, spec.classes)
        except BadRow as problem:
            unusable.append(Rejected(index, sample_id, str(problem)))
            continue
        if np.min(label) < 0 and split != "train":
            unusable.append(Rejected(index, sample_id, NO_LABEL_TO_EVALUATE, counted=False))
            continue
        usable[index] = Row(sample_id, label, split)
    return usable, unusable


def _used_splits(file: NpzSite) -> list[str]:
    """Return the splits of which the site has images."""
    if file.indices is None:
        return list(SPLITS)
    return [name for name in SPLITS if file.indices.get(name)]


def fitted(image: Pixels, spec: "DataSpec", how: Fit) -> Pixels:
    """Return an image of a file as the network sees it.

    Args:
        image: uint8 (H, W) or (H, W, C).
        spec: what the job says of its images.
        how: how a picture becomes a square.

    Raises:
        BadRow: the image is blank.
    """
    pixels = fit(as_image(image), spec.image_size, spec.channels, how)
    check_not_blank(pixels)
    return pixels


def _prefix(file: NpzSite, split: str, present: frozenset[str]) -> str:
    """Return how the names of the arrays that hold a split begin.

    Where a site file lists ``indices``, a split without arrays of its own is a part of the training
    images, or of images that have no splits. ``present``: names of the file's arrays.
    """
    own = f"{split}_"
    prefixes = [own]
    if file.indices is not None:
        prefixes += ["train_", ""]
    return next((prefix for prefix in prefixes if f"{prefix}images" in present), own)


def _read(file: NpzSite, prefix: str, label_kind: "LabelKind") -> tuple[StoredImages, Labels]:
    """Return the arrays whose names begin with ``prefix``; DataError if they cannot be used."""
    where = f"site {file.site}, {file.file}"
    if prefix:
        where = f"{where}, {prefix.rstrip('_')}"
    images, labels = read_arrays(file.file, prefix, where)
    labels = _in_kind(labels, label_kind)
    _check_kind(file, f"{prefix}labels", labels, label_kind)
    return images, labels


def _read_all(file: NpzSite, label_kind: "LabelKind") -> tuple[JoinedImages, Labels]:
    """Return the arrays of all the file's splits, one after the other."""
    parts = []
    faults: list[FedwardError] = []
    for name in _labels(file):
        try:
            parts.append(_read(file, name.removesuffix("labels"), label_kind))
        except DataError as error:
            faults.append(error)
    if faults:
        raise together(faults)
    images_of_splits, labels_of_splits = zip(*parts, strict=True)
    return JoinedImages(images_of_splits, f"{file.file}"), np.concatenate(labels_of_splits)


def is_one_hot(labels: Labels) -> bool:
    """Return whether each row of labels (N, C) has one 1 beside zeros, as exclusive classes have.

    A single column, or no row, says nothing.
    """
    if labels.ndim != 2 or labels.shape[1] < 2 or not len(labels):
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(axis=1) == 1).all())


def _in_kind(labels: Labels, label_kind: "LabelKind") -> Labels:
    """Return one-hot labels (N, C) as (N,) where an image has one label, and others as they are."""
    return labels.argmax(axis=1) if label_kind.exclusive and is_one_hot(labels) else labels


def check_layout(file: NpzSite, label_kind: "LabelKind") -> None:
    """Refuse a file that :func:`load_npz` would refuse, without reading an image.

    Raises:
        DataError: its arrays cannot be read, or do not fit each other or the job, and the text has
            all that is wrong; or an index of the site file is wrong.
    """
    _wanted(file, _used_arrays(file, label_kind))


def labels_in(file: NpzSite) -> int:
    """Return how many labels of all splits the file holds, without reading an image.

    Raises:
        DataError: the file is missing, cannot be read, or holds no labels.
    """
    return sum(map(len, _labels(file).values()))


def _labels(file: NpzSite) -> dict[str, StoredArray]:
    """Return the arrays of labels in the file, by name; only their headers are read.

    Raises:
        DataError: the file is missing, cannot be read, or holds no labels.
    """
    check_places(file)
    names = [*(f"{split}_labels" for split in SPLITS), "labels"]
    with refusing_broken_bytes(f"site {file.site}, {file.file}", "an npz file"):
        present = array_names(file.file)
        arrays = {
            name: StoredArray(file.file, name, f"{file.file}") for name in names if name in present
        }
    if not arrays:
        raise DataError(
            f"site {file.site}, {file.file}",
            "Fetch the file again, or name another.",
            expected="an npz file with train_labels or labels",
            found="none",
        )
    return arrays


def _flat(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels (N, 1) as (N,), and others as they are."""
    return labels.reshape(-1) if labels.shape[1:] == (1,) else labels


def _check_kind(
    file: NpzSite, name: str, labels: npt.NDArray[Any], label_kind: "LabelKind"
) -> None:
    """Refuse labels of the other kind, and columns that the site file does not name.

    ``name``: of the array of labels.
    """
    if label_kind.exclusive != (labels.ndim == 1):
        other = str(label_kind.exclusive).lower()
        raise DataError(
            f"site {file.site}, {file.file}, {name}",
            f"Use a file of such labels, or set data.multi_label={other} in the job.",
            expected=label_kind.label_shape,
            found=f"{labels.shape}",
        )
    columns = label_kind.columns(labels)
    if columns and set(file.labels) != columns:
        raise DataError(
            f"site {file.site}, field labels",
            "Leave the name of a column empty where the job has no such class.",
            expected=f"the class of each column from 0 to {max(columns)}",
            found=", ".join(map(str, file.labels)),
        )


def read_arrays(path: Path, prefix: str, where: str) -> tuple[StoredImages, Labels]:
    """Return images, and labels (N,) or (N, C), of the arrays whose names begin with ``prefix``.

    The images themselves are not read yet.

    Args:
        path: of the npz file.
        prefix: such as ``train_``; empty for ``images`` and ``labels``.
        where: for messages.

    Raises:
        DataError: the file cannot be read, or has other arrays.
    """
    with refusing_broken_bytes(where, f"an npz file with {prefix}images and {prefix}labels"):
        present = array_names(path)
        names = [f"{prefix}images", f"{prefix}labels"]
        missing = [name for name in names if name not in present]
        images = None if names[0] in missing else StoredImages(path, names[0], where)
        stored = None if names[1] in missing else StoredArray(path, names[1], where)
        faults = [f"no array {name}" for name in missing]
        if images is not None:
            faults += _picture_faults(images)
        if stored is not None:
            faults += _label_faults(stored)
        if images is not None and stored is not None and stored.shape[:1] != images.shape[:1]:
            labelled = count(len(stored), "label") if stored.shape else "no labels"
            faults.append(f"{count(len(images), 'image')} and {labelled}")
        labels = None if faults or stored is None else stored.whole()
    if faults or images is None or labels is None:
        raise DataError(
            where,
            "Use a file of 2D images with labels, or write these arrays again.",
            expected="uint8 images (N, H, W) or (N, H, W, 1 or 3), and whole-number labels (N,) or "
            "(N, C)",
            found="; ".join(faults),
        )
    return images, _flat(labels.astype(np.int64))


def _picture_faults(images: StoredImages) -> list[str]:
    """Return what is wrong with an array that should hold pictures."""
    if are_pictures(images):
        return []
    found = f"images {_described(images)}"
    limit = _limit(images) if _shaped(images) else ""
    if limit:
        return [f"{found} ({limit})"]
    if not np.issubdtype(images.dtype, np.floating) or not 0 < images.size <= _MOST_SEARCHED:
        return [found]
    values = images.whole().reshape(len(images), -1)
    broken = int(np.count_nonzero(~np.isfinite(values).all(axis=1)))
    if broken:
        found += f", of which {count(broken, 'image')} with NaN or infinity"
    return [found]


def _label_faults(labels: StoredArray) -> list[str]:
    """Return what is wrong with an array that should hold labels."""
    found = f"labels {_described(labels)}"
    if labels.size > _MOST_LABELS:
        return [f"{found}, where {_MOST_LABELS} numbers are read at most"]
    if len(labels.shape) in (1, 2) and np.issubdtype(labels.dtype, np.integer):
        return []
    if np.issubdtype(labels.dtype, np.floating):
        missing = int(np.count_nonzero(np.isnan(labels.whole())))
        if missing:
            found += f", of which {missing} are NaN"
    return [found]


def are_pictures(images: StoredImages) -> bool:
    """Return whether an array can be images: uint8 (N, H, W), (N, H, W, 1) or (N, H, W, 3).

    Their number is limited, and their pixels as for image files (Pillow's limit).
    """
    return images.dtype == np.uint8 and _shaped(images) and not _limit(images)


def _shaped(images: StoredArray) -> bool:
    """Return whether an array has the dimensions of pictures."""
    dimensions = len(images.shape)
    return dimensions == 3 or (dimensions == 4 and images.shape[3] in (1, 3))


def _limit(images: StoredArray) -> str:
    """Return the limit that an array with the dimensions of pictures exceeds; empty: none."""
    _, height, width = images.shape[:3]
    most_pixels = Image.MAX_IMAGE_PIXELS or math.inf
    if not 0 < height * width <= most_pixels:
        return f"1 to {most_pixels} pixels an image"
    if len(images) > _MOST_IMAGES:
        return f"at most {_MOST_IMAGES} images: write some as image files with a CSV"
    return ""


def _described(array: StoredArray) -> str:
    """Return type and shape of an array."""
    kind = "pickled objects" if array.dtype.hasobject else f"{array.dtype}"
    return f"{kind} {array.shape}"


def _wanted(
    file: NpzSite, arrays: Mapping[str, tuple[ImagesOnDisk, Labels]]
) -> dict[str, list[int]]:
    """Return split -> indices of the site's images in its arrays.

    Raises:
        DataError: an index is listed twice, also in two splits of the same array, or is that of no
            image.
    """
    wanted: dict[str, list[int]] = {}
    split_of: dict[tuple[str, int], str] = {}
    """Name of an array and an index in it -> the split that it is in."""
    for split, (images, labels) in arrays.items():
        if file.indices is None:
            wanted[split] = list(range(len(labels)))
            continue
        wanted[split] = _checked_indices(file, split, len(labels))
        array = images.name if isinstance(images, StoredImages) else ""
        for index in wanted[split]:
            other = split_of.setdefault((array, index), split)
            if other != split:
                raise DataError(
                    f"site {file.site}, field indices.{split}",
                    "Leave each index in one split: results on known images say nothing about new "
                    "ones.",
                    expected=f"other images than those of {other}",
                    found=f"{index} in both",
                )
    return wanted


def _checked_indices(file: NpzSite, split: str, images: int) -> list[int]:
    """Return the indices that a site file lists, sorted."""
    indices = sorted((file.indices or {}).get(split, ()))
    if not indices:
        return []
    different = len(set(indices)) == len(indices)
    if indices[0] < 0 or indices[-1] >= images or not different:
        raise DataError(
            f"site {file.site}, field indices.{split}",
            "Write the site file for this file again.",
            expected=f"different numbers from 0 to {images - 1}",
            found=f"{len(indices)} numbers from {indices[0]} to {indices[-1]}",
        )
    return indices
