"""A site whose data is a file in the MedMNIST layout (Yang et al., 2023): arrays of images and labels by split."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError, reason_of
from fedward.sites.data import NO_LABEL_TO_EVALUATE, SPLITS, Labels, Listed, Rejected, Row
from fedward.sites.decoding import BadRow, Pixels, as_image, check_not_blank, fit
from fedward.sites.site_file import NpzSite
from fedward.sites.split import even_parts

if TYPE_CHECKING:
    from fedward.config import DataSpec


def load_npz(file: NpzSite, spec: "DataSpec") -> Listed:
    """Read the site's images; see :func:`fedward.sites.load_site`. Sample ids are ``<split>-<index in the file>``."""
    rows: list[Row] = []
    pixels: list[Pixels] = []
    rejected: list[Rejected] = []
    total = 0
    for split in SPLITS if file.indices is None else [name for name in SPLITS if file.indices.get(name)]:
        images, labels = read_split(file, split)
        wanted = _wanted(file, split, labels)
        total += len(wanted)
        for index in wanted:
            sample_id, number = f"{split}-{index}", int(labels[index])
            if number not in file.labels:
                reason = f"expected a label among {sorted(file.labels)}, found {number}"
                rejected.append(Rejected(index, sample_id, reason))
                continue
            label = spec.classes.index(file.labels[number]) if file.labels[number] else -1
            if label < 0 and split != "train":
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
    """Return an image of a file, uint8 (H, W) or (H, W, C), as the network sees it; BadRow where it is blank."""
    pixels = fit(as_image(image), spec.image_size, spec.channels)
    check_not_blank(pixels)
    return pixels


def read_split(file: NpzSite, split: str) -> tuple[Pixels, Labels]:
    """Return the arrays that hold one split: uint8 images (N, H, W) or (N, H, W, 3), int64 labels (N,).

    Where a site file lists ``indices``, a split without arrays of its own is a part of the training images, or of
    images that have no splits.

    Raises:
        DataError: no such file or arrays, pickled content, other shapes or types, several labels an image.
    """
    prefixes = [f"{split}_", *(() if file.indices is None else ("train_", ""))]
    return read_arrays(file.file, prefixes, f"site {file.site}, {file.file}, {split}")


def read_arrays(path: Path, prefixes: Sequence[str], where: str) -> tuple[Pixels, Labels]:
    """Return images and labels as :func:`read_split`, of the first prefix under which the file has images."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            prefix = next((start for start in prefixes if f"{start}images" in arrays), prefixes[0])
            images, labels = arrays[f"{prefix}images"], arrays[f"{prefix}labels"]
    except Exception as error:  # broken bytes end in a dozen kinds, from the archive, its compression and the header
        expected = f"an npz file with {prefixes[0]}images and {prefixes[0]}labels"
        remedy = "Fetch the file again, or name another."
        raise DataError(where, expected=expected, found=reason_of(error), remedy=remedy) from None
    pictures = are_pictures(images)
    single = labels.shape in ((count := images.shape[:1]), (*count, 1)) and np.issubdtype(labels.dtype, np.integer)
    if not (pictures and single):
        expected = "uint8 images (N, H, W) or (N, H, W, 1 or 3) with one whole-number label each"
        found = f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
        raise DataError(where, expected=expected, found=found, remedy="Use a file of single-label 2D images.")
    return images, labels.reshape(-1).astype(np.int64)


def are_pictures(images: npt.NDArray[Any]) -> bool:
    """Return whether an array can be images: uint8 (N, H, W), (N, H, W, 1) or (N, H, W, 3)."""
    shaped = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
    return images.dtype == np.uint8 and shaped


def _wanted(file: NpzSite, split: str, labels: Labels) -> list[int]:
    if file.indices is not None:
        wanted = file.indices.get(split, ())
        if wanted and (min(wanted) < 0 or max(wanted) >= len(labels) or len(set(wanted)) < len(wanted)):
            expected, remedy = (
                f"different numbers from 0 to {len(labels) - 1}",
                "Write the site file for this file anew.",
            )
            found = f"{len(wanted)} numbers from {min(wanted)} to {max(wanted)}"
            raise DataError(f"site {file.site}, field indices.{split}", expected=expected, found=found, remedy=remedy)
        return sorted(wanted)
    if file.share is None:
        return list(range(len(labels)))
    part, parts = file.share
    owner = even_parts([f"{split}-{index}" for index in range(len(labels))], labels, parts, file.split.seed)
    return np.flatnonzero(owner == part - 1).tolist()
