"""How often sites of one community were each other's peers, and which communities there are."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from fedward.runs.communities import Community, Picks, community, found_communities, picks_of
from fedward.storage.rows import PeerRow


def row(round_: int, chosen: dict[str, tuple[str, ...]]) -> PeerRow:
    return PeerRow(round_, (), (), (), chosen, anonymised=True, features=24)


def test_picks_are_counted_over_rounds() -> None:
    rows = [row(1, {"b": ("a", "c")}), row(2, {"b": ("a",), "a": ()}), row(3, {"d": ("e",)})]
    assert picks_of(["a", "b", "c"], rows) == {
        "a": {},
        "b": {"a": 2, "c": 1},
        "c": {},
        "d": {"e": 1},
        "e": {},
    }


def test_a_community_by_hand() -> None:
    """Two of five sites: a was given b three times and c once, b was given a and d once each."""
    picks = {"a": {"b": 3, "c": 1}, "b": {"a": 1, "d": 1}, "c": {"a": 9}, "d": {}, "e": {}}
    found = community(picks, ["b", "a"])
    assert found == Community(("a", "b"), picks=6, inside=4, chance=1 / 4)
    assert found.share == pytest.approx(4 / 6)
    assert community(picks, ["d", "e"]).share == 0


def test_random_peers_fall_inside_by_chance() -> None:
    """Two of nine other sites, drawn for each of ten sites in 4000 rounds."""
    draw = np.random.default_rng(0)
    sites = [f"site-{number}" for number in range(10)]
    rows = []
    for round_ in range(4000):
        site = sites[round_ % 10]
        others = [other for other in sites if other != site]
        rows.append(row(round_, {site: tuple(draw.choice(others, 2, replace=False))}))
    found = community(picks_of(sites, rows), sites[:5])
    assert found.chance == 4 / 9
    assert found.share == pytest.approx(4 / 9, abs=0.03)


def modularity(picks: Picks, parts: Sequence[Sequence[str]]) -> float:
    """Return Newman's modularity of a division, by naive loops."""
    weight = dict.fromkeys(itertools.product(picks, picks), 0.0)
    for site, peers in picks.items():
        for peer, times in peers.items():
            share = times / sum(peers.values())
            weight[site, peer] += share
            weight[peer, site] += share
    degree = {site: sum(weight[site, other] for other in picks) for site in picks}
    total = sum(degree.values())
    value = 0.0
    for part in parts:
        for one, other in itertools.product(part, part):
            value += weight[one, other] / total - degree[one] * degree[other] / total**2
    return value


def divisions(sites: list[str]) -> Iterator[list[list[str]]]:
    """Yield all divisions of sites into parts."""
    if not sites:
        yield []
        return
    first, rest = sites[0], sites[1:]
    for parts in divisions(rest):
        yield [[first], *parts]
        for index, part in enumerate(parts):
            yield [*parts[:index], [first, *part], *parts[index + 1 :]]


def test_two_groups_that_pick_each_other_are_found() -> None:
    """A group of three, a group of two that once looks outside, and a site alone."""
    picks = {
        "a": {"b": 5, "c": 5},
        "b": {"a": 1, "c": 1},
        "c": {"a": 7, "b": 2},
        "d": {"e": 9, "a": 1},
        "e": {"d": 1},
        "f": {},
    }
    found = found_communities(picks)
    assert found == [["a", "b", "c"], ["d", "e"]]
    best = max(divisions(list(picks)), key=lambda parts: modularity(picks, parts))
    assert sorted(part for part in best if len(part) > 1) == sorted(found)


def test_equal_picks_give_equal_communities_and_no_picks_give_none() -> None:
    draw = np.random.default_rng(3)
    sites = [f"site-{number}" for number in range(12)]
    picks = {
        site: {other: int(draw.integers(1, 5)) for other in sites if other != site}
        for site in sites
    }
    assert found_communities(picks) == found_communities(picks)
    assert found_communities({"a": {}, "b": {}}) == []
