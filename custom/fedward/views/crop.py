"""The cheap weak view: a random crop and, where left and right mean nothing, a mirrored picture."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedward.views.types import check

PARTS = 7
"""The largest shift is a seventh of the side, 4 of 28 pixels. In FixMatch it is an eighth, 4 of 32.
"""


class Draw(NamedTuple):
    """What happens to each image; all are (N,) on the CPU."""

    down: Tensor
    """int64: pixels by which the window moves down."""
    right: Tensor
    """int64: pixels by which it moves to the right."""
    mirrored: Tensor
    """bool: whether left and right are swapped."""


def crop(images: Tensor, generator: torch.Generator, *, flip: bool) -> Tensor:
    """Return one random crop of every image, each with its own draw.

    The window is as large as the image and moves by a whole number of pixels, uniform in +-(side //
    7) along each side, +-4 at 28 pixels. It does not move along sides below 7. Beyond the border it
    sees the mirrored image. With ``flip``, left and right are swapped with probability 1/2. Pixels
    are copied, never blended.

    Source: Sohn et al., NeurIPS 2020 (FixMatch), Sec. 2.3: flip and shift of up to 12.5 %; Liang et
    al., CVPR 2022 (RSCFed), whose code resizes to 40 pixels, crops 32 (nine positions each way, as
    here at 28) and flips.

    Args:
        images: as :func:`fedward.views.weak` takes them.
        generator: as there.
        flip: whether a mirrored image is as good as the image. It does not change the crops.

    Returns:
        As :func:`fedward.views.weak`.

    Raises:
        DataError: images of another shape or dtype.

    Deviates: RSCFed's crops never leave the image, because the image was enlarged before. Mirrored
    padding, as in FixMatch's code, comes closest to that without resampling.
    """
    check(images)
    return apply(images, draw(images.shape, generator, flip))


def draw(shape: Sequence[int], generator: torch.Generator, flip: bool) -> Draw:
    """Draw the crops of images of this shape (N, C, H, W); without ``flip`` none is mirrored."""
    count, _, height, width = shape
    down = _shifts(count, height, generator)
    right = _shifts(count, width, generator)
    probability = 0.5 if flip else 0.0
    return Draw(down, right, torch.rand(count, generator=generator) < probability)


def _shifts(count: int, side: int, generator: torch.Generator) -> Tensor:
    largest = side // PARTS
    return torch.randint(-largest, largest + 1, (count,), generator=generator)


def apply(images: Tensor, drawn: Draw) -> Tensor:
    """Move the window over each image and mirror what it sees, without a padded copy.

    Args:
        images: (N, C, H, W).
        drawn: shifts below the sides of the images.
    """
    channels, height, width = images.shape[1:]
    rows = _sources(drawn.down, height)
    columns = _sources(drawn.right, width)
    columns = torch.where(drawn.mirrored[:, None], columns.flip(1), columns)
    index = (rows[:, :, None] * width + columns[:, None]).flatten(1)  # (N, H*W)
    index = index[:, None].expand(-1, channels, -1).to(images.device)
    # Gathering from channels that lie last costs more than moving them first.
    pixels = images.contiguous().flatten(2)
    return pixels.gather(2, index).view_as(images)


def _sources(shift: Tensor, side: int) -> Tensor:
    """Return the source (N, side) of each pixel along a side that is moved.

    Beyond the ends the sources go back, as in 2 1 0 1 2.
    """
    last = side - 1
    return last - (last - (shift[:, None] + torch.arange(side)).abs()).abs()
