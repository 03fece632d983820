"""What clinicians ask of a model, from counts: shares with intervals, curves, calibration, effect
of referring.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.binned import EDGES, Binned
from fedward.evaluation.intervals import proportion_interval
from fedward.evaluation.small_counts import SMALLEST_COUNT

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """A share of so many images, with Wilson's 95 % interval."""

    value: float
    low: float
    high: float
    n: int
    """At least five."""

    @classmethod
    def of(cls, part: int, whole: int) -> "Share | None":
        """Return the share; None of fewer than five images."""
        if whole < SMALLEST_COUNT:
            return None
        return cls(part / whole, *proportion_interval(part / whole, whole), whole)


@dataclass(frozen=True)
class Rates:
    """One class against all others; None where fewer than five images would decide."""

    sensitivity: Share | None
    """Of the images of the class, how many are given it."""
    specificity: Share | None
    """Of all others, how many are not."""
    positive: Share | None
    """Positive predictive value: of the images that are given the class, how many are of it."""
    negative: Share | None
    """Negative predictive value: of the images that are not, how many are not of it."""


def rates(counts: Binned, place: int) -> Rates:
    """Return the rates of the class at this place."""
    images, found, mistaken = (
        int(values[place]) for values in (counts.images, counts.found, counts.mistaken)
    )
    others = int(counts.scores[place].sum()) - images
    missed = images - found
    return Rates(
        Share.of(found, images),
        Share.of(others - mistaken, others),
        Share.of(found, found + mistaken),
        Share.of(others - mistaken, others - mistaken + missed),
    )


def of_finding(counts: Binned, place: int) -> Binned:
    """Return the counts of the answers yes and no to one class, where each class is counted against
    its rest.

    ``images`` and ``found`` are those with the class and those without it. ``sure`` and ``right``
    are by the probability of the answer, of the class or one less it. Sums of these are unknown,
    and ``confidence`` stays 0.
    """
    half = EDGES.index(0.5)
    mirrored = np.searchsorted(EDGES, 1 - np.array(EDGES[1 : half + 1]) + 1e-9, side="right") - 1
    scores = counts.scores[place]
    inside = counts.inside[place]
    sure, right = (np.where(np.arange(len(scores)) < half, 0, each) for each in (scores, inside))
    np.add.at(sure, mirrored, scores[:half])
    np.add.at(right, mirrored, (scores - inside)[:half])
    others = int(scores.sum() - counts.images[place])
    found = np.array([counts.found[place], others - counts.mistaken[place]])
    return replace(
        counts, images=np.array([counts.images[place], others]), found=found, sure=sure, right=right
    )


def accuracy(counts: Binned) -> Share | None:
    """Return the share of right answers."""
    return Share.of(int(counts.found.sum()), counts.total)


def balanced_accuracy(counts: Binned) -> Share | None:
    """Return the mean sensitivity of the classes with images, with a 95 % interval of independent
    images.

    With Wilson's interval (l_k, u_k) of the sensitivity p_k of each of K classes, and their mean p,
    its ends are ``p - sqrt(sum_k (p_k - l_k)²) / K`` and ``p + sqrt(sum_k (u_k - p_k)²) / K``. It
    has a width also where all images are right. Source: Zou and Donner, *Construction of confidence
    limits about effect measures: a general approach*, Statistics in Medicine 2008.
    """
    there = counts.images > 0
    if not there.any():
        return None
    images = counts.images[there]
    shares = counts.found[there] / images
    ends = np.array(
        [
            proportion_interval(share, n)
            for share, n in zip(shares.tolist(), images.tolist(), strict=True)
        ]
    )
    below, above = np.sqrt(((ends - shares[:, None]) ** 2).sum(axis=0)) / len(images)
    mean = float(shares.mean())
    return Share(mean, max(mean - float(below), 0.0), min(mean + float(above), 1.0), counts.total)


def roc(counts: Binned, place: int) -> tuple[Values, Values] | None:
    """Return (false positive rates, true positive rates), from (0, 0) to (1, 1) by falling
    threshold.

    None unless there are images of the class and others.
    """
    inside, outside = _falling(counts, place)
    if not inside[-1] or not outside[-1]:
        return None
    return outside / outside[-1], inside / inside[-1]


def precision_recall(counts: Binned, place: int) -> tuple[Values, Values] | None:
    """Return (recalls, precisions) by falling threshold, where anything is given the class; None
    without its images.
    """
    inside, outside = _falling(counts, place)
    said = inside + outside
    if not inside[-1]:
        return None
    given = said > 0
    return (inside / inside[-1])[given], inside[given] / said[given]


def _falling(counts: Binned, place: int) -> tuple[Values, Values]:
    """Return (images of the class, others) with at least each probability, from none of them to
    all, as floats.
    """
    inside = counts.inside[place][::-1]
    scores = counts.scores[place][::-1]
    return tuple(np.concatenate([[0.0], np.cumsum(each)]) for each in (inside, scores - inside))  # type: ignore[return-value]


def reliability(counts: Binned) -> list[tuple[float, Share]]:
    """Return (mean confidence, share of right answers) of each interval with images, by rising
    confidence.
    """
    filled = np.flatnonzero(counts.sure)
    shares = (
        (place, Share.of(int(counts.right[place]), int(counts.sure[place]))) for place in filled
    )
    return [
        (float(counts.confidence[place] / counts.sure[place]), share)
        for place, share in shares
        if share
    ]


def reliability_of(counts: Binned, place: int) -> list[tuple[float, Share]]:
    """Return (middle of an interval, share of its images that show the class) of intervals with
    images, rising.
    """
    middles = (np.array(EDGES[:-1]) + EDGES[1:]) / 2
    shares = (
        Share.of(int(n), int(of))
        for n, of in zip(counts.inside[place], counts.scores[place], strict=True)
    )
    return [(float(at), share) for at, share in zip(middles, shares, strict=True) if share]


def calibration_error(counts: Binned) -> float | None:
    """Return the expected calibration error ``Σ |right_b - confidence_b| / N`` over intervals; None
    without an image.

    Source: Guo et al., *On calibration of modern neural networks*, ICML 2017, Eq. 3, with intervals
    of our own.
    """
    if not counts.total:
        return None
    return float(np.abs(counts.right - counts.confidence).sum() / counts.total)


def risk_coverage(counts: Binned) -> tuple[Values, Values]:
    """Return (coverage, accuracy of the answers kept) where the least sure images are referred to a
    human.

    By falling confidence; the last is (1, accuracy of all). Source: El-Yaniv and Wiener, *On the
    foundations of noise-free selective classification*, JMLR 2010.
    """
    kept = np.cumsum(counts.sure[::-1])
    right = np.cumsum(counts.right[::-1])
    some = (kept > 0) & (np.diff(kept, prepend=0) > 0)
    return kept[some] / max(counts.total, 1), right[some] / kept[some]


def referred_for(counts: Binned, wanted: float) -> float | None:
    """Return the smallest share to refer so that ``wanted`` of the other answers are right; None if
    none is enough.
    """
    coverage, right = risk_coverage(counts)
    enough = coverage[right >= wanted]
    return float(1 - enough.max()) if len(enough) else None
