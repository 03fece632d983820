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
    return warp(images, moves(torch.rand(5, len(images), generator=generator), TURN, SHIFT))


def moves(drawn: Tensor, largest_turn: float, largest_shift: float) -> Tensor:
    """Return the matrices (N, 3, 3) of flips, turns and shifts, for :func:`warp`.

    Args:
        drawn: (5, N) in [0, 1): of the turn, the shifts along x and y, and the flips along them.
        largest_turn: in radians.
        largest_shift: as a share of the side.
    """
    turn, shift_x, shift_y, flip_x, flip_y = drawn
    no_shear = torch.zeros_like(turn)
    matrices = affine(
        signed(turn) * largest_turn,
        no_shear,
        no_shear,
        signed(shift_x) * largest_shift,
        signed(shift_y) * largest_shift,
    )
    matrices[:, 0] *= torch.where(flip_x < 0.5, -1, 1)[:, None]
    matrices[:, 1] *= torch.where(flip_y < 0.5, -1, 1)[:, None]
    return matrices


def signed(unit: Tensor) -> Tensor:
    """Map [0, 1) to [-1, 1)."""
    return 2 * unit - 1
