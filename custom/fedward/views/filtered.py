"""The weak view of FedAL: moved and scaled, and then blurred, noisy or smoothed by a median."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.views.geometry import warp
from fedward.views.types import check
from fedward.views.weak import moves, signed

TURN = math.radians(15)
"""Largest rotation."""
SHIFT = 0.1
"""Largest shift as a share of the side."""
SCALE = 0.1
"""Largest change of size: a picture becomes 0.9 to 1.1 times as large."""
FILTERED = 0.7
"""Share of the images to which one of the filters is applied."""
FILTERS = ("blur", "noise", "median")
WINDOWS = (3, 5)
"""Sides, in pixels, of the windows of blur and median."""
DEVIATIONS = {3: 0.8, 5: 1.1}
"""Side of a blur's window -> its standard deviation in pixels, as OpenCV derives it."""
VARIANCES = (5 / 255**2, 30 / 255**2)
"""Least and largest variance of the noise, of pixels in [0, 1]."""


class Draw(NamedTuple):
    """Which filter is applied to each image; all are (N,) on the CPU."""

    filter: Tensor
    """int64: index into FILTERS; -1: none."""
    window: Tensor
    """int64: the window's side for blur and median."""
    variance: Tensor
    """float32: the noise's."""


def filtered(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return one weak view of every image, each with its own draw.

    Horizontal and vertical flip with probability 1/2, rotation uniform in +-15 degrees, shifts
    uniform in +-10 % of the side, size uniform in 0.9 to 1.1, in one bilinear resampling that
    mirrors the image at its borders. Then, with probability 0.7, one of: Gaussian blur or median
    in a window of 3 or 5 pixels, Gaussian noise of a variance between 5 and 30 grey levels squared,
    for each pixel and channel.

    Source: Deng et al., arXiv 2406.11310 (FedAL), names these operations; probabilities and ranges
    are those of the code of Chen et al., MICCAI 2021 (PRR-FL), whose data FedAL rebuilds.

    Args:
        images: as :func:`fedward.views.weak` takes them.
        generator: as there.

    Returns:
        As :func:`fedward.views.weak`.

    Raises:
        DataError: images of another shape or dtype.

    Deviates: PRR-FL's code also changes the brightness, which FedAL does not name, and fills
    borders with black. Windows are in pixels, so in small images they smooth more.
    """
    check(images)
    count = len(images)
    drawn = torch.rand(9, count, generator=generator)
    matrices = moves(drawn[:5], TURN, SHIFT)
    # Matrices lead from the view back to the image.
    matrices[:, :2, :2] /= (1 + SCALE * signed(drawn[5]))[:, None, None]
    noise = torch.randn(images.shape, generator=generator).to(images)
    return apply(warp(images, matrices), draw(drawn[6], drawn[7], drawn[8]), noise)


def draw(kind: Tensor, window: Tensor, variance: Tensor) -> Draw:
    """Return what three uniform draws (N,) in [0, 1) mean."""
    filters = (kind / FILTERED * len(FILTERS)).long()
    filters = torch.where(kind < FILTERED, filters, -1)
    least, largest = VARIANCES
    windows = torch.tensor(WINDOWS)[(window * len(WINDOWS)).long()]
    return Draw(filters, windows, least + (largest - least) * variance)


def apply(images: Tensor, drawn: Draw, noise: Tensor) -> Tensor:
    """Apply to each image the filter that was drawn for it.

    Args:
        images: (N, C, H, W) in [0, 1]; they are not changed.
        drawn: what happens to each image.
        noise: (N, C, H, W) standard normal; used where noise was drawn.

    Returns:
        A new tensor like ``images``, in [0, 1].
    """
    views = images.clone()
    noisy = drawn.filter == FILTERS.index("noise")
    places = noisy.nonzero()[:, 0].to(images.device)
    deviations = drawn.variance[noisy].sqrt().to(images)[:, None, None, None]
    views[places] = (images[places] + deviations * noise[places]).clamp_(0, 1)
    for name, smooth in (("blur", blur), ("median", median)):
        for window in WINDOWS:
            chosen = (drawn.filter == FILTERS.index(name)) & (drawn.window == window)
            places = chosen.nonzero()[:, 0].to(images.device)
            if len(places):
                views[places] = smooth(images[places], window)
    return views


def blur(images: Tensor, window: int) -> Tensor:
    """Return images (N, C, H, W) under a Gaussian of a window's side; borders are repeated."""
    reach = window // 2
    steps = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    weights = torch.exp(-(steps**2) / (2 * DEVIATIONS[window] ** 2))
    weights = weights / weights.sum()
    height, width = images.shape[2:]
    padded = F.pad(images, (reach, reach, reach, reach), mode="replicate")
    along_rows = torch.zeros_like(padded[..., :width])
    for place, weight in enumerate(weights):
        along_rows += weight * padded[..., place : place + width]
    blurred = torch.zeros_like(images)
    for place, weight in enumerate(weights):
        blurred += weight * along_rows[:, :, place : place + height]
    return blurred.clamp_(0, 1)


def median(images: Tensor, window: int) -> Tensor:
    """Return images (N, C, H, W) whose pixels are the medians of their windows, in each channel.

    Borders are repeated.
    """
    reach = window // 2
    medians = []
    # One image at a time: all windows of a batch would take 25 times its memory.
    for image in images.split(1):
        padded = F.pad(image, (reach, reach, reach, reach), mode="replicate")
        windows = padded.unfold(2, window, 1).unfold(3, window, 1).flatten(4)
        medians.append(windows.median(dim=-1).values)
    return torch.cat(medians)
