"""Distances of sites' models from their mean, and weights that fall with the distance.

Liang, Lin, Fu, Zhu, Li: *RSCFed*, CVPR 2022, eq. (5)-(7), as used by IsoFed (Saha et al., MICCAI
2023, eq. (2)-(3)).
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.averages import weighted_average
from fedward.methods.weight_limits import capped_counts
from fedward.methods.workflow import ClientUpdate
from fedward.model_state import State

_LARGEST_PENALTY = 1e300
"""Penalties are clamped to this value, because inf - inf is NaN."""


@torch.no_grad()
def model_distance(state: State, mean: State, norm: Literal["sum", "flat"] = "sum") -> float:
    """Return the distance of a model from the mean of its group.

    "sum": ``d = Σ_l ‖W_l - W̄_l‖`` over tensors l. "flat": ``d = ‖W - W̄‖`` of all tensors as one
    vector.
    Source: Saha et al., MICCAI 2023, eq. (3), is "flat". RSCFed's code, with which the scale of the
    weights was tuned, is "sum".

    Args:
        state: the model, W.
        mean: a model of the same architecture, W̄. Floating-point tensors count; each is read once.
        norm: "sum" or "flat".

    Returns:
        d >= 0, computed in float64. ``flat <= sum <= sqrt(L) flat`` for L tensors.

    Raises ConfigError: keys or shapes that differ, or an unknown norm.
    """
    if norm not in ("sum", "flat"):
        raise ConfigError(f'a model distance is of norm {norm!r}, not "sum" or "flat"')
    different = set(state).symmetric_difference(mean)
    if different:
        raise _mismatch(min(different), "in both models", "in one")
    squares = []
    for key, mean_tensor in mean.items():
        if not mean_tensor.is_floating_point():
            continue
        tensor = state[key]
        if tensor.shape != mean_tensor.shape:
            raise _mismatch(
                key, f"shape {tuple(mean_tensor.shape)}", f"shape {tuple(tensor.shape)}"
            )
        squares.append(float((tensor.double() - mean_tensor.double()).square().sum()))
    if norm == "flat":
        return math.sqrt(sum(squares))
    return sum(math.sqrt(square) for square in squares)


def distance_weights(sizes: Tensor, distances: Tensor, scale: float) -> Tensor:
    """Weight sites by their images, and less the further their model is from the group's mean.

    ``c_k ∝ n_k exp(-λ d_k / n_k)``, scaled to a sum of 1.
    Source: Saha et al., MICCAI 2023, eq. (2)-(3).

    Args:
        sizes: n_k (K,), numbers of images, finite, >= 0, not all 0; K >= 1.
        distances: d_k (K,), finite, >= 0.
        scale: λ >= 0; with 0 sites are weighted by their images alone.

    Returns:
        (K,) float64 in [0, 1], sum 1. They are computed in log space, so that the largest weight
        survives however large λ d_k / n_k is.

    Raises ConfigError: shapes that differ, or a number out of range.

    Edge cases: one site: 1. size 0: 0. equal sizes and distances: 1 / K each. no images at all:
    refused.
    """
    n = sizes.to(torch.float64)
    d = distances.to(torch.float64)
    numbers = torch.cat([n.flatten(), d.flatten(), torch.tensor([scale], dtype=torch.float64)])
    same_shape = n.dim() == 1 and n.shape == d.shape
    in_range = bool((numbers.isfinite() & (numbers >= 0)).all())
    if not same_shape or not in_range or not bool((n > 0).any()):
        raise ConfigError(
            "distance_weights",
            "Weight only replies that were accepted.",
            expected="as many finite distances >= 0 as sizes >= 0, not all sizes 0, a scale >= 0",
            found=f"sizes {sizes.tolist()}, distances {distances.tolist()}, scale {scale}",
        )
    has_images = n > 0
    penalties = (scale * d[has_images] / n[has_images]).clamp_max(_LARGEST_PENALTY)
    logarithms = torch.full_like(n, -math.inf)
    logarithms[has_images] = n[has_images].log() - penalties
    return torch.softmax(logarithms, dim=0)


def images_and_distances(
    updates: Sequence[ClientUpdate], norm: Literal["sum", "flat"], largest_share: float
) -> tuple[Tensor, Tensor]:
    """Return the replies' images n_k (K,), capped, and their distances d_k (K,) from their mean.

    The mean is weighted by n_k. Both are float64.
    """
    # As images_of_group counts them: the labelled ones where a site has any.
    images = [update.labelled or update.unlabelled for update in updates]
    sizes = capped_counts(images, largest_share)
    mean = weighted_average([update.state for update in updates], sizes)
    distances = [model_distance(update.state, mean, norm) for update in updates]
    return torch.tensor(sizes, dtype=torch.float64), torch.tensor(distances, dtype=torch.float64)


def _mismatch(key: str, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"model_distance, tensor {key}",
        "Compare models of one architecture only.",
        expected=expected,
        found=found,
    )
