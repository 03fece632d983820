"""SelfFed: sites first learn to fill in hidden parts of their images, then few labels are enough.

Khowaja, Dev, Anwar, Linguraru: *SelfFed: self-supervised federated learning for data heterogeneity and label scarcity
in IoMT*, arXiv 2307.01514. Phase 1 pre-trains a masked autoencoder at the sites without labels (Sec. III-C). Phase 2
fine-tunes its encoder with labels at the sites, while the server contrasts two views of images of its own
(Sec. III-D), and weighs a site down the more often it has taken part (Sec. III-E). Here are the equations alone; the
target network follows the online one by :func:`fedward.methods.mean_teacher.ema`, which is eq. (4). What the paper
leaves open follows the code of its phase 1, Fed-MAE (Yan et al., IEEE TMI 2023), and MoCo (He et al., CVPR 2020).
"""

import math

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.mean_teacher import ema

__all__ = [
    "denormalise_units",
    "ema",
    "enqueue",
    "gain_recession_weights",
    "info_nce",
    "mask_units",
    "masked_loss",
    "normalise_units",
    "scheduled_rate",
]

_EPSILON = 1e-6
"""Added to the variance of a unit, as in MAE's code."""


def mask_units(batch: int, grid: int, ratio: float, generator: torch.Generator) -> Tensor:
    """Draw which units of each image are hidden, all sets of one size being equally likely.

    ``‖ϑ‖ = ⌈ψ R⌉`` with ``R = grid²``.

    Source: Khowaja et al., arXiv 2307.01514, eq. (2); rounded as MAE's code does, which keeps ``⌊(1 - ψ) R⌋``.

    Args:
        batch: B >= 0 images.
        grid: units along one side, >= 1; the paper cuts 224 pixels into 14 units of 16.
        ratio: ψ in [0, 1], the share that is hidden; ψ R is rounded at its ninth decimal first.
        generator: on the CPU, the only source of chance.

    Returns:
        (B, grid, grid) bool on the CPU, True = hidden, ``⌈ψ R⌉`` in each image. Equal generators give equal masks,
        whatever device trains.

    Raises:
        ConfigError: a number out of range, or a generator of another device.

    Edge cases:
        ===========  ===================
        B = 0        empty
        ratio = 0    nothing is hidden
        ratio = 1    everything is
        ===========  ===================
    """
    if batch < 0 or grid < 1 or not 0 <= ratio <= 1 or generator.device.type != "cpu":
        raise ConfigError(
            "selffed.mask_units",
            expected="batch >= 0, grid >= 1, a ratio in [0, 1] and a generator on the CPU",
            found=f"batch {batch}, grid {grid}, ratio {ratio}, a generator on {generator.device}",
            remedy="Mend the mask ratio; derive the generator with fedward.seeds.",
        )
    units = grid * grid
    hidden = math.ceil(round(ratio * units, 9))  # 0.07 · 100 is a little more than 7
    # Sorted by random keys, numbers stand in a random order: those below n are n, anywhere.
    order = torch.rand(batch, units, generator=generator, dtype=torch.float64).argsort(dim=1, stable=True)
    return (order < hidden).reshape(batch, grid, grid)


@torch.no_grad()
def normalise_units(images: Tensor, grid: int) -> Tensor:
    """Return what phase 1 is to predict: pixels relative to their own unit.

    ``(x - μ_j) / sqrt(σ_j² + 1e-6)`` with the mean and the variance of the unit j over its pixels and channels.

    Source: He et al., *Masked autoencoders are scalable vision learners*, CVPR 2022, Sec. 4.1; Fed-MAE's code.

    Args:
        images: (B, C, H, W) floating point; H and W are multiples of ``grid``.
        grid: units along one side, >= 1.

    Returns:
        (B, C, H, W) float32 without gradient, whatever comes in.

    Raises:
        ConfigError: images that cannot be cut into so many units.

    Edge cases:
        ===================  ==================================
        a unit of one value  0
        B = 0                empty
        NaN                  NaN all over its unit, and no other
        ===================  ==================================

    Deviates: MAE's code divides by the number of values less one: 0.07 % less for its units, 3 % for 4x4 grey pixels.
    """
    units, mean, scale = _statistics("selffed.normalise_units", images, grid)
    return ((units - mean) / scale).reshape(images.shape)


