"""Guesses of the sites in a peer: worked by hand, at chance on noise, exact without hiding."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from committees import (
    chance,
    closest_committee,
    most_aligned_committee,
    rate,
    reconstruct,
    site_offsets,
)
from fedward.errors import ConfigError

SIZES = pytest.mark.parametrize("size", [1, 2, 3])


def models(seed: int, sites: int = 6, length: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(sites, length)).astype(np.float32)


@SIZES
def test_who_knows_the_models_names_every_committee(size):
    known = models(size)
    for members in combinations(range(len(known)), size):
        guess, distance = closest_committee(known[list(members)].mean(axis=0), known, size)
        assert guess == members
        assert distance < 1e-6


def test_closest_committee_worked_by_hand():
    """Means of the pairs of (0,0), (4,0), (0,2) are (2,0), (0,1), (2,1).

    From (2,.6) they are .6, sqrt(4.16) and .4 away.
    """
    known = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0]])
    guess, distance = closest_committee(np.array([2.0, 0.6]), known, 2)
    assert guess == (1, 2)
    assert distance == pytest.approx(0.4)


def test_most_aligned_committee_worked_by_hand():
    """Sums of the pairs of (1,0), (0,1), (-1,0) are (1,1), (0,0), (-1,1).

    The shift (-2,1) points most along the last.
    """
    offsets = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert most_aligned_committee(np.array([-2.0, 1.0]), offsets, 2) == (1, 2)
    assert most_aligned_committee(np.array([-2e-6, 1e-6]), offsets, 2) == (1, 2), (
        "only the direction counts"
    )


def test_a_silent_committee_beats_a_contrary_one():
    assert most_aligned_committee(np.array([1.0]), np.array([[-1.0], [0.0]]), 1) == (1,)


@given(st.integers(0, 1000), st.sampled_from([1, 2, 3]))
def test_the_order_of_the_sites_changes_nothing(seed, size):
    rng = np.random.default_rng(seed)
    known = models(seed)
    target = rng.normal(size=known.shape[1])
    order = rng.permutation(len(known))
    for guess in (
        lambda rows: closest_committee(target, rows, size)[0],
        lambda rows: most_aligned_committee(target, rows, size),
    ):
        assert {int(order[index]) for index in guess(known[order])} == set(guess(known))
    other = reconstruct(target, known[order], size, target)
    np.testing.assert_allclose(other, reconstruct(target, known, size, target), rtol=0, atol=1e-12)


@SIZES
def test_models_unrelated_to_the_peer_give_chance(size):
    """Guesses from noise: the 95 % interval holds the rate of chance, by a fixed seed."""
    rng = np.random.default_rng(size)
    outcomes = []
    for trial in range(300):
        truth = rng.permutation(6)[:size]
        guess, _ = closest_committee(models(trial)[truth].mean(axis=0), models(1000 + trial), size)
        outcomes.append(set(guess) == set(truth.tolist()))
    interval = rate(outcomes)
    assert interval.low <= chance(6, size) <= interval.high


@SIZES
def test_all_but_one_compute_the_last_ones_model(size):
    everyone = models(size)
    for victim in range(len(everyone)):
        known = np.delete(everyone, victim, axis=0)
        peer = (everyone[victim] + known[: size - 1].sum(axis=0)) / size
        near = everyone[victim] + 0.01
        np.testing.assert_allclose(
            reconstruct(peer, known, size, near), everyone[victim], rtol=0, atol=1e-5
        )


def test_reconstruction_worked_by_hand():
    """Twice (2, 3) minus (1, 1) is (3, 5), minus (4, 0) is (0, 6).

    (3, 4) is closer to the first.
    """
    known = np.array([[1.0, 1.0], [4.0, 0.0]])
    assert reconstruct(np.array([2.0, 3.0]), known, 2, np.array([3.0, 4.0])).tolist() == [3.0, 5.0]


def test_offsets_worked_by_hand():
    """One site seen as 3 with ridge 1: 3 / (1 + 1).

    Two sites seen as a sum of 4: each gets 4 / (2 + 1).
    """
    np.testing.assert_allclose(site_offsets(np.array([[1.0]]), np.array([[3.0]])), [[1.5]])
    np.testing.assert_allclose(
        site_offsets(np.array([[1.0, 1.0]]), np.array([[4.0]])), [[4 / 3], [4 / 3]]
    )


def test_offsets_of_sites_are_found_in_sums_of_them():
    """Ten observations of three of five sites determine all five.

    A tiny ridge changes them little.
    """
    truth = models(3, sites=5)
    design = np.array(
        [[float(site in trio) for site in range(5)] for trio in combinations(range(5), 3)]
    )
    np.testing.assert_allclose(site_offsets(design, design @ truth, ridge=1e-9), truth, atol=1e-6)


def test_without_observations_no_site_differs():
    assert not site_offsets(np.zeros((0, 4)), np.zeros((0, 7))).any()


@pytest.mark.parametrize(
    ("right", "guesses", "low", "high"),
    [
        (0, 10, 0.0, 1 - 0.025**0.1),
        (10, 10, 0.025**0.1, 1.0),
        (1, 10, 1 - 0.975**0.1, 0.4450161),
        (5, 10, 0.1870860, 0.8129140),
        (50, 100, 0.3983211, 0.6016789),
    ],
)
def test_clopper_pearson(right, guesses, low, high):
    """None or all right: (1 - p)^n = .025 solved for p. One of ten: 1 - (1 - p)^10 = .025 below."""
    interval = rate([True] * right + [False] * (guesses - right))
    assert (interval.right, interval.guesses, interval.value) == (right, guesses, right / guesses)
    assert (interval.low, interval.high) == (
        pytest.approx(low, abs=1e-6),
        pytest.approx(high, abs=1e-6),
    )


def test_chance_is_one_of_all_committees():
    assert [chance(9, size) for size in (1, 2, 3)] == [1 / 9, 1 / 36, 1 / 84]
    assert chance(3, 3) == 1 / comb(3, 3)


@pytest.mark.parametrize("guess", [closest_committee, most_aligned_committee])
@pytest.mark.parametrize(
    ("target", "rows", "size"),
    [
        (np.zeros(2), np.zeros((3, 4)), 1),
        (np.zeros(2), np.zeros(2), 1),
        (np.zeros(2), np.zeros((3, 2)), 0),
        (np.zeros(2), np.zeros((3, 2)), 4),
        (np.full(2, np.nan), np.zeros((3, 2)), 1),
        (np.zeros(2), np.full((3, 2), np.inf), 1),
    ],
)
def test_what_cannot_be_guessed_is_refused(guess, target, rows, size):
    with pytest.raises(ConfigError, match=guess.__name__):
        guess(target, rows, size)


def test_no_guesses_have_no_rate():
    with pytest.raises(ConfigError, match="rate"):
        rate([])


@pytest.mark.parametrize(
    ("design", "observed", "ridge"),
    [
        (np.zeros((2, 3)), np.zeros((1, 4)), 1.0),
        (np.zeros((2, 3)), np.zeros((2, 4)), 0.0),
        (np.zeros((2, 3)), np.full((2, 4), np.nan), 1.0),
    ],
)
def test_observations_that_do_not_fit_are_refused(design, observed, ridge):
    with pytest.raises(ConfigError, match="site_offsets"):
        site_offsets(design, observed, ridge)
