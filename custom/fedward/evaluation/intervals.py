"""Intervals: of means over repeated runs, of shares of images, and of any number about a set of
images.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedward.errors import ConfigError
from fedward.evaluation.names import SCORES

RESAMPLES = 1000
"""Of a bootstrap."""


@dataclass(frozen=True)
class Interval:
    """A mean of n values with its two-sided 95 % interval."""

    mean: float
    sd: float | None
    """Sample standard deviation (divisor n - 1); None for one value."""
    low: float | None
    high: float | None
    n: int

    def of_score(self, metric: str) -> "Interval":
        """Return it cut at 0 and 1 where the metric is a score: a t interval knows of no bounds."""
        if self.low is None or self.high is None or metric not in SCORES:
            return self
        return replace(self, low=max(self.low, 0.0), high=min(self.high, 1.0))


def mean_and_interval(values: Sequence[float]) -> Interval:
    """Return mean, sample standard deviation and mean +- t(0.975, n - 1) sd / sqrt(n) of n runs.

    One value has a mean and nothing else. Raises :class:`ConfigError` for no value or one that is
    not finite: a run without a number must be named, not dropped.
    """
    n = len(values)
    if n == 0 or not all(math.isfinite(value) for value in values):
        expected = "at least one value, all finite"
        remedy = "Leave out runs without the metric, and say which."
        raise ConfigError(
            "mean over runs", expected=expected, found=str(list(values)), remedy=remedy
        )
    mean = statistics.fmean(values)
    if n == 1:
        return Interval(mean, None, None, None, 1)
    from scipy.stats import t  # type: ignore[import-untyped,unused-ignore]  # costs 0.7 s, and few commands need it

    sd = statistics.stdev(values)
    half = float(t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return Interval(mean, sd, mean - half, mean + half, n)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the mean of a - b with its 95 % t interval; a[i] and b[i] are the same seed (or site)
    under two methods.

    Raises :class:`ConfigError` when the lengths differ.
    """
    if len(a) != len(b):
        expected = "as many values on both sides"
        remedy = "Pair runs by seed; leave out seeds only one side has."
        raise ConfigError(
            "paired difference", expected=expected, found=f"{len(a)} and {len(b)}", remedy=remedy
        )
    return mean_and_interval([x - y for x, y in zip(a, b, strict=True)])


def proportion_interval(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share that was measured on n independent images.

    ``(p + z²/2n ± z sqrt(p (1 - p)/n + z²/4n²)) / (1 + z²/n)`` with z = 1.96.
    Source: Wilson, *Probable inference, the law of succession, and statistical inference*, JASA
    1927.

    Args:
        share: p in [0, 1].
        n: at least 1.

    Returns:
        low and high in [0, 1], around ``share``; of p = 0 the low end is 0, of p = 1 the high end
        1.

    Raises ConfigError: a share outside [0, 1], NaN among them, or no image.
    """
    if not 0 <= share <= 1 or n < 1:
        expected = "a share in [0, 1] of at least one image"
        remedy = "Leave out shares of no image."
        raise ConfigError(
            "interval of a share", expected=expected, found=f"{share} of {n}", remedy=remedy
        )
    z = 1.959963984540054
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((middle + side * half) / (1 + z * z / n) for side in (-1, 1))
    return max(low, 0.0) if share else 0.0, min(high, 1.0) if share < 1 else 1.0


def bootstrap_intervals(
    statistics: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    labels: NDArray[np.integer],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return percentile bootstrap 95 % intervals of numbers about independent images, resampled
    within each class.

    1000 resamples; the ends are the 2.5th and 97.5th percentiles. As each class keeps its number of
    images, no resample lacks a class. Source: Efron and Tibshirani, *An introduction to the
    bootstrap*, 1993, ch. 13.

    Args:
        statistics: from indices (N,) into the images, with repetitions, to S numbers; NaN where one
            is not defined.
        labels: (N,) of the images, N at least 1.
        rng: draws the resamples.

    Returns:
        (2, S): low and high ends; NaN where a resample does not define the number.
    """
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def resample() -> NDArray[np.int64]:
        return np.concatenate([rng.choice(members, len(members)) for members in classes])

    values = np.stack([statistics(resample()) for _ in range(RESAMPLES)])
    ends: NDArray[np.float64] = np.percentile(values, [2.5, 97.5], axis=0)
    return ends
