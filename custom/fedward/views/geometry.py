"""Affine resampling of a batch, one matrix per image."""

import torch
from torch import Tensor
from torch.nn import functional as F


def affine(
    angle: Tensor, shear_x: Tensor, shear_y: Tensor, shift_x: Tensor, shift_y: Tensor
) -> Tensor:
    """Return matrices (..., 3, 3) that map output positions to input positions.

    Positions are measured from the image's centre, in image sides: x right, y down. Each matrix has
    the entries of the single operations. This is exact if at most one argument differs from zero,
    or only rotation and shift do.

    Args:
        angle: (...) radians; positive turns the picture clockwise on the screen.
        shear_x: (...) share of a row's height by which it moves left.
        shear_y: (...) share of a column's width by which it moves up.
        shift_x: (...) share of the width by which the picture moves left.
        shift_y: (...) share of the height by which the picture moves up.
    """
    cos = angle.cos()
    sin = angle.sin()
    zero = torch.zeros_like(angle)
    one = torch.ones_like(angle)
    rows = (cos, sin + shear_x, shift_x, -sin + shear_y, cos, shift_y, zero, zero, one)
    return torch.stack(rows, dim=-1).reshape(*angle.shape, 3, 3)


def warp(images: Tensor, matrices: Tensor, fill: float | None = None) -> Tensor:
    """Resample every image once, bilinearly, with its own matrix.

    Args:
        images: (N, C, H, W) float in [0, 1].
        matrices: (N, 3, 3) as :func:`affine` returns them, on any device.
        fill: grey level outside the image; None mirrors the image at its borders.

    Returns:
        (N, C, H, W), in [0, 1].
    """
    height, width = images.shape[-2:]
    grid = _grid(matrices.to(images), height, width)
    if fill is None:
        mirrored = F.grid_sample(
            images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
        )
        return mirrored.clamp_(0, 1)
    # grid_sample pads with zeros only, so the fill level is moved to zero and back.
    padded = F.grid_sample(
        images - fill, grid, mode="bilinear", padding_mode="zeros", align_corners=False
    )
    return padded.add_(fill).clamp_(0, 1)


def _grid(matrices: Tensor, height: int, width: int) -> Tensor:
    """Return the sampling grid (N, H, W, 2).

    It is a broadcast sum, several times faster than ``F.affine_grid``.
    """
    # Pixel centres in [-1, 1]. Rotations are scaled to pixels, so that angles hold in pictures that
    # are not square.
    x = (torch.arange(width, device=matrices.device, dtype=matrices.dtype) * 2 + 1) / width - 1
    y = (torch.arange(height, device=matrices.device, dtype=matrices.dtype) * 2 + 1) / height - 1
    along_x, along_y, offset = matrices[:, None, None, :2].unbind(-1)  # (N, 1, 1, 2) each
    along_x = along_x * matrices.new_tensor([1, width / height])
    along_y = along_y * matrices.new_tensor([height / width, 1])
    return along_x * x[:, None] + (along_y * y[:, None, None] + 2 * offset)
