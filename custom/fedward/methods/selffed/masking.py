"""Hidden parts of images and the loss of filling them in: phase 1 of SelfFed (Khowaja et al., Sec.
III-C).

What the paper leaves open follows the code of Fed-MAE (Yan et al., IEEE TMI 2023).
"""

import math

import torch
from torch import Tensor

from fedward.errors import ConfigError

_EPSILON = 1e-6
"""Added to the variance of a unit, as in MAE's code."""


def mask_units(batch: int, grid: int, ratio: float, generator: torch.Generator) -> Tensor:
    """Draw which units of each image are hidden, all sets of one size being equally likely.

    ``‖ϑ‖ = ⌈ψ R⌉`` with ``R = grid²``.
    Source: Khowaja et al., arXiv 2307.01514, eq. (2); rounded as MAE's code does, which keeps ``⌊(1
    - ψ) R⌋``.

    Args:
        batch: B >= 0 images.
        grid: units along one side, >= 1; the paper cuts 224 pixels into 14 units of 16.
        ratio: ψ in [0, 1], the share that is hidden; ψ R is rounded at its ninth decimal first.
        generator: on the CPU, the only source of chance.

    Returns:
        (B, grid, grid) bool on the CPU, True = hidden, ``⌈ψ R⌉`` in each image. Equal generators
        give equal masks.

    Raises ConfigError: a number out of range, or a generator of another device.

    Edge cases: B = 0: empty. ratio = 0: nothing is hidden. ratio = 1: everything is.
    """
    if batch < 0 or grid < 1 or not 0 <= ratio <= 1 or generator.device.type != "cpu":
        expected = "batch >= 0, grid >= 1, a ratio in [0, 1] and a generator on the CPU"
        found = f"batch {batch}, grid {grid}, ratio {ratio}, a generator on {generator.device}"
        remedy = "Fix the ratio; derive the generator by fedward.seeds."
        raise ConfigError("selffed.mask_units", expected=expected, found=found, remedy=remedy)
    units = grid * grid
    hidden = math.ceil(round(ratio * units, 9))  # 0.07 · 100 is a little more than 7
    # Sorted by random keys, numbers stand in a random order: those below n are n, anywhere.
    order = torch.rand(batch, units, generator=generator, dtype=torch.float64).argsort(
        dim=1, stable=True
    )
    return (order < hidden).reshape(batch, grid, grid)


@torch.no_grad()
def normalise_units(images: Tensor, grid: int) -> Tensor:
    """Return what phase 1 is to predict: pixels relative to their own unit.

    ``(x - μ_j) / sqrt(σ_j² + 1e-6)`` with the mean and the variance of the unit j over its pixels
    and channels.
    Source: He et al., *Masked autoencoders are scalable vision learners*, CVPR 2022, Sec. 4.1;
    Fed-MAE's code.

    Args:
        images: (B, C, H, W) floating point; H and W are multiples of ``grid``.
        grid: units along one side, >= 1.

    Returns:
        (B, C, H, W) float32 without gradient.

    Raises ConfigError: images that cannot be cut into so many units.

    Edge cases: a unit of one value: 0. B = 0: empty. NaN: NaN all over its unit, and no other.

    Deviates: MAE's code divides by the number of values less one: 0.07 % less for its units, 3 %
    for 4x4 grey pixels.
    """
    units, mean, scale = _statistics("selffed.normalise_units", images, grid)
    return ((units - mean) / scale).reshape(images.shape)


