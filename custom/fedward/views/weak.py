"""The weak view: flips, a small turn and a small shift."""

import math

import torch
from torch import Tensor

from fedward.views.geometry import affine, warp
from fedward.views.types import check

TURN = math.radians(20)
"""Largest rotation, as in FedPerl's transforms."""
SHIFT = 0.06
"""Largest shift as a share of the side; about that of FixMatch's random crop."""


def weak(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return one weak view of every image, each with its own draw.

    Horizontal and vertical flip with probability 1/2, rotation uniform in +-20 degrees, shifts
    uniform in +-6 % of the side, in one bilinear resampling that mirrors the image at its borders.

    Source: Bdair et al., MELBA 2022 (FedPerl), Sec. 3: flips and rotation.

    Args:
        images: (N, C, H, W) float in [0, 1], C = 1 or 3, N >= 0, on any device.
        generator: on the CPU; the same state gives the same views on every device.

    Returns:
        A new tensor (N, C, H, W), contiguous, in [0, 1], with dtype and device of ``images``.

    Raises:
        DataError: images of another shape or dtype.

    Deviates: the shift is an addition. The authors' code has a colour jitter, which the paper does
    not mention.
    """
    check(images)
    turn, shift_x, shift_y, flip_x, flip_y = torch.rand(5, len(images), generator=generator)
    no_shear = torch.zeros(len(images))
    matrices = affine(
        _signed(turn) * TURN, no_shear, no_shear, _signed(shift_x) * SHIFT, _signed(shift_y) * SHIFT
    )
    matrices[:, 0] *= torch.where(flip_x < 0.5, -1, 1)[:, None]
    matrices[:, 1] *= torch.where(flip_y < 0.5, -1, 1)[:, None]
    return warp(images, matrices)


def _signed(unit: Tensor) -> Tensor:
    """Map [0, 1) to [-1, 1)."""
    return 2 * unit - 1
