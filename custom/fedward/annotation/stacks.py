"""Slices, frames and pages of files that hold several, drawn when somebody opens them."""

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from PIL import Image

from fedward.annotation.levels import Levels, levels_of, levels_of_picture, levels_of_stack
from fedward.sites.decoding import count_pages, open_image
from fedward.sites.dicom import count_frames, open_frame
from fedward.sites.files import is_dicom, is_volume
from fedward.sites.rendering import Rendering, Window
from fedward.sites.volumes import Stack, open_stack


@dataclass(frozen=True)
class Slice:
    """The place of an image in its volume, or among the frames of its file."""

    of: str
    """The id of the file. The id of its image with index 12 is ``<id of the file>#12``."""
    index: int
    """The number of the image, from 0."""
    count: int
    """The number of images in the file."""


class Slices:
    """The images in files that hold several.

    One file is read at a time and the last volume is cached, so memory does not grow with the
    number of readers.

    Args:
        rendering: how the site's images are drawn.
    """

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering
        self._lock = Lock()
        self._cached: tuple[Path, Stack] | None = None

    def are_in(self, path: Path) -> bool:
        """Return whether a file may hold several images."""
        if self._rendering.slices and is_volume(path):
            return True
        return bool(self._rendering.frames) and (is_dicom(path) or count_pages(path) > 1)

    def count(self, path: Path) -> int:
        """Return how many images a file holds.

        Raises:
            BadRow: the file cannot be read.
        """
        with self._lock:
            if is_volume(path):
                return len(self._stack(path).values)
            return count_frames(path) if is_dicom(path) else count_pages(path)

    def open(self, path: Path, index: int, window: Window | None = None) -> Image.Image:
        """Return one image of a file.

        Raises:
            BadRow: the file has no such image, or cannot be read.
        """
        with self._lock:
            if is_volume(path):
                return self._stack(path).draw(index, window)
            if not is_dicom(path):
                return open_image(path, page=index)
            return open_frame(path, index, window or self._rendering.window)

    def levels(self, path: Path, picture: Image.Image) -> Levels | None:
        """Return the grey values of all images of a file; None for colour."""
        with self._lock:
            if is_volume(path):
                return levels_of_stack(self._stack(path))
            if not is_dicom(path):
                return levels_of_picture(picture)
            return levels_of(path, picture, self._rendering.window)

    def _stack(self, path: Path) -> Stack:
        assert self._rendering.slices is not None, (
            "this site reads no volumes, because its file sets no slices"
        )
        if self._cached is None or self._cached[0] != path:
            # The last volume is freed before the next one takes memory.
            self._cached = None
            stack = open_stack(path, self._rendering.slices, self._rendering.window)
            self._cached = (path, stack)
        return self._cached[1]
