"""Alike sites become neighbours: by hand, against all orders that a tree admits, and against
scipy's.
"""

from itertools import pairwise

import numpy as np
import pytest
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from fedward.report.site_order import community_order


def likeness(sites, seed):
    draws = np.random.default_rng(seed).random((sites, sites))
    return (draws + draws.T) / 2


def between_neighbours(matrix, order):
    return sum(1 - matrix[a][b] for a, b in pairwise(order))


def test_alike_sites_become_neighbours():
    """Two groups, interleaved: 0, 2, 4 and 1, 3."""
    matrix = [
        [1.0 if i == j else 0.9 if i % 2 == j % 2 else 0.1 for j in range(5)] for i in range(5)
    ]
    order = community_order(matrix)
    assert [site % 2 for site in order] in ([0, 0, 0, 1, 1], [1, 1, 0, 0, 0])
    assert sorted(order) == list(range(5))


def test_pairs_touch_where_they_are_alike():
    """0 and 1 are a pair, 2 and 3 another; 0 is like 3, and 1 like none of them."""
    matrix = np.full((4, 4), 0.1)
    for a, b, value in ((0, 1, 0.9), (2, 3, 0.8), (0, 3, 0.5)):
        matrix[a, b] = matrix[b, a] = value
    assert community_order(matrix) in ([1, 0, 3, 2], [2, 3, 0, 1])


def admitted(tree, node):
    """All orders of the leaves below a node: either child first, each in all of its orders."""
    if node <= len(tree):
        return [[node]]
    left, right = (admitted(tree, int(child)) for child in tree[node - len(tree) - 1, :2])
    return [both for a in left for b in right for both in (a + b, b + a)]


@pytest.mark.parametrize("sites", [3, 4, 7, 9])
def test_no_order_of_the_same_tree_is_better(sites):
    for seed in range(5):
        matrix = likeness(sites, seed)
        tree = linkage(squareform(1 - matrix, checks=False), "average")
        orders = admitted(tree, 2 * sites - 2)
        best = min(between_neighbours(matrix, order) for order in orders)
        ours = community_order(matrix)
        assert ours in orders
        assert between_neighbours(matrix, ours) == pytest.approx(best)


def test_thirty_sites_are_ordered_no_worse_than_by_scipy():
    matrix = likeness(30, 0)
    tree = linkage(squareform(1 - matrix, checks=False), "average", optimal_ordering=True)
    ours = community_order(matrix)
    theirs = leaves_list(tree).tolist()
    assert sorted(ours) == sorted(theirs)
    assert between_neighbours(matrix, ours) <= between_neighbours(matrix, theirs) + 1e-9


def test_both_halves_of_a_likeness_count_and_unknown_is_unlike():
    whole = likeness(8, 1)
    skewed = whole + np.triu(np.full((8, 8), 0.3), 1) - np.tril(np.full((8, 8), 0.3), -1)
    assert community_order(skewed) == community_order(whole)
    unknown = whole.copy()
    least = whole.copy()
    unknown[2, 5] = unknown[5, 2] = np.nan
    least[2, 5] = least[5, 2] = whole.min()
    assert community_order(unknown) == community_order(least)


@pytest.mark.parametrize("sites", [0, 1, 2])
def test_one_or_two_sites_stay_as_they_are(sites):
    assert community_order(np.eye(sites)) == list(range(sites))


def test_equally_alike_sites_are_all_there():
    assert sorted(community_order(np.ones((6, 6)))) == list(range(6))
