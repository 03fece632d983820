"""A site whose data is a file in the MedMNIST layout (Yang et al., 2023): arrays of images and labels by split."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedward.errors import DataError
from fedward.sites.assemble import assemble, check_set_aside
from fedward.sites.data import SPLITS, BadRow, Labels, Pixels, SetAside, SiteData
from fedward.sites.images import check_not_blank, fit
from fedward.sites.site_file import NpzSite
from fedward.sites.split import group_split

if TYPE_CHECKING:
    from fedward.config import DataSpec


class _Picked(NamedTuple):
    """What is used of a split; of the images that are not ``readable`` there are no pixels."""

    indices: list[int]
    labels: list[int]
    readable: list[bool]
    pixels: list[Pixels]
    aside: list[SetAside]
    total: int


def load_npz(file: NpzSite, spec: "DataSpec") -> SiteData:
    """Load the site; see :func:`fedward.sites.load_site`. Sample ids are ``<split>-<index in the file>``."""
    names = class_names(file, spec.classes)
    chosen = {split: _pick(file, split, spec, names, *read_split(file, split)) for split in SPLITS}
    aside = [problem for picked in chosen.values() for problem in picked.aside]
    check_set_aside(
        f"site {file.site}, {file.file}", aside, sum(picked.total for picked in chosen.values()), file.max_set_aside
    )
    pixels = [image for picked in chosen.values() for image in picked.pixels]
    shape = (0, spec.image_size, spec.image_size, spec.channels)
    return assemble(
        file,
        spec.classes,
        ids=[f"{split}-{index}" for split, picked in chosen.items() for index in picked.indices],
        pixels=np.stack(pixels) if pixels else np.zeros(shape, np.uint8),
        labels=np.array([label for picked in chosen.values() for label in picked.labels], np.int64),
        splits=[split for split, picked in chosen.items() for _ in picked.indices],
        readable=np.array([readable for picked in chosen.values() for readable in picked.readable], np.bool_),
        aside=aside,
    )


def read_split(file: NpzSite, split: str) -> tuple[Pixels, Labels]:
    """Return one split: uint8 images (N, H, W) or (N, H, W, 3), int64 labels (N,).

    Raises:
        DataError: no such file or arrays, pickled content, other shapes or types, several labels an image.
    """
    where = f"site {file.site}, {file.file}, {split}"
    try:
        with np.load(file.file, allow_pickle=False) as arrays:
            images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    except Exception as error:  # broken bytes end in a dozen kinds, from the archive, its compression and the header
        expected = f"an npz file with {split}_images and {split}_labels"
        remedy = "Fetch the file again, or fix 'file' in the site file."
        raise DataError(where, expected=expected, found=f"{type(error).__name__}: {error}", remedy=remedy) from None
    pictures = images.dtype == np.uint8 and (images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3)))
    single = labels.shape in ((count := images.shape[:1]), (*count, 1)) and np.issubdtype(labels.dtype, np.integer)
    if not (pictures and single):
        expected = "uint8 images (N, H, W) or (N, H, W, 1 or 3) with one whole-number label each"
        found = f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
        raise DataError(where, expected=expected, found=found, remedy="Use a file of single-label 2D images.")
    return images, labels.reshape(-1).astype(np.int64)


def class_names(file: NpzSite, classes: Sequence[str]) -> dict[int, str]:
    """Return the class of each number in the file; raise DataError where a named one is not among the job's."""
    names = file.labels or dict(enumerate(classes))
    unknown = sorted(set(names.values()) - set(classes))
    if unknown:
        expected = f"classes of the job ({', '.join(classes)})"
        remedy = "Map the file's numbers to these classes."
        raise DataError(f"site {file.site}, field labels", expected=expected, found=", ".join(unknown), remedy=remedy)
    return names


def _pick(
    file: NpzSite, split: str, spec: "DataSpec", names: dict[int, str], images: Pixels, labels: Labels
) -> _Picked:
    picked = _Picked([], [], [], [], [], len(wanted := _wanted(file, split, labels)))
    for index in wanted:
        number = int(labels[index])
        if number not in names:
            reason = f"expected a label among {sorted(names)}, found {number}"
            picked.aside.append(SetAside(index, f"{split}-{index}", reason))
            continue
        pixels = fit(Image.fromarray(_plain(images[index])), spec.image_size, spec.channels)
        picked.indices.append(index)
        picked.labels.append(spec.classes.index(names[number]))
        try:
            check_not_blank(pixels)
        except BadRow as problem:
            picked.aside.append(SetAside(index, f"{split}-{index}", str(problem)))
            picked.readable.append(False)
        else:
            picked.readable.append(True)
            picked.pixels.append(pixels)
    return picked


def _plain(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image


def _wanted(file: NpzSite, split: str, labels: Labels) -> list[int]:
    if file.indices is not None:
        wanted: tuple[int, ...] = getattr(file.indices, split)
        if wanted and (min(wanted) < 0 or max(wanted) >= len(labels) or len(set(wanted)) < len(wanted)):
            raise DataError(
                f"site {file.site}, field indices.{split}",
                expected=f"different numbers from 0 to {len(labels) - 1}",
                found=f"{len(wanted)} numbers from {min(wanted)} to {max(wanted)}",
                remedy="Write the site file again for this npz file.",
            )
        return sorted(wanted)
    if file.share is None:
        return list(range(len(labels)))
    part, parts = file.share
    mine = group_split([f"{split}-{i}" for i in range(len(labels))], labels, [1 / parts] * parts, file.split.seed)
    return [int(index) for index in np.flatnonzero(mine == part - 1)]
