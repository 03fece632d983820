"""Window and level of grey images: their range of values, and pictures of a part of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedward.sites.decoding import (
    as_image,
    deep_values,
    grey_range,
    is_deep,
    open_image,
    open_with_pillow,
    white_is_zero,
    without_value,
)
from fedward.sites.dicom import open_dicom, value_range
from fedward.sites.files import is_dicom
from fedward.sites.rendering import Window
from fedward.sites.volumes import Stack


@dataclass(frozen=True)
class Levels:
    """The range of a grey image and the window it is first shown with, in units of the modality."""

    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    centre: float
    """The middle of the first window."""
    width: float
    """The width of the first window."""
    deep: bool
    """Whether the file holds more than the 8 bits of a picture, so that each window needs its own.
    """
    inverted: bool = False
    """Whether the lowest value is white."""


def levels_of(path: Path, picture: Image.Image, site_window: Window | None) -> Levels | None:
    """Return the levels of a file; None for colour.

    Args:
        path: a file that can be read.
        picture: its picture.
        site_window: the site's window for DICOM; None for that of the file.
    """
    if is_dicom(path):
        return _levels_of_dicom(path, site_window) if picture.mode == "L" else None
    deep = _deep(path)
    if deep is None:
        return levels_of_picture(picture)
    low = float(deep.values.min())
    high = float(deep.values.max())
    if high <= low:
        return None
    black, white = grey_range(deep.values[~deep.outside])
    window = ((black + white) / 2, white - black)
    return Levels(low, high, *window, deep=True, inverted=deep.inverted)


def levels_of_stack(stack: Stack) -> Levels:
    """Return the levels of all slices of a volume."""
    low = float(np.nanmin(stack.values))
    high = float(np.nanmax(stack.values))
    centre, width = stack.window
    return Levels(low, high, centre, width, deep=True)


def levels_of_picture(picture: Image.Image) -> Levels | None:
    """Return the levels of a picture of 8 bits; None for colour."""
    if picture.mode == "RGB":
        pixels = np.asarray(picture)
        is_grey = bool((pixels[..., :1] == pixels).all())
    else:
        is_grey = picture.mode == "L"
    return Levels(0, 255, 127.5, 255, deep=False) if is_grey else None


def in_window(path: Path, window: Window) -> Image.Image:
    """Return the picture of a file in a window.

    The window changes nothing in the picture of a file that has no more than 8 bits.

    Raises:
        BadRow: the file cannot be read.
    """
    if is_dicom(path):
        return open_dicom(path, window)
    # It refuses a broken file, so it comes first.
    picture = open_image(path)
    deep = _deep(path)
    if deep is None:
        return picture
    centre, width = window
    shares = np.clip((deep.values - centre) / width + 0.5, 0, 1)
    if deep.inverted:
        shares = 1 - shares
    shares[deep.outside] = 0
    return as_image((shares * 255).round().astype(np.uint8))


def _levels_of_dicom(path: Path, site_window: Window | None) -> Levels:
    values = value_range(path)
    centre, width = site_window or values.window
    return Levels(values.low, values.high, centre, width, deep=True, inverted=values.inverted)


class _Deep(NamedTuple):
    """A grey image with more than 8 bits."""

    values: npt.NDArray[np.float64]
    """(H, W), upright. A pixel without a value has the lowest value of the others."""
    outside: npt.NDArray[np.bool_]
    """(H, W) which pixels have no value, and are black in every window."""
    inverted: bool
    """Whether the lowest value is white."""


def _deep(path: Path) -> _Deep | None:
    """Return the grey values of a file with more than 8 bits; None for other files."""
    with open_with_pillow(path) as image:
        if not is_deep(image):
            return None
        image.load()
        stored = deep_values(image)
        outside = without_value(image, stored)
        inverted = white_is_zero(image)
    values = stored.astype(np.float64)
    if outside.any():
        values = np.where(outside, values[~outside].min(), values)
    return _Deep(values, outside, inverted)
