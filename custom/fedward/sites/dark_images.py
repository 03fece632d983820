"""Which images are nearly black, or nearly of one other grey, after they became 8 bits.

Such an image is often not what its file holds: 12 bits shown as 16, or a table or marker that takes
all the greys. It is no fault of the program, so it is reported and not refused.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedward.sites.data import Images
from fedward.sites.decoding import Pixels, is_deep, open_with_pillow
from fedward.sites.files import is_dicom, is_volume
from fedward.text import count

_GREYS = 32
"""Neighbouring greys, an eighth of the 256, that look alike."""
_SHARE = 0.95
"""Share of the pixels that must be of such greys."""
_TINT = 16
"""Greys by which channels of a grey picture differ at most, as of a scan on yellowish paper."""
_BRIGHT = 64
"""Grey, a quarter of the 256, from which a picture in colour is no dark one."""
_NAMED = 3
"""Images that a note names at most."""


def nearly_black(pixels: Pixels) -> npt.NDArray[np.bool_]:
    """Return which images show next to nothing, as booleans (N,).

    In each channel of such an image at least 95 % of the pixels are within 32 neighbouring greys of
    the 256. That they are dark is the usual case, but they may be light. A bright picture in colour
    is none, such as skin with a small mole: nothing has taken its greys.

    Args:
        pixels: uint8 (N, H, W, C) of N images; may be a memmap, which is read image by image.
    """
    return np.array([_shows_little(image) for image in pixels], np.bool_)


def _shows_little(image: Pixels) -> bool:
    """Return whether an image (H, W, C) shows next to nothing."""
    medians = []
    for channel in range(image.shape[2]):
        counts = np.bincount(image[..., channel].ravel(), minlength=256)
        below = np.concatenate([[0], counts.cumsum()])
        most_within = (below[_GREYS:] - below[:-_GREYS]).max()
        if most_within < _SHARE * below[-1]:
            return False
        medians.append(int(np.searchsorted(below[1:], below[-1] / 2)))
    is_bright_colour = max(medians) - min(medians) > _TINT and max(medians) >= _BRIGHT
    return not is_bright_colour


def dark_images(sets: Iterable[Images]) -> list[str]:
    """Return the ids of the images of a site's sets that :func:`nearly_black` finds."""
    names: list[str] = []
    for images in sets:
        names += [images.ids[int(place)] for place in np.flatnonzero(nearly_black(images.pixels))]
    return names


def dark_count(dark: int, total: int) -> str:
    """Return how many of some images :func:`nearly_black` finds, in words."""
    verb = "is" if dark == 1 else "are"
    return f"{dark} of {count(total, 'image')} {verb} nearly black or of one grey"


def dark_note(
    names: Sequence[str], total: int, cause: str = "", files: Iterable[Path] = ()
) -> list[str]:
    """Return a note of the images that are nearly black; empty if there are none.

    Args:
        names: ids of the images that :func:`nearly_black` found, for the site's own console.
        total: number of images that were looked at.
        cause: sentences on why they are, and what to do; empty: nobody knows.
        files: files of the dark images; none where they are of an array of 8 bits.
    """
    if not names:
        return []
    named = ", ".join(names[:_NAMED])
    return [
        f"{dark_count(len(names), total)}, such as {named}: 95 of 100 pixels are "
        f"within an eighth of the greys. {cause or _advice(files)}"
    ]


def _advice(files: Iterable[Path]) -> str:
    """Return what to do with dark images of unknown cause, as far as it applies to their files."""
    ways = []
    files = list(files)
    if any(is_dicom(path) or is_volume(path) for path in files):
        ways.append("write window: [CENTRE, WIDTH] into the site file (DICOM and volumes)")
    if any(_has_deep_greys(path) for path in files):
        ways.append("export those of more than 8 bits again with 8 bits")
    look = "Look at the contact sheet (fedward doctor)."
    if not ways:
        return look
    return f"{look} If the files show more in a viewer, {', or '.join(ways)}."


def _has_deep_greys(path: Path) -> bool:
    """Return whether a file that Pillow reads is grey with more than 8 bits."""
    try:
        with open_with_pillow(path) as image:
            return is_deep(image)
    except Exception:
        # A file of another kind, or one whose fault is reported where it is read.
        return False
