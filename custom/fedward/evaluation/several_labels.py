"""Metrics of one model on one site's images, each of which may show several classes or none.

Each class is a question of its own, and the small-count rule
(:mod:`fedward.evaluation.small_counts`) holds for both answers to it: a class that fewer than five
images show, or that fewer than five do not show, is in no number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedward.errors import DataError
from fedward.evaluation.answer_counts import THRESHOLD
from fedward.evaluation.arrays import Values
from fedward.evaluation.class_metrics import ClassMetrics, rank_classes
from fedward.evaluation.confusion import ConfusionCounts
from fedward.evaluation.metric_rows import Metric, metric_rows, require_probabilities
from fedward.evaluation.names import MULTI_LABEL
from fedward.evaluation.small_counts import SMALLEST_COUNT, common_findings


@dataclass(frozen=True)
class SeveralLabelsMetrics(ClassMetrics):
    """Metrics of N images of which each shows any number of K classes.

    It has an attribute for each of :data:`~fedward.evaluation.names.MULTI_LABEL`, which is None
    where the number is not defined. Averages run over the classes that are evaluated, each counting
    once.
    """

    is_right: NDArray[np.bool_]
    """(N, E) whether each answer to the E evaluated classes is right."""

    @classmethod
    def of_answers(
        cls, scores: Values, shown: NDArray[np.bool_], used: NDArray[np.bool_]
    ) -> "SeveralLabelsMetrics":
        """Return the metrics of the classes that are used.

        Args:
            scores: (N, K) probabilities; from :data:`THRESHOLD` on the answer is yes.
            shown: (N, K) which images show which class.
            used: (K,); some images show each of these classes, and some do not.
        """
        answered_yes = scores >= THRESHOLD
        return cls(
            ConfusionCounts.of_each_class(shown, answered_yes, used),
            rank_classes(scores, shown, used),
            (answered_yes == shown)[:, used],
        )

    @property
    def hamming_accuracy(self) -> float | None:
        """Share of right answers over all images and classes, one minus the Hamming loss."""
        return float(self.is_right.mean()) if self.is_right.size else None

    @property
    def exact_matches(self) -> int:
        """Images for which all answers are right."""
        return int(self.is_right.all(axis=1).sum())

    @property
    def exact_match(self) -> float | None:
        """Share of images for which all answers are right; None for fewer than five such images.

        A model that always gives one set of classes would count its images.
        """
        if not self.is_right.size or self.exact_matches < SMALLEST_COUNT:
            return None
        return self.exact_matches / len(self.is_right)


def multi_label_metrics(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> list[Metric]:
    """Return the metrics of one model on N images of which each shows any number of K classes.

    Args:
        probabilities: (N, K) float, each in [0, 1]; from 0.5 on the answer is that the image shows
            the class.
        labels: (N, K) int, 1 where the image shows the class, else 0.
        classes: K names, in the order of the columns.

    Returns:
        Rows of :data:`~fedward.evaluation.names.MULTI_LABEL` (:class:`SeveralLabelsMetrics`), then
        ``f1/<class>``, ``auroc/<class>``, ``auprc/<class>`` and ``support/<class>``, the images
        that show it, for each class. AUPRC is the average precision. All but exact match are
        scikit-learn's numbers.

    Edge cases: a class that is not evaluated: its numbers None. no class is evaluated: every value
    None, n = 0. fewer than five images match exactly: None.

    Raises DataError: shapes that do not fit, labels other than 0 and 1, probabilities that are not
    finite or not in [0, 1].
    """
    scores, truth = _checked(probabilities, labels, classes)
    used = common_findings(truth)
    metrics = SeveralLabelsMetrics.of_answers(scores, truth == 1, used)
    overall: dict[str, float | None] = {name: getattr(metrics, name) for name in MULTI_LABEL}
    support = [float(count) if count else None for count in metrics.confusion.images]
    images = len(truth) if used.any() else 0
    return metric_rows(overall, metrics, support, classes, images)


def _checked(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> tuple[Values, NDArray[np.int64]]:
    """Return float64 probabilities and int64 labels; DataError where they cannot be evaluated."""
    scores = np.asarray(probabilities, dtype=np.float64)
    truth = np.asarray(labels)
    if truth.ndim != 2 or scores.shape != truth.shape or truth.shape[1] != len(classes):
        raise DataError(
            "evaluation",
            "Give one row per image and one column per class.",
            expected=f"probabilities and labels (N, {len(classes)})",
            found=f"{scores.shape} and {truth.shape}",
        )
    if not np.isin(truth, (0, 1)).all():
        raise DataError(
            "evaluation: there are labels other than 0 and 1", "Evaluate labelled images only."
        )
    require_probabilities(scores)
    return scores, truth.astype(np.int64)
