"""Hidden parts of images and the loss of filling them in: phase 1 of SelfFed.

Khowaja et al., arXiv 2307.01514, Sec. III-C. What the paper leaves open follows the code of Fed-MAE
(Yan et al., IEEE TMI 2023). A *unit* is a square of an image that is hidden or shown as a whole.
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

    Source: Khowaja et al., arXiv 2307.01514, eq. (2); rounded as in MAE's code, which keeps
    ``⌊(1 - ψ) R⌋``.

    Args:
        batch: B >= 0 images.
        grid: units along one side, >= 1; the paper cuts 224 pixels into 14 units of 16.
        ratio: ψ in [0, 1], the share that is hidden; ψ R is rounded at its ninth decimal first.
        generator: on the CPU, the only source of chance.

    Returns:
        (B, grid, grid) bool on the CPU, True = hidden, ``⌈ψ R⌉`` in each image. Equal generators
        give equal masks.

    Raises ConfigError: a number out of range, or a generator of another device.

    Edge cases: B = 0: empty. ratio = 0: nothing is hidden. ratio = 1: everything is hidden.
    """
    if batch < 0 or grid < 1 or not 0 <= ratio <= 1 or generator.device.type != "cpu":
        raise ConfigError(
            "selffed.mask_units",
            "Fix the ratio; derive the generator by fedward.seeds.",
            expected="batch >= 0, grid >= 1, a ratio in [0, 1] and a generator on the CPU",
            found=f"batch {batch}, grid {grid}, ratio {ratio}, a generator on {generator.device}",
        )
    units = grid * grid
    # Rounded first, as 0.07 · 100 is a little more than 7 in floating point.
    hidden = math.ceil(round(ratio * units, 9))
    # argsort of random keys is a random permutation of 0..R-1 for each image. The places of the
    # numbers below n are a random set of n units.
    keys = torch.rand(batch, units, generator=generator, dtype=torch.float64)
    permutation = keys.argsort(dim=1, stable=True)  # (B, R)
    return (permutation < hidden).reshape(batch, grid, grid)


@torch.no_grad()
def normalise_units(images: Tensor, grid: int) -> Tensor:
    """Return what phase 1 predicts: pixels relative to their own unit.

    ``(x - μ_j) / sqrt(σ_j² + 1e-6)`` with the mean and the variance of unit j over its pixels and
    channels.

    Source: He et al., *Masked autoencoders are scalable vision learners*, CVPR 2022, Sec. 4.1;
    Fed-MAE's code.

    Args:
        images: (B, C, H, W) floating point; H and W are multiples of ``grid``.
        grid: units along one side, >= 1.

    Returns:
        (B, C, H, W) float32 without gradient.

    Raises ConfigError: the images cannot be cut into whole units.

    Edge cases: a unit of one value: 0. B = 0: empty. NaN: NaN all over its unit, and in no other.

    Deviates: MAE's code divides by the number of values less one: 0.07 % less for its units, 3 %
    for 4x4 grey pixels.
    """
    units, mean, deviation = _unit_statistics("selffed.normalise_units", images, grid)
    return ((units - mean) / deviation).reshape(images.shape)


@torch.no_grad()
def denormalise_units(relative: Tensor, images: Tensor, grid: int) -> Tensor:
    """Return relative pixels on the scale of the images, by the images' own statistics.

    ``x̂ sqrt(σ_j² + 1e-6) + μ_j``: the inverse of :func:`normalise_units`. Without it a prediction
    cannot be shown as a picture.

    Args:
        relative: x̂ (B, C, H, W) floating point.
        images: (B, C, H, W), of whose units the means and variances are taken.
        grid: units along one side, >= 1.

    Returns:
        (B, C, H, W) float32 without gradient, not clamped to any range.

    Raises ConfigError: different shapes, or images that cannot be cut into whole units.
    """
    units, mean, deviation = _unit_statistics("selffed.denormalise_units", images, grid)
    if relative.shape != images.shape:
        raise ConfigError(
            "selffed.denormalise_units",
            "Pass the prediction made from these images.",
            expected=f"relative pixels {tuple(images.shape)}",
            found=f"{tuple(relative.shape)}",
        )
    relative_units = relative.float().reshape(units.shape)
    return (relative_units * deviation + mean).reshape(images.shape)


