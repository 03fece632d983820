"""How well one model does on one set of labelled images, for people to read.

Each number has its 95 % interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.errors import ConfigError, did_you_mean, listed
from fedward.evaluation.binned import EDGES, Binned, binned_counts
from fedward.evaluation.classification import Array, per_class_values
from fedward.evaluation.clinical import Share, accuracy, balanced_accuracy, calibration_error, rates
from fedward.evaluation.intervals import bootstrap_intervals
from fedward.evaluation.multi_label import THRESHOLD, evaluated, one_versus_rest, per_class
from fedward.evaluation.small_counts import SMALLEST_COUNT
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
    (:mod:`fedward.evaluation.clinical`), under the small-count rule. F1 and AUROC have intervals
    by a bootstrap.

    Args:
        probabilities: (N, K) in [0, 1]; the predicted class is the first largest one of a row.
        labels: (N,) in 0..K-1, of classes with five images or more.
        classes: K names.
        rng: draws the resamples of the bootstrap.

    Returns:
        ``images``: N. ``overall``: ``accuracy``, ``balanced_accuracy``, ``f1_macro`` and
        ``auroc_macro``, means over the classes present. ``classes``: for each class present
        ``images``, ``sensitivity``, ``specificity``, ``positive`` and ``negative`` predictive
        value, and ``auroc``. ``confusion``: true class -> images by predicted class, a column for
        each of K, None for a withheld cell. ``calibration_error``. ``referral``: see
        :func:`referral`. A number that is not defined is None.
    """
    scores = np.asarray(probabilities, np.float64)
    true_class = np.asarray(labels, np.int64)
    counts = counted(scores, true_class)
    present = np.flatnonzero(counts.images).tolist()
    f1, mean_auroc, *auroc_of_class = _bootstrapped(scores, true_class, counts.images, present, rng)
    overall: dict[str, Share | Estimate | None] = {
        "accuracy": accuracy(counts),
        "balanced_accuracy": balanced_accuracy(counts),
        "f1_macro": f1,
        "auroc_macro": mean_auroc,
    }
    numbers_of_class = {}
    for place, auroc in zip(present, auroc_of_class, strict=True):
        numbers_of_class[classes[place]] = _numbers_of_class(counts, place, auroc)
    return {
        "images": len(true_class),
        "overall": {name: _json(value) for name, value in overall.items()},
        "classes": numbers_of_class,
        "confusion": {classes[place]: _cells(counts, place) for place in present},
        "calibration_error": calibration_error(counts),
        "referral": referral(counts),
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
        :func:`~fedward.evaluation.multi_label.multi_label_metrics`, and ``classes`` are those that
        are evaluated, each with a ``calibration_error`` and a ``referral`` of its own
        (:func:`answered`). ``confusion`` and those of all images are None.
    """
    scores = np.asarray(probabilities, np.float64)
    truth = np.asarray(labels, np.int64)
    sent = one_versus_rest(scores, truth)
    if sent is None:
        raise ValueError(f"no class has {SMALLEST_COUNT} images on both sides")
    counts = Binned.read(sent)
    places = np.flatnonzero(evaluated(truth)).tolist()
    is_right = (scores >= THRESHOLD)[:, places] == truth[:, places]
    kinds = ("auroc", "auprc", "f1")

    def measure(index: NDArray[np.int64]) -> Array:
        """Return the macro means, the Hamming accuracy, and the AUROC of each class."""
        drawn = truth[index][:, places]
        has_both_answers = (drawn.min(axis=0) == 0) & (drawn.max(axis=0) == 1)
        values = per_class(scores[index][:, places], drawn, has_both_answers)
        means = [np.nanmean(values[kind]) for kind in kinds]
        return np.array([*means, is_right[index].mean(), *values["auroc"]])

    estimates = _estimates(measure, strata(truth), rng)
    overall: dict[str, Share | Estimate | None] = {}
    for place, kind in enumerate(kinds):
        overall[f"{kind}_macro"] = estimates[place]
    overall["hamming_accuracy"] = estimates[len(kinds)]
    exact_matches = int(is_right.all(axis=1).sum())
    overall["exact_match"] = (
        Share.of(exact_matches, len(truth)) if exact_matches >= SMALLEST_COUNT else None
    )
    numbers_of_class = {}
    for place, auroc in zip(places, estimates[len(kinds) + 1 :], strict=True):
        numbers_of_class[classes[place]] = {
            **_numbers_of_class(counts, place, auroc),
            **answered(scores[:, place], truth[:, place]),
        }
    return {
        "images": len(truth),
        "overall": {name: _json(value) for name, value in overall.items()},
        "classes": numbers_of_class,
        "confusion": None,
        "calibration_error": None,
        "referral": None,
    }


def _numbers_of_class(counts: Binned, place: int, auroc: Estimate | None) -> dict[str, Any]:
    return {
        "images": int(counts.images[place]),
        **asdict(rates(counts, place)),
        "auroc": _json(auroc),
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
    counts = counted(two_answers(probabilities), 1 - shown)
    return {"calibration_error": calibration_error(counts), "referral": referral(counts)}


def two_answers(probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the probabilities (N, 2) of yes and no, in this order, given those of yes (N,)."""
    return np.stack([probabilities, 1 - probabilities], axis=1)


def referral(counts: Binned) -> list[dict[str, Any]]:
    """Return the effect of referring the images below each of :data:`THRESHOLDS` of confidence.

    Returns:
        A row for each threshold. ``below``: the threshold. ``referred``: share of all images, at
        most four images too high, as intervals with so few are merged with those below.
        ``accuracy``: share of right answers among the other images, with its interval; None for
        fewer than five.
    """
    rows = []
    for threshold in THRESHOLDS:
        first_interval = EDGES.index(threshold)
        not_referred = int(counts.sure[first_interval:].sum())
        right = int(counts.right[first_interval:].sum())
        row = {
            "below": threshold,
            "referred": 1 - not_referred / counts.total,
            "accuracy": _json(Share.of(right, not_referred)),
        }
        rows.append(row)
    return rows


def counted(probabilities: NDArray[np.floating], labels: NDArray[np.integer]) -> Binned:
    """Return the counts of N images as a site sends them; each class has five images or more."""
    sent = binned_counts(probabilities, labels)
    if sent is None:
        raise ValueError(f"no class has {SMALLEST_COUNT} images")
    return Binned.read(sent)


def fold(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], places: Sequence[int]
) -> tuple[Array, NDArray[np.int64]]:
    """Return the probabilities (N, G) and labels (N,) of groups of classes.

    A group's probability is the sum of its classes' probabilities. The group with the largest one
    is predicted, which need not be that of the predicted class.

    Args:
        probabilities: (N, K).
        labels: (N,) in 0..K-1.
        places: for each class the number of its group, 0..G-1.
    """
    groups = max(places) + 1
    of_group = np.zeros((len(probabilities), groups))
    np.add.at(of_group.T, list(places), np.asarray(probabilities, np.float64).T)
    group_of_class = np.asarray(places, np.int64)
    return of_group, group_of_class[np.asarray(labels, np.int64)]


