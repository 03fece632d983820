"""How well the scores of one class put its images above all others: ROC and precision-recall."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Counts, Values


@dataclass(frozen=True)
class Ranking:
    """Images with at least each of T scores of one class, by falling score.

    The last threshold lies below all scores, so the last count is that of all images. Images with
    equal scores, or in the same interval of scores, are one step of both curves.
    """

    true_positives: Counts
    """(T,) images of the class."""
    false_positives: Counts
    """(T,) other images."""

    @classmethod
    def of_scores(cls, scores: Values, inside: NDArray[np.bool_]) -> "Ranking":
        """Return the ranking of N images, with a threshold at each different score.

        Args:
            scores: (N,) of the class, N at least 1.
            inside: (N,) which images are of the class.
        """
        order = np.argsort(-scores)
        # A threshold lies below the last image of each run of equal scores.
        last_of_run = np.flatnonzero(np.diff(scores[order], append=-np.inf))
        true_positives = np.cumsum(inside[order], dtype=np.int64)[last_of_run]
        return cls(true_positives, last_of_run + 1 - true_positives)

    @classmethod
    def of_histogram(cls, images: Counts, inside: Counts) -> "Ranking":
        """Return the ranking of images that are counted in B intervals of rising scores.

        Args:
            images: (B,) all images.
            inside: (B,) images of the class among them.
        """
        return cls(np.cumsum(inside[::-1]), np.cumsum((images - inside)[::-1]))

    @property
    def positives(self) -> int:
        """Images of the class."""
        return int(self.true_positives[-1])

    @property
    def negatives(self) -> int:
        """Other images."""
        return int(self.false_positives[-1])

    @property
    def auroc(self) -> float:
        """Area under the ROC curve; NaN unless there are images of the class and others.

        It is the share of pairs of an image of the class and another one in which the first has the
        higher score. A pair with equal scores counts half.
        """
        if not self.positives or not self.negatives:
            return float("nan")
        new_false = np.diff(self.false_positives, prepend=0)
        true_before = np.concatenate([[0], self.true_positives[:-1]])
        area = new_false @ (true_before + self.true_positives)
        return float(area / (2 * self.positives * self.negatives))

    @property
    def average_precision(self) -> float:
        """Area under the steps of the precision-recall curve, without interpolation.

        NaN unless there are images of the class and others.
        """
        if not self.positives or not self.negatives:
            return float("nan")
        new_true = np.diff(self.true_positives, prepend=0)
        answered = self.true_positives + self.false_positives
        precision = self.true_positives / np.maximum(answered, 1)
        return float(new_true @ precision / self.positives)

    def roc(self) -> tuple[Values, Values] | None:
        """Return false positive rates and true positive rates, (T + 1,), both from 0 to 1.

        None unless there are images of the class and others.
        """
        if not self.positives or not self.negatives:
            return None
        return _from_zero(self.false_positives), _from_zero(self.true_positives)

    def precision_recall(self) -> tuple[Values, Values] | None:
        """Return recalls and precisions; None without images of the class.

        Thresholds above all scores are left out: they have no precision.
        """
        if not self.positives:
            return None
        answered = self.true_positives + self.false_positives
        defined = answered > 0
        recalls = (self.true_positives / self.positives)[defined]
        return recalls, self.true_positives[defined] / answered[defined]


def _from_zero(images: Counts) -> Values:
    """Return the shares of all images, (T + 1,), with a threshold above all scores in front."""
    return np.concatenate([[0.0], images / images[-1]])
