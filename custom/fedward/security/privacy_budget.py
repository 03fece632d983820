"""How many noisy releases a privacy budget still allows, and the epsilon that releases cost."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

from fedward.errors import ConfigError

_LARGEST_SENSITIVITY = 1e6
"""The largest sensitivity in units of the noise.

Above it epsilon, which is about half its square, counts as infinite.
"""

_MOST_RELEASES = 10**9
"""Releases are counted up to this number."""


def epsilon(noise_multipliers: Sequence[float], delta: float) -> float:
    """Return the epsilon of several releases together, each of an update of norm at most ``clip``.

    Two such updates differ by up to 2 clip, so a release is a Gaussian mechanism with multiplier
    ``z / 2``. Releases compose to one with multiplier ``(sum (2 / z)^2)^(-1/2)``, also when a
    release depends on earlier ones.

    Args:
        noise_multipliers: ``z`` of each release, above 0.
        delta: in (0, 1).

    Returns:
        A number >= 0: 0 without a release, infinity where it is too large to compute.

    Raises:
        ConfigError: the package dp-accounting is missing.
    """
    return _epsilon_of_one(_sensitivity(noise_multipliers), delta)


def releases_left(
    spent: Sequence[float], noise_multiplier: float, delta: float, max_epsilon: float
) -> int:
    """Return how many further releases keep the :func:`epsilon` of all to a limit, at most 1e9.

    Args:
        spent: noise multipliers of the releases so far, each above 0.
        noise_multiplier: that of each further release, above 0.
        delta: in (0, 1).
        max_epsilon: the largest epsilon of all releases together.

    Returns:
        0 also where the releases so far cost too much already.

    Raises:
        ConfigError: the package dp-accounting is missing.
    """
    sensitivity_so_far = _sensitivity(spent)
    sensitivity_of_one = _sensitivity([noise_multiplier])

    def epsilon_after(further_releases: int) -> float:
        sensitivity_of_further = math.sqrt(further_releases) * sensitivity_of_one
        return _epsilon_of_one(math.hypot(sensitivity_so_far, sensitivity_of_further), delta)

    # Epsilon grows with the number of releases, so the smallest number that costs too much is
    # bisected.
    numbers = range(_MOST_RELEASES + 1)
    first_too_many = bisect_right(numbers, max_epsilon, key=epsilon_after)
    return max(first_too_many - 1, 0)


def _sensitivity(noise_multipliers: Sequence[float]) -> float:
    """Return the sensitivity, in units of the noise, of one release that is worth all of these."""
    return math.hypot(*(2 / multiplier for multiplier in noise_multipliers))


def _epsilon_of_one(sensitivity: float, delta: float) -> float:
    """Return the epsilon of one release with a sensitivity in units of its noise."""
    try:
        import dp_accounting  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"GaussianUpdateFilter needs the package dp-accounting: {error}",
            "Install it at this site: pip install 'fedward[privacy]'.",
        ) from error
    if sensitivity > _LARGEST_SENSITIVITY:
        return math.inf
    return _gaussian_epsilon(sensitivity, delta) if sensitivity else 0.0


@lru_cache(1024)  # One value takes milliseconds to compute, and a bisection needs many.
def _gaussian_epsilon(sensitivity: float, delta: float) -> float:
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(1 / sensitivity, delta))
