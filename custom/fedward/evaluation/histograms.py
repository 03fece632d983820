"""Images in intervals of probability, which add up over sites: curves, calibration, referral.

An interval has five images or more, or none: those with fewer are merged with their neighbours
below, the lowest of all with those above (:func:`binned`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Counts, Values
from fedward.evaluation.intervals import Share
from fedward.evaluation.ranking import Ranking
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
_HALF = EDGES.index(0.5)
"""The first interval in which a probability of a class answers yes."""


@dataclass(frozen=True)
class ScoreHistogram:
    """Images by their probability of each of K classes, in B = :data:`INTERVALS` intervals."""

    images: Counts
    """(K, B) all images; 0 for a class that is not counted."""
    inside: Counts
    """(K, B) images of the class among them."""

    @classmethod
    def of_scores(
        cls, scores: Values, inside: NDArray[np.bool_], used: NDArray[np.bool_]
    ) -> "ScoreHistogram":
        """Count N images by their scores.

        Args:
            scores: (N, K) in [0, 1].
            inside: (N, K) which images show which class.
            used: (K,) classes to count.
        """
        counted = np.zeros((2, len(used), INTERVALS), np.int64)
        for place in np.flatnonzero(used):
            counted[:, place] = _by_answer(scores[:, place], inside[:, place])
        return cls(*counted)

    def merge(self, other: "ScoreHistogram") -> "ScoreHistogram":
        """Return the counts of the images of both."""
        return ScoreHistogram(self.images + other.images, self.inside + other.inside)

    def ranking(self, place: int) -> Ranking:
        """Return how the probabilities of a class rank the images, to within an interval."""
        return Ranking.of_histogram(self.images[place], self.inside[place])

    def reliability(self, place: int) -> list[tuple[float, Share]]:
        """Return the middle of each interval with images, and the share that show the class."""
        middles = (np.array(EDGES[:-1]) + EDGES[1:]) / 2
        points = []
        for middle, inside, images in zip(
            middles, self.inside[place], self.images[place], strict=True
        ):
            share = Share.of(int(inside), int(images))
            if share:
                points.append((float(middle), share))
        return points

    def answers(self, place: int) -> "AnswerHistogram":
        """Return the answers yes and no to a class, by the probability of the answer.

        It is p for yes and 1 - p for no.
        """
        upper_edges = np.array(EDGES[1 : _HALF + 1])
        # Interval that holds 1 - p for the p of each interval below 0.5. The small number keeps an
        # upper end such as 1 - 0.1 in the interval that begins there.
        mirrored = np.searchsorted(EDGES, 1 - upper_edges + 1e-9, side="right") - 1
        images = self.images[place]
        inside = self.inside[place]
        is_below_half = np.arange(INTERVALS) < _HALF
        answered = np.where(is_below_half, 0, images)
        right = np.where(is_below_half, 0, inside)
        np.add.at(answered, mirrored, images[:_HALF])
        np.add.at(right, mirrored, (images - inside)[:_HALF])
        return AnswerHistogram(answered, right)


@dataclass(frozen=True)
class AnswerHistogram:
    """A model's answers by the probability that it gives them, in B intervals."""

    images: Counts
    """(B,) all images."""
    right: Counts
    """(B,) those for which the answer is right."""

    @property
    def total(self) -> int:
        """Number of all images."""
        return int(self.images.sum())

    def at_least(self, probability: float) -> tuple[int, int]:
        """Return how many images have answers this sure, and how many of these are right.

        ``probability``: one of :data:`EDGES`.
        """
        first_interval = EDGES.index(probability)
        return int(self.images[first_interval:].sum()), int(self.right[first_interval:].sum())

    def risk_coverage(self) -> tuple[Values, Values]:
        """Return coverage and accuracy where the least sure images are referred to a human.

        Coverage is the share of images that are kept, and accuracy that of the answers to them, by
        falling confidence; the last point is (1, accuracy of all). Source: El-Yaniv and Wiener, *On
        the foundations of noise-free selective classification*, JMLR 2010.
        """
        kept = np.cumsum(self.images[::-1])
        right = np.cumsum(self.right[::-1])
        has_images = np.diff(kept, prepend=0) > 0
        return kept[has_images] / max(self.total, 1), right[has_images] / kept[has_images]

    def referred_for(self, wanted: float, design_effect: float = 1.0) -> float | None:
        """Return the smallest share of images to refer for an accuracy of ``wanted`` on the others.

        The whole 95 % interval of this accuracy is ``wanted`` or above. The share is chosen on the
        same images. None if no share is enough.

        Args:
            wanted: in [0, 1].
            design_effect: images for each independent one (:mod:`fedward.evaluation.clusters`).
        """
        kept = np.cumsum(self.images[::-1]).tolist()
        right = np.cumsum(self.right[::-1]).tolist()
        for number, right_number in zip(reversed(kept), reversed(right), strict=True):
            share = Share.of(right_number, number, design_effect)
            if share and share.low >= wanted:
                return float(1 - number / self.total)
        return None


