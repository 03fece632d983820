"""Counts of a model's answers on one site's test images, from which sites' numbers add up to those
of all.

Sensitivity, confusion matrix, ROC curve and calibration of several hospitals together need counts,
not averages. A site sends these counts under the small-count rule
(:mod:`fedward.evaluation.small_counts`):

- Images of a class with fewer than five images are in no count, as they are in no metric.
- An interval of scores with fewer than five images is merged with its neighbours below it.
- A cell of the confusion matrix with fewer than five images is withheld.

In a multi-label job each class is counted against its rest, and a class with fewer than five images
on either side is in no count. There are no cells then, and no highest probability.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.small_counts import SMALLEST_COUNT

EDGES = (
    0.0,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    0.98,
    0.99,
    0.995,
    1.0,
)
"""Ends of the intervals of probabilities: narrow where a softmax says most of its answers."""
INTERVALS = len(EDGES) - 1

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Binned:
    """Counts of K classes and B = :data:`INTERVALS` intervals, of one site or of several added up."""

    images: Counts
    """(K,) images of each class."""
    found: Counts
    """(K,) of those, the ones that were given their class."""
    mistaken: Counts
    """(K,) images of other classes that were given this one."""
    cells: Counts
    """(K, K) images of a class (row) that were given another (column); 0 where a site withholds the
    cell.
    """
    scores: Counts
    """(K, B) all images by their probability of each class."""
    inside: Counts
    """(K, B) of those, the images of the class."""
    sure: Counts
    """(B,) all images by their highest probability."""
    right: Counts
    """(B,) of those, the ones that were given their class."""
    confidence: NDArray[np.float64]
    """(B,) sum of the highest probabilities in each interval."""

    @property
    def total(self) -> int:
        """All images, where each is of one class."""
        return int(self.images.sum())

    @classmethod
    def read(cls, sent: Mapping[str, Any]) -> "Binned":
        """Return what :func:`binned_counts` returned for one site."""
        classes = len(sent["images"])
        kinds = ("images", "found", "mistaken", "scores", "inside", "sure", "right")
        cells = np.zeros((classes, classes), np.int64)
        for truth, given, number in sent["cells"]:
            cells[truth, given] = number
        counts = {kind: np.asarray(sent[kind], np.int64) for kind in kinds}
        return cls(
            **counts, cells=cells, confidence=np.asarray(sent["confidence"], float) * counts["sure"]
        )

    @classmethod
    def added(cls, parts: Sequence["Binned"]) -> "Binned":
        """Return the counts of several sites together, at least one."""
        return cls(
            **{
                name: np.sum([getattr(part, name) for part in parts], axis=0)
                for name in vars(parts[0])
            }
        )


def binned_counts(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer]
) -> dict[str, Any] | None:
    """Return the counts of one model on N images of K classes as plain JSON, as they may leave a
    site.

    Args:
        probabilities: (N, K) float in [0, 1]; the predicted class is the first largest one of a
            row.
        labels: (N,) int, the true class as 0..K-1.

    Returns:
        The fields of :class:`Binned`, of which ``cells`` are rows of true class, other class given,
        and their images, five or more; and ``confidence`` is the mean highest probability of an
        interval, 0 where it has no image. None where no class has five images.
    """
    classes = probabilities.shape[1]
    common = np.bincount(labels, minlength=classes) >= SMALLEST_COUNT
    if not common.any():
        return None
    scores = np.asarray(probabilities, float)[common[labels]]
    truth = labels[common[labels]]
    given = scores.argmax(axis=1)
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (truth, given), 1)
    found = matrix.diagonal()
    by_class = [histogram(scores[:, place], truth == place) for place in range(classes)]
    highest = scores.max(axis=1)
    sure, right, confidence = histogram(highest, truth == given, highest)
    shown = [(t, g) for t, g in np.argwhere(matrix >= SMALLEST_COUNT).tolist() if t != g]
    return {
        "images": matrix.sum(axis=1).tolist(),
        "found": found.tolist(),
        "mistaken": (matrix.sum(axis=0) - found).tolist(),
        "cells": [[t, g, int(matrix[t, g])] for t, g in shown],
        "scores": [each[0].astype(int).tolist() for each in by_class],
        "inside": [each[1].astype(int).tolist() for each in by_class],
        "sure": sure.astype(int).tolist(),
        "right": right.astype(int).tolist(),
        "confidence": (confidence / np.maximum(sure, 1)).round(4).tolist(),
    }


def histogram(values: NDArray[np.float64], *weights: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Return images by interval of their values (N,), and sums of weights; an interval has five
    images, or none.
    """
    interval = np.clip(np.searchsorted(EDGES, values, side="right") - 1, 0, INTERVALS - 1)
    images = np.bincount(interval, minlength=INTERVALS)
    place = np.arange(INTERVALS)
    waiting = list[int]()
    last = 0
    for index in reversed(range(INTERVALS)):
        waiting.append(index)
        if images[waiting].sum() >= SMALLEST_COUNT:
            place[waiting], last, waiting = index, index, []
    place[waiting] = last  # of the lowest ones too few are left: they join the interval above
    columns = (np.ones(len(values)), *weights)
    return [
        np.bincount(place[interval], weights=each, minlength=INTERVALS).astype(float)
        for each in columns
    ]
