"""The rule by which a results page shows a row."""

import pytest

from fedward.errors import ConfigError
from fedward.lab.bench.convergence import apart, flat, rise


def test_rise_compares_the_last_two_quarters() -> None:
    assert rise([9, 9, 9, 9, 1, 3, 4, 6]) == 5 - 2
    assert rise([0, 0, 0, 0, 0.5, 0.5, 0.75, 0.75]) == 0.25
    assert rise([0.3] * 11) == 0, "eleven values have quarters of two"
    assert rise([1, 1, 1, 1, 1, 1, 1, 2, 4, 6, 8]) == (6 + 8) / 2 - (2 + 4) / 2


def test_too_short_a_curve_is_not_judged() -> None:
    with pytest.raises(ConfigError, match=r"at least 8 evaluations, found 7"):
        rise([0.5] * 7)


def test_a_row_is_flat_by_the_mean_of_its_seeds() -> None:
    rising, still, falling = ([0.5] * 6 + [0.5 + by] * 2 for by in (0.03, 0.0, -0.02))
    assert flat([still])
    assert not flat([rising])
    assert flat([rising, falling]), "0.005 in the mean"
    assert not flat([rising, still]), "0.015"


def test_bounds_are_apart_where_the_interval_excludes_zero() -> None:
    assert apart([0.8, 0.81, 0.82], [0.7, 0.71, 0.72])
    assert not apart([0.8, 0.9, 0.7], [0.7, 0.5, 0.9]), "pairs that disagree"
    assert not apart([0.7, 0.71], [0.8, 0.81])
    assert not apart([0.9], [0.1]), "one seed has no interval"
