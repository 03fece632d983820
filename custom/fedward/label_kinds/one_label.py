"""Classes exclude each other: an image shows exactly one."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.metric_rows import Metric, MetricFunction
from fedward.evaluation.names import ERRORS, OVERALL
from fedward.evaluation.one_label import classification_metrics
from fedward.evaluation.small_counts import common_classes
from fedward.label_kinds.kind import LabelKind, unusable_label
from fedward.labels import Label, Labels, class_counts
from fedward.text import composed

if TYPE_CHECKING:
    from fedward.methods.outputs import Outputs


class OneLabel(LabelKind):
    """An image shows exactly one of K classes: softmax and cross-entropy."""

    multi_label = False
    exclusive = True
    metric_names = OVERALL
    error_names = ERRORS
    key_metric = "accuracy"
    card_metrics = ("accuracy", "balanced_accuracy", "f1_macro", "auroc_macro")
    threshold = None
    fewest_others = 0

    task = "Classification"
    label_shape = "one label an image (N,)"
    answer_words = "one class of an image"
    output = "softmax"
    ranked_pair = "of a diagnosis and one of another"
    limit = "It always answers with one of its classes, also for an image of something else."
    card_limit = "An image of none of the classes still gets probabilities of these classes."

    def split(self, text: str) -> list[str]:
        """Return the text: it names one class."""
        return [composed(text)]

    def label_names(self, classes: Sequence[str]) -> frozenset[str]:
        """Return the classes."""
        return frozenset(classes)

    def encode(self, names: Collection[str], classes: Sequence[str]) -> Label:
        """Return the index of the one class; -1 without a name."""
        if not names:
            return -1
        (name,) = names
        return classes.index(name)

    def require_compatible(self, words: Sequence[str]) -> None:
        """Accept any label: it is a single word."""

    def encode_numbers(
        self, given: NDArray[np.int64], names: Mapping[int, str], classes: Sequence[str]
    ) -> Label:
        """Return the index of the class that the number stands for."""
        number = int(given)
        if number not in names:
            raise unusable_label(f"expected a label among {sorted(names)}, found {number}")
        name = names[number]
        return self.encode([name] if name else [], classes)

    def columns(self, labels: Labels) -> set[int]:
        """Return none: labels are (N,)."""
        return set()

    def unlabelled(self, images: int, classes: int) -> Labels:
        """Return (N,) of -1."""
        return np.full(images, -1)

    @property
    def outputs(self) -> "Outputs":
        """A softmax."""
        from fedward.methods.outputs import SOFTMAX

        return SOFTMAX

    def metrics(
        self,
        probabilities: NDArray[np.floating],
        labels: NDArray[np.integer],
        classes: Sequence[str],
        extra: Mapping[str, MetricFunction],
    ) -> list[Metric]:
        """Return :func:`~fedward.evaluation.one_label.classification_metrics`."""
        return classification_metrics(probabilities, labels, classes, extra)

    def counts(
        self, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> AnswerCounts | None:
        """Return the counts of images that each have one answer."""
        return AnswerCounts.of_one_answer(probabilities, labels)

    def right_by_class(
        self, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which images show a class that is not rare, and the answers."""
        places = np.arange(probabilities.shape[1])
        inside = (np.asarray(labels)[:, None] == places) & common_classes(labels, len(places))
        return inside, probabilities.argmax(axis=1)[:, None] == places

    def performance(
        self,
        probabilities: NDArray[np.floating],
        labels: NDArray[np.integer],
        classes: Sequence[str],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """Return :func:`~fedward.evaluation.performance.performance`."""
        from fedward.evaluation.performance import performance

        return performance(probabilities, labels, classes, rng)

    def evaluated_classes(self, labels: Labels, classes: int) -> NDArray[np.bool_]:
        """Return which classes any image shows; those of rare classes are not among the images."""
        return class_counts(labels, classes) > 0

    def answer(self, probabilities: NDArray[np.floating], classes: Sequence[str]) -> str:
        """Return the class with the highest probability."""
        return classes[int(probabilities.argmax())]

    def confidence(self, probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the highest probability of each image."""
        highest: NDArray[np.floating] = probabilities.max(axis=1)
        return highest
