"""When a results page may show a row: its curve has flattened, and the page's bounds are apart."""

from collections.abc import Sequence
from statistics import fmean

from fedward.errors import ConfigError
from fedward.evaluation import paired_difference

FEWEST = 8
"""Evaluations after the start of training that a curve needs to be judged."""
TOLERANCE = 0.01
"""Largest mean rise over seeds from the last but one quarter of the curve to the last."""


def rise(curve: Sequence[float]) -> float:
    """Return the mean of a curve's last quarter minus that of the quarter before it.

    Args:
        curve: values of the key metric in [0, 1], as means over sites, in the order of rounds,
            without round 0.

    Raises:
        ConfigError: fewer than eight values, which are too few to judge.
    """
    if len(curve) < FEWEST:
        raise ConfigError(
            "convergence",
            "Evaluate more often, or train for more rounds.",
            expected=f"at least {FEWEST} evaluations",
            found=f"{len(curve)}",
        )
    quarter = len(curve) // 4
    return fmean(curve[-quarter:]) - fmean(curve[-2 * quarter : -quarter])


def flat(curves: Sequence[Sequence[float]]) -> bool:
    """Return whether the seeds of a row have converged: their mean :func:`rise` is at most 0.01."""
    return fmean(map(rise, curves)) <= TOLERANCE


def apart(upper: Sequence[float], lower: Sequence[float]) -> bool:
    """Return whether the 95 % interval of the paired difference upper - lower lies above 0."""
    low = paired_difference(upper, lower).low
    return low is not None and low > 0
