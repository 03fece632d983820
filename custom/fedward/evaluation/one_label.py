"""Metrics of one model on one site's labelled images, each of exactly one class.

Hospitals lack classes, so every average says what it runs over, and a class that no image shows is
absent, not zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedward.errors import DataError
from fedward.evaluation.answer_confidences import AnswerConfidences
from fedward.evaluation.arrays import Values, mean_defined
from fedward.evaluation.class_metrics import ClassMetrics, rank_classes
from fedward.evaluation.confusion import ConfusionCounts
from fedward.evaluation.metric_rows import (
    Metric,
    MetricFunction,
    metric_rows,
    require_probabilities,
)
from fedward.evaluation.names import ERRORS, OVERALL

_ERROR_DECIMALS = 4
"""Decimal places of errors, as of the mean confidences among a site's counts."""


@dataclass(frozen=True)
class OneLabelMetrics(ClassMetrics):
    """Metrics of N images of K classes, each image of one class and with one answer.

    It has an attribute for each of :data:`~fedward.evaluation.names.OVERALL`, which is None where
    the number is not defined. Macro means and balanced accuracy run over the classes PRESENT among
    the labels, each counting once; weighted means weight a class by its number of images.
    """

    confidences: AnswerConfidences
    """Its answers by confidence, with an attribute for each of
    :data:`~fedward.evaluation.names.ERRORS`."""

    @classmethod
    def of_answers(
        cls, scores: Values, true_class: NDArray[np.int64], classes: int
    ) -> "OneLabelMetrics":
        """Return the metrics of probabilities (N, K) of images with these classes (N,).

        The predicted class is the first largest one of a row.
        """
        given_class = scores.argmax(axis=1)
        confusion = ConfusionCounts.of_one_answer(true_class, given_class, classes)
        has_others = confusion.present & (confusion.images < len(true_class))
        inside = true_class[:, None] == np.arange(classes)
        confidences = AnswerConfidences.of_answers(scores.max(axis=1), given_class == true_class)
        return cls(confusion, rank_classes(scores, inside, has_others), confidences)

    @property
    def accuracy(self) -> float | None:
        """Share of right answers."""
        images = self.confusion.images.sum()
        return float(self.confusion.true_positives.sum() / images) if images else None

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean recall."""
        return mean_defined(self.confusion.recall)

    @property
    def f1_weighted(self) -> float | None:
        """Mean F1, weighted by images."""
        return self._weighted(self.confusion.f1)

    @property
    def precision_weighted(self) -> float | None:
        """Mean precision, weighted by images."""
        return self._weighted(self.confusion.precision)

    @property
    def precision_macro(self) -> float | None:
        """Mean precision."""
        return mean_defined(self.confusion.precision)

    @property
    def recall_weighted(self) -> float | None:
        """Mean recall, weighted by images, which is the accuracy."""
        return self._weighted(self.confusion.recall)

    def _weighted(self, values: Values) -> float | None:
        present = self.confusion.present
        if not present.any():
            return None
        images = self.confusion.images[present]
        return float(values[present] @ (images / images.sum()))


def classification_metrics(
    probabilities: NDArray[np.floating],
    labels: NDArray[np.integer],
    classes: Sequence[str],
    extra: Mapping[str, MetricFunction] | None = None,
) -> list[Metric]:
    """Return the metrics of one model on N images of K classes, as rows.

    Args:
        probabilities: (N, K) float, each in [0, 1]; the predicted class is the first largest one of
            a row.
        labels: (N,) int, the true class as 0..K-1.
        classes: K names, in the order of the columns.
        extra: further metrics by name.

    Returns:
        Rows of :data:`~fedward.evaluation.names.OVERALL` (:class:`OneLabelMetrics`), of
        :data:`~fedward.evaluation.names.ERRORS` to four decimals, and of ``extra``, then
        ``f1/<class>``, ``auroc/<class>``, ``auprc/<class>`` and ``support/<class>`` for each class,
        present or not.

    AUROC and AUPRC are one-vs-rest on the probabilities; AUPRC is the average precision (a
    step-wise sum, no interpolation). A class never predicted has precision 0.

    Edge cases: N = 0: every value None, n = 0, support 0. class absent from the labels: its f1,
    auroc, auprc None; left out of every average. class of every image: its auroc and auprc None,
    hence both macros None.

    Raises DataError: shapes that do not fit, labels outside 0..K-1, probabilities that are not
    finite or not in [0, 1], or an extra metric that is not in [0, 1].
    """
    scores, true_class = _checked(probabilities, labels, classes)
    metrics = OneLabelMetrics.of_answers(scores, true_class, len(classes))
    overall: dict[str, float | None] = {name: getattr(metrics, name) for name in OVERALL}
    for name in ERRORS:
        error: float | None = getattr(metrics.confidences, name)
        overall[name] = None if error is None else round(error, _ERROR_DECIMALS)
    for name, metric in (extra or {}).items():
        overall[name] = _value_of(name, metric, scores, true_class)
    support = [float(count) for count in metrics.confusion.images]
    return metric_rows(overall, metrics, support, classes, len(true_class))


def _value_of(
    name: str, metric: MetricFunction, scores: Values, true_class: NDArray[np.int64]
) -> float | None:
    """Return the value of another package's metric; DataError where it is not in [0, 1]."""
    if not len(true_class):
        return None
    value = metric(scores.copy(), true_class.copy())
    if value is None:
        return None
    if not 0 <= value <= 1:
        raise DataError(
            f"metric {name}",
            "Scale it, or return None where it is not defined.",
            expected="a number in [0, 1], or None",
            found=f"{value}",
        )
    return float(value)


def _checked(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> tuple[Values, NDArray[np.int64]]:
    """Return float64 probabilities and int64 labels; DataError where they cannot be evaluated."""
    scores = np.asarray(probabilities, dtype=np.float64)
    true_class = np.asarray(labels)
    if true_class.ndim != 1 or scores.shape != (len(true_class), len(classes)):
        raise DataError(
            "evaluation",
            "Give one row of probabilities per image and one column per class.",
            expected=f"probabilities (N, {len(classes)}) and labels (N,)",
            found=f"{scores.shape} and {true_class.shape}",
        )
    if len(true_class):
        is_integer = np.issubdtype(true_class.dtype, np.integer)
        if not is_integer or true_class.min() < 0 or true_class.max() >= len(classes):
            raise DataError(
                "evaluation",
                "Evaluate labelled images only, with the classes the net was built for.",
                expected=f"integer labels 0..{len(classes) - 1}",
                found=f"{true_class.dtype} from {true_class.min()} to {true_class.max()}",
            )
    require_probabilities(scores)
    return scores, true_class.astype(np.int64)
