"""A number of several sites: its mean, and how far sites differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.evaluation.intervals import mean_and_interval

FEWEST_SITES = 6
"""Sites from which an interval is shown. Of fewer the lowest and the highest value are."""


@dataclass(frozen=True)
class OverSites:
    """The mean of a number over sites, each counting once."""

    mean: float
    low: float
    """Lower end of the 95 % t interval over sites; for few sites the lowest value."""
    high: float
    """Upper end of the interval, or the highest value."""
    sites: int
    is_interval: bool
    """Whether the ends are those of an interval; else they are values of sites."""

    def is_above(self, bound: float) -> bool:
        """Return whether the interval, or every site, is above a bound."""
        return self.low > bound

    def is_below(self, bound: float) -> bool:
        """Return whether the interval, or every site, is below a bound."""
        return self.high < bound

    @property
    def has_width(self) -> bool:
        """Whether sites differ."""
        return self.low < self.high

    def ends(self) -> str:
        """Return both ends in words; empty where sites do not differ."""
        if not self.has_width:
            return ""
        ends = f"{self.low:.3f} to {self.high:.3f}"
        if self.is_interval:
            return f"95 % interval over sites {ends}"
        return f"{ends} at {self.sites} sites"


def over_sites(values: Sequence[float], metric: str) -> OverSites | None:
    """Return the mean over sites and how far they differ; None without a value.

    Args:
        values: of the sites that have one.
        metric: its name. The interval of a score stays within the score's bounds.
    """
    if not values:
        return None
    lowest = min(values)
    highest = max(values)
    if len(values) >= FEWEST_SITES and lowest < highest:
        interval = mean_and_interval(values).of_score(metric)
        if interval.low is not None and interval.high is not None:
            return OverSites(interval.mean, interval.low, interval.high, interval.n, True)
    return OverSites(sum(values) / len(values), lowest, highest, len(values), False)
