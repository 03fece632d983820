"""Counts of a model's answers on one site's test images, which add up over sites.

Sensitivity, confusion matrix, ROC curve and calibration of several hospitals together need counts,
not averages. A site sends these counts under the small-count rule
(:mod:`fedward.evaluation.small_counts`):

- Images of a class with fewer than five images are in no count, as they are in no metric.
- An interval of scores with fewer than five images is merged with its neighbours below it.
- A cell of the confusion matrix with fewer than five images is withheld.

Where an image may show several classes, each class is counted against its rest, and a class with
fewer than five images on either side is in no count. There are no cells then, and no highest
probability (:func:`fedward.evaluation.multi_label.one_versus_rest`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
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
"""Ends of the intervals of probabilities: narrow where a softmax has most of its outputs."""
INTERVALS = len(EDGES) - 1

Counts = NDArray[np.int64]

_COUNTED = ("images", "found", "mistaken", "scores", "inside", "sure", "right")
"""Fields of :class:`Binned` that a site sends as plain lists."""


@dataclass(frozen=True)
class Binned:
    """Counts of K classes and B = :data:`INTERVALS` intervals, of one site or summed over sites."""

    images: Counts
    """(K,) images of each class."""
    found: Counts
    """(K,) images of each class that were given their class."""
    mistaken: Counts
    """(K,) images of other classes that were given this one."""
    cells: Counts
    """(K, K) images of a class (row) that were given another one (column).

    0 where a site withholds the cell.
    """
    scores: Counts
    """(K, B) all images by their probability of each class."""
    inside: Counts
    """(K, B) the images of the class among ``scores``."""
    sure: Counts
    """(B,) all images by their highest probability."""
    right: Counts
    """(B,) the images among ``sure`` that were given their class."""
    confidence: NDArray[np.float64]
    """(B,) sum of the highest probabilities in each interval."""

    @property
    def total(self) -> int:
        """Number of all images, where each is of one class."""
        return int(self.images.sum())

    @classmethod
    def read(cls, sent: Mapping[str, Any]) -> "Binned":
        """Return the counts that :func:`binned_counts` returned for one site."""
        classes = len(sent["images"])
        cells = np.zeros((classes, classes), np.int64)
        for true_class, given_class, number in sent["cells"]:
            cells[true_class, given_class] = number
        counts = {name: np.asarray(sent[name], np.int64) for name in _COUNTED}
        mean_confidence = np.asarray(sent["confidence"], float)
        return cls(**counts, cells=cells, confidence=mean_confidence * counts["sure"])

    @classmethod
    def added(cls, parts: Sequence["Binned"]) -> "Binned":
        """Return the sum of the counts of one site or more."""
        sums = {}
        for field in fields(cls):
            sums[field.name] = np.sum([getattr(part, field.name) for part in parts], axis=0)
        return cls(**sums)


def binned_counts(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer]
) -> dict[str, Any] | None:
    """Return the counts of one model that may leave a site, as plain JSON values.

    Args:
        probabilities: (N, K) float in [0, 1]; the predicted class is the first largest one of a
            row.
        labels: (N,) int, the true class as 0..K-1.

    Returns:
        The fields of :class:`Binned`, with two differences. ``cells`` are rows of true class, other
        class given, and number of images, five or more. ``confidence`` is the mean highest
        probability of an interval, 0 where it has no image. None where no class has five images.
    """
    classes = probabilities.shape[1]
    is_common = np.bincount(labels, minlength=classes) >= SMALLEST_COUNT
    if not is_common.any():
        return None
    used = is_common[labels]
    scores = np.asarray(probabilities, float)[used]
    true_class = labels[used]
    given_class = scores.argmax(axis=1)
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (true_class, given_class), 1)
    found = matrix.diagonal()
    by_class = [histogram(scores[:, place], true_class == place) for place in range(classes)]
    highest = scores.max(axis=1)
    sure, right, confidence = histogram(highest, true_class == given_class, highest)
    return {
        "images": matrix.sum(axis=1).tolist(),
        "found": found.tolist(),
        "mistaken": (matrix.sum(axis=0) - found).tolist(),
        "cells": _reported_cells(matrix),
        "scores": [images.astype(int).tolist() for images, _ in by_class],
        "inside": [inside.astype(int).tolist() for _, inside in by_class],
        "sure": sure.astype(int).tolist(),
        "right": right.astype(int).tolist(),
        "confidence": (confidence / np.maximum(sure, 1)).round(4).tolist(),
    }


def _reported_cells(matrix: Counts) -> list[list[int]]:
    """Return true class, given class and images of each error that five images or more show."""
    cells = []
    for true_class, given_class in np.argwhere(matrix >= SMALLEST_COUNT).tolist():
        if true_class != given_class:
            cells.append([true_class, given_class, int(matrix[true_class, given_class])])
    return cells


def histogram(values: NDArray[np.float64], *weights: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Return the number of images by interval of their values, and sums of weights by interval.

    Intervals with fewer than five images are merged with those below them, so that each has five
    images or more, or none.

    Args:
        values: (N,) in [0, 1].
        weights: each (N,).

    Returns:
        (B,) counts, then (B,) sums of each of the weights.
    """
    interval = np.clip(np.searchsorted(EDGES, values, side="right") - 1, 0, INTERVALS - 1)
    images = np.bincount(interval, minlength=INTERVALS)
    merged_into = np.arange(INTERVALS)
    too_small = list[int]()
    last_whole = 0
    for index in reversed(range(INTERVALS)):
        too_small.append(index)
        if images[too_small].sum() >= SMALLEST_COUNT:
            merged_into[too_small] = index
            last_whole = index
            too_small = []
    # The lowest intervals may have too few images left: they join the interval above.
    merged_into[too_small] = last_whole
    sums = []
    for column in (np.ones(len(values)), *weights):
        by_interval = np.bincount(merged_into[interval], weights=column, minlength=INTERVALS)
        sums.append(by_interval.astype(float))
    return sums
