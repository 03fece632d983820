"""Which images are nearly black, or nearly of one other grey, after they became 8 bits.

Such an image is often not what its file holds: 12 bits shown as 16, or a table or marker that takes
all the greys. It is no fault of the program, so it is reported and not refused.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fedward.sites.data import Images
from fedward.sites.decoding import Pixels
from fedward.text import count

_GREYS = 32
"""Neighbouring greys, an eighth of the 256, that look alike."""
_SHARE = 0.95
"""Share of the pixels that must be of such greys."""
_NAMED = 3
"""Images that a note names at most."""


def nearly_black(pixels: Pixels) -> npt.NDArray[np.bool_]:
    """Return which images show next to nothing, as booleans (N,).

    In each channel of such an image at least 95 % of the pixels are within 32 neighbouring greys of
    the 256. That they are dark is the usual case, but they may be light.

    Args:
        pixels: uint8 (N, H, W, C) of N images; may be a memmap, which is read image by image.
    """
    return np.array([_shows_little(image) for image in pixels], np.bool_)


def _shows_little(image: Pixels) -> bool:
    """Return whether an image (H, W, C) shows next to nothing."""
    for channel in range(image.shape[2]):
        counts = np.bincount(image[..., channel].ravel(), minlength=256)
        below = np.concatenate([[0], counts.cumsum()])
        most_within = (below[_GREYS:] - below[:-_GREYS]).max()
        if most_within < _SHARE * below[-1]:
            return False
    return True


def dark_images(sets: Iterable[Images]) -> list[str]:
    """Return the ids of the images of a site's sets that :func:`nearly_black` finds."""
    names: list[str] = []
    for images in sets:
        names += [images.ids[int(place)] for place in np.flatnonzero(nearly_black(images.pixels))]
    return names


def dark_note(names: Sequence[str], total: int, cause: str = "") -> list[str]:
    """Return a note of the images that are nearly black; empty if there are none.

    Args:
        names: ids of the images that :func:`nearly_black` found, for the site's own console.
        total: number of images that were looked at.
        cause: sentences on why they are, and what to do; empty: nobody knows.
    """
    if not names:
        return []
    named = ", ".join(names[:_NAMED])
    unknown_cause = (
        "Look at the contact sheet (fedward doctor). If the files show more in a viewer, write "
        "window: [CENTRE, WIDTH] into the site file (DICOM and volumes), or export them again with "
        "8 bits."
    )
    return [
        f"{len(names)} of {count(total, 'image')} are nearly black or of one grey, such as "
        f"{named}: 95 of 100 pixels are within an eighth of the greys. {cause or unknown_cause}"
    ]
