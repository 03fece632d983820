"""Turns image files into uint8 arrays, which are decoded once and cached on disk."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fedward.disk import PRIVATE, make_folder
from fedward.errors import DataError, reason_of_system
from fedward.sites import caches
from fedward.sites.data import Decoded, Failure
from fedward.sites.decoding import (
    EVERY_PIXEL_THE_SAME,
    BadRow,
    Blank,
    Pixels,
    Unreadable,
    as_bad_row,
    count_pages,
    decode,
    fit,
    is_blank,
    open_image,
    open_pages,
)
from fedward.sites.dicom import open_frames
from fedward.sites.files import is_dicom, is_volume, series_files
from fedward.sites.hiding_windows import Hidden, naming_window
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.volumes import open_slices

_FORMAT = 10
"""Version of the cache: raise it when the same file would give other pixels."""
_THREADS = 4
"""Files that are decoded at the same time; Pillow works without Python's lock."""


def unnoticed() -> None:
    """Take no notice of a file that was opened."""


class _Content(NamedTuple):
    """What a cache holds."""

    pixels: Pixels
    """uint8 (M, size, size, channels)."""
    failed: dict[int, Failure]
    """Index of a file -> why it gave no image."""
    parts: dict[int, list[str]]
    """Index of any other file -> suffixes of its images."""

    def decoded(self, file_count: int) -> Decoded:
        """Return the images of all files, and why the others among them have none."""
        parts = [self.parts.get(index, []) for index in range(file_count)]
        return Decoded(self.pixels, self.failed, parts)


def open_parts(
    path: Path, rendering: Rendering, neighbours: bool = False
) -> Iterator[tuple[str, Image.Image]]:
    """Yield suffix and image, in its own size, for each image of a file of any kind.

    DICOM is recognised by its content and volumes by their names. A DICOM series is a folder. All
    other files are read by Pillow. The suffix is empty for a file with one image.

    Raises:
        BadRow: the file cannot be used, for a reason of
            :func:`fedward.sites.decoding.open_image`, :func:`fedward.sites.dicom.open_frames` or
            :func:`fedward.sites.volumes.open_slices`.
    """
    with as_bad_row("a whole image"):
        if is_volume(path):
            slices = open_slices(path, rendering.slices, rendering.window, neighbours)
            for number, image in slices:
                yield f"#{number}", image
        elif is_dicom(path):
            for index, image in open_frames(path, rendering.window, rendering.frames):
                yield "" if index is None else f"#{index}", image
        elif _has_chosen_pages(path, rendering):
            assert rendering.frames is not None, "pages are chosen as frames are"
            for index, image in open_pages(path, rendering.frames.chosen):
                yield f"#{index}", image
        else:
            yield "", open_image(path)


def _has_chosen_pages(path: Path, rendering: Rendering) -> bool:
    """Return whether a file that Pillow reads becomes several images."""
    return rendering.frames is not None and count_pages(path) > 1


def open_file(path: Path, rendering: Rendering) -> Image.Image:
    """Read the first image of a file; see :func:`open_parts`."""
    return next(image for _, image in open_parts(path, rendering))


def decode_file(
    path: Path, size: int, channels: int, rendering: Rendering = PLAIN
) -> dict[str, Pixels]:
    """Return suffix -> pixels, uint8 (size, size, channels), for each image of a file.

    With three channels, an image of a volume is a slice between its neighbours. Blank frames are
    omitted.

    Raises:
        Hidden: nothing can be seen of a file in its window, and something in another one.
        BadRow: for a reason of :func:`open_parts`, or because all pixels of each image are equal.
    """
    with naming_window(path, rendering):
        return _decoded(path, size, channels, rendering)


def _decoded(path: Path, size: int, channels: int, rendering: Rendering) -> dict[str, Pixels]:
    """Return the images of a file as :func:`decode_file`; Blank if nothing can be seen of them."""
    decoded = {}
    with as_bad_row("a whole image"):
        is_one_picture = not is_volume(path) and not is_dicom(path)
        if is_one_picture and not _has_chosen_pages(path, rendering):
            return {"": decode(path, size, channels, rendering.fit)}
        for part, image in open_parts(path, rendering, neighbours=channels == 3):
            pixels = fit(image, size, channels, rendering.fit)
            if not is_blank(pixels):
                decoded[part] = pixels
    if not decoded:
        raise Blank(EVERY_PIXEL_THE_SAME)
    return decoded


