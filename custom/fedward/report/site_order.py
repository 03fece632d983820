"""An order of sites in which alike ones are neighbours.

scipy has it, too, but its import takes as long as a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class _Cluster:
    """Sites that are side by side, with their best order for each choice of sites at the ends."""

    sites: list[int]
    """Places of the n sites in the matrix."""
    cost: Values
    """(n, n): least sum of distances between neighbours, by the sites at the left and right end.

    Infinite if these two cannot be the ends.
    """
    orders: dict[tuple[int, int], list[int]]
    """Places of both ends in ``sites`` -> all sites in order."""


def community_order(matrix: Sequence[Sequence[float]]) -> list[int]:
    """Return an order of sites in which alike ones are neighbours.

    The sites are the leaves of average-linkage clustering. Of all orders that the tree admits, this
    is the one whose neighbours are most alike in total.

    Args:
        matrix: similarity (S, S), the larger the more alike; it is made symmetric first. NaN means
            unknown, and counts as the least similarity.

    Source: Bar-Joseph et al., Bioinformatics 2001, Sec. 3.
    """
    values: Values = np.asarray(matrix, dtype=float)
    size = len(values)
    if size < 3:
        return list(range(size))
    values = np.nan_to_num((values + values.T) / 2, nan=float(np.nanmin(values)))
    distance = values.max() - values
    clusters = [_Cluster([site], np.zeros((1, 1)), {(0, 0): [site]}) for site in range(size)]
    apart = np.where(np.eye(size, dtype=bool), np.inf, distance)
    for _ in range(size - 1):
        first, second = divmod(int(apart.argmin()), size)
        sizes = [len(clusters[first].sites), len(clusters[second].sites)]
        # The joined cluster takes the place of the first, and the second is not found again.
        means = np.average(apart[[first, second]], axis=0, weights=sizes)
        apart[first] = means
        apart[:, first] = means
        apart[second] = np.inf
        apart[:, second] = np.inf
        whole = _joined(clusters[first], clusters[second], distance)
        clusters[first] = whole
    left, right = divmod(int(whole.cost.argmin()), size)
    return whole.orders[left, right]


def _joined(a: _Cluster, b: _Cluster, distance: Values) -> _Cluster:
    """Return both clusters side by side: all sites of ``a``, then all sites of ``b``."""
    # The two sites that meet in the middle are chosen one after the other. Axes are: the left end,
    # the last site of a, the first site of b.
    step = distance[np.ix_(a.sites, b.sites)]
    to_first = a.cost[:, :, None] + step
    lasts = to_first.argmin(axis=1)
    # Axes are: the left end, the first site of b, the right end.
    to_end = to_first.min(axis=1)[:, :, None] + b.cost
    firsts = to_end.argmin(axis=1)
    size = len(a.sites)
    cost = np.full((len(a.sites) + len(b.sites),) * 2, np.inf)
    cost[:size, size:] = to_end.min(axis=1)
    cost = np.minimum(cost, cost.T)
    orders = {}
    for (left, right), first in np.ndenumerate(firsts):
        order = a.orders[left, int(lasts[left, first])] + b.orders[int(first), right]
        orders[left, size + right] = order
        orders[size + right, left] = order[::-1]
    return _Cluster(a.sites + b.sites, cost, orders)
