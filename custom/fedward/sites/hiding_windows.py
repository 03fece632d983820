"""Windows that hide pictures: grey DICOM files and volumes whose values lie outside of them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from fedward.seeds import numpy_generator
from fedward.sites.dark_images import nearly_black
from fedward.sites.data import Failure
from fedward.sites.decoding import BadRow, Blank, Pixels
from fedward.sites.dicom import has_window, open_frames, window_of_values
from fedward.sites.files import is_dicom, is_volume
from fedward.sites.leaks import file_of
from fedward.sites.rendering import Frames, Rendering, Window
from fedward.sites.volumes import open_slices, window_of_volume

_LOOKED_AT = 16
"""Pictures of a kind, as hidden ones, that are opened in order to find another window."""
_WIDE = 20
"""Width of a window from which its ends are rounded to whole numbers."""
_FIGURES = 3
"""Figures of the width of a narrower one to which its centre and width are rounded."""

_DIVIDE = "correct the windows in the files' headers, or leave files of one kind out"
_HIDDEN = "expected an image, found a blank one, as its values lie outside of the window"


class Hidden(BadRow):
    """A picture of which nothing can be seen in its window.

    Args:
        window: one in which something can be seen.
    """

    def __init__(self, window: Window) -> None:
        # Without the numbers of a single picture, pictures of one site have one reason.
        super().__init__(
            f"{_HIDDEN}: write another window: [CENTRE, WIDTH] into the site file (fedward "
            "partition --window CENTRE WIDTH)"
        )
        self.window = window


class Better(NamedTuple):
    """How pictures can be seen that a window hides."""

    window: Window | None = None
    """A window in which all pictures can be seen; None: there is none, as their values are too far
    apart.
    """
    own: bool = False
    """Whether all can be seen as the files themselves say, without the window of the site."""


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
        if is_volume(path):
            needs_window = True
        else:
            needs_window = is_dicom(path) and has_window(path, rendering.window)
        window = _window_of_picture(path, rendering, rendering.window) if needs_window else None
    except BadRow:  # the fault is reported where the image is read
        return None
    return window if window and _shows(path, rendering, window) else None


def _window_of_picture(path: Path, rendering: Rendering, used: Window | None) -> Window | None:
    """Return the window between percentiles of a picture's values.

    None: it is not grey, or has no two values, or is a volume that is shown between percentiles if
    no window is ``used``.

    Raises:
        BadRow: it cannot be read.
    """
    if is_volume(path):
        slices = rendering.slices
        return window_of_volume(path, slices, used) if slices else None
    return window_of_values(path) if is_dicom(path) else None


def _shows(path: Path, rendering: Rendering, window: Window | None) -> bool:
    """Return whether something can be seen of a picture in a window; None: in the file's own.

    Of a volume one slice is enough.
    """
    try:
        if is_volume(path):
            images = [image for _, image in open_slices(path, rendering.slices, window)]
        else:
            one_frame = Frames(at_most=1)
            images = [image for _, image in open_frames(path, window, one_frame)]
    except BadRow:  # the fault is reported where the image is read
        return False
    return not all(nearly_black(_as_pixels(image)).all() for image in images)


def _as_pixels(image: Image.Image) -> Pixels:
    """Return a grey image as uint8 (1, H, W, 1)."""
    return np.asarray(image)[None, ..., None]


def better_window(
    hidden: Mapping[Path, Window], others: Sequence[Path], rendering: Rendering
) -> Better:
    """Return how pictures can be seen that a window hides, and the others as well.

    A window for the hidden pictures alone might hide the others, some of which are looked at.

    Args:
        hidden: file of a picture -> what :func:`showing_window` returns for it.
        others: files of further pictures, which will be shown in the same window.
        rendering: how they become images.
    """
    windows = dict(hidden)
    for path in _some(others):
        try:
            # A volume has a window between percentiles, whatever it is shown in: any is "used".
            window = _window_of_picture(path, rendering, rendering.window or (0.0, 1.0))
        except BadRow:
            continue
        # What shows nothing in its own percentiles has no better window.
        if window and _shows(path, rendering, window):
            windows[path] = window
    if not windows:
        return Better()
    of_all = window_of_all(list(windows.values()))
    # The fewer values a picture has, the less of it is seen in a wide window.
    narrowest = sorted(windows, key=lambda path: windows[path][1])[:_LOOKED_AT]
    if all(_shows(path, rendering, of_all) for path in narrowest):
        return Better(of_all)
    if rendering.window is None:
        return Better()
    return Better(own=all(_shows(path, rendering, None) for path in _some(list(windows))))


def _some(paths: Sequence[Path]) -> list[Path]:
    """Return some of these paths, drawn by a fixed seed.

    Evenly spaced ones may be of one kind alone, as where every second row is of one scanner.
    """
    if len(paths) <= _LOOKED_AT:
        return list(paths)
    drawn = numpy_generator(0, "windows").permutation(len(paths))[:_LOOKED_AT]
    return [paths[place] for place in drawn]


def window_of_all(windows: Sequence[Window]) -> Window:
    """Return the window, at least one, that holds all of these, in short numbers.

    Of a wide one the ends are whole numbers.
    """
    low = min(centre - width / 2 for centre, width in windows)
    high = max(centre + width / 2 for centre, width in windows)
    if high - low >= _WIDE:
        low = math.floor(low)
        high = math.ceil(high)
        return (low + high) / 2, high - low
    decimals = _FIGURES - math.floor(math.log10(high - low))
    return round((low + high) / 2, decimals), round(high - low, decimals)


def window_words(window: Window) -> list[str]:
    """Return centre and width as numbers without an exponent.

    The parser of commands takes -1e+06 for an option, and six figures are too few for 32 bits.
    """
    words = []
    for number in window:
        word = f"{Decimal(repr(float(number))):f}"
        words.append(word.rstrip("0").rstrip(".") if "." in word else word)
    return words


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
    hidden = _hidden([files[sample] for sample in samples], rendering)
    if not hidden:
        return ""
    others = [path for sample, path in files.items() if sample not in samples]
    better = better_window(hidden, others, rendering)
    return hiding_note(
        rendering.window,
        better,
        lambda window: f"{_field(window)} in the site file",
        "remove window from the site file",
    )


def _hidden(dark: Sequence[Path], rendering: Rendering) -> dict[Path, Window]:
    """Return those of some dark or blank pictures that a window hides: file -> another window."""
    windows = {path: showing_window(path, rendering) for path in _some(dark)}
    return {path: window for path, window in windows.items() if window}


def hiding_note(
    used: Window | None, better: Better, named: Callable[[Window], str], left_out: str
) -> str:
    """Return sentences that say that a window hides pictures, and how they can be seen.

    Args:
        used: the window that somebody has named; None: the files' own.
        better: how they can be seen.
        named: returns how a window is named.
        left_out: how the window is left out that somebody has named.
    """
    which = "The files' own window hides what they show."
    if used:
        which = f"The window {' '.join(window_words(used))} (centre, width) hides what they show."
    if better.window:
        return f"{which} In another one it can be seen: {named(better.window)}."
    if better.own:
        return (
            f"{which} No window shows all of the images, as their values are too far apart. "
            f"Without it they can be seen: {left_out}."
        )
    return (
        f"{which} No window shows all of the images, as their values are too far apart: {_DIVIDE}."
    )


def with_better_window(
    failed: Mapping[int, Failure], paths: Sequence[Path], rendering: Rendering
) -> dict[int, str]:
    """Return why the files of a site give no image, with a window for those that are hidden.

    All hidden files have the same reason.

    Args:
        failed: index of a file -> why it gave no image as it was read.
        paths: the files.
        rendering: how they become images.
    """
    reasons = {index: failure.reason for index, failure in failed.items()}
    by_window = [index for index, failure in failed.items() if failure.kind == "window"]
    if not by_window:
        return reasons
    others = [path for index, path in enumerate(paths) if index not in failed]
    better = better_window(
        _hidden([paths[index] for index in by_window], rendering), others, rendering
    )
    remedy = f"no window shows all of the images: {_DIVIDE}"
    if better.window:
        remedy = f"write {_field(better.window)} into the site file"
    elif better.own:
        remedy = "remove window from the site file"
    return reasons | dict.fromkeys(by_window, f"{_HIDDEN}: {remedy}")


def _field(window: Window) -> str:
    """Return a window as the field of a site file."""
    return f"window: [{', '.join(window_words(window))}]"