@torch.no_grad()
def denormalise_units(relative: Tensor, images: Tensor, grid: int) -> Tensor:
    """Return pixels that were relative to their own unit on the scale of the images, by the images' own statistics.

    ``x̂ sqrt(σ_j² + 1e-6) + μ_j``: the inverse of :func:`normalise_units`, which a prediction cannot be seen without.

    Args:
        relative: x̂ (B, C, H, W) floating point.
        images: (B, C, H, W), whose units' means and variances are taken.
        grid: units along one side, >= 1.

    Returns:
        (B, C, H, W) float32 without gradient, not clamped to any range.

    Raises:
        ConfigError: shapes that differ, or images that cannot be cut into so many units.
    """
    where = "selffed.denormalise_units"
    units, mean, scale = _statistics(where, images, grid)
    if relative.shape != images.shape:
        raise ConfigError(
            where,
            expected=f"relative pixels {tuple(images.shape)}",
            found=f"{tuple(relative.shape)}",
            remedy="Pass the prediction made from these images.",
        )
    return (relative.float().reshape(units.shape) * scale + mean).reshape(images.shape)


def _statistics(where: str, images: Tensor, grid: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the units (B, C, grid, h, grid, w) of images in float32, and their means and standard deviations."""
    height, width = _unit_size(where, images.shape, (*images.shape[:1], grid, grid))
    units = images.float().reshape(*images.shape[:2], grid, height, grid, width)
    unit = (1, 3, 5)
    mean = units.mean(dim=unit, keepdim=True)
    variance = (units - mean).square().mean(dim=unit, keepdim=True)
    return units, mean, (variance + _EPSILON).sqrt()


def masked_loss(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Return the mean squared error on the hidden pixels.

    ``L_MAE = (1 / ‖ϑ‖) Σ_{j in ϑ} mean((x_j - x̂_j)²)``, ϑ the hidden units of the whole batch.

    Source: Khowaja et al., arXiv 2307.01514, eq. (3).

    Args:
        prediction: x̂ (B, C, H, W) floating point.
        target: x (B, C, H, W): the image, or :func:`normalise_units` of it.
        mask: (B, g, g) bool of units, True = hidden, as :func:`mask_units` draws it; H and W are multiples of g. With
            g = H = W it is one of pixels.

    Returns:
        Scalar float32 >= 0, computed in float32 whatever comes in and also under autocast. The gradient reaches the
        hidden pixels of ``prediction`` only, never ``target``.

    Raises:
        ConfigError: shapes that do not belong together, or a mask that is not bool.

    Edge cases:
        =========================  =======================================================
        nothing hidden, B = 0      0 with a gradient of 0
        NaN, infinity, hidden      the loss is not finite: a broken net is noticed
        NaN, infinity, visible     without effect, on the gradient too
        =========================  =======================================================

    Deviates: eq. (3) prints the squared distance of a unit, without the mean over its pixels and channels: a constant
    factor, which the learning rates of Fed-MAE already contain.
    """
    where = "selffed.masked_loss"
    height, width = _unit_size(where, prediction.shape, mask.shape)
    if target.shape != prediction.shape or mask.dtype != torch.bool:
        raise ConfigError(
            where,
            expected=f"a target {tuple(prediction.shape)} and a mask of bool",
            found=f"{tuple(target.shape)} and {mask.dtype}",
            remedy="Compare the images with the prediction from them; True in the mask means hidden.",
        )
    hidden = mask.repeat_interleave(height, dim=1).repeat_interleave(width, dim=2).unsqueeze(1)
    # Chosen before they are squared: the gradient of a visible NaN would be 0 · NaN.
    error = torch.where(hidden, prediction.float() - target.detach().float(), 0.0)
    return error.square().sum() / (hidden.sum() * prediction.shape[1]).clamp_min(1)


def info_nce(query: Tensor, key: Tensor, queue: Tensor, temperature: float, own: Tensor | None = None) -> Tensor:
    """Return how badly views of one image find each other among older ones.

    ``L_NCE = -(1/N) Σ_n log [ e^(q_n·k_n/μ) / (e^(q_n·k_n/μ) + Σ_j e^(q_n·k_j/μ)) ]``, k_j in the queue, all of them
    scaled to length 1 here.

    Source: Khowaja et al., arXiv 2307.01514, eq. (5), in the form of He et al., CVPR 2020 (MoCo), eq. (1).

    Args:
        query: q (N, D) floating point, D >= 1: the online network's, of one view.
        key: k (N, D): the target network's, of the other view of the same images in the same order.
        queue: k_j (Q, D): earlier keys, see :func:`enqueue`; the present ones do not belong there.
        temperature: μ > 0.
        own: (N, Q) bool, True where k_j is an earlier key of the very image of q_n: it is left out of the sum. None:
            nowhere.

    Returns:
        Scalar >= 0, at most ``log(Q + 1) + 2/μ``, of the query's dtype, float32 at least, also under autocast. The
        gradient reaches ``query`` only, never ``key`` or ``queue``.

    Raises:
        ConfigError: shapes that do not belong together, or a temperature that is not positive and finite.

    Edge cases:
        ======================  =======================================================
        Q = 0                   0 with a gradient of 0: there is nothing to tell apart
        N = 0                   0 with a gradient of 0
        a vector of zeros       has similarity 0 to all; gradients stay finite
        all keys its own        0 with a gradient of 0, as Q = 0
        small temperature       finite: computed in log space
        NaN, infinity           the loss is NaN: a broken net is noticed
        ======================  =======================================================

    Deviates: eq. (5) leaves the positive pair out of the denominator, so that the loss has no lower bound; MoCo, which
    has a million images, also tells an image from its own earlier keys.
    """
    fits = query.dim() == 2 and query.shape[1] and key.shape == query.shape and queue.shape[1:] == query.shape[1:]
    fits = fits and (own is None or own.shape == (len(query), len(queue)))
    if not fits or not 0 < temperature < math.inf:
        raise ConfigError(
            "selffed.info_nce",
            expected="query and key (N, D), a queue (Q, D), D >= 1, own (N, Q) if any, and a temperature > 0",
            found=f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(queue.shape)}, own "
            f"{None if own is None else tuple(own.shape)}, temperature {temperature}",
            remedy="Pass the projections of two views of one batch, and the keys of earlier ones.",
        )
    dtype = torch.promote_types(query.dtype, torch.float32)
    q, k, negatives = (_directions(vectors.to(dtype)) for vectors in (query, key.detach(), queue.detach()))
    positive = (q * k).sum(dim=1, keepdim=True)
    with torch.autocast(query.device.type, enabled=False):  # similarities of three digits would be divided by μ
        others = q @ negatives.T
        if own is not None:
            others = others.masked_fill(own, -math.inf)
        logits = torch.cat([positive, others], dim=1) / temperature
    return (logits.logsumexp(dim=1) - logits[:, 0]).sum() / max(len(query), 1)


