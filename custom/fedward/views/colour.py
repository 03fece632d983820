"""Photometric operations on a batch, one strength per image.

Every function takes images (N, C, H, W) float in [0, 1], C = 1 or 3, and ``value`` (N, 1, 1, 1),
and returns new images in [0, 1]. Definitions are those of Pillow's ImageOps and ImageEnhance,
without the rounding to 256 levels except where levels are the operation's subject (equalize,
posterize). Grey images: saturation leaves them as they are.
"""

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the luminance of ITU-R 601-2, as in Pillow's mode "L"."""


def autocontrast(images: Tensor, value: Tensor) -> Tensor:
    """Stretch each channel to [0, 1]. A channel of one value stays as it is.

    ``value`` is not used.
    """
    low = images.amin((2, 3), keepdim=True)
    high = images.amax((2, 3), keepdim=True)
    flat = high == low
    return images.sub(low.masked_fill(flat, 0)).div_((high - low).masked_fill(flat, 1))


def equalize(images: Tensor, value: Tensor) -> Tensor:
    """Flatten each channel's histogram of 256 levels.

    A channel with too few pixels or levels stays as it is. ``value`` is not used.
    """
    # int32 and index_select are several times faster on a CPU than int64 and fancy indexing.
    levels = images.mul(255).round_().int().flatten(2).flatten(0, 1)  # (N*C, H*W)
    channels, pixels = levels.shape
    # Each channel has 256 bins of its own in one histogram.
    offsets = 256 * torch.arange(channels, dtype=torch.int32, device=levels.device)
    bins = (levels + offsets[:, None]).flatten()
    counts = torch.bincount(bins, minlength=256 * channels).view(channels, 256)
    up_to_level = counts.cumsum(1)
    below_level = up_to_level - counts
    # As in Pillow, the brightest level of a channel does not count for the step: it becomes white
    # in any case.
    step = torch.where(up_to_level == pixels, below_level, pixels).amin(1, keepdim=True) // 255
    flattened = ((below_level + step // 2) // step.clamp(min=1)).clamp_(max=255)
    unchanged = torch.arange(256, device=levels.device)
    table = torch.where(step > 0, flattened, unchanged).to(images.dtype).div_(255)
    return table.flatten().index_select(0, bins).view_as(images)


def solarize(images: Tensor, value: Tensor) -> Tensor:
    """Invert every pixel at or above the threshold ``value``."""
    inverted = images.sub(value).ge_(0)  # 1 where the pixel is inverted, else 0
    # |1 - x| or |0 - x|: much faster on a CPU than torch.where.
    return inverted.sub_(images).abs_()


def posterize(images: Tensor, value: Tensor) -> Tensor:
    """Keep the highest of a pixel's eight bits; ``value``, rounded, is how many."""
    width = torch.exp2(8 - value.round())
    return images.mul(255).round_().div_(width).floor_().mul_(width / 255)


def saturation(images: Tensor, value: Tensor) -> Tensor:
    """Scale the distance to the pixel's own grey: 0 = grey, 1 = as it is."""
    if images.shape[1] == 1:
        return images.clone()
    return _blend(_grey(images), images, value)


def contrast(images: Tensor, value: Tensor) -> Tensor:
    """Scale the distance to the image's mean grey: 0 = flat, 1 = as it is."""
    return _blend(_grey(images).mean((2, 3), keepdim=True), images, value)


def brightness(images: Tensor, value: Tensor) -> Tensor:
    """Scale every pixel: 0 = black, 1 = as it is."""
    return images.mul(value).clamp_(0, 1)


def sharpness(images: Tensor, value: Tensor) -> Tensor:
    """Scale the distance to the smoothed image: 0 = smooth, 1 = as it is, above 1 = sharper.

    The border of one pixel stays as it is.
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
