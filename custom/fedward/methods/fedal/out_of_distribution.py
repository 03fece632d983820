"""Images of a pool that look like no labelled one: another body part, a ruler, a black frame.

Sun, Ming, Zhu, Li: *Out-of-distribution detection with deep nearest neighbors*, ICML 2022. The
method needs few labels, no class of its own, and nothing from other sites.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.methods.samplers.pool import Pool, PoolUses, checked

LEAST_LABELLED = 20
"""With fewer labelled images nothing is refused, because too many rightful images would be."""
USES = PoolUses(features="global")
"""What the filter looks at: features of the global model."""
_ROWS_AT_ONCE = 1024
"""Rows of the largest matrix of cosines; its columns are the labelled images."""
_RESOLUTION = 10**6
"""Distances are multiples of 1 / 10^6, so that equal images are 0 apart in spite of rounding."""


@torch.no_grad()
def nearest_distances(features: Tensor, others: Tensor | None = None) -> Tensor:
    """Return how far each image is from the nearest of other images.

    ``d_i = 1 - max_j cos(x_i, o_j)``.

    Source: Sun et al., ICML 2022, with k = 1; their Euclidean distance of features of length 1 is
    ``√(2 d)``.

    Args:
        features: x (N, D) finite float32.
        others: o (M, D), M >= 1. None: the images themselves, each without itself; N >= 2.

    Returns:
        (N,) float64 in [0, 2], multiples of 1e-6. O(N M D) operations, in blocks of 1024 rows.

    Edge cases: a feature vector of 0 is 1 away from all. N = 0: empty.
    """
    directions = F.normalize(features, dim=1)
    other_directions = directions if others is None else F.normalize(others, dim=1)
    distances = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    for rows in torch.arange(len(features)).split(_ROWS_AT_ONCE):
        cosines = directions[rows] @ other_directions.T  # (rows, M)
        if others is None:
            cosines[torch.arange(len(rows)), rows] = -torch.inf
        distances[rows] = 1 - cosines.amax(dim=1).double()
    return (distances.clamp(0.0, 2.0) * _RESOLUTION).round() / _RESOLUTION


def out_of_distribution(pool: Pool) -> dict[str, float]:
    """Return the images farther from all labelled ones than any of these is from the others.

    ``x`` is refused if ``d(x, labelled) > max_l d(l, labelled without l)``.

    Of L labelled images drawn by chance and one more, each is as likely as any other to be the
    farthest from the rest, so that about one rightful image in L is refused.

    Args:
        pool: with what :data:`USES` names.

    Returns:
        Id -> distance in (0, 2], by rising id.

    Raises DataError: features that are not finite, or of other images; see
    :func:`fedward.methods.samplers.pool.checked`.

    Edge cases: fewer than :data:`LEAST_LABELLED` labelled images, or an empty pool: none.
    """
    if not pool.ids:
        return {}
    pool = checked(pool, USES, "out_of_distribution_filter")
    if len(pool.labelled) < LEAST_LABELLED:
        return {}
    largest = nearest_distances(pool.labelled).max()
    distances = nearest_distances(pool.features, pool.labelled)  # (N,)
    refused = (distances > largest).nonzero().flatten().tolist()
    return {pool.ids[position]: float(distances[position]) for position in refused}
