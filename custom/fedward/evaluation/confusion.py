"""Right and wrong answers by class, which add up over sites, and the rates that follow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Counts, Values
from fedward.evaluation.intervals import Share, proportion_interval


@dataclass(frozen=True)
class Rates:
    """Rates of one class against all others; None where one would be of fewer than five images."""

    sensitivity: Share | None
    """Share of the images of the class that the model assigns to it."""
    specificity: Share | None
    """Share of the other images that the model does not assign to it."""
    positive: Share | None
    """Positive predictive value: share of the images assigned to the class that show it."""
    negative: Share | None
    """Negative predictive value: share of the images not assigned to it that do not show it."""


@dataclass(frozen=True)
class ConfusionCounts:
    """A model's answers about each of K classes, each class against all others.

    Where an image has one label, all classes are counted on the same images. Where it may have
    several, a class that the small-count rule leaves out has 0 everywhere.
    """

    total: Counts
    """(K,) images on which the class is counted."""
    images: Counts
    """(K,) images of the class."""
    true_positives: Counts
    """(K,) images of the class that the model assigned to it."""
    false_positives: Counts
    """(K,) other images that the model assigned to it."""
    inflated: Values | None = None
    """(K,) images of each class times their design effect, and so N² over the independent images
    that they are worth (:mod:`fedward.evaluation.clusters`). None: all are independent."""
    all_inflated: float | None = None
    """The same of all images."""

    @classmethod
    def of_one_answer(
        cls, true_class: NDArray[np.int64], given_class: NDArray[np.int64], classes: int
    ) -> "ConfusionCounts":
        """Count images that each show one class and are assigned to one.

        Args:
            true_class: (N,) in 0..K-1.
            given_class: (N,) in 0..K-1.
            classes: K.
        """
        images = np.bincount(true_class, minlength=classes)
        answers = np.bincount(given_class, minlength=classes)
        right = np.bincount(true_class[given_class == true_class], minlength=classes)
        return cls(np.full(classes, len(true_class)), images, right, answers - right)

    @classmethod
    def of_each_class(
        cls, shown: NDArray[np.bool_], answered_yes: NDArray[np.bool_], used: NDArray[np.bool_]
    ) -> "ConfusionCounts":
        """Count images that each show, and are assigned to, any number of classes.

        Args:
            shown: (N, K) whether an image shows a class.
            answered_yes: (N, K) whether the model answers that it does.
            used: (K,) whether a class is counted.
        """
        return cls(
            total=np.where(used, len(shown), 0),
            images=(shown & used).sum(axis=0),
            true_positives=(shown & answered_yes & used).sum(axis=0),
            false_positives=(~shown & answered_yes & used).sum(axis=0),
        )

    def only(self, named: NDArray[np.bool_]) -> "ConfusionCounts":
        """Return the counts without the images of each class that may not be named.

        Args:
            named: (K,) classes that keep their images. The wrong answers with any class stay.
        """
        return ConfusionCounts(
            total=self.total,
            images=np.where(named, self.images, 0),
            true_positives=np.where(named, self.true_positives, 0),
            false_positives=self.false_positives,
        )

    def merge(self, other: "ConfusionCounts") -> "ConfusionCounts":
        """Return the counts of the images of both."""
        return ConfusionCounts(
            total=self.total + other.total,
            images=self.images + other.images,
            true_positives=self.true_positives + other.true_positives,
            false_positives=self.false_positives + other.false_positives,
            **self._merged_effects(other),
        )

    def _merged_effects(self, other: "ConfusionCounts") -> dict[str, Any]:
        """Return the sums of images times design effects, for images of both."""
        if self.inflated is None and other.inflated is None:
            return {}
        effects = [
            (part.images if part.inflated is None else part.inflated) for part in (self, other)
        ]
        of_all = [
            float(part.total.max()) if part.all_inflated is None else part.all_inflated
            for part in (self, other)
        ]
        return {"inflated": effects[0] + effects[1], "all_inflated": sum(of_all)}

    def design_effect(self, place: int | None = None) -> float:
        """Return the design effect of the images of a class, or of all images without a place.

        It is 1 where images are independent.
        """
        if self.inflated is None or self.all_inflated is None:
            return 1.0
        if place is None:
            return max(self.all_inflated / max(int(self.total.max()), 1), 1.0)
        return max(float(self.inflated[place]) / max(int(self.images[place]), 1), 1.0)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which classes have images, (K,)."""
        return self.images > 0

    @property
    def precision(self) -> Values:
        """TP / (TP + FP), (K,): 0 for a class never assigned, NaN for a class without images."""
        answers = self.true_positives + self.false_positives
        return self._where_present(self.true_positives / np.maximum(answers, 1))

    @property
    def recall(self) -> Values:
        """TP / (TP + FN), (K,), which is the sensitivity; NaN for a class without images."""
        return self._where_present(self.true_positives / np.maximum(self.images, 1))

    @property
    def f1(self) -> Values:
        """2 TP / (2 TP + FP + FN), (K,); NaN for a class without images."""
        images_and_answers = self.images + self.true_positives + self.false_positives
        return self._where_present(2 * self.true_positives / np.maximum(images_and_answers, 1))

    @property
    def auroc_from_answers(self) -> Values:
        """Area under the ROC curve of the answers alone, (sensitivity + specificity) / 2, (K,).

        Answers count as scores of 0 or 1, so that this is not the AUROC of the probabilities. NaN
        unless there are images of the class and other images.
        """
        negatives = self.total - self.images
        specificity = 1 - self.false_positives / np.maximum(negatives, 1)
        return np.where(negatives > 0, (self.recall + specificity) / 2, np.nan)

    @property
    def auprc_from_answers(self) -> Values:
        """Area under the precision-recall curve of the answers alone, by trapezoids, (K,).

        ``r (1 + p) / 2 + (1 - r) (p + q) / 2`` with precision p, recall r and the class's share q
        of the images: lines from (0, 1) through (r, p) to (1, q). For a class never assigned it is
        ``(1 + q) / 2``. For a poor classifier it is far above the average precision. NaN unless
        there are images of the class and other images.
        """
        prevalence = self.images / np.maximum(self.total, 1)
        rise = self.recall * (1 + self.precision) / 2
        fall = (1 - self.recall) * (self.precision + prevalence) / 2
        is_assigned = self.true_positives + self.false_positives > 0
        areas = np.where(is_assigned, rise + fall, (1 + prevalence) / 2)
        return np.where(self.present & (self.images < self.total), areas, np.nan)

    @property
    def accuracy(self) -> Share | None:
        """Share of right answers where each image has one."""
        return Share.of(
            int(self.true_positives.sum()), int(self.images.sum()), self.design_effect()
        )

    def accuracy_of(self, place: int) -> Share | None:
        """Return the share of images about which yes or no to the class at this place is right."""
        true_negatives = self._negatives(place) - int(self.false_positives[place])
        right = int(self.true_positives[place]) + true_negatives
        return Share.of(right, int(self.total[place]), self.design_effect())

    @property
    def balanced_accuracy(self) -> Share | None:
        """Mean sensitivity of the classes with images, with its 95 % interval; None without images.

        With Wilson's interval (l_k, u_k) of the sensitivity p_k of each of K classes, and their
        mean p, its ends are ``p - sqrt(sum_k (p_k - l_k)²) / K`` and
        ``p + sqrt(sum_k (u_k - p_k)²) / K``. Classes are taken to be independent, and images too
        unless their design effects are known. The interval has a width even where all answers are
        right.
        Source: Zou and Donner, *Construction of confidence
        limits about effect measures: a general approach*, Statistics in Medicine 2008.
        """
        if not self.present.any():
            return None
        images = self.images[self.present]
        sensitivities = self.true_positives[self.present] / images
        intervals = []
        for place, sensitivity in zip(
            np.flatnonzero(self.present).tolist(), sensitivities.tolist(), strict=True
        ):
            worth = max(int(self.images[place]) / self.design_effect(place), 1.0)
            intervals.append(proportion_interval(sensitivity, worth))
        squared_distances = (np.array(intervals) - sensitivities[:, None]) ** 2
        below, above = np.sqrt(squared_distances.sum(axis=0)) / len(images)
        mean = float(sensitivities.mean())
        low = max(mean - float(below), 0.0)
        high = min(mean + float(above), 1.0)
        return Share(mean, low, high, int(self.images.sum()))

    def rates(self, place: int) -> Rates:
        """Return the rates of the class at this place.

        All but sensitivity have intervals by the design effect of all images.
        """
        positives = int(self.images[place])
        true_positives = int(self.true_positives[place])
        false_positives = int(self.false_positives[place])
        negatives = self._negatives(place)
        true_negatives = negatives - false_positives
        false_negatives = positives - true_positives
        # Sites do not say what images of other classes, or with one answer, are worth together.
        effect = self.design_effect()
        return Rates(
            sensitivity=Share.of(true_positives, positives, self.design_effect(place)),
            specificity=Share.of(true_negatives, negatives, effect),
            positive=Share.of(true_positives, true_positives + false_positives, effect),
            negative=Share.of(true_negatives, true_negatives + false_negatives, effect),
        )

    def _negatives(self, place: int) -> int:
        return int(self.total[place] - self.images[place])

    def _where_present(self, values: Values) -> Values:
        return np.where(self.present, values, np.nan)
