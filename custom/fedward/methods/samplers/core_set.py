"""Core-set: images that leave no other far from a labelled one.

Sener, Savarese: *Active learning for convolutional neural networks: a core-set approach*, ICLR 2018.
"""

import math

import torch
from torch import Tensor

from fedward.methods.samplers.base import Sampler
from fedward.methods.samplers.pool import Pool, Uses

_CENTRES_AT_ONCE = 256
"""Columns of the largest matrix of distances; its rows are the pool."""
_CANDIDATES = 64
"""Farthest images among which centres are looked for before all distances are brought up to date."""
_TAKEN = -1.0
"""Squared distance of a chosen image: below every real one."""


@torch.no_grad()
def k_centre_greedy(features: Tensor, labelled: Tensor, budget: int, generator: torch.Generator) -> list[int]:
    """Choose the image farthest from all centres, again and again; each chosen one is a centre from then on.

    ``u = argmax_{i not in s} min_{j in s} ‖x_i - x_j‖_2``,  ``s <- s ∪ {u}``.

    Source: Sener, Savarese, ICLR 2018, Alg. 1.

    Args:
        features: x (N, D) finite float32.
        labelled: (L, D) finite float32, the first centres.
        budget: at least 0.
        generator: draws the first centre where there is none.

    Returns:
        min(budget, N) distinct positions in [0, N) in the order chosen; where equally far, the lowest position. Squared
        distances are rounded to about 1e-7 of the features' squared norms, and compared as they are.

    Edge cases:
        - N = 0, or budget = 0: nothing
        - L = 0: the first is drawn at random
        - equal images: 0 apart, up to rounding: chosen when nothing else is left

    O((L + budget) N D) operations and O(N) memory beside the features, in blocks of 256 centres.
    """
    chosen: list[int] = []
    budget = min(budget, len(features))
    nearest = _nearest(features, labelled)
    while len(chosen) < budget:
        if chosen or len(labelled):
            centres = _next_centres(features, nearest, budget - len(chosen))
        else:
            centres = [int(torch.randint(len(features), (1,), generator=generator))]
        nearest = torch.minimum(nearest, _nearest(features, features[centres]))
        nearest[centres] = _TAKEN
        chosen += centres
    return chosen


def _next_centres(features: Tensor, nearest: Tensor, budget: int) -> list[int]:
    """Return the next one or more centres, as one by one would find them.

    The distance to the nearest centre never grows. So whichever of the farthest candidates is still farther than all
    images outside were at the start is the farthest of all, and the others' distances can wait.
    """
    farthest = nearest.argsort(descending=True, stable=True)
    candidates = farthest[:_CANDIDATES].sort().values  # by position, so that ties go to the lowest
    outside = float(nearest[farthest[_CANDIDATES]]) if len(farthest) > _CANDIDATES else _TAKEN
    distances, between = nearest[candidates], _squared_distances(features[candidates], features[candidates])
    centres: list[int] = []
    while len(centres) < budget:
        best = int(distances.argmax())
        if centres and not distances[best] > outside:
            break
        centres.append(int(candidates[best]))
        distances = torch.minimum(distances, between[best])
        distances[best] = _TAKEN
    return centres


def _nearest(features: Tensor, centres: Tensor) -> Tensor:
    """Return the squared distance (N,) of each image to the nearest centre, infinite where there is none."""
    nearest = torch.full((len(features),), math.inf)
    for start in range(0, len(centres), _CENTRES_AT_ONCE):
        block = centres[start : start + _CENTRES_AT_ONCE]
        nearest = torch.minimum(nearest, _squared_distances(features, block).amin(dim=1))
    return nearest


def _squared_distances(some: Tensor, others: Tensor) -> Tensor:
    norms = _squared_norms(some).unsqueeze(1) + _squared_norms(others)
    return norms.addmm_(some, others.T, alpha=-2).clamp_min_(0.0)


def _squared_norms(features: Tensor) -> Tensor:
    norms: Tensor = torch.einsum("nd,nd->n", features, features)
    return norms


class CoreSet(Sampler):
    """k-centre greedy on what the site's own model feeds its classifier."""

    name = "core_set"
    uses = Uses(features="local")

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose centres."""
        positions = k_centre_greedy(pool.features, pool.labelled, budget, generator)
        return [pool.ids[position] for position in positions]
