"""Slices of volumes and frames of DICOM files: pictures that are made when somebody looks at them."""

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from PIL import Image

from fedward.annotation.levels import Levels, levels_of, levels_of_stack
from fedward.sites.dicom import count_frames, open_frame
from fedward.sites.files import is_dicom, is_volume
from fedward.sites.rendering import Rendering, Window
from fedward.sites.series import read_series
from fedward.sites.volumes import Stack, open_stack, read_nifti


@dataclass(frozen=True)
class Slice:
    """The place of an image in its volume, or among the frames of its file."""

    of: str
    """The id of the file; that of its image 12, from 0, is ``of#12``."""
    index: int
    count: int


class Slices:
    """Reads one file at a time and caches the last volume, so memory does not grow with the number
    of readers.
    """

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering
        self._lock = Lock()
        self._cached: tuple[Path, Stack] | None = None

    def are_in(self, path: Path) -> bool:
        """Return whether a file may hold several images."""
        return bool(
            (self._rendering.slices and is_volume(path))
            or (self._rendering.frames and is_dicom(path))
        )

    def count(self, path: Path) -> int:
        """Return how many images a file holds; BadRow where it cannot be read."""
        with self._lock:
            return len(self._stack(path).values) if is_volume(path) else count_frames(path)

    def open(self, path: Path, index: int, window: Window | None = None) -> Image.Image:
        """Return one image of a file; BadRow where there is none or it cannot be read."""
        with self._lock:
            if is_volume(path):
                return self._stack(path).draw(index, window)
            return open_frame(path, index, window or self._rendering.window)

    def levels(self, path: Path, shown: Image.Image) -> Levels | None:
        """Return the values that all images of a file are shown of; None for colour."""
        with self._lock:
            if is_volume(path):
                return levels_of_stack(self._stack(path))
            return levels_of(path, shown, self._rendering.window)

    def _stack(self, path: Path) -> Stack:
        assert self._rendering.slices is not None, (
            "no file is a volume to a site that takes no slices"
        )
        if self._cached is None or self._cached[0] != path:
            self._cached = None  # before the next one takes memory
            read = read_series if path.is_dir() else read_nifti
            self._cached = (
                path,
                open_stack(path, read, self._rendering.slices, self._rendering.window),
            )
        return self._cached[1]
