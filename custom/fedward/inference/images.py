"""The images that a model is asked about: a folder, a CSV, one file or an npz file, read as a site
reads its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedward.config import DataSpec
from fedward.errors import DataError, reason_of
from fedward.sites.data import SPLITS
from fedward.sites.decoding import BadRow, Pixels
from fedward.sites.files import files_below, is_image, locate, volumes_in
from fedward.sites.image_list import ImageFinder, columns_by_purpose, read_image_list
from fedward.sites.images import decode_files
from fedward.sites.npz import are_pictures, fitted
from fedward.sites.rendering import PLAIN, Rendering

_BLOCK = 256
"""Files in memory at a time, where each is one image."""
_FEW = 16
"""Where they may be several."""


class Block(NamedTuple):
    """N files that follow each other, or images of an array."""

    names: Sequence[str]
    """Of all N."""
    pixels: Pixels
    """uint8 (M, size, size, channels) of the M images in those that can be used, in their order."""
    failed: Mapping[int, str]
    """Place of each other one among the N -> why it cannot be used."""
    counts: Sequence[int]
    """N numbers of images, which are 0 where it cannot be used."""


class Asked(NamedTuple):
    """The images that are asked about."""

    blocks: Iterator[Block]
    others: int
    """Files of a folder that are left out, as their endings are not those of images."""


class _Listed(NamedTuple):
    name: str
    path: Path
    problem: str = ""
    """Why the path leads to no image; empty where it may."""


def images_at(
    source: Path,
    spec: DataSpec,
    columns: Mapping[str, str],
    folder: Path | None = None,
    rendering: Rendering = PLAIN,
) -> Asked:
    """Return the images at a place, in its order, read block by block as they are asked for.

    Args:
        source: a folder, whose images may lie below it too, or that of a DICOM series; a CSV with a
            row for each image; an npz file with ``images``, or MedMNIST's ``train_images`` and so
            on; or one image file.
        spec: image size and channels.
        columns: ``image`` -> the CSV's column of the image files, by default found by well-known
            names.
        folder: of the images that a CSV lists, by default its own.
        rendering: how files become images.

    An image is named by its path in the folder, by its cell in the CSV, or as ``test-17`` in an npz
    file.

    Raises:
        DataError: nothing there, no images in it, or a CSV or npz file that cannot be read.
        ConfigError: a column that the CSV has not.
    """
    if source.suffix.lower() == ".npz":
        return Asked(_of_arrays(_arrays(source), spec), 0)
    others = 0
    if source.is_dir():
        files = files_below(source)
        if rendering.slices:
            files = volumes_in(files)
        listed = [
            _located(source, path.relative_to(source).as_posix())
            for path in files
            if is_image(path)
        ]
        others = len(files) - len(listed)
    elif source.suffix.lower() in (".csv", ".tsv", ".txt"):
        listed = _rows(source, columns, folder or source.parent)
    elif source.is_file() and is_image(source):
        listed = [_Listed(source.name, source)]
    else:
        listed = []
    if not listed:
        found = (
            f"{others} files that are none"
            if others
            else "none"
            if source.exists()
            else "nothing there"
        )
        remedy = "Name a folder, a CSV, an npz file or an image."
        raise DataError(f"{source}", expected="images", found=found, remedy=remedy)
    return Asked(_of_files(listed, spec, rendering), others)


def _located(folder: Path, name: str) -> _Listed:
    shown = folder.resolve().name if name == "." else name
    try:
        return _Listed(shown, locate(folder, name))
    except BadRow as problem:
        return _Listed(shown, folder, str(problem))


def _rows(path: Path, columns: Mapping[str, str], folder: Path) -> list[_Listed]:
    """Return a CSV's rows in its order, those included that are malformed or whose images cannot be
    found.
    """
    records, malformed, header = read_image_list(path)
    column = columns_by_purpose(path, header, columns)["image"]
    finder = ImageFinder(folder)
    found = {
        row.row: _Listed(row.sample_id or f"line {row.row}", path, row.reason) for row in malformed
    }
    for record in records:
        name = record.cells[column]
        try:
            found[record.line] = _Listed(name, locate(folder, finder.find(name)))
        except BadRow as problem:
            found[record.line] = _Listed(name or f"line {record.line}", path, str(problem))
    return [row for _, row in sorted(found.items())]


def _of_files(listed: Sequence[_Listed], spec: DataSpec, rendering: Rendering) -> Iterator[Block]:
    step = _FEW if rendering.several else _BLOCK
    for start in range(0, len(listed), step):
        block = listed[start : start + step]
        there = [place for place, each in enumerate(block) if not each.problem]
        paths = [block[place].path for place in there]
        pixels, unread, parts = decode_files(
            paths, spec.image_size, spec.channels, None, "", rendering
        )
        failed = {place: each.problem for place, each in enumerate(block) if each.problem}
        failed |= {there[index]: reason for index, reason in unread.items()}
        counts = dict(zip(there, map(len, parts), strict=True))
        yield Block(
            [each.name for each in block],
            pixels,
            failed,
            [counts.get(place, 0) for place in range(len(block))],
        )


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of images in an npz file, by split; that of a file without splits has the
    name ``image``.
    """
    names = {**{f"{split}_images": split for split in SPLITS}, "images": "image"}
    where = f"{path}"
    remedy = "Fetch the file again, or name another."
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {split: file[name] for name, split in names.items() if name in file}
    except Exception as error:  # broken bytes end in a dozen kinds, from the archive, its compression and the header
        raise DataError(
            where, expected="an npz file of images", found=reason_of(error), remedy=remedy
        ) from None
    wrong = [f"{array.dtype} {array.shape}" for array in arrays.values() if not are_pictures(array)]
    if wrong or not any(map(len, arrays.values())):
        expected = "uint8 images (N, H, W) or (N, H, W, 1 or 3)"
        found = ", ".join(wrong) or "none"
        raise DataError(where, expected=expected, found=found, remedy=remedy)
    return arrays


def _of_arrays(arrays: Mapping[str, npt.NDArray[Any]], spec: DataSpec) -> Iterator[Block]:
    for split, images in arrays.items():
        for start in range(0, len(images), _BLOCK):
            block = images[start : start + _BLOCK]
            good = list[Pixels]()
            failed = dict[int, str]()
            for place, image in enumerate(block):
                try:
                    good.append(fitted(image, spec))
                except BadRow as problem:
                    failed[place] = str(problem)
            shape = (len(good), spec.image_size, spec.image_size, spec.channels)
            pixels = np.array(good, np.uint8).reshape(shape)
            names = [f"{split}-{start + place}" for place in range(len(block))]
            yield Block(
                names, pixels, failed, [int(place not in failed) for place in range(len(block))]
            )
