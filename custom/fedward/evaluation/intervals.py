"""Means with Student's t intervals, for repeated runs with different seeds."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fedward.errors import ConfigError


@dataclass(frozen=True)
class Interval:
    """A mean of n values with its two-sided 95 % interval."""

    mean: float
    sd: float | None
    """Sample standard deviation (divisor n - 1); None for one value."""
    low: float | None
    high: float | None
    n: int


def mean_and_interval(values: Sequence[float]) -> Interval:
    """Return mean, sample standard deviation and mean +- t(0.975, n - 1) sd / sqrt(n) of n runs.

    One value has a mean and nothing else. Raises :class:`ConfigError` for no value or one that is not finite:
    a run without a number must be named, not dropped.
    """
    n = len(values)
    if n == 0 or not all(math.isfinite(value) for value in values):
        expected, remedy = "at least one value, all finite", "Leave out runs without the metric, and say which."
        raise ConfigError("mean over runs", expected=expected, found=str(list(values)), remedy=remedy)
    mean = statistics.fmean(values)
    if n == 1:
        return Interval(mean, None, None, None, 1)
    from scipy.stats import t  # type: ignore[import-untyped,unused-ignore]  # costs 0.7 s, and few commands need it

    sd = statistics.stdev(values)
    half = float(t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return Interval(mean, sd, mean - half, mean + half, n)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the mean of a - b with its 95 % t interval; a[i] and b[i] are the same seed (or site) under two methods.

    Raises :class:`ConfigError` when the lengths differ.
    """
    if len(a) != len(b):
        expected, remedy = "as many values on both sides", "Pair runs by seed; leave out seeds only one side has."
        raise ConfigError("paired difference", expected=expected, found=f"{len(a)} and {len(b)}", remedy=remedy)
    return mean_and_interval([x - y for x, y in zip(a, b, strict=True)])
