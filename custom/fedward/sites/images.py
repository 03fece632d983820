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
from fedward.sites.decoding import BadRow, Pixels, Unreadable, check_not_blank, decode, fit, open_image
from fedward.sites.dicom import Window, is_dicom, open_dicom

_FORMAT = 3  # of the cache: raise it when the same file would give other pixels
_THREADS = 4


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


def open_file(path: Path, window: Window | None = None) -> Image.Image:
    """Read an image file of any kind, in its own size: DICOM by its content, all else as Pillow does.

    Raises:
        BadRow: as :func:`fedward.sites.decoding.open_image` and :func:`fedward.sites.dicom.open_dicom`.
    """
    return open_dicom(path, window) if is_dicom(path) else open_image(path)


def decode_file(path: Path, size: int, channels: int, window: Window | None = None) -> Pixels:
    """Read an image file of any kind as :func:`fedward.sites.decoding.decode`.

    Raises:
        BadRow: as :func:`open_file`, or the image shows one constant value.
    """
    if not is_dicom(path):
        return decode(path, size, channels)
    pixels = fit(open_dicom(path, window), size, channels)
    check_not_blank(pixels)
    return pixels


def decode_files(
    paths: Sequence[Path], size: int, channels: int, cache: Path | None, site: str, window: Window | None = None
) -> tuple[Pixels, dict[int, str]]:
    """Decode many files, once.

    Args:
        paths: files that exist.
        size: height and width of the result.
        channels: 1 or 3.
        cache: folder for the decoded pixels; None keeps them in memory only. The name of a cache is a hash of the file
            list (paths, sizes, modification times), size, channels, window and format version. It is written to a
            temporary file and moved into place, so processes that build it at the same time end with the same whole
            file; a damaged one (length or checksum) is built again, and so is one without a file that the machine
            could not read then and can now. The newest caches of a folder stay, and those in use
            (:func:`fedward.sites.caches.keep_newest`).
        site: name for messages.
        window: of grey DICOM files; see :func:`fedward.sites.dicom.open_dicom`.

    Returns:
        uint8 (M, size, size, channels) of the M files that could be read, in the order of the paths (a read-only memmap
        if cached), and the reasons of the others by their index in ``paths``.

    Raises:
        DataError: the cache folder cannot be written.
    """

    def read(index: int) -> Pixels | _Failure:
        try:
            return decode_file(paths[index], size, channels, window)
        except BadRow as problem:
            return _Failure(str(problem), isinstance(problem, Unreadable))

    def still_fails(index: int) -> bool:
        again = read(index)
        return isinstance(again, _Failure) and again.may_pass

    def good() -> Iterator[Pixels]:
        with ThreadPoolExecutor(_THREADS) as pool:
            for index, result in enumerate(pool.map(read, range(len(paths)))):
                if isinstance(result, _Failure):
                    failed[index] = result
                else:
                    yield result

    failed: dict[int, _Failure] = {}
    shape = (size, size, channels)
    if cache is None or not paths:
        images = list(good())
        pixels = np.array(images, np.uint8).reshape(len(images), *shape)
    else:
        try:
            private.make_folder(cache)
            target = cache / f"{_key(paths, size, channels, window)}.npy"
            known = _open(target, shape)
            if known and all(still_fails(index) for index, failure in known[1].items() if failure.may_pass):
                pixels, failed = known
            else:
                whole = (image[None] for image in good())
                pixels = caches.write(target, whole, shape, np.uint8, lambda: {"failed": failed})
            caches.touch(target)
            caches.keep_newest(cache)
        except OSError as error:
            where, remedy = f"site {site}, cache {cache}", "Name another cache folder."
            raise DataError(where, expected="room to write", found=str(error), remedy=remedy) from None
    return pixels, {index: failure.reason for index, failure in failed.items()}


def _key(paths: Sequence[Path], size: int, channels: int, window: Window | None) -> str:
    states = [(str(path), state.st_size, state.st_mtime_ns) for path in paths for state in (path.stat(),)]
    return hashlib.sha256(json.dumps([_FORMAT, size, channels, window, states]).encode()).hexdigest()[:32]


def _open(target: Path, shape: tuple[int, int, int]) -> tuple[Pixels, dict[int, _Failure]] | None:
    try:
        if (known := caches.read(target, np.uint8)) is None or known[0].shape[1:] != shape:
            return None
        return known[0], {int(index): _Failure(*failure) for index, failure in known[1]["failed"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