@dataclass(frozen=True)
class ConfidenceHistogram(AnswerHistogram):
    """Answers by their confidence, the highest probability of an image.

    All is 0 where an image may have several labels, and so has no single answer.
    """

    confidence: Values
    """(B,) sum of the confidences in each interval."""

    @classmethod
    def of_answers(cls, confidence: Values, is_right: NDArray[np.bool_]) -> "ConfidenceHistogram":
        """Count N images; mean confidences are rounded to four decimals, as a site sends them."""
        images, right, sums = binned(confidence, is_right, confidence)
        means = (sums / np.maximum(images, 1)).round(4)
        return cls(images.astype(np.int64), right.astype(np.int64), means * images)

    @classmethod
    def empty(cls) -> "ConfidenceHistogram":
        """Return the counts of no images."""
        nothing = np.zeros(INTERVALS, np.int64)
        return cls(nothing, nothing, nothing.astype(float))

    def merge(self, other: "ConfidenceHistogram") -> "ConfidenceHistogram":
        """Return the counts of the images of both."""
        return ConfidenceHistogram(
            self.images + other.images,
            self.right + other.right,
            self.confidence + other.confidence,
        )

    @property
    def means(self) -> Values:
        """Mean confidence of each interval, (B,), to four decimals; 0 without images."""
        return (self.confidence / np.maximum(self.images, 1)).round(4)

    @property
    def mean(self) -> float:
        """Mean confidence of all images, of which there is at least one."""
        return float(self.confidence.sum() / self.total)

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error ``Σ |right_b - confidence_b| / N`` over intervals.

        None without an image. Source: Guo et al., *On calibration of modern neural networks*, ICML
        2017, Eq. 3, with the intervals of :data:`EDGES`.
        """
        if not self.total:
            return None
        return float(np.abs(self.right - self.confidence).sum() / self.total)

    @property
    def largest_calibration_error(self) -> float | None:
        """The maximum calibration error ``max_b |right_b - confidence_b| / n_b`` over intervals.

        None without an image. Source: Bdair et al., MELBA 2022, Eq. 14, with the intervals of
        :data:`EDGES`.
        """
        if not self.total:
            return None
        has_images = self.images > 0
        gaps = np.abs(self.right - self.confidence)[has_images] / self.images[has_images]
        return float(gaps.max())

    def reliability(self) -> list[tuple[float, Share]]:
        """Return mean confidence and share of right answers of each interval, rising."""
        points = []
        for place in np.flatnonzero(self.images):
            share = Share.of(int(self.right[place]), int(self.images[place]))
            if share:
                points.append((float(self.confidence[place] / self.images[place]), share))
        return points


def _by_answer(scores: Values, inside: NDArray[np.bool_]) -> list[Values]:
    """Return :func:`binned` of the probabilities of one class, yes and no kept apart.

    An answer yes would count as a no in an interval below 0.5. Only fewer than five images of one
    answer are merged with those of the other.
    """
    is_yes = scores >= EDGES[_HALF]
    if 0 < is_yes.sum() < SMALLEST_COUNT or 0 < (~is_yes).sum() < SMALLEST_COUNT:
        return binned(scores, inside)
    yes = binned(scores[is_yes], inside[is_yes])
    no = binned(scores[~is_yes], inside[~is_yes])
    return [of_yes + of_no for of_yes, of_no in zip(yes, no, strict=True)]


def binned(values: Values, *weights: NDArray[Any]) -> list[Values]:
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
    waiting = list[int]()  # Intervals that have too few images so far, even together.
    lowest_kept = 0
    for index in reversed(range(INTERVALS)):
        waiting.append(index)
        if images[waiting].sum() >= SMALLEST_COUNT:
            merged_into[waiting] = index
            lowest_kept = index
            waiting = []
    # The lowest intervals may have too few images left: they join the interval above.
    merged_into[waiting] = lowest_kept
    sums = []
    for column in (np.ones(len(values)), *weights):
        by_interval = np.bincount(merged_into[interval], weights=column, minlength=INTERVALS)
        sums.append(by_interval.astype(float))
    return sums
