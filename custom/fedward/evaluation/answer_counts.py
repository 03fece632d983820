"""Counts of a model's answers on one site's test images, which add up over sites.

Sensitivity, confusion matrix, ROC curve and calibration of several hospitals together need counts,
not averages. A site sends these counts under the small-count rule
(:mod:`fedward.evaluation.small_counts`):

- A class with fewer than five images has no numbers of its own. A hospital never evaluates such
  images (:mod:`fedward.evaluation.evaluated_images`), so that they are in no count. Synthetic
  images are all evaluated: those of a rare class count as images of other classes do where no class
  is asked for, by their confidence, and against each common class.
- An interval of scores with fewer than five images is merged with its neighbours below it.
- A cell of the confusion matrix with fewer than five images is withheld.

Where an image may show several classes, each class is counted against all images without it. A
class is left out if fewer than five images show it, or fewer than five do not. There are no cells
then, and no histogram of highest probabilities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Counts, Values
from fedward.evaluation.clusters import ClusterCounts
from fedward.evaluation.confusion import ConfusionCounts
from fedward.evaluation.histograms import ConfidenceHistogram, ScoreHistogram
from fedward.evaluation.small_counts import SMALLEST_COUNT, common_classes, common_findings

THRESHOLD = 0.5
"""Probability from which the answer is yes, where an image may show several classes."""


@dataclass(frozen=True)
class AnswerCounts:
    """What a site may report about a model's answers for K classes, or the sum over sites."""

    confusion: ConfusionCounts
    """Right and wrong answers by class."""
    cells: Counts
    """(K, K) images of one class (row) that the model assigned to another one (column).

    0 where a site withholds the cell.
    """
    scores: ScoreHistogram
    """Images by their probability of each class."""
    confidence: ConfidenceHistogram
    """Images by their highest probability."""

    @classmethod
    def of_one_answer(
        cls, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> "AnswerCounts | None":
        """Count images that each show one class; None where no class has five images.

        Args:
            probabilities: (N, K) float in [0, 1]; the predicted class is the one with the largest
                entry of a row, of equal ones the first.
            labels: (N,) int, the true class as 0..K-1.
        """
        classes = probabilities.shape[1]
        is_common = common_classes(labels, classes)
        if not is_common.any():
            return None
        scores = np.asarray(probabilities, float)
        true_class = np.asarray(labels, np.int64)
        given_class = scores.argmax(axis=1)
        cells = np.zeros((classes, classes), np.int64)
        np.add.at(cells, (true_class, given_class), 1)
        np.fill_diagonal(cells, 0)
        cells[~is_common] = 0
        cells[cells < SMALLEST_COUNT] = 0
        inside = (true_class[:, None] == np.arange(classes)) & is_common
        return cls(
            ConfusionCounts.of_one_answer(true_class, given_class, classes).only(is_common),
            cells,
            ScoreHistogram.of_scores(scores, inside, np.ones(classes, bool)),
            ConfidenceHistogram.of_answers(scores.max(axis=1), given_class == true_class),
        )

    @classmethod
    def of_each_class(
        cls, probabilities: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> "AnswerCounts | None":
        """Count images that may show several classes; None where no class may be evaluated.

        Args:
            probabilities: (N, K) float in [0, 1]; from 0.5 on the answer is that the image shows
                the class.
            labels: (N, K) int, 1 where the image shows the class, else 0.
        """
        used = common_findings(labels)
        if not used.any():
            return None
        scores = np.asarray(probabilities, float)
        shown = labels == 1
        return cls(
            ConfusionCounts.of_each_class(shown, scores >= THRESHOLD, used),
            np.zeros((len(used), len(used)), np.int64),
            ScoreHistogram.of_scores(scores, shown, used),
            ConfidenceHistogram.empty(),
        )

    @classmethod
    def from_wire(cls, sent: Mapping[str, Any]) -> "AnswerCounts":
        """Return the counts that :meth:`to_wire` wrote at one site."""

        def counts(name: str) -> Counts:
            return np.asarray(sent[name], np.int64)

        images = counts("images")
        cells = np.zeros((len(images), len(images)), np.int64)
        for true_class, given_class, number in sent["cells"]:
            cells[true_class, given_class] = number
        scores = ScoreHistogram(counts("scores"), counts("inside"))
        confusion = ConfusionCounts(
            total=scores.images.sum(axis=1),
            images=images,
            true_positives=counts("found"),
            false_positives=counts("mistaken"),
        )
        interval_images = counts("sure")
        # Means are sent, and sums of probabilities are kept, because these can be added.
        means: Values = np.asarray(sent["confidence"], float)
        sums: Values = means * interval_images
        confidence = ConfidenceHistogram(interval_images, counts("right"), sums)
        return cls(confusion, cells, scores, confidence)

    def to_wire(self) -> dict[str, Any]:
        """Return the counts as plain JSON values, by the names of the wire.

        ``images``, ``found`` and ``mistaken`` are those of :attr:`confusion`, ``scores`` and
        ``inside`` those of :attr:`scores`, ``sure`` and ``right`` those of :attr:`confidence`.
        ``cells`` are rows of true class, other class answered, and number of images, five or more.
        ``confidence`` is the mean highest probability of an interval, 0 where it has no image.
        """
        cells = []
        for true_class, given_class in np.argwhere(self.cells).tolist():
            cells.append([true_class, given_class, int(self.cells[true_class, given_class])])
        return {
            "images": self.confusion.images.tolist(),
            "found": self.confusion.true_positives.tolist(),
            "mistaken": self.confusion.false_positives.tolist(),
            "cells": cells,
            "scores": self.scores.images.tolist(),
            "inside": self.scores.inside.tolist(),
            "sure": self.confidence.images.tolist(),
            "right": self.confidence.right.tolist(),
            "confidence": self.confidence.means.tolist(),
        }

    def of_patients(self, clusters: ClusterCounts) -> "AnswerCounts":
        """Return a site's counts with what the images of its patients are worth in intervals."""
        confusion = self.confusion
        by_class, of_all = clusters.inflated(confusion.images, int(confusion.total.max()))
        return replace(self, confusion=replace(confusion, inflated=by_class, all_inflated=of_all))

    def merge(self, other: "AnswerCounts") -> "AnswerCounts":
        """Return the counts of the images of both."""
        return AnswerCounts(
            self.confusion.merge(other.confusion),
            self.cells + other.cells,
            self.scores.merge(other.scores),
            self.confidence.merge(other.confidence),
        )

    @classmethod
    def merged(cls, parts: Sequence["AnswerCounts"]) -> "AnswerCounts":
        """Return the sum of the counts of one or more sites."""
        return reduce(cls.merge, parts)
