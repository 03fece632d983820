"""An order of sites in which alike ones are neighbours. scipy has it, too, but its import takes as
long as a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class _Cluster:
    """Sites that stand side by side, and the best order of them for every two of them at the ends."""

    sites: list[int]
    cost: Values
    """(n, n): least sum of distances between neighbours, from the left to the right end; infinite
    if impossible.
    """
    orders: dict[tuple[int, int], list[int]]
    """Places of both ends in ``sites`` -> all sites in order."""


def community_order(matrix: Sequence[Sequence[float]]) -> list[int]:
    """Return an order of sites in which alike ones are neighbours: the leaves of average-linkage
    clustering.

    Of all orders that the tree admits, neighbours are the most alike in total (Bar-Joseph et al.,
    Bioinformatics 2001, Sec. 3). The matrix is a similarity (S, S), the larger the more alike; it
    is made symmetric first. NaN, if unknown, counts as not alike at all.
    """
    values: Values = np.asarray(matrix, dtype=float)
    count = len(values)
    if count < 3:
        return list(range(count))
    values = np.nan_to_num((values + values.T) / 2, nan=float(np.nanmin(values)))
    distance = values.max() - values
    clusters = [_Cluster([site], np.zeros((1, 1)), {(0, 0): [site]}) for site in range(count)]
    apart = np.where(np.eye(count, dtype=bool), np.inf, distance)
    for _ in range(count - 1):
        a, b = divmod(int(apart.argmin()), count)
        sizes = len(clusters[a].sites), len(clusters[b].sites)
        apart[a] = apart[:, a] = np.average(apart[[a, b]], axis=0, weights=sizes)
        apart[b] = apart[:, b] = np.inf
        clusters[a] = whole = _joined(clusters[a], clusters[b], distance)
    left, right = divmod(int(whole.cost.argmin()), count)
    return whole.orders[left, right]


def _joined(a: _Cluster, b: _Cluster, distance: Values) -> _Cluster:
    """Return both clusters side by side: from a site of ``a`` to its last one, then from one of
    ``b`` to another.
    """
    step = distance[np.ix_(a.sites, b.sites)]
    to_first = a.cost[:, :, None] + step
    to_end = to_first.min(axis=1)[:, :, None] + b.cost
    lasts = to_first.argmin(axis=1)
    firsts = to_end.argmin(axis=1)
    size = len(a.sites)
    cost = np.full((len(a.sites) + len(b.sites),) * 2, np.inf)
    cost[:size, size:] = to_end.min(axis=1)
    cost = np.minimum(cost, cost.T)
    orders = {}
    for (left, right), first in np.ndenumerate(firsts):
        order = a.orders[left, int(lasts[left, first])] + b.orders[int(first), right]
        orders[left, size + right], orders[size + right, left] = order, order[::-1]
    return _Cluster(a.sites + b.sites, cost, orders)