def _unit_statistics(where: str, images: Tensor, grid: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the units of images, their means and their standard deviations, in float32.

    Returns:
        units (B, C, g, h, g, w), of g x g units of h x w pixels; means and deviations
        (B, 1, g, 1, g, 1), which broadcast over the pixels and channels of a unit.
    """
    height, width = _unit_size(where, images.shape, (*images.shape[:1], grid, grid))
    batch, channels = images.shape[:2]
    units = images.float().reshape(batch, channels, grid, height, grid, width)
    mean = units.mean(dim=(1, 3, 5), keepdim=True)
    variance = (units - mean).square().mean(dim=(1, 3, 5), keepdim=True)
    return units, mean, (variance + _EPSILON).sqrt()


def masked_loss(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Return the mean squared error on the hidden pixels.

    ``L_MAE = (1 / ‖ϑ‖) Σ_{j in ϑ} mean((x_j - x̂_j)²)`` with ϑ the hidden units of the whole batch.

    Source: Khowaja et al., arXiv 2307.01514, eq. (3).

    Args:
        prediction: x̂ (B, C, H, W) floating point.
        target: x (B, C, H, W): the image, or :func:`normalise_units` of it.
        mask: (B, g, g) bool of units, True = hidden, as :func:`mask_units` draws it; H and W are
            multiples of g. With g = H = W it is a mask of pixels.

    Returns:
        Scalar float32 >= 0, computed in float32 whatever the inputs are, also under autocast. The
        gradient reaches the hidden pixels of ``prediction`` only, never ``target``.

    Raises ConfigError: the shapes do not match, or the mask is not bool.

    Edge cases: nothing hidden, or B = 0: 0 with a gradient of 0. NaN or infinity in a hidden pixel:
    the loss is not finite, because a broken network must be noticed. NaN or infinity in a visible
    pixel: without effect, also on the gradient.

    Deviates: eq. (3) prints the squared distance of a unit, without the mean over its pixels and
    channels: a constant factor, which the learning rates of Fed-MAE already contain.
    """
    height, width = _unit_size("selffed.masked_loss", prediction.shape, mask.shape)
    if target.shape != prediction.shape or mask.dtype != torch.bool:
        raise ConfigError(
            "selffed.masked_loss",
            "Pass the images and their own mask.",
            expected=f"a target {tuple(prediction.shape)} and a bool mask",
            found=f"{tuple(target.shape)} and {mask.dtype}",
        )
    hidden = mask.repeat_interleave(height, dim=1).repeat_interleave(width, dim=2)  # (B, H, W)
    hidden = hidden.unsqueeze(1)  # (B, 1, H, W)
    # Chosen before they are squared: the gradient of a visible NaN would be 0 · NaN.
    error = torch.where(hidden, prediction.float() - target.detach().float(), 0.0)
    hidden_values = hidden.sum() * prediction.shape[1]
    return error.square().sum() / hidden_values.clamp_min(1)


def _unit_size(where: str, images: torch.Size, mask: tuple[int, ...]) -> tuple[int, int]:
    """Return a unit's height and width in pixels.

    Args:
        where: the function that raises.
        images: shape (B, C, H, W).
        mask: shape (B, g, g).

    Raises ConfigError: the shapes do not match, or H or W is not a multiple of g.
    """
    if not _whole_units(images, mask):
        raise ConfigError(
            where,
            "Cut the images into whole units.",
            expected="images (B, C, H, W), and units (B, g, g) with H and W multiples of g",
            found=f"{tuple(images)} and {tuple(mask)}",
        )
    return images[2] // mask[1], images[3] // mask[1]


def _whole_units(images: torch.Size, mask: tuple[int, ...]) -> bool:
    if len(images) != 4 or len(mask) != 3:
        return False
    batch, channels, *sides = images
    masks, rows, columns = mask
    if batch != masks or rows != columns or rows < 1 or channels < 1:
        return False
    return all(side >= rows and side % rows == 0 for side in sides)