@torch.no_grad()
def enqueue(queue: Tensor, keys: Tensor, size: int) -> Tensor:
    """Return the queue after a batch: new keys at its end, the oldest gone from its front.

    Source: Khowaja et al., arXiv 2307.01514, Sec. III-D; He et al., CVPR 2020 (MoCo), Alg. 1.

    Args:
        queue: (Q, D), oldest first; (0, D) at the start.
        keys: (N, D), in the order in which they grow old.
        size: N_queue >= 0, the most it holds.

    Returns:
        (min(Q + N, size), D), a new tensor of the queue's dtype and device, without gradient.

    Raises:
        ConfigError: widths that differ, or a negative size.

    Edge cases:
        =============  =====================================
        N >= size      the last ``size`` keys
        Q > size       shortened to the newest
        size = 0       empty
        =============  =====================================

    Deviates: MoCo starts with random vectors, which are easy to tell apart; here the queue starts empty and fills.
    """
    if queue.dim() != 2 or keys.dim() != 2 or queue.shape[1] != keys.shape[1] or size < 0:
        raise ConfigError(
            "selffed.enqueue",
            expected="a queue (Q, D), keys (N, D) and a size >= 0",
            found=f"{tuple(queue.shape)}, {tuple(keys.shape)}, size {size}",
            remedy="Start from torch.empty(0, D).",
        )
    newest = keys[max(len(keys) - size, 0) :].to(queue)
    room = size - len(newest)
    return torch.cat([queue[max(len(queue) - room, 0) :], newest])


