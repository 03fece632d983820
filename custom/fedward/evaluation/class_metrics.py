"""The metrics of each class by itself: from answers, and from the order of scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Values, mean_defined
from fedward.evaluation.confusion import ConfusionCounts
from fedward.evaluation.ranking import Ranking


@dataclass(frozen=True)
class ClassMetrics:
    """The answers of a model about each of K classes, and how its scores rank the images.

    Per-class numbers are (K,) arrays, NaN where a number is not defined. A mean over classes runs
    over those that have the number, each counting once, and is None where none has.
    """

    confusion: ConfusionCounts
    rankings: Sequence[Ranking | None]
    """One for each class; None for a class that is not evaluated."""

    @property
    def auroc(self) -> Values:
        """Area under the ROC curve of each class against the others, from scores."""
        return np.array([ranking.auroc if ranking else np.nan for ranking in self.rankings])

    @property
    def auprc(self) -> Values:
        """Average precision of each class against the others, from scores."""
        return np.array(
            [ranking.average_precision if ranking else np.nan for ranking in self.rankings]
        )

    @property
    def f1_macro(self) -> float | None:
        """Mean F1 of the classes with images."""
        return mean_defined(self.confusion.f1)

    @property
    def auroc_macro(self) -> float | None:
        """Mean AUROC."""
        return mean_defined(self.auroc)

    @property
    def auprc_macro(self) -> float | None:
        """Mean average precision."""
        return mean_defined(self.auprc)


def rank_classes(
    scores: Values, inside: NDArray[np.bool_], used: NDArray[np.bool_]
) -> list[Ranking | None]:
    """Return the ranking of each class by its column of scores; None for a class not used.

    Args:
        scores: (N, K), N at least 1 if a class is used.
        inside: (N, K) which images show which class.
        used: (K,).
    """
    return [
        Ranking.of_scores(scores[:, place], inside[:, place]) if used[place] else None
        for place in range(len(used))
    ]
