"""A share of images with its interval, which needs five images."""

from dataclasses import dataclass

from fedward.evaluation.intervals import proportion_interval
from fedward.evaluation.small_counts import SMALLEST_COUNT


@dataclass(frozen=True)
class Share:
    """A share of n images, with Wilson's 95 % interval."""

    value: float
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    n: int
    """Number of images, at least five."""

    @classmethod
    def of(cls, part: int, whole: int) -> "Share | None":
        """Return the share ``part / whole``; None for fewer than five images."""
        if whole < SMALLEST_COUNT:
            return None
        low, high = proportion_interval(part / whole, whole)
        return cls(part / whole, low, high, whole)
