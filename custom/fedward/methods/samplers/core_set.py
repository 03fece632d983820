"""Core-set: images that leave no other image far from a labelled one.

Sener, Savarese: *Active learning for convolutional neural networks: a core-set approach*, ICLR
2018.
"""

import math

import torch
from torch import Tensor

from fedward.methods.samplers.base import Sampler
from fedward.methods.samplers.pool import Pool, PoolUses

_CENTRES_AT_ONCE = 256
"""Columns of the largest matrix of distances; its rows are the pool."""
_TAKEN = -1.0
"""Squared distance of a chosen image: below every real one."""


@torch.no_grad()
def k_centre_greedy(
    features: Tensor, labelled: Tensor, budget: int, generator: torch.Generator
) -> list[int]:
    """Repeatedly choose the image farthest from all centres, and make it a centre.

    ``u = argmax_{i not in s} min_{j in s} ‖x_i - x_j‖_2``,  ``s <- s ∪ {u}``.

    Source: Sener, Savarese, ICLR 2018, Alg. 1.

    Args:
        features: x (N, D) finite float32.
        labelled: (L, D) finite float32, the first centres.
        budget: at least 0.
        generator: draws the first centre where there is none.

    Returns:
        min(budget, N) distinct positions in [0, N) in the order chosen; where equally far, the
        lowest position. Squared distances are rounded to about 1e-7 of the features' squared norms,
        and compared as they are. O((L + budget) N D) operations, and O(N) memory besides the
        features.

    Edge cases: L = 0: the first is drawn at random. Equal images: 0 apart, up to rounding, and so
    chosen last.
    """
    norms = _squared_norms(features)  # (N,)
    # Squared distance of each image to its nearest centre.
    nearest = torch.full((len(features),), math.inf)  # (N,)
    for start in range(0, len(labelled), _CENTRES_AT_ONCE):
        centres = labelled[start : start + _CENTRES_AT_ONCE]
        distances = _squared_distances(features, norms, centres)
        nearest = torch.minimum(nearest, distances.amin(dim=1))
    chosen: list[int] = []
    while len(chosen) < min(budget, len(features)):
        if chosen or len(labelled):
            centre = int(nearest.argmax())
        else:
            centre = int(torch.randint(len(features), (1,), generator=generator))
        distances = _squared_distances(features, norms, features[[centre]])
        nearest = torch.minimum(nearest, distances.squeeze(1))
        nearest[centre] = _TAKEN
        chosen.append(centre)
    return chosen


def _squared_distances(images: Tensor, norms: Tensor, centres: Tensor) -> Tensor:
    """Return the squared distances (N, C) of images, whose squared norms are given, to centres."""
    sums = norms.unsqueeze(1) + _squared_norms(centres)
    return sums.addmm_(images, centres.T, alpha=-2).clamp_min_(0.0)


def _squared_norms(features: Tensor) -> Tensor:
    norms: Tensor = torch.einsum("nd,nd->n", features, features)
    return norms


class CoreSet(Sampler):
    """k-centre greedy on the features that the site's own model gives its classifier."""

    uses = PoolUses(features="local")

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose centres."""
        positions = k_centre_greedy(pool.features, pool.labelled, budget, generator)
        return [pool.ids[position] for position in positions]
