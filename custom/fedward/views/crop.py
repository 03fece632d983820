"""The cheap weak view: a random crop and, where left and right mean nothing, a mirrored picture."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedward.views.types import check

PARTS = 7
"""The largest shift is the side's seventh part, 4 of 28 pixels; FixMatch's is the eighth, 4 of 32.
"""


class Draw(NamedTuple):
    """What happens to every image, all (N,), on the CPU: int64 pixels by which the window moves,
    and bool.
    """

    down: Tensor
    right: Tensor
    mirrored: Tensor


def crop(images: Tensor, generator: torch.Generator, *, flip: bool) -> Tensor:
    """Return one random crop of every image, each with its own draw.

    The window, as large as the image, moves by a whole number of pixels, uniform in +-(side // 7)
    each way, +-4 at 28 pixels; sides below 7 stay. What it sees beyond the border is the mirrored
    image. With ``flip``, left and right are swapped with probability 1/2. Pixels are copied, never
    blended.

    Source: Sohn et al., NeurIPS 2020 (FixMatch), Sec. 2.3: flip and shift of up to 12.5 %; Liang et
    al., CVPR 2022 (RSCFed), whose code resizes to 40 pixels, crops 32 (nine positions each way, as
    here at 28) and flips.

    Args:
        images, generator: as :func:`fedward.views.weak` takes them; what is returned and raised is
        the same, too.
        flip: whether a mirrored image is as good as the image; it changes no crop.

    Deviates: RSCFed's crops never leave the image, because it was enlarged before. Mirrored
    padding, as in FixMatch's code, is closest to that without resampling.
    """
    check(images)
    return apply(images, draw(images.shape, generator, flip))


def draw(shape: Sequence[int], generator: torch.Generator, flip: bool) -> Draw:
    """Draw the crops of images of this shape (N, C, H, W); without ``flip`` none is mirrored."""
    count, _, *sides = shape
    down, right = (
        torch.randint(-(side // PARTS), side // PARTS + 1, (count,), generator=generator)
        for side in sides
    )
    return Draw(down, right, torch.rand(count, generator=generator) < (0.5 if flip else 0))


def apply(images: Tensor, drawn: Draw) -> Tensor:
    """Move the window over each image, by less than a side, and mirror what it sees: one gather, no
    padded copy.
    """
    channels, height, width = images.shape[1:]
    rows = _sources(drawn.down, height)
    columns = _sources(drawn.right, width)
    columns = torch.where(drawn.mirrored[:, None], columns.flip(1), columns)
    index = (rows[:, :, None] * width + columns[:, None]).flatten(1).to(images.device)  # (N, H*W)
    # In rows first: gathering from channels that lie last costs more than moving them. The channels
    # share one index.
    return (
        images.contiguous()
        .flatten(2)
        .gather(2, index[:, None].expand(-1, channels, -1))
        .view_as(images)
    )


def _sources(shift: Tensor, side: int) -> Tensor:
    """Return where every pixel of a moved side comes from (N, side); beyond the ends it goes back:
    2 1 0 1 2.
    """
    last = side - 1
    return last - (last - (shift[:, None] + torch.arange(side)).abs()).abs()
