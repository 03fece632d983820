"""How far sites' models are from their mean, and what they count for by that.

Liang, Lin, Fu, Zhu, Li: *RSCFed*, CVPR 2022, eq. (5)-(7), as used by IsoFed (Saha et al., MICCAI
2023, eq. (2)-(3)).
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.aggregation import capped_counts, weighted_average
from fedward.methods.workflow import ClientUpdate, State

_FURTHEST = 1e300
"""Penalties beyond this are this: the product of two numbers may be infinite, and a difference of
such is none.
"""


@torch.no_grad()
def model_distance(state: State, mean: State, norm: Literal["sum", "flat"] = "sum") -> float:
    """Return how far a model is from the mean of its group.

    "sum": ``d = Σ_l ‖W_l - W̄_l‖`` over tensors l; "flat": ``d = ‖W - W̄‖`` of all of them as one
    vector.

    Source: Saha et al., MICCAI 2023, eq. (3) is "flat"; RSCFed's code, with which the weights'
    scale was tuned, "sum".

    Args:
        state, mean: models of one architecture; floating-point tensors count, each is read once.

    Returns:
        d >= 0, computed in float64. ``flat <= sum <= sqrt(L) flat`` for L tensors.

    Raises ConfigError: other keys or shapes, or an unknown norm.
    """
    if norm not in ("sum", "flat"):
        raise ConfigError(
            "model_distance",
            expected='"sum" or "flat"',
            found=repr(norm),
            remedy="Choose one of them.",
        )
    different = set(state).symmetric_difference(mean)
    if different:
        raise _mismatch(min(different), "in both models", "in one")
    squares = []
    for key, other in mean.items():
        if not other.is_floating_point():
            continue
        one = state[key]
        if one.shape != other.shape:
            raise _mismatch(key, f"shape {tuple(other.shape)}", f"shape {tuple(one.shape)}")
        squares.append(float((one.double() - other.double()).square().sum()))
    return math.sqrt(sum(squares)) if norm == "flat" else sum(map(math.sqrt, squares))


def distance_weights(sizes: Tensor, distances: Tensor, scale: float) -> Tensor:
    """Weight sites by their images, less the further their model is from the group's mean.

    ``c_k ∝ n_k exp(-λ d_k / n_k)``, scaled to a sum of 1.
    Source: Saha et al., MICCAI 2023, eq. (2)-(3).

    Args:
        sizes: n_k (K,), numbers of images, finite, >= 0, not all 0; K >= 1.
        distances: d_k (K,), finite, >= 0.
        scale: λ >= 0; 0 is federated averaging by size.

    Returns:
        (K,) float64 in [0, 1], sum 1. Computed in log space: however large λ d_k / n_k is, the
        largest weight survives.

    Raises ConfigError: shapes that differ, or a number out of range.

    Edge cases: one site: 1. size 0: 0. equal sizes and distances: 1 / K each. no images at all:
    refused.
    """
    n = sizes.to(torch.float64)
    d = distances.to(torch.float64)
    numbers = torch.cat([n.flatten(), d.flatten(), torch.tensor([scale], dtype=torch.float64)])
    fits = n.dim() == 1 and n.shape == d.shape and len(n) > 0
    if not fits or not bool((numbers.isfinite() & (numbers >= 0)).all()) or not bool((n > 0).any()):
        expected = "as many finite distances >= 0 as sizes >= 0, not all sizes 0, and a scale >= 0"
        found = f"sizes {sizes.tolist()}, distances {distances.tolist()}, scale {scale}"
        remedy = "Weight only replies that were accepted."
        raise ConfigError("distance_weights", expected=expected, found=found, remedy=remedy)
    some = n > 0
    logarithms = torch.full_like(n, -math.inf)
    penalties = (scale * d[some] / n[some]).clamp_max(_FURTHEST)
    logarithms[some] = n[some].log() - penalties
    return torch.softmax(logarithms, dim=0)


def measure(
    updates: Sequence[ClientUpdate], norm: Literal["sum", "flat"], largest_share: float
) -> tuple[Tensor, Tensor]:
    """Return the images n_k (K,) of replies, capped, and the replies' distances d_k (K,) from their
    mean by n_k.
    """
    images = [
        images_of_group("", update.labelled, update.unlabelled, update.steps) for update in updates
    ]
    sizes = capped_counts(images, largest_share)
    mean = weighted_average([update.state for update in updates], sizes)
    distances = [model_distance(update.state, mean, norm) for update in updates]
    return torch.tensor(sizes, dtype=torch.float64), torch.tensor(distances, dtype=torch.float64)


def images_of_group(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by the images of its group: the labelled ones where it has any."""
    return labelled or unlabelled


def _mismatch(key: str, expected: str, found: str) -> ConfigError:
    remedy = "Compare models of one architecture only."
    return ConfigError(
        f"model_distance, tensor {key}", expected=expected, found=found, remedy=remedy
    )
