"""A number of a verdict, with its interval and the images that it is of."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedward.evaluation.intervals import proportion_interval


@dataclass(frozen=True)
class Measured:
    """One number of a class, of a site, of a subgroup, or of all images, with its 95 % interval."""

    name: str
    """The class, the site or the group; empty for all images."""
    value: float
    """In [0, 1]."""
    low: float | None
    """Lower end of the interval; None for a number without one, such as a site's AUROC."""
    high: float | None
    """Upper end of the interval."""
    n: int
    """Test images, or patients, that it is of."""

    @classmethod
    def of_counts(cls, name: str, right: int, n: int, design_effect: float = 1.0) -> "Measured":
        """Return the share of right answers to n images, at least one, with Wilson's interval.

        ``design_effect``: images for each independent one (:mod:`fedward.evaluation.clusters`).
        """
        low, high = proportion_interval(right / n, max(n / design_effect, 1.0))
        return cls(name, right / n, low, high, n)

    @property
    def right(self) -> int:
        """Right answers among the n images, for a share."""
        return round(self.value * self.n)


def lowest_first(values: Iterable[Measured]) -> tuple[Measured, ...]:
    """Return numbers sorted by value, of equal ones first that of the most images."""
    return tuple(sorted(values, key=lambda one: (one.value, -one.n)))
