"""Image files to uint8 arrays: decoded once, resized, cached on disk, and opened as a memmap ever
after.
"""

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
from fedward.sites.data import Decoded
from fedward.sites.decoding import BadRow, Pixels, Unreadable, decode, fit, is_blank, open_image
from fedward.sites.dicom import open_frames
from fedward.sites.files import is_dicom, is_volume, series_files
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.series import read_series
from fedward.sites.volumes import open_slices, read_nifti

_FORMAT = 4  # of the cache: raise it when the same file would give other pixels
_THREADS = 4


class _Failure(NamedTuple):
    reason: str
    may_pass: bool


def open_parts(
    path: Path, rendering: Rendering = PLAIN, neighbours: bool = False
) -> Iterator[tuple[str, Image.Image]]:
    """Yield the images of a file of any kind, in their own size, by what follows the file's name.

    DICOM is known by its content, volumes by their names, a DICOM series is a folder, all else is
    read as Pillow does. Of a file with one image nothing follows its name.

    Raises:
        BadRow: as :func:`fedward.sites.decoding.open_image`,
            :func:`fedward.sites.dicom.open_frames` and :func:`fedward.sites.volumes.open_slices`.
    """
    if is_volume(path):
        read = read_series if path.is_dir() else read_nifti
        slices = open_slices(path, read, rendering.slices, rendering.window, neighbours)
        yield from ((f"#{index}", image) for index, image in slices)
    elif is_dicom(path):
        found = open_frames(path, rendering.window, rendering.frames)
        yield from (("" if index is None else f"#{index}", image) for index, image in found)
    else:
        yield "", open_image(path)


def open_file(path: Path, rendering: Rendering = PLAIN) -> Image.Image:
    """Read the first image of a file; see :func:`open_parts`."""
    return next(image for _, image in open_parts(path, rendering))


def decode_file(
    path: Path, size: int, channels: int, rendering: Rendering = PLAIN
) -> dict[str, Pixels]:
    """Read the images of a file as :func:`fedward.sites.decoding.decode`, by what follows the
    file's name.

    Of volumes and with three channels, an image is a slice between its neighbours. Blank frames are
    left out.

    Raises:
        BadRow: as :func:`open_parts`, or every image shows one constant value.
    """
    if not is_volume(path) and not is_dicom(path):
        return {"": decode(path, size, channels)}
    parts = {
        part: fit(image, size, channels)
        for part, image in open_parts(path, rendering, channels == 3)
    }
    shown = {part: pixels for part, pixels in parts.items() if not is_blank(pixels)}
    if not shown:
        raise BadRow("expected an image, found a blank one: every pixel is the same")
    return shown


def decode_files(
    paths: Sequence[Path],
    size: int,
    channels: int,
    cache: Path | None,
    site: str,
    rendering: Rendering = PLAIN,
) -> Decoded:
    """Decode many files, once.

    Args:
        paths: files that exist, or folders of a DICOM series.
        size: height and width of the result.
        channels: 1 or 3.
        cache: folder for the decoded pixels; None keeps them in memory only. The name of a cache is
            a hash of the file list (paths, sizes, modification times), size, channels, rendering
            and format version. It is written to a temporary file and moved into place, so processes
            that build it at the same time end with the same whole file; a damaged one (length or
            checksum) is built again, and so is one without a file that the machine could not read
            then and can now. The newest caches of a folder stay, and those in use
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
        with ThreadPoolExecutor(
            1 if rendering.slices else _THREADS
        ) as pool:  # one volume at a time in memory
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
            if known and all(
                still_fails(index) for index, failure in known[1].items() if failure.may_pass
            ):
                pixels, failed, parts = known
            else:
                pixels = caches.write(
                    target, good(), shape, np.uint8, lambda: {"failed": failed, "parts": parts}
                )
            caches.touch(target)
            caches.keep_newest(cache)
        except OSError as error:
            where = f"site {site}, cache {cache}"
            remedy = "Name another cache folder."
            raise DataError(
                where, expected="room to write", found=str(error), remedy=remedy
            ) from None
    reasons = {index: failure.reason for index, failure in failed.items()}
    return Decoded(pixels, reasons, [parts.get(index, []) for index in range(len(paths))])


def _key(paths: Sequence[Path], size: int, channels: int, rendering: Rendering) -> str:
    files = [file for path in paths for file in (path, *series_files(path))]
    states = [
        (str(file), state.st_size, state.st_mtime_ns) for file in files for state in (file.stat(),)
    ]
    told = [_FORMAT, size, channels, rendering.plain(), states]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _open(
    target: Path, shape: tuple[int, int, int], files: int
) -> tuple[Pixels, dict[int, _Failure], dict[int, list[str]]] | None:
    try:
        known = caches.read(target, np.uint8)
        if known is None or known[0].shape[1:] != shape:
            return None
        pixels, notes = known
        failed = {int(index): _Failure(*failure) for index, failure in notes["failed"].items()}
        parts = {
            int(index): [str(part) for part in listed] for index, listed in notes["parts"].items()
        }
        whole = set(failed) | set(parts) == set(range(files)) and sum(
            map(len, parts.values())
        ) == len(pixels)
        return (pixels, failed, parts) if whole else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
