"""Image files to uint8 arrays: decoded once, resized, cached on disk, and opened as a memmap ever after."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from fedward import private
from fedward.errors import DataError
from fedward.sites import caches
from fedward.sites.decoding import BadRow, Pixels, Unreadable, decode, fit, is_blank, open_image
from fedward.sites.dicom import is_dicom, open_frames
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.volumes import is_volume, open_slices

_FORMAT = 4  # of the cache: raise it when the same file would give other pixels
_THREADS = 4


class Decoded(NamedTuple):
    """The images of many files."""

    pixels: Pixels
    """uint8 (M, size, size, channels), in the order of the files; a read-only memmap if cached."""
    failed: dict[int, str]
    """Index of a file that gave none -> the reason."""
    parts: list[list[str]]
    """The images of each file by what follows its name: the empty text, or ``#12`` for the frame or slice 12."""


class _Failure(NamedTuple):
    reason: str
    may_pass: bool


def locate(folder: Path, name: str) -> Path:
    """Return the file a row names, if it lies in the folder.

    Raises:
        BadRow: the path is absolute, leaves the folder (``..`` or a link), or is no file.
    """
    if not name or "\0" in name:
        raise BadRow(f"expected the path of an image, found {name!r}")
    root = folder.resolve()
    if Path(name).is_absolute():
        raise BadRow(f"expected a path relative to {folder}, found {name!r}")
    try:
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise BadRow(f"expected a path inside {folder}, found {name!r}, which leaves it")
        if not path.is_file():
            raise BadRow(f"expected an image file, found none at {name!r}")
    except OSError as error:
        raise BadRow(f"expected an image file at {name!r}, found {error.strerror}") from None
    return path


def open_parts(path: Path, rendering: Rendering = PLAIN, neighbours: bool = False) -> Iterator[tuple[str, Image.Image]]:
    """Yield the images of a file of any kind, in their own size, by what follows the file's name.

    DICOM is known by its content, volumes by their names, all else is read as Pillow does. Of a file with one image
    nothing follows its name.

    Raises:
        BadRow: as :func:`fedward.sites.decoding.open_image`, :func:`fedward.sites.dicom.open_frames` and
            :func:`fedward.sites.volumes.open_slices`.
    """
    if is_volume(path):
        slices = open_slices(path, rendering.slices, rendering.window, neighbours)
        yield from ((f"#{index}", image) for index, image in slices)
    elif is_dicom(path):
        found = open_frames(path, rendering.window, rendering.frames)
        yield from (("" if index is None else f"#{index}", image) for index, image in found)
    else:
        yield "", open_image(path)


def open_file(path: Path, rendering: Rendering = PLAIN) -> Image.Image:
    """Read the first image of a file; see :func:`open_parts`."""
    return next(image for _, image in open_parts(path, rendering))


def decode_file(path: Path, size: int, channels: int, rendering: Rendering = PLAIN) -> dict[str, Pixels]:
    """Read the images of a file as :func:`fedward.sites.decoding.decode`, by what follows the file's name.

    Of volumes and with three channels, an image is a slice between its neighbours. Blank frames are left out.

    Raises:
        BadRow: as :func:`open_parts`, or every image shows one constant value.
    """
    if not is_volume(path) and not is_dicom(path):
        return {"": decode(path, size, channels)}
    parts = {part: fit(image, size, channels) for part, image in open_parts(path, rendering, channels == 3)}
    shown = {part: pixels for part, pixels in parts.items() if not is_blank(pixels)}
    if not shown:
        raise BadRow("expected an image, found a blank one: every pixel is the same")
    return shown


def decode_files(
    paths: Sequence[Path], size: int, channels: int, cache: Path | None, site: str, rendering: Rendering = PLAIN
) -> Decoded:
    """Decode many files, once.

    Args:
        paths: files that exist.
        size: height and width of the result.
        channels: 1 or 3.
        cache: folder for the decoded pixels; None keeps them in memory only. The name of a cache is a hash of the file
            list (paths, sizes, modification times), size, channels, rendering and format version. It is written to a
            temporary file and moved into place, so processes that build it at the same time end with the same whole
            file; a damaged one (length or checksum) is built again, and so is one without a file that the machine
            could not read then and can now. The newest caches of a folder stay, and those in use
            (:func:`fedward.sites.caches.keep_newest`).
        site: name for messages.
        rendering: how files become images.

    Raises:
        DataError: the cache folder cannot be written.
    """

    def read(index: int) -> dict[str, Pixels] | _Failure:
        try:
            return decode_file(paths[index], size, channels, rendering)
        except BadRow as problem:
            return _Failure(str(problem), isinstance(problem, Unreadable))

    def still_fails(index: int) -> bool:
        again = read(index)
        return isinstance(again, _Failure) and again.may_pass

    def good() -> Iterator[Pixels]:
        with ThreadPoolExecutor(1 if rendering.slices else _THREADS) as pool:  # one volume at a time in memory
            for index, result in enumerate(pool.map(read, range(len(paths)))):
                if isinstance(result, _Failure):
                    failed[index] = result
                else:
                    parts[index] = list(result)
                    yield np.stack([*result.values()])

    failed: dict[int, _Failure] = {}
    parts: dict[int, list[str]] = {}
    shape = (size, size, channels)
    if cache is None or not paths:
        pixels = np.concatenate([np.empty((0, *shape), np.uint8), *good()])
    else:
        try:
            private.make_folder(cache)
            target = cache / f"{_key(paths, size, channels, rendering)}.npy"
            known = _open(target, shape, len(paths))
            if known and all(still_fails(index) for index, failure in known[1].items() if failure.may_pass):
                pixels, failed, parts = known
            else:
                pixels = caches.write(target, good(), shape, np.uint8, lambda: {"failed": failed, "parts": parts})
            caches.touch(target)
            caches.keep_newest(cache)
        except OSError as error:
            where, remedy = f"site {site}, cache {cache}", "Name another cache folder."
            raise DataError(where, expected="room to write", found=str(error), remedy=remedy) from None
    reasons = {index: failure.reason for index, failure in failed.items()}
    return Decoded(pixels, reasons, [parts.get(index, []) for index in range(len(paths))])


def _key(paths: Sequence[Path], size: int, channels: int, rendering: Rendering) -> str:
    states = [(str(path), state.st_size, state.st_mtime_ns) for path in paths for state in (path.stat(),)]
    told = [_FORMAT, size, channels, rendering.plain(), states]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _open(
    target: Path, shape: tuple[int, int, int], files: int
) -> tuple[Pixels, dict[int, _Failure], dict[int, list[str]]] | None:
    try:
        if (known := caches.read(target, np.uint8)) is None or known[0].shape[1:] != shape:
            return None
        pixels, notes = known
        failed = {int(index): _Failure(*failure) for index, failure in notes["failed"].items()}
        parts = {int(index): [str(part) for part in listed] for index, listed in notes["parts"].items()}
        whole = set(failed) | set(parts) == set(range(files)) and sum(map(len, parts.values())) == len(pixels)
        return (pixels, failed, parts) if whole else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
