"""Photometric operations on a batch, one strength per image.

Every function takes images (N, C, H, W) float in [0, 1], C = 1 or 3, and ``value`` (N, 1, 1, 1),
and returns new images in [0, 1]. Definitions are those of Pillow's ImageOps and ImageEnhance,
without the rounding to 256 levels except where levels are the operation's subject (equalize,
posterize). Grey images: saturation leaves them as they are.
"""

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601-2, as Pillow's mode "L"


def autocontrast(images: Tensor, value: Tensor) -> Tensor:
    """Stretch each channel to [0, 1]; a channel of one value stays. ``value`` is not used."""
    low = images.amin((2, 3), keepdim=True)
    high = images.amax((2, 3), keepdim=True)
    flat = high == low
    return images.sub(low.masked_fill(flat, 0)).div_((high - low).masked_fill(flat, 1))


def equalize(images: Tensor, value: Tensor) -> Tensor:
    """Flatten each channel's histogram of 256 levels; too few pixels or levels: as it is. ``value``
    is not used.
    """
    levels = images.mul(255).round_().int().flatten(2).flatten(0, 1)  # (N*C, H*W)
    channels, pixels = levels.shape
    levels += (
        256 * torch.arange(channels, dtype=torch.int32, device=levels.device)[:, None]
    )  # 256 bins a channel
    counts = torch.bincount(levels.flatten(), minlength=256 * channels).view(channels, 256)
    upto = counts.cumsum(1)
    below = upto - counts
    # As Pillow: the brightest level present is left out of the step; it maps to white anyway.
    step = torch.where(upto == pixels, below, pixels).amin(1, keepdim=True) // 255
    grey = torch.arange(256, device=levels.device)
    table = torch.where(step > 0, ((below + step // 2) // step.clamp(min=1)).clamp_(max=255), grey)
    # int32 and index_select: several times faster on a CPU than int64 or fancy indexing.
    return (
        table.to(images.dtype).div_(255).flatten().index_select(0, levels.flatten()).view_as(images)
    )


def solarize(images: Tensor, value: Tensor) -> Tensor:
    """Invert every pixel at or above the threshold ``value``."""
    inverted = images.sub(value).ge_(0)  # 1 where inverted, else 0
    return inverted.sub_(images).abs_()  # |1 - x| or |0 - x|: much faster on a CPU than torch.where


def posterize(images: Tensor, value: Tensor) -> Tensor:
    """Keep the ``value`` highest of a pixel's eight bits (rounded to a whole number)."""
    width = torch.exp2(8 - value.round())
    return images.mul(255).round_().div_(width).floor_().mul_(width / 255)


def saturation(images: Tensor, value: Tensor) -> Tensor:
    """Scale the distance to the pixel's own grey: 0 = grey, 1 = as it is."""
    return images.clone() if images.shape[1] == 1 else _blend(_grey(images), images, value)


def contrast(images: Tensor, value: Tensor) -> Tensor:
    """Scale the distance to the image's mean grey: 0 = flat, 1 = as it is."""
    return _blend(_grey(images).mean((2, 3), keepdim=True), images, value)


def brightness(images: Tensor, value: Tensor) -> Tensor:
    """Scale every pixel: 0 = black, 1 = as it is."""
    return images.mul(value).clamp_(0, 1)


def sharpness(images: Tensor, value: Tensor) -> Tensor:
    """Scale the distance to the smoothed image: 0 = smooth, 1 = as it is, above = sharper. The
    border stays.
    """
    sharp = images.clone()
    if min(images.shape[2:]) < 3:
        return sharp
    rows = images[:, :, :-2] + images[:, :, 1:-1] + images[:, :, 2:]
    inner = images[:, :, 1:-1, 1:-1]
    smooth = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:]).add_(inner, alpha=4).div_(13)
    sharp[:, :, 1:-1, 1:-1] = _blend(smooth, inner, value)
    return sharp


def _grey(images: Tensor) -> Tensor:
    """Return the luminance (N, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    red = images[:, 0:1]
    green = images[:, 1:2]
    blue = images[:, 2:3]
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def _blend(base: Tensor, images: Tensor, value: Tensor) -> Tensor:
    """Return base + value * (images - base), kept in [0, 1]."""
    return (images - base).mul_(value).add_(base).clamp_(0, 1)
