"""An image may show any number of the classes, or none: each class is a question of its own."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.answer_counts import THRESHOLD, AnswerCounts
from fedward.evaluation.metric_rows import Metric, MetricFunction
from fedward.evaluation.names import MULTI_LABEL
from fedward.evaluation.several_labels import multi_label_metrics
from fedward.evaluation.small_counts import SMALLEST_COUNT, common_findings
from fedward.label_kinds.kind import LabelKind, unusable_label
from fedward.labels import NO_FINDING, SEPARATOR, Label, Labels
from fedward.text import composed

if TYPE_CHECKING:
    from fedward.methods.outputs import Outputs


class SeveralLabels(LabelKind):
    """An image shows any number of K classes: a sigmoid and a binary cross-entropy for each."""

    multi_label = True
    exclusive = False
    metric_names = MULTI_LABEL
    error_names = ()
    key_metric = "auroc_macro"
    card_metrics = ("auroc_macro", "auprc_macro", "f1_macro", "hamming_accuracy")
    # FixMatch's. A network that has learned nothing is surer than 0.6, which methods take for one
    # label, that an image lacks a rare finding.
    threshold = 0.95
    fewest_others = SMALLEST_COUNT

    task = "Multi-label classification"
    label_shape = "0 or 1 for each class (N, C)"
    answer_words = "several findings of an image"
    output = "sigmoid"
    ranked_pair = "with a finding and one without it"
    limit = "It says nothing of what else an image may show."
    card_limit = (
        "A probability below 0.5 for every class says that none of these is seen. "
        "It says nothing of other findings."
    )

    def split(self, text: str) -> list[str]:
        """Return the findings between the separators."""
        return [part.strip() for part in composed(text).split(SEPARATOR)]

    def label_names(self, classes: Sequence[str]) -> frozenset[str]:
        """Return the classes, and the name of an image that shows none of them."""
        return frozenset([*classes, NO_FINDING])

    def encode(self, names: Collection[str], classes: Sequence[str]) -> Label:
        """Return 0 or 1 for each class; all 0 for ``No Finding``, all -1 without a name."""
        if not names:
            return (-1,) * len(classes)
        return tuple(int(name in names) for name in classes)

    def require_compatible(self, words: Sequence[str]) -> None:
        """Raise BadRow where ``No Finding`` does not stand alone."""
        if NO_FINDING in words and len(words) > 1:
            raise unusable_label(f"expected {NO_FINDING} alone, found {SEPARATOR.join(words)!r}")

    def encode_numbers(
        self, given: NDArray[np.int64], names: Mapping[int, str], classes: Sequence[str]
    ) -> Label:
        """Return 0 or 1 for each class by the columns that stand for them."""
        if (given == -1).all():
            return self.encode([], classes)
        if not np.isin(given, (0, 1)).all():
            raise unusable_label(
                f"expected 0 or 1 in each column, or -1 in all of them, found {given.tolist()}"
            )
        shown = {name for number, name in names.items() if given[number]}
        return self.encode(shown or {NO_FINDING}, classes)

    def columns(self, labels: Labels) -> set[int]:
        """Return 0..C-1 of labels (N, C)."""
        return set(range(labels.shape[1]))

    def unlabelled(self, images: int, classes: int) -> Labels:
        """Return (N, K) of -1."""
        return np.full((images, classes), -1)

    @property
    def outputs(self) -> "Outputs":
        """A sigmoid."""
        from fedward.methods.outputs import SIGMOID

        return SIGMOID

    def metrics(
        self,
        probabilities: NDArray[np.floating],
        labels: NDArray[np.integer],
        classes: Sequence[str],
        extra: Mapping[str, MetricFunction],
    ) -> list[Metric]:
        """Return :func:`~fedward.evaluation.several_labels.multi_label_metrics`.

        A job with several labels names no metrics of other packages, so ``extra`` is empty.
        """
        return multi_label_metrics(probabilities, labels, classes)

    def counts(
        self, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> AnswerCounts | None:
        """Return the counts of each class against its rest."""
        return AnswerCounts.of_each_class(probabilities, labels)

    def right_by_class(
        self, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which images show a class that may be evaluated, and the answers yes."""
        return (np.asarray(labels) == 1) & common_findings(labels), probabilities >= THRESHOLD

    def performance(
        self,
        probabilities: NDArray[np.floating],
        labels: NDArray[np.integer],
        classes: Sequence[str],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """Return :func:`~fedward.evaluation.performance.multi_label_performance`."""
        from fedward.evaluation.performance import multi_label_performance

        return multi_label_performance(probabilities, labels, classes, rng)

    def evaluated_classes(self, labels: Labels, classes: int) -> NDArray[np.bool_]:
        """Return which classes have enough images on both sides."""
        return common_findings(labels)

    def answer(self, probabilities: NDArray[np.floating], classes: Sequence[str]) -> str:
        """Return the classes with a probability of 0.5 or more, or ``No Finding``."""
        return SEPARATOR.join(np.array(classes)[probabilities >= THRESHOLD]) or NO_FINDING

    def confidence(self, probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the probability of the answer, yes or no, that the model is least sure of."""
        least: NDArray[np.floating] = np.maximum(probabilities, 1 - probabilities).min(axis=1)
        return least
