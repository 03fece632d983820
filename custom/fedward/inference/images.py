"""The images that a model is asked about: a folder, a CSV, one file or an npz file."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedward.config import DataSpec
from fedward.errors import DataError, reason_of
from fedward.sites.any_csv import read_image_list
from fedward.sites.data import SPLITS
from fedward.sites.decoding import BadRow, Fit, Pixels
from fedward.sites.files import (
    LeftOut,
    conversion,
    conversions,
    is_image,
    locate,
    no_file,
    volumes_in,
)
from fedward.sites.image_columns import image_column
from fedward.sites.image_paths import ImageFinder
from fedward.sites.images import decode_files
from fedward.sites.npz import are_pictures, fitted
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.stored_images import StoredImages
from fedward.text import count

_BLOCK = 256
"""Files in memory at a time, if each is one image."""
_FEW = 16
"""Files in memory at a time, if each may be several images."""


class Block(NamedTuple):
    """N consecutive files, or images of an array."""

    names: Sequence[str]
    """Names of all N."""
    pixels: Pixels
    """uint8 (M, size, size, channels) of the M images in usable files, in their order."""
    failed: Mapping[int, str]
    """Place among the N of a file that cannot be used -> the reason."""
    counts: Sequence[int]
    """Number of images in each of the N; 0 if it cannot be used."""


class Asked(NamedTuple):
    """The images that are asked about."""

    blocks: Iterator[Block]
    left_out: LeftOut
    """Files of a folder that are omitted because they are not images."""
    notes: Sequence[str] = ()
    """How images of a CSV were found whose paths are not written as they are."""


class _Listed(NamedTuple):
    """A file that is asked about."""

    name: str
    path: Path
    problem: str = ""
    """Why the path does not lead to an image; empty if it may."""


def images_at(
    source: Path,
    spec: DataSpec,
    columns: Mapping[str, str],
    folder: Path | None = None,
    rendering: Rendering = PLAIN,
) -> Asked:
    """Return the images at a place, in its order; they are read block by block when needed.

    An image is named by its path in the folder, by its cell in the CSV, or as ``test-17`` in an npz
    file.

    Args:
        source: a folder with images in it or in its sub-folders, or the folder of a DICOM series; a
            CSV with a row for each image; an npz file with ``images``, or MedMNIST's
            ``train_images`` and so on; or one image file.
        spec: image size and channels.
        columns: ``image`` -> the CSV's column of image files; by default it is found by well-known
            names.
        folder: of the images that a CSV lists; by default the CSV's.
        rendering: how files become images.

    Raises:
        DataError: there is nothing, there are no images, or a CSV or npz file cannot be read.
        ConfigError: the CSV does not have a named column.
    """
    if no_file(source):
        raise _without_images(source, LeftOut())
    if source.suffix.lower() == ".npz":
        return Asked(_of_arrays(_arrays(source), spec, rendering.fit), LeftOut())
    left_out = LeftOut()
    notes: list[str] = []
    listed: list[_Listed] = []
    if source.is_dir():
        files = left_out.files_below(source)
        if rendering.slices:
            files = volumes_in(files)
        for path in left_out.images(files):
            listed.append(_located(source, path.relative_to(source).as_posix()))
    elif source.suffix.lower() in (".csv", ".tsv", ".txt"):
        finder = ImageFinder(folder or source.parent)
        listed = _rows(source, columns, finder)
        notes = finder.notes()
    elif source.is_file() and is_image(source):
        listed = [_Listed(source.name, source)]
    if not listed:
        raise _without_images(source, left_out)
    return Asked(_of_files(listed, spec, rendering), left_out, notes)


def _without_images(source: Path, left_out: LeftOut) -> DataError:
    """Return the error about a place without images."""
    if left_out.total:
        content = f"{count(left_out.total, 'file')} of kinds that are not read"
    elif source.is_file() and conversion(source):
        content = "a file of a kind that is not read"
    elif source.exists():
        content = no_file(source) or "none"
    else:
        content = "nothing there"
    ways = conversions(left_out.reasons or [source])
    return DataError(
        f"{source}",
        f"{ways} Name a folder, a CSV, an npz file or an image.".lstrip(),
        expected="images",
        found=content,
    )


def _located(folder: Path, name: str) -> _Listed:
    """Return a file of a folder, with the reason if it may not be read."""
    shown = folder.resolve().name if name == "." else name
    try:
        return _Listed(shown, locate(folder, name))
    except BadRow as problem:
        return _Listed(shown, folder, str(problem))


def _rows(path: Path, columns: Mapping[str, str], finder: ImageFinder) -> list[_Listed]:
    """Return all rows of a CSV in its order, also those that are malformed or have no image."""
    records, malformed, header = read_image_list(path)
    column = image_column(path, finder.folder, header, records, columns)
    by_line: dict[int, _Listed] = {}
    for row in malformed:
        by_line[row.row] = _Listed(row.sample_id or f"line {row.row}", path, row.reason)
    for record in records:
        name = record.cells[column]
        try:
            by_line[record.line] = _Listed(name, finder.folder / finder.find(name))
        except BadRow as problem:
            by_line[record.line] = _Listed(name or f"line {record.line}", path, str(problem))
    return [by_line[line] for line in sorted(by_line)]


def _of_files(listed: Sequence[_Listed], spec: DataSpec, rendering: Rendering) -> Iterator[Block]:
    """Yield files block by block."""
    step = _FEW if rendering.several else _BLOCK
    for start in range(0, len(listed), step):
        files = listed[start : start + step]
        places = [place for place, file in enumerate(files) if not file.problem]
        paths = [files[place].path for place in places]
        decoded = decode_files(paths, spec.image_size, spec.channels, None, "", rendering)
        failed = {place: file.problem for place, file in enumerate(files) if file.problem}
        for index, failure in decoded.failed.items():
            failed[places[index]] = failure.reason
        counts = [0] * len(files)
        for place, parts in zip(places, decoded.parts, strict=True):
            counts[place] = len(parts)
        yield Block([file.name for file in files], decoded.pixels, failed, counts)


def _arrays(path: Path) -> dict[str, StoredImages]:
    """Return the arrays of images in an npz file, by split, or ``image`` without splits."""
    names = {f"{split}_images": split for split in SPLITS}
    names["images"] = "image"
    remedy = "Fetch the file again, or name another."
    try:
        with np.load(path, allow_pickle=False) as file:
            present = [name for name in names if name in file]
        arrays = {names[name]: StoredImages(path, name, f"{path}, {name}") for name in present}
    except Exception as error:
        # Broken bytes fail in a dozen ways: in the archive, its compression, or a header.
        raise DataError(
            f"{path}", remedy, expected="an npz file of images", found=reason_of(error)
        ) from None
    wrong = [f"{array.dtype} {array.shape}" for array in arrays.values() if not are_pictures(array)]
    if wrong or not any(map(len, arrays.values())):
        raise DataError(
            f"{path}",
            remedy,
            expected="uint8 images (N, H, W) or (N, H, W, 1 or 3)",
            found=", ".join(wrong) or "none",
        )
    return arrays


def _of_arrays(arrays: Mapping[str, StoredImages], spec: DataSpec, how: Fit) -> Iterator[Block]:
    """Yield images of arrays block by block."""
    for split, images in arrays.items():
        pictures = images.read(range(len(images)))
        for start in range(0, len(images), _BLOCK):
            names = []
            usable = list[Pixels]()
            failed = dict[int, str]()
            counts = []
            for place, image in enumerate(islice(pictures, _BLOCK)):
                names.append(f"{split}-{start + place}")
                try:
                    usable.append(fitted(image, spec, how))
                    counts.append(1)
                except BadRow as problem:
                    failed[place] = str(problem)
                    counts.append(0)
            shape = (len(usable), spec.image_size, spec.image_size, spec.channels)
            pixels = np.array(usable, np.uint8).reshape(shape)
            yield Block(names, pixels, failed, counts)
