"""The rule by which a results page shows a row: its curve has flattened, and the page's bounds are
apart.
"""

from collections.abc import Sequence
from statistics import fmean

from fedward.errors import ConfigError
from fedward.evaluation import paired_difference

FEWEST = 8
"""Evaluations after training began that a curve needs to be judged."""
TOLERANCE = 0.01
"""Most that the mean over seeds may still rise from the last quarter but one to the last."""


def rise(curve: Sequence[float]) -> float:
    """Return how much a curve rose at its end: the mean of its last quarter minus that of the
    quarter before.

    Args:
        curve: E values of the key metric in [0, 1], mean over sites, in the order of rounds,
            without round 0.

    Raises ConfigError: fewer than eight values, of which nothing can be said.
    """
    if len(curve) < FEWEST:
        expected = f"at least {FEWEST} evaluations"
        remedy = "Evaluate more often, or train for more rounds."
        raise ConfigError("convergence", expected=expected, found=f"{len(curve)}", remedy=remedy)
    quarter = len(curve) // 4
    return fmean(curve[-quarter:]) - fmean(curve[-2 * quarter : -quarter])


def flat(curves: Sequence[Sequence[float]]) -> bool:
    """Return whether the seeds of a row have converged: :func:`rise` is at most 0.01 in their mean."""
    return fmean(map(rise, curves)) <= TOLERANCE


def apart(upper: Sequence[float], lower: Sequence[float]) -> bool:
    """Return whether the upper bound beats the lower: the 95 % interval of their paired difference
    lies above 0.
    """
    low = paired_difference(upper, lower).low
    return low is not None and low > 0