@torch.no_grad()
def denormalise_units(relative: Tensor, images: Tensor, grid: int) -> Tensor:
    """Return pixels that were relative to their own unit on the scale of the images, by the images'
    own statistics.

    ``x̂ sqrt(σ_j² + 1e-6) + μ_j``: the inverse of :func:`normalise_units`, which a prediction
    cannot be seen without.

    Args:
        relative: x̂ (B, C, H, W) floating point.
        images: (B, C, H, W), whose units' means and variances are taken.
        grid: units along one side, >= 1.

    Returns:
        (B, C, H, W) float32 without gradient, not clamped to any range.

    Raises ConfigError: shapes that differ, or images that cannot be cut into so many units.
    """
    where = "selffed.denormalise_units"
    units, mean, scale = _statistics(where, images, grid)
    if relative.shape != images.shape:
        expected = f"relative pixels {tuple(images.shape)}"
        remedy = "Pass the prediction made from these images."
        raise ConfigError(where, expected=expected, found=f"{tuple(relative.shape)}", remedy=remedy)
    return (relative.float().reshape(units.shape) * scale + mean).reshape(images.shape)


def _statistics(where: str, images: Tensor, grid: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the units (B, C, grid, h, grid, w) of images in float32, and their means and standard
    deviations.
    """
    height, width = _unit_size(where, images.shape, (*images.shape[:1], grid, grid))
    units = images.float().reshape(*images.shape[:2], grid, height, grid, width)
    mean = units.mean(dim=(1, 3, 5), keepdim=True)
    variance = (units - mean).square().mean(dim=(1, 3, 5), keepdim=True)
    return units, mean, (variance + _EPSILON).sqrt()


def masked_loss(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Return the mean squared error on the hidden pixels.

    ``L_MAE = (1 / ‖ϑ‖) Σ_{j in ϑ} mean((x_j - x̂_j)²)``, ϑ the hidden units of the whole batch.
    Source: Khowaja et al., arXiv 2307.01514, eq. (3).

    Args:
        prediction: x̂ (B, C, H, W) floating point.
        target: x (B, C, H, W): the image, or :func:`normalise_units` of it.
        mask: (B, g, g) bool of units, True = hidden, as :func:`mask_units` draws it; H and W are
            multiples of g. With g = H = W it is one of pixels.

    Returns:
        Scalar float32 >= 0, computed in float32 whatever comes in and also under autocast. The
        gradient reaches the hidden pixels of ``prediction`` only, never ``target``.

    Raises ConfigError: shapes that do not belong together, or a mask that is not bool.

    Edge cases: nothing hidden, B = 0: 0 with a gradient of 0. NaN, infinity, hidden: the loss is
    not finite: a broken net is noticed. NaN, infinity, visible: without effect, on the gradient
    too.

    Deviates: eq. (3) prints the squared distance of a unit, without the mean over its pixels and
    channels: a constant factor, which the learning rates of Fed-MAE already contain.
    """
    where = "selffed.masked_loss"
    height, width = _unit_size(where, prediction.shape, mask.shape)
    if target.shape != prediction.shape or mask.dtype != torch.bool:
        expected = f"a target {tuple(prediction.shape)} and a bool mask"
        remedy = "Pass the images and their own mask."
        raise ConfigError(
            where, expected=expected, found=f"{tuple(target.shape)} and {mask.dtype}", remedy=remedy
        )
    hidden = mask.repeat_interleave(height, dim=1).repeat_interleave(width, dim=2).unsqueeze(1)
    # Chosen before they are squared: the gradient of a visible NaN would be 0 · NaN.
    error = torch.where(hidden, prediction.float() - target.detach().float(), 0.0)
    return error.square().sum() / (hidden.sum() * prediction.shape[1]).clamp_min(1)


def _unit_size(where: str, images: torch.Size, mask: tuple[int, ...]) -> tuple[int, int]:
    """Return a unit's height and width in pixels, for a mask (B, g, g) of images (B, C, H, W)."""
    fits = len(images) == 4 and len(mask) == 3 and images[0] == mask[0] and mask[1] == mask[2] >= 1
    if not fits or any(side < mask[1] or side % mask[1] for side in images[2:]) or not images[1]:
        expected = "images (B, C, H, W), and units (B, g, g) with H and W multiples of g"
        found = f"{tuple(images)} and {tuple(mask)}"
        raise ConfigError(
            where, expected=expected, found=found, remedy="Cut the images into whole units."
        )
    return images[2] // mask[1], images[3] // mask[1]