def group_places(groups: Mapping[str, Sequence[str]], classes: Sequence[str]) -> list[int]:
    """Return for each class the number of its group.

    Raises ConfigError: a class is not in exactly one group, a member is not a class, or there is a
    single group.
    """
    members = [name for group in groups.values() for name in group]
    problems = []
    for name in members:
        if name not in classes:
            problems.append(f"{name}, which is no class{did_you_mean(name, classes)}")
    for name in classes:
        if members.count(name) != 1:
            problems.append(f"{name} {members.count(name)} times")
    if len(groups) == 1:
        problems.append("one group alone")
    if problems:
        raise ConfigError(
            "--groups",
            "Write for example --groups malignant=MEL,BCC benign=NV,BKL, "
            "with all classes of the model.",
            expected=f"two groups or more, with each of {listed(classes)} in one",
            found="; ".join(problems),
        )
    group_of = {name: place for place, group in enumerate(groups.values()) for name in group}
    return [group_of[name] for name in classes]


def _bootstrapped(
    scores: Array,
    true_class: NDArray[np.int64],
    support: NDArray[np.int64],
    present: Sequence[int],
    rng: np.random.Generator,
) -> list[Estimate | None]:
    """Return macro F1, macro AUROC, and the AUROC of each class present.

    AUROCs are None where there is a single class.
    """

    def measure(index: NDArray[np.int64]) -> Array:
        values = per_class_values(scores[index], true_class[index], support)
        f1 = values["f1"][present]
        auroc = values["auroc"][present]
        return np.array([f1.mean(), auroc.mean(), *auroc])

    return _estimates(measure, true_class, rng)


def _estimates(
    measure: Callable[[NDArray[np.int64]], Array],
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
        elif low == high:
            estimates.append(Estimate(value, None, None))
        else:
            estimates.append(Estimate(value, low, high))
    return estimates


def _cells(counts: Binned, place: int) -> list[int | None]:
    """Return a row of the confusion matrix; None for a withheld cell."""
    row = [int(count) or None for count in counts.cells[place]]
    row[place] = int(counts.found[place])
    return row


def _json(value: Share | Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
