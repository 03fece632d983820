"""Intervals of means over repeated runs, of shares of images, and of any number about images."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedward.errors import ConfigError
from fedward.evaluation.names import SCORES
from fedward.evaluation.small_counts import SMALLEST_COUNT

RESAMPLES = 1000
"""Number of resamples of a bootstrap."""
_Z = 1.959963984540054
"""The 97.5th percentile of the standard normal distribution."""


@dataclass(frozen=True)
class Interval:
    """A mean of n values with its two-sided 95 % interval."""

    mean: float
    sd: float | None
    """Sample standard deviation (divisor n - 1); None for one value."""
    low: float | None
    """Lower end; None for one value."""
    high: float | None
    """Upper end; None for one value."""
    n: int
    """Number of values."""

    def of_score(self, metric: str) -> "Interval":
        """Return the interval cut at 0 and 1 if the metric is a score.

        A t interval itself has no bounds.
        """
        if self.low is None or self.high is None or metric not in SCORES:
            return self
        return replace(self, low=max(self.low, 0.0), high=min(self.high, 1.0))


@dataclass(frozen=True)
class Share:
    """A share of n images with its 95 % interval, or a mean of such shares."""

    value: float
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    n: int
    """Number of images, at least five."""

    @classmethod
    def of(cls, part: int, whole: int, design_effect: float = 1.0) -> "Share | None":
        """Return the share ``part / whole``; None for fewer than five images.

        ``design_effect``: images for each independent one (:mod:`fedward.evaluation.clusters`).
        """
        if whole < SMALLEST_COUNT:
            return None
        low, high = proportion_interval(part / whole, max(whole / design_effect, 1.0))
        return cls(part / whole, low, high, whole)


def mean_and_interval(values: Sequence[float]) -> Interval:
    """Return the mean of n runs with ``mean ± t(0.975, n - 1) sd / sqrt(n)``.

    One value has a mean and nothing else.

    Raises ConfigError: no value, or one that is not finite. A run without a number must be named,
    not dropped.
    """
    n = len(values)
    if n == 0 or not all(math.isfinite(value) for value in values):
        raise ConfigError(
            "mean over runs",
            "Leave out runs without the metric, and say which.",
            expected="at least one value, all finite",
            found=str(list(values)),
        )
    mean = statistics.fmean(values)
    if n == 1:
        return Interval(mean, None, None, None, 1)
    # scipy.stats has the quantile by a name, but its import takes two seconds, and this one half.
    from scipy.special import stdtrit  # type: ignore[import-untyped,unused-ignore]

    sd = statistics.stdev(values)
    quantile = float(stdtrit(n - 1, 0.975))
    half_width = quantile * sd / math.sqrt(n)
    return Interval(mean, sd, mean - half_width, mean + half_width, n)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the mean of a - b with its 95 % t interval.

    a[i] and b[i] are of the same seed, or the same site, under two methods.

    Raises ConfigError: the lengths differ, or as :func:`mean_and_interval`.
    """
    if len(a) != len(b):
        raise ConfigError(
            "paired difference",
            "Pair runs by seed; leave out seeds that only one side has.",
            expected="as many values on both sides",
            found=f"{len(a)} and {len(b)}",
        )
    return mean_and_interval([x - y for x, y in zip(a, b, strict=True)])