def gain_recession_weights(sizes: Tensor, participations: Tensor, beta: float) -> Tensor:
    """Weigh sites by their images, and down the more often they have taken part.

    ``w_k = n_k β^F_k / Σ_s n_s β^F_s``.

    Source: Khowaja et al., arXiv 2307.01514, eq. (7).

    Args:
        sizes: n_k (K,), numbers of images, finite, >= 0, not all 0; K >= 1.
        participations: F_k (K,), accepted answers of the site in earlier rounds of the phase, finite, >= 0; 0 at the
            first.
        beta: β in (0, 1]; 1 is federated averaging by size.

    Returns:
        (K,) float64 in [0, 1], sum 1. A number added to every F_k changes nothing, to the last bit; where all are equal
        it is exactly ``n_k / Σ_s n_s``.

    Raises:
        ConfigError: shapes that differ, or a number out of range.

    Edge cases:
        ====================  =========================================================================
        one site              1
        size 0                0, and its F_k does not matter
        large F_k             only differences count: the site that took part least has the factor 1
        no images at all      refused
        ====================  =========================================================================

    Deviates: eq. (7) does not divide by the sum, and so shrinks the model itself: where all sites take part in every
    round, round i multiplies all weights by β^i, so that after 10 rounds with β = 0.9 less than 1 % is left of them.
    That form is not offered. The paper leaves open whether F_k counts the present round: with the division it makes no
    difference.
    """
    n, times = sizes.to(torch.float64), participations.to(torch.float64)
    numbers = torch.cat([n.flatten(), times.flatten()])
    fits = n.dim() == 1 and n.shape == times.shape and bool((numbers.isfinite() & (numbers >= 0)).all())
    if not fits or not bool((n > 0).any()) or not 0 < beta <= 1:
        raise ConfigError(
            "selffed.gain_recession_weights",
            expected="as many finite participations >= 0 as sizes >= 0, not all sizes 0, and a beta in (0, 1]",
            found=f"sizes {sizes.tolist()}, participations {participations.tolist()}, beta {beta}",
            remedy="Weigh only replies that were accepted.",
        )
    further = (times - times[n > 0].min()).clamp_min(0.0)
    gains = n * beta**further
    return gains / gains.sum()


def scheduled_rate(base: float, position: float, total: float, warm_up: float, floor: float = 0.0) -> float:
    """Return the learning rate at a moment of the run: a linear rise, then half a cosine down.

    ``η (t / T_w)`` for t < T_w, then ``η_min + (η - η_min) (1 + cos(π (t - T_w) / (T - T_w))) / 2``.

    Source: Fed-MAE's code, util/lr_sched.py; its warm-up is 40 of 1600 rounds, then 5 of 100.

    Args:
        base: η > 0.
        position: t in [0, T], in rounds: those that the federation has finished, plus the finished share of this one.
            Not what a site has taken part in: one that missed rounds goes on at the rate of the others. A rate for a
            whole round is that of its middle, round - 1/2.
        total: T > 0 rounds.
        warm_up: T_w in [0, T).
        floor: η_min in [0, η].

    Returns:
        In [0, η]: 0 at the start if there is a warm-up, η at its end, η_min at the end of the run.

    Raises:
        ConfigError: a number out of range, NaN among them.
    """
    if not (0 <= position <= total < math.inf and 0 <= warm_up < total and 0 <= floor <= base < math.inf and base > 0):
        raise ConfigError(
            "selffed.scheduled_rate",
            expected="0 <= position <= total, 0 <= warm_up < total, 0 <= floor <= base, base > 0",
            found=f"base {base}, position {position}, total {total}, warm_up {warm_up}, floor {floor}",
            remedy="Mend the schedule; positions count from 0.",
        )
    if position < warm_up:
        return base * position / warm_up
    fallen = (1 + math.cos(math.pi * (position - warm_up) / (total - warm_up))) / 2
    return floor + (base - floor) * fallen


def _directions(vectors: Tensor) -> Tensor:
    """Scale rows to length 1; one of zeros stays so, with a finite gradient."""
    norms = vectors.norm(dim=1, keepdim=True)
    directions: Tensor = vectors / norms.where(norms > 0, 1.0)
    return directions


def _unit_size(where: str, images: torch.Size, mask: tuple[int, ...]) -> tuple[int, int]:
    """Return a unit's height and width in pixels, for a mask (B, g, g) of images (B, C, H, W)."""
    fits = len(images) == 4 and len(mask) == 3 and images[0] == mask[0] and mask[1] == mask[2] >= 1
    if not fits or any(side < mask[1] or side % mask[1] for side in images[2:]) or not images[1]:
        raise ConfigError(
            where,
            expected="images (B, C, H, W), and units (B, g, g) with H and W multiples of g",
            found=f"{tuple(images)} and {tuple(mask)}",
            remedy="Cut the images into whole units.",
        )
    return images[2] // mask[1], images[3] // mask[1]
