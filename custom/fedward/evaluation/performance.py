"""How well one model does on one set of labelled images, for people to read.

Each number has its 95 % interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.arrays import Values, mean_defined
from fedward.evaluation.histograms import AnswerHistogram
from fedward.evaluation.intervals import Share, bootstrap_intervals
from fedward.evaluation.metric_rows import require_probabilities
from fedward.evaluation.one_label import OneLabelMetrics
from fedward.evaluation.several_labels import SeveralLabelsMetrics
from fedward.evaluation.small_counts import SMALLEST_COUNT, common_findings
from fedward.labels import strata

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Thresholds of confidence below which images may be referred to a person."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval by a bootstrap.

    There is no interval where all resamples give the same number. A model without errors on the
    images has none in any resample, which does not tell its errors on other images.
    """

    value: float
    low: float | None
    """Lower end of the interval; None without one."""
    high: float | None
    """Upper end of the interval; None without one."""


def performance(
    probabilities: NDArray[np.floating],
    labels: NDArray[np.integer],
    classes: Sequence[str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return numbers about N images of one class each, as plain JSON values.

    Images are taken to be independent. Numbers from counts are those of the report
    (:class:`~fedward.evaluation.answer_counts.AnswerCounts`), under the small-count rule. F1,
    precision, AUROC and AUPRC have intervals by a bootstrap.

    Args:
        probabilities: (N, K) in [0, 1]; the predicted class is the first largest one of a row.
        labels: (N,) in 0..K-1, of classes with five images or more.
        classes: K names.
        rng: draws the resamples of the bootstrap.

    Returns:
        ``images``: N. ``overall``: ``accuracy``, ``balanced_accuracy``, ``f1_macro``,
        ``precision_macro`` and ``auroc_macro``, means over the classes present. ``classes``: for
        each class present ``images``, ``sensitivity``, ``specificity``, ``positive`` and
        ``negative`` predictive value, ``auroc`` and ``auprc`` of the probabilities, and
        ``auroc_from_answers`` and ``auprc_from_answers``. ``confusion``: true class -> images by
        predicted class, a column for each of K, None for a withheld cell. ``calibration_error`` and
        ``largest_calibration_error`` over fixed intervals; ``adaptive_bins``: the same over
        adaptive ones. ``risk_coverage_area``. ``referral``: see :func:`referral`. A number that is
        not defined is None.
    """
    scores = np.asarray(probabilities, np.float64)
    require_probabilities(scores)
    true_class = np.asarray(labels, np.int64)
    counts = counted(scores, true_class)
    confusion = counts.confusion
    present = np.flatnonzero(confusion.present).tolist()
    f1, precision, mean_auroc, *of_class = _bootstrapped(scores, true_class, present, rng)
    confidences = OneLabelMetrics.of_answers(scores, true_class, len(classes)).confidences
    overall: dict[str, Share | Estimate | None] = {
        "accuracy": confusion.accuracy,
        "balanced_accuracy": confusion.balanced_accuracy,
        "f1_macro": f1,
        "precision_macro": precision,
        "auroc_macro": mean_auroc,
    }
    numbers_of_class = {}
    auroc_of_class = of_class[: len(present)]
    auprc_of_class = of_class[len(present) :]
    for place, auroc, auprc in zip(present, auroc_of_class, auprc_of_class, strict=True):
        numbers_of_class[classes[place]] = _numbers_of_class(counts, place, auroc, auprc)
    return {
        "images": len(true_class),
        "overall": {name: _json(value) for name, value in overall.items()},
        "classes": numbers_of_class,
        "confusion": {classes[place]: _cells(counts, place) for place in present},
        "calibration_error": counts.confidence.calibration_error,
        "largest_calibration_error": counts.confidence.largest_calibration_error,
        "adaptive_bins": {
            "calibration_error": confidences.ece_adaptive,
            "largest_calibration_error": confidences.mce_adaptive,
        },
        "risk_coverage_area": confidences.aurc,
        "referral": referral(counts.confidence),
    }


def multi_label_performance(
    probabilities: NDArray[np.floating],
    labels: NDArray[np.integer],
    classes: Sequence[str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return numbers about N images that may show several classes or none, as plain JSON values.

    Args:
        probabilities: (N, K) in [0, 1]; from 0.5 on the answer is that the image shows the class.
        labels: (N, K) of 0 and 1; of one class or more there are five images on both sides.
        classes: K names.
        rng: draws the resamples of the bootstrap.

    Returns:
        As :func:`performance`, but ``overall`` has the numbers of
        :func:`~fedward.evaluation.several_labels.multi_label_metrics`, and ``classes`` are those
        that are evaluated, each with a ``calibration_error`` and a ``referral`` of its own
        (:func:`answered`). ``confusion`` and those of all images are None.
    """
    scores = np.asarray(probabilities, np.float64)
    require_probabilities(scores)
    truth = np.asarray(labels, np.int64)
    counts = AnswerCounts.of_each_class(scores, truth)
    if counts is None:
        raise ValueError(f"no class has {SMALLEST_COUNT} images on both sides")
    used = common_findings(truth)
    places = np.flatnonzero(used).tolist()
    shown = truth == 1

    whole = SeveralLabelsMetrics.of_answers(scores, shown, used)
    means = ("auroc_macro", "auprc_macro", "f1_macro")

    def measure(index: NDArray[np.int64]) -> Values:
        """Return the macro means, the Hamming accuracy, and both areas of each class."""
        drawn = shown[index]
        has_both_answers = used & drawn.any(axis=0) & ~drawn.all(axis=0)
        metrics = SeveralLabelsMetrics.of_answers(scores[index], drawn, has_both_answers)
        values = [getattr(metrics, name) for name in means]
        hamming_accuracy = whole.is_right[index].mean()
        areas = [*metrics.auroc[places], *metrics.auprc[places]]
        return np.array([*values, hamming_accuracy, *areas], np.float64)

    estimates = _estimates(measure, strata(truth), rng)
    numbers_of_all = (*means, "hamming_accuracy")
    overall: dict[str, Share | Estimate | None] = dict(
        zip(numbers_of_all, estimates[: len(numbers_of_all)], strict=True)
    )
    overall["exact_match"] = None
    if whole.exact_matches >= SMALLEST_COUNT:
        overall["exact_match"] = Share.of(whole.exact_matches, len(truth))
    of_class = estimates[len(numbers_of_all) :]
    auroc_of_class = of_class[: len(places)]
    auprc_of_class = of_class[len(places) :]
    numbers_of_class = {}
    for place, auroc, auprc in zip(places, auroc_of_class, auprc_of_class, strict=True):
        numbers_of_class[classes[place]] = {
            **_numbers_of_class(counts, place, auroc, auprc),
            **answered(scores[:, place], truth[:, place]),
        }
    return {
        "images": len(truth),
        "overall": {name: _json(value) for name, value in overall.items()},
        "classes": numbers_of_class,
        "confusion": None,
        "calibration_error": None,
        "largest_calibration_error": None,
        "adaptive_bins": None,
        "risk_coverage_area": None,
        "referral": None,
    }


def _numbers_of_class(
    counts: AnswerCounts, place: int, auroc: Estimate | None, auprc: Estimate | None
) -> dict[str, Any]:
    confusion = counts.confusion
    return {
        "images": int(confusion.images[place]),
        **asdict(confusion.rates(place)),
        "auroc": _json(auroc),
        "auprc": _json(auprc),
        "auroc_from_answers": mean_defined(confusion.auroc_from_answers[[place]]),
        "auprc_from_answers": mean_defined(confusion.auprc_from_answers[[place]]),
    }


def answered(probabilities: NDArray[np.floating], shown: NDArray[np.integer]) -> dict[str, Any]:
    """Return how far the answers yes and no to one class can be trusted.

    Args:
        probabilities: p (N,) of the class, in [0, 1].
        shown: (N,) 1 where an image shows it, else 0; five of each or more.

    Returns:
        ``calibration_error`` and ``referral``, by the probability of the answer: p for yes, 1 - p
        for no.
    """
    confidence = counted(two_answers(probabilities), 1 - shown).confidence
    return {
        "calibration_error": confidence.calibration_error,
        "referral": referral(confidence),
    }


def two_answers(probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the probabilities (N, 2) of yes and no, in this order, given those of yes (N,)."""
    return np.stack([probabilities, 1 - probabilities], axis=1)


def referral(answers: AnswerHistogram) -> list[dict[str, Any]]:
    """Return the effect of referring the images below each of :data:`THRESHOLDS` of confidence.

    Returns:
        A row for each threshold. ``below``: the threshold. ``referred``: share of all images; up to
        four images may be missing or too many, as intervals with so few are merged with others.
        ``accuracy``: share of right answers among the other images, with its interval; None for
        fewer than five.
    """
    rows = []
    for threshold in THRESHOLDS:
        not_referred, right = answers.at_least(threshold)
        row = {
            "below": threshold,
            "referred": 1 - not_referred / answers.total,
            "accuracy": _json(Share.of(right, not_referred)),
        }
        rows.append(row)
    return rows


def counted(probabilities: NDArray[np.floating], labels: NDArray[np.integer]) -> AnswerCounts:
    """Return the counts of N images of one class each; each class has five images or more."""
    counts = AnswerCounts.of_one_answer(probabilities, labels)
    if counts is None:
        raise ValueError(f"no class has {SMALLEST_COUNT} images")
    return counts


def _bootstrapped(
    scores: Values,
    true_class: NDArray[np.int64],
    present: Sequence[int],
    rng: np.random.Generator,
) -> list[Estimate | None]:
    """Return macro F1, precision and AUROC, then the AUROC and the AUPRC of each class present.

    AUROCs and AUPRCs are None where there is a single class.
    """

    def measure(index: NDArray[np.int64]) -> Values:
        metrics = OneLabelMetrics.of_answers(scores[index], true_class[index], scores.shape[1])
        f1 = metrics.confusion.f1[present]
        precision = metrics.confusion.precision[present]
        auroc = metrics.auroc[present]
        means = [f1.mean(), precision.mean(), auroc.mean()]
        return np.array([*means, *auroc, *metrics.auprc[present]])

    return _estimates(measure, true_class, rng)


def _estimates(
    measure: Callable[[NDArray[np.int64]], Values],
    labels: NDArray[np.int64],
    rng: np.random.Generator,
) -> list[Estimate | None]:
    """Return the numbers that ``measure`` gives for all images, each with its interval."""
    values = measure(np.arange(len(labels)))
    low_ends, high_ends = bootstrap_intervals(measure, labels, rng)
    estimates: list[Estimate | None] = []
    for value, low, high in zip(
        values.tolist(), low_ends.tolist(), high_ends.tolist(), strict=True
    ):
        if np.isnan(value):
            estimates.append(None)
        elif low == high or np.isnan(low):
            # A resample without an image of a finding does not define its numbers.
            estimates.append(Estimate(value, None, None))
        else:
            estimates.append(Estimate(value, low, high))
    return estimates


def _cells(counts: AnswerCounts, place: int) -> list[int | None]:
    """Return a row of the confusion matrix; None for a withheld cell."""
    row = [int(count) or None for count in counts.cells[place]]
    row[place] = int(counts.confusion.true_positives[place])
    return row


def _json(value: Share | Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