def percent_more(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return by how many percent the mean of ``ours`` is above that of ``theirs``: (a - b) / b.

    Of a metric it is the relative improvement, of traffic the additional cost of FedPerl's Table 2
    (Bdair et al., MELBA 2022). None without values, or if the mean of ``theirs`` is 0.
    """
    if not ours or not theirs:
        return None
    base = statistics.fmean(theirs)
    return 100 * (statistics.fmean(ours) - base) / base if base else None


def proportion_interval(share: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share that was measured on n independent images.

    ``(p + z²/2n ± z sqrt(p (1 - p)/n + z²/4n²)) / (1 + z²/n)`` with z = 1.96.
    Source: Wilson, *Probable inference, the law of succession, and statistical inference*, JASA
    1927.

    Args:
        share: p in [0, 1].
        n: at least 1; not whole where images are worth fewer independent ones.

    Returns:
        Low and high end in [0, 1], around ``share``. For p = 0 the low end is 0, for p = 1 the high
        end is 1.

    Raises ConfigError: a share outside [0, 1] or NaN, or n < 1 or NaN.
    """
    _require_share(share, n)
    middle = share + _Z * _Z / (2 * n)
    half_width = _Z * math.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n))
    scale = 1 + _Z * _Z / n
    # At the bounds rounding could leave a number just beyond them.
    low = max((middle - half_width) / scale, 0.0) if share > 0 else 0.0
    high = min((middle + half_width) / scale, 1.0) if share < 1 else 1.0
    return low, high


def joint_interval(share: float, n: float, together: int) -> tuple[float, float]:
    """Return one of several shares' intervals, which all hold at once in at least 95 % of cases.

    Each leaves at most ``0.05 / together`` outside, at most half of it on either side (Bonferroni).
    Its ends are quantiles of beta distributions. For whole n and a whole number of right answers it
    is the exact interval, which no share near 0 or 1 and no small n makes too narrow; between whole
    numbers the same quantiles interpolate.
    Source: Clopper and Pearson, *The use of confidence or fiducial limits illustrated in the case
    of the binomial*, Biometrika 1934.

    Args:
        share: p in [0, 1].
        n: at least 1; not whole where images are worth fewer independent ones.
        together: number of shares that are looked at, at least 1.

    Returns:
        Low and high end in [0, 1], around ``share``. For p = 0 the low end is 0, for p = 1 the high
        end is 1.

    Raises ConfigError: a share outside [0, 1] or NaN, n < 1 or NaN, or together < 1.
    """
    _require_share(share, n)
    if together < 1:
        raise ConfigError(
            "interval of one of several shares",
            "Count the share itself.",
            expected="one share or more that are looked at together",
            found=f"{together}",
        )
    from scipy.special import betaincinv  # type: ignore[import-untyped,unused-ignore]

    outside = 0.025 / together
    right = share * n
    wrong = n - right
    low = float(betaincinv(right, wrong + 1, outside)) if right > 0 else 0.0
    high = float(betaincinv(right + 1, wrong, 1 - outside)) if wrong > 0 else 1.0
    return low, high


def _require_share(share: float, n: float) -> None:
    """Raise ConfigError unless a share is in [0, 1] and n at least 1; NaN is refused as well."""
    if not (0 <= share <= 1 and n >= 1):
        raise ConfigError(
            "interval of a share",
            "Leave out shares of no image.",
            expected="a share in [0, 1] of at least one image",
            found=f"{share} of {n}",
        )


def bootstrap_intervals(
    statistics: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    labels: NDArray[np.integer],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return percentile bootstrap 95 % intervals of numbers about independent images.

    Images are resampled within each stratum, so that no resample lacks a class where strata are
    classes; there are 1000 resamples, and the ends are the 2.5th and 97.5th percentiles. Source:
    Efron and Tibshirani, *An introduction to the bootstrap*, 1993, ch. 13.

    Args:
        statistics: from indices (N,) into the images, with repetitions, to S numbers; NaN where one
            is not defined.
        labels: (N,) strata of the images, such as their classes, N at least 1.
        rng: draws the resamples.

    Returns:
        (2, S): low and high ends; NaN where a resample does not define the number.
    """
    members_of_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def resample() -> NDArray[np.int64]:
        drawn = [rng.choice(members, len(members)) for members in members_of_class]
        return np.concatenate(drawn)

    values = np.stack([statistics(resample()) for _ in range(RESAMPLES)])
    ends: NDArray[np.float64] = np.percentile(values, [2.5, 97.5], axis=0)
    return ends
