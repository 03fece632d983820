"""Windows that hide pictures: grey DICOM files and volumes whose values lie outside of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedward.sites.dark_images import nearly_black
from fedward.sites.decoding import BadRow, Blank, Pixels
from fedward.sites.dicom import open_frames, window_of_values
from fedward.sites.files import is_dicom, is_volume
from fedward.sites.leaks import file_of
from fedward.sites.rendering import Frames, Rendering, Window, evenly
from fedward.sites.series import read_series
from fedward.sites.volumes import open_slices, read_nifti, window_of_volume

_LOOKED_AT = 8
"""Dark images of a site of which is found out why they are dark: evenly spaced ones."""
_WIDE = 20
"""Width of a window from which its ends are rounded to whole numbers."""


class Hidden(BadRow):
    """A picture of which nothing can be seen in its window.

    Args:
        window: one in which something can be seen.
    """

    def __init__(self, window: Window) -> None:
        # Without the numbers of a single picture, pictures of one site have one reason.
        super().__init__(
            "expected an image, found a blank one, as its values lie outside of the window: write "
            "another window: [CENTRE, WIDTH] into the site file (fedward partition --window CENTRE "
            "WIDTH)"
        )
        self.window = window


@contextmanager
def naming_window(path: Path, rendering: Rendering) -> Iterator[None]:
    """Raise Hidden for a picture of which nothing can be seen, where its window is the reason."""
    try:
        yield
    except Blank:
        window = showing_window(path, rendering)
        if window is None:
            raise
        raise Hidden(window) from None


def showing_window(path: Path, rendering: Rendering) -> Window | None:
    """Return a window in which a picture can be seen that is dark or blank as it is rendered.

    It lies between percentiles of the picture's values. None: the file is not shown in a window, or
    can be seen no better in this one, or cannot be read.
    """
    try:
        if is_volume(path) and rendering.slices:
            read = read_series if path.is_dir() else read_nifti
            window = window_of_volume(path, read, rendering.slices, rendering.window)
        elif is_dicom(path):
            window = window_of_values(path, rendering.window)
        else:
            window = None
        if window is None or nearly_black(_shown(path, rendering, window)).all():
            return None
    except BadRow:  # the fault is reported where the image is read
        return None
    return window


def _shown(path: Path, rendering: Rendering, window: Window) -> Pixels:
    """Return a picture in a window, or the slices of a volume: uint8 (N, H, W, 1)."""
    if is_volume(path):
        read = read_series if path.is_dir() else read_nifti
        images = [image for _, image in open_slices(path, read, rendering.slices, window)]
    else:
        first_frame = Frames(at_most=1)
        images = [image for _, image in open_frames(path, window, first_frame)]
    return np.stack([np.asarray(image)[..., None] for image in images])


def window_of_all(windows: Sequence[Window]) -> Window:
    """Return the window, at least one, that holds all of these; of a wide one the ends are whole
    numbers.
    """
    low = min(centre - width / 2 for centre, width in windows)
    high = max(centre + width / 2 for centre, width in windows)
    if high - low >= _WIDE:
        low = math.floor(low)
        high = math.ceil(high)
    return (low + high) / 2, high - low


def hiding_note_of_site(
    names: Sequence[str], files: Mapping[str, Path], rendering: Rendering
) -> str:
    """Return :func:`hiding_note` of some of a site's dark images; empty if no window hides them.

    Args:
        names: ids of the site's dark images.
        files: sample id -> its file, or the folder of a series.
        rendering: how the site's files become images.
    """
    samples = dict.fromkeys(file_of(name, files) for name in names)
    some = evenly(list(samples), _LOOKED_AT)
    windows = [showing_window(files[sample], rendering) for sample in some]
    found = [window for window in windows if window]
    if not found:
        return ""
    centre, width = window_of_all(found)
    better = f"window: [{centre:g}, {width:g}] in the site file"
    return hiding_note(rendering.window, better)


def hiding_note(used: Window | None, better: str) -> str:
    """Return a sentence that says that a window hides pictures, and which would show them.

    Args:
        used: the window that somebody has named; None: the files' own.
        better: how another window is named in which they can be seen.
    """
    which = "The files' own window"
    if used:
        which = f"The window {used[0]:g} {used[1]:g} (centre, width)"
    return f"{which} hides what they show. In another one it can be seen: {better}."
