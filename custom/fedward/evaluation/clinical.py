"""What clinicians ask of a model, computed from counts.

These are shares with intervals, curves, calibration, and the effect of referring images to a human.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.binned import EDGES, Binned, Counts
from fedward.evaluation.intervals import proportion_interval
from fedward.evaluation.small_counts import SMALLEST_COUNT

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """A share of n images, with Wilson's 95 % interval."""

    value: float
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    n: int
    """Number of images, at least five."""

    @classmethod
    def of(cls, part: int, whole: int) -> "Share | None":
        """Return the share ``part / whole``; None for fewer than five images."""
        if whole < SMALLEST_COUNT:
            return None
        low, high = proportion_interval(part / whole, whole)
        return cls(part / whole, low, high, whole)


@dataclass(frozen=True)
class Rates:
    """One class against all others; None where fewer than five images would decide."""

    sensitivity: Share | None
    """Share of the images of the class that are given it."""
    specificity: Share | None
    """Share of the other images that are not given it."""
    positive: Share | None
    """Positive predictive value: share of the images given the class that are of it."""
    negative: Share | None
    """Negative predictive value: share of the images not given the class that are not of it."""


def rates(counts: Binned, place: int) -> Rates:
    """Return the rates of the class at this place."""
    positives = int(counts.images[place])
    true_positives = int(counts.found[place])
    false_positives = int(counts.mistaken[place])
    negatives = int(counts.scores[place].sum()) - positives
    true_negatives = negatives - false_positives
    false_negatives = positives - true_positives
    return Rates(
        sensitivity=Share.of(true_positives, positives),
        specificity=Share.of(true_negatives, negatives),
        positive=Share.of(true_positives, true_positives + false_positives),
        negative=Share.of(true_negatives, true_negatives + false_negatives),
    )


def of_finding(counts: Binned, place: int) -> Binned:
    """Return the counts of the answers yes and no to one class that is counted against its rest.

    ``images`` and ``found`` are those with the class and those without it. ``sure`` and ``right``
    are by the probability of the answer: p for yes, 1 - p for no. Sums of these probabilities are
    unknown, and ``confidence`` stays 0.
    """
    half = EDGES.index(0.5)
    upper_edges = np.array(EDGES[1 : half + 1])
    # Interval that holds 1 - p for the p of each interval below 0.5. The small number keeps an
    # upper end such as 1 - 0.1 in the interval that begins there.
    mirrored = np.searchsorted(EDGES, 1 - upper_edges + 1e-9, side="right") - 1
    scores = counts.scores[place]
    inside = counts.inside[place]
    is_below_half = np.arange(len(scores)) < half
    sure = np.where(is_below_half, 0, scores)
    right = np.where(is_below_half, 0, inside)
    np.add.at(sure, mirrored, scores[:half])
    np.add.at(right, mirrored, (scores - inside)[:half])
    positives = counts.images[place]
    negatives = int(scores.sum() - positives)
    true_negatives = negatives - counts.mistaken[place]
    return replace(
        counts,
        images=np.array([positives, negatives]),
        found=np.array([counts.found[place], true_negatives]),
        sure=sure,
        right=right,
    )


def accuracy(counts: Binned) -> Share | None:
    """Return the share of right answers."""
    return Share.of(int(counts.found.sum()), counts.total)


def balanced_accuracy(counts: Binned) -> Share | None:
    """Return the mean sensitivity of the classes with images, with its 95 % interval.

    With Wilson's interval (l_k, u_k) of the sensitivity p_k of each of K classes, and their mean p,
    its ends are ``p - sqrt(sum_k (p_k - l_k)²) / K`` and ``p + sqrt(sum_k (u_k - p_k)²) / K``.
    Images are taken to be independent. The interval has a width also where all images are right.
    Source: Zou and Donner, *Construction of confidence limits about effect measures: a general
    approach*, Statistics in Medicine 2008.

    Returns:
        None without an image.
    """
    present = counts.images > 0
    if not present.any():
        return None
    images = counts.images[present]
    sensitivities = counts.found[present] / images
    intervals = []
    for sensitivity, n in zip(sensitivities.tolist(), images.tolist(), strict=True):
        intervals.append(proportion_interval(sensitivity, n))
    squared_distances = (np.array(intervals) - sensitivities[:, None]) ** 2
    below, above = np.sqrt(squared_distances.sum(axis=0)) / len(images)
    mean = float(sensitivities.mean())
    low = max(mean - float(below), 0.0)
    high = min(mean + float(above), 1.0)
    return Share(mean, low, high, counts.total)


