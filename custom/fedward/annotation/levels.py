"""Window and level of grey images: what values there are, and a picture of those between two of
them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from fedward.sites.decoding import as_image, open_image, opened
from fedward.sites.dicom import file_window, open_dicom, read_header
from fedward.sites.files import is_dicom
from fedward.sites.rendering import Window
from fedward.sites.volumes import Stack

_TAGS = [
    "BitsStored",
    "PixelRepresentation",
    "PhotometricInterpretation",
    "RescaleSlope",
    "RescaleIntercept",
    "WindowCenter",
    "WindowWidth",
]


@dataclass(frozen=True)
class Levels:
    """The values of a grey image and the window it is shown with at first, in units of the
    modality.
    """

    low: float
    high: float
    centre: float
    width: float
    deep: bool
    """Whether there is more to see than in the 8 bits of the picture, so that each window is worth
    a new one.
    """
    inverted: bool = False
    """Whether the lowest value is white."""


def levels_of(path: Path, shown: Image.Image, own: Window | None) -> Levels | None:
    """Return the levels of a file; None for colour.

    Args:
        path: of a file that can be read.
        shown: its picture.
        own: the site's window for DICOM.
    """
    if is_dicom(path):
        return _of_dicom(path, own) if shown.mode == "L" else None
    values = _deep(path)
    if values is not None:
        low = float(values.min())
        high = float(values.max())
        return Levels(low, high, (low + high) / 2, high - low, deep=True) if high > low else None
    return levels_of_picture(shown)


def levels_of_stack(stack: Stack) -> Levels:
    """Return the levels of all slices of a volume."""
    return Levels(float(stack.values.min()), float(stack.values.max()), *stack.window, deep=True)


def levels_of_picture(shown: Image.Image) -> Levels | None:
    """Return the levels of 8 bits; None for colour."""
    if shown.mode == "RGB":
        pixels = np.asarray(shown)
        grey = bool((pixels[..., :1] == pixels).all())
    else:
        grey = shown.mode == "L"
    return Levels(0, 255, 127.5, 255, deep=False) if grey else None


def in_window(path: Path, window: Window) -> Image.Image:
    """Return the picture of a file in a window; that of a file without deep grey values is as ever.

    Raises:
        BadRow: the file cannot be read.
    """
    if is_dicom(path):
        return open_dicom(path, window)
    shown = open_image(path)
    values = _deep(path)
    if values is None:
        return shown
    centre, width = window
    return as_image((np.clip((values - centre) / width + 0.5, 0, 1) * 255).round().astype(np.uint8))


def _of_dicom(path: Path, own: Window | None) -> Levels:
    header = read_header(path, _TAGS)
    slope = float(header.get("RescaleSlope", 1))
    intercept = float(header.get("RescaleIntercept", 0))
    count = 2 ** int(header.BitsStored)
    lowest = -count // 2 if header.PixelRepresentation else 0
    low, high = sorted(slope * value + intercept for value in (lowest, lowest + count - 1))
    centre, width = own or file_window(header) or ((low + high) / 2, high - low)
    return Levels(
        low,
        high,
        centre,
        width,
        deep=True,
        inverted=header.PhotometricInterpretation == "MONOCHROME1",
    )


def _deep(path: Path) -> npt.NDArray[np.float64] | None:
    """Return the grey values of a file that has more than 8 bits of them, upright; None for others."""
    with opened(path) as image:
        if not image.mode.startswith(("I", "F")):
            return None
        return np.asarray(ImageOps.exif_transpose(image), np.float64)