def decode_files(
    paths: Sequence[Path],
    size: int,
    channels: int,
    cache: Path | None,
    site: str,
    rendering: Rendering = PLAIN,
    after_each_file: Callable[[], None] = unnoticed,
) -> Decoded:
    """Decode many files, or take their pixels from a cache that an earlier call has written.

    The name of a cache is a hash of the file list (paths, sizes, modification times), size,
    channels, rendering and format version. It is written to a temporary file and moved into place,
    so processes that build it at the same time end with the same whole file. A cache is built again
    if it is damaged (by its length or checksum), or if it lacks a file that the machine could not
    read then and can read now. Of a folder's caches the newest and those in use are kept
    (:func:`fedward.sites.caches.keep_newest`).

    Args:
        paths: files that exist, or folders of a DICOM series.
        size: height and width of the result.
        channels: 1 or 3.
        cache: folder for the decoded pixels; None keeps them in memory only.
        site: name for messages.
        rendering: how files become images.
        after_each_file: called after each file that was decoded.

    Raises:
        DataError: a file is no longer there, or the cache folder cannot be written.
    """
    decoder = _Decoder(paths, size, channels, rendering, after_each_file)
    shape = (size, size, channels)
    if cache is None or not paths:
        pixels = _together(decoder.images(), shape, len(paths))
        return decoder.content(pixels).decoded(len(paths))
    try:
        key = _key(paths, size, channels, rendering)
    except OSError as error:
        raise DataError(
            f"site {site}, image files",
            "Connect the disk or share that they are on, and try again.",
            expected="all that were there a moment ago",
            # Without the path: names of files may be those of persons.
            found=reason_of_system(error),
        ) from None
    try:
        make_folder(cache, PRIVATE)
        target = cache / f"{key}.npy"
        content = _open(target, shape, len(paths))
        if content is None or decoder.would_do_better(content):
            pixels = caches.write(target, decoder.images(), shape, np.uint8, decoder.notes)
            content = decoder.content(pixels)
        caches.touch(target)
        caches.keep_newest(cache)
    except OSError as error:
        raise DataError(
            f"site {site}, cache {cache}",
            "Make room on its disk.",
            expected="room to write",
            found=reason_of_system(error),
        ) from None
    return content.decoded(len(paths))


def _together(blocks: Iterable[Pixels], shape: tuple[int, int, int], usual: int) -> Pixels:
    """Return images (n, H, W, C) of many blocks as one array, without a second copy of them.

    Args:
        blocks: uint8, read one after the other.
        shape: (H, W, C).
        usual: how many images there are, if each file is one; there may be more or fewer.
    """
    pixels = np.empty((usual, *shape), np.uint8)
    count = 0
    for block in blocks:
        if count + len(block) > len(pixels):
            # Nobody else has the array, and large ones move without being copied (mremap).
            pixels.resize((count + len(block) + count // 8, *shape), refcheck=False)
        pixels[count : count + len(block)] = block
        count += len(block)
    pixels.resize((count, *shape), refcheck=False)
    return pixels


class _Decoder:
    """Decodes files, and notes which images each of them gave or why it failed.

    Args:
        paths: the files.
        size: height and width of the images.
        channels: 1 or 3.
        rendering: how files become images.
        after_each_file: called after each of them.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        size: int,
        channels: int,
        rendering: Rendering,
        after_each_file: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._size = size
        self._channels = channels
        self._rendering = rendering
        self._after_each_file = after_each_file
        self._failed: dict[int, Failure] = {}
        self._parts: dict[int, list[str]] = {}

    def images(self) -> Iterator[Pixels]:
        """Yield the images (n, H, W, C) of each file that has some, in the order of the files."""
        # Volumes are large: only one at a time is in memory.
        threads = 1 if self._rendering.slices else _THREADS
        with ThreadPoolExecutor(threads) as pool:
            for index, result in enumerate(pool.map(self._read, self._paths)):
                self._after_each_file()
                if isinstance(result, Failure):
                    self._failed[index] = result
                else:
                    self._parts[index] = list(result)
                    yield np.stack(list(result.values()))

    def notes(self) -> Mapping[str, Any]:
        """Return what a cache notes of the files; call it once all images are read."""
        return {"failed": self._failed, "parts": self._parts}

    def content(self, pixels: Pixels) -> _Content:
        """Return the pixels together with the notes on the files."""
        return _Content(pixels, self._failed, self._parts)

    def would_do_better(self, content: _Content) -> bool:
        """Return whether a file can be judged now that the machine could not read for a cache."""
        for index, failure in content.failed.items():
            if failure.kind == "machine":
                result = self._read(self._paths[index])
                if not isinstance(result, Failure) or result.kind != "machine":
                    return True
        return False

    def _read(self, path: Path) -> dict[str, Pixels] | Failure:
        try:
            return decode_file(path, self._size, self._channels, self._rendering)
        except Unreadable as problem:
            return Failure(str(problem), "machine")
        except Hidden as problem:
            return Failure(str(problem), "window")
        except BadRow as problem:
            return Failure(str(problem), "file")


def _key(paths: Sequence[Path], size: int, channels: int, rendering: Rendering) -> str:
    """Return a hash of everything that determines the pixels."""
    states = []
    for path in paths:
        for file in (path, *series_files(path)):
            state = file.stat()
            states.append((str(file), state.st_size, state.st_mtime_ns))
    content = json.dumps([_FORMAT, size, channels, rendering.plain(), states])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _open(target: Path, shape: tuple[int, int, int], file_count: int) -> _Content | None:
    """Return the content of a cache of ``file_count`` files; None if it is missing or damaged."""
    try:
        cached = caches.read(target, np.uint8)
        if cached is None:
            return None
        pixels, notes = cached
        # Keys are text in JSON.
        failed = {int(index): Failure(*failure) for index, failure in notes["failed"].items()}
        parts = {
            int(index): [str(part) for part in names] for index, names in notes["parts"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    image_count = sum(len(names) for names in parts.values())
    noted_files = set(failed) | set(parts)
    if pixels.shape != (image_count, *shape) or noted_files != set(range(file_count)):
        return None
    return _Content(pixels, failed, parts)