def roc(counts: Binned, place: int) -> tuple[Values, Values] | None:
    """Return false positive rates and true positive rates of a class by falling threshold.

    Both go from 0 to 1. None unless there are images of the class and others.
    """
    inside, outside = _at_least(counts, place)
    if not inside[-1] or not outside[-1]:
        return None
    return outside / outside[-1], inside / inside[-1]


def precision_recall(counts: Binned, place: int) -> tuple[Values, Values] | None:
    """Return recalls and precisions of a class by falling threshold.

    Thresholds at which no image is given the class are left out. None without images of the class.
    """
    inside, outside = _at_least(counts, place)
    if not inside[-1]:
        return None
    given = inside + outside
    defined = given > 0
    return (inside / inside[-1])[defined], inside[defined] / given[defined]


def _at_least(counts: Binned, place: int) -> tuple[Values, Values]:
    """Return how many images of a class, and how many others, have at least each probability.

    By falling probability: from no images to all of them, as floats, (B + 1,).
    """
    inside = counts.inside[place][::-1]
    outside = counts.scores[place][::-1] - inside
    return _cumulative(inside), _cumulative(outside)


def _cumulative(images: Counts) -> Values:
    return np.concatenate([[0.0], np.cumsum(images)])


def reliability(counts: Binned) -> list[tuple[float, Share]]:
    """Return mean confidence and share of right answers of each interval with images, rising."""
    points = []
    for place in np.flatnonzero(counts.sure):
        share = Share.of(int(counts.right[place]), int(counts.sure[place]))
        if share:
            mean_confidence = float(counts.confidence[place] / counts.sure[place])
            points.append((mean_confidence, share))
    return points


def reliability_of(counts: Binned, place: int) -> list[tuple[float, Share]]:
    """Return the middle of each interval with images, and the share of them that show a class."""
    middles = (np.array(EDGES[:-1]) + EDGES[1:]) / 2
    points = []
    for middle, inside, images in zip(
        middles, counts.inside[place], counts.scores[place], strict=True
    ):
        share = Share.of(int(inside), int(images))
        if share:
            points.append((float(middle), share))
    return points


def calibration_error(counts: Binned) -> float | None:
    """Return the expected calibration error ``Σ |right_b - confidence_b| / N`` over intervals.

    None without an image. Source: Guo et al., *On calibration of modern neural networks*, ICML
    2017, Eq. 3, with the intervals of :data:`~fedward.evaluation.binned.EDGES`.
    """
    if not counts.total:
        return None
    return float(np.abs(counts.right - counts.confidence).sum() / counts.total)


def risk_coverage(counts: Binned) -> tuple[Values, Values]:
    """Return coverage and accuracy where the least sure images are referred to a human.

    Coverage is the share of images that are kept, and accuracy that of the answers to them, by
    falling confidence; the last point is (1, accuracy of all). Source: El-Yaniv and Wiener, *On the
    foundations of noise-free selective classification*, JMLR 2010.
    """
    kept = np.cumsum(counts.sure[::-1])
    right = np.cumsum(counts.right[::-1])
    has_images = np.diff(kept, prepend=0) > 0
    return kept[has_images] / max(counts.total, 1), right[has_images] / kept[has_images]


def referred_for(counts: Binned, wanted: float) -> float | None:
    """Return the smallest share of images to refer for an accuracy of ``wanted`` on the others.

    None if no share is enough.
    """
    coverage, accuracy_of_kept = risk_coverage(counts)
    sufficient = coverage[accuracy_of_kept >= wanted]
    return float(1 - sufficient.max()) if len(sufficient) else None
