"""How well one model does on one set of labelled images, each number with its 95 % interval, for
people to read.
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
from fedward.sites.labels import strata

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Of confidence, below which images may be referred to a person."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval by a bootstrap; without one where all resamples give the same
    number.

    A model without errors on the images has none in any resample, which says nothing of its errors
    on other images.
    """

    value: float
    low: float | None
    high: float | None


def performance(
    probabilities: NDArray[np.floating],
    labels: NDArray[np.integer],
    classes: Sequence[str],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the numbers about N images that are independent of each other, as plain JSON values.

    Those by counts are the report's (:mod:`fedward.evaluation.clinical`), under the small-count
    rule; F1 and AUROC have the intervals of a bootstrap.

    Args:
        probabilities: (N, K) in [0, 1]; the predicted class is the first largest one of a row.
        labels: (N,) in 0..K-1, of classes with five images or more.
        classes: K names.
        rng: of the bootstrap.

    Returns:
        ``images``: N. ``overall``: ``accuracy``, ``balanced_accuracy``, ``f1_macro``,
        ``auroc_macro``, means over the classes present. ``classes``: of each one present
        ``images``, ``sensitivity``, ``specificity``, ``positive`` and ``negative`` predictive
        value, ``auroc``. ``confusion``: true class -> images by predicted class, a column for each
        of K, None for a withheld cell. ``calibration_error``. ``referral``: see :func:`referral`. A
        number that is not defined is None.
    """
    scores = np.asarray(probabilities, np.float64)
    truth = np.asarray(labels, np.int64)
    counts = counted(scores, truth)
    present = np.flatnonzero(counts.images).tolist()
    f1, area, *areas = _bootstrapped(scores, truth, counts.images, present, rng)
    overall = {"accuracy": accuracy(counts), "balanced_accuracy": balanced_accuracy(counts)}
    of_class = {
        classes[place]: {
            "images": int(counts.images[place]),
            **asdict(rates(counts, place)),
            "auroc": _json(auroc),
        }
        for place, auroc in zip(present, areas, strict=True)
    }
    return {
        "images": len(truth),
        "overall": {
            name: _json(value)
            for name, value in {**overall, "f1_macro": f1, "auroc_macro": area}.items()
        },
        "classes": of_class,
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
    """Return the same where an image may show several classes, or none; each is one question with
    two answers.

    Args:
        probabilities: (N, K) in [0, 1]; from 0.5 on the model says that the image shows the class.
        labels: (N, K) of 0 and 1; of a class or more there are five images on both sides.
        classes: K names.
        rng: of the bootstrap.

    Returns:
        As :func:`performance`, but ``overall`` are the numbers of
        :func:`~fedward.evaluation.multi_label.multi_label_metrics`, and ``classes`` those that are
        evaluated, each with a ``calibration_error`` and a ``referral`` of its own
        (:func:`answered`). ``confusion`` and those of all are None.
    """
    scores = np.asarray(probabilities, np.float64)
    truth = np.asarray(labels, np.int64)
    sent = one_versus_rest(scores, truth)
    places = np.flatnonzero(evaluated(truth)).tolist()
    if sent is None:
        raise ValueError(f"no class has {SMALLEST_COUNT} images on both sides")
    counts = Binned.read(sent)
    right = (scores >= THRESHOLD)[:, places] == truth[:, places]
    macro = ("auroc", "auprc", "f1")

    def measured(index: NDArray[np.int64]) -> Array:
        drawn = truth[index][:, places]
        both = (drawn.min(axis=0) == 0) & (drawn.max(axis=0) == 1)
        found = per_class(scores[index][:, places], drawn, both)
        return np.array(
            [*(np.nanmean(found[kind]) for kind in macro), right[index].mean(), *found["auroc"]]
        )

    estimates = _estimates(measured, strata(truth), rng)
    names = [*(f"{kind}_macro" for kind in macro), "hamming_accuracy"]
    areas = estimates[len(macro) + 1 :]
    exact = int(right.all(axis=1).sum())
    values = dict(zip(names, estimates, strict=False))
    overall = {
        **values,
        "exact_match": Share.of(exact, len(truth)) if exact >= SMALLEST_COUNT else None,
    }
    return {
        "images": len(truth),
        "overall": {name: _json(value) for name, value in overall.items()},
        "classes": {
            classes[place]: {
                "images": int(counts.images[place]),
                **asdict(rates(counts, place)),
                "auroc": _json(auroc),
                **answered(scores[:, place], truth[:, place]),
            }
            for place, auroc in zip(places, areas, strict=True)
        },
        "confusion": None,
        "calibration_error": None,
        "referral": None,
    }


def answered(probabilities: NDArray[np.floating], shown: NDArray[np.integer]) -> dict[str, Any]:
    """Return how far the answers yes and no to one class can be trusted.

    Args:
        probabilities: (N,) of the class in [0, 1].
        shown: (N,) 1 where an image shows it, else 0; five of each or more.

    Returns:
        ``calibration_error`` and ``referral``, by the probability of the answer: of the class, or
        one less it.
    """
    counts = counted(two_answers(probabilities), 1 - shown)
    return {"calibration_error": calibration_error(counts), "referral": referral(counts)}


def two_answers(probabilities: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the probabilities (N, 2) of yes and no, in this order, by those of yes (N,)."""
    return np.stack([probabilities, 1 - probabilities], axis=1)


def referral(counts: Binned) -> list[dict[str, Any]]:
    """Return what referring the images with less confidence than each of :data:`THRESHOLDS` does.

    Returns:
        ``below``: the threshold. ``referred``: share of all images, up to four of them too many, as
        so few are merged with those below. ``accuracy``: of the others, with its interval; None of
        fewer than five.
    """
    found = []
    for threshold in THRESHOLDS:
        place = EDGES.index(threshold)
        kept = int(counts.sure[place:].sum())
        right = int(counts.right[place:].sum())
        found.append(
            {
                "below": threshold,
                "referred": 1 - kept / counts.total,
                "accuracy": _json(Share.of(right, kept)),
            }
        )
    return found


def counted(probabilities: NDArray[np.floating], labels: NDArray[np.integer]) -> Binned:
    """Return the counts of N images of classes with five images or more, as a site sends them; N at
    least 5.
    """
    sent = binned_counts(probabilities, labels)
    if sent is None:
        raise ValueError(f"no class has {SMALLEST_COUNT} images")
    return Binned.read(sent)


def fold(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], places: Sequence[int]
) -> tuple[Array, NDArray[np.int64]]:
    """Return the probabilities (N, G) and labels (N,) of groups of classes.

    A group's probability is the sum of its classes'. The group with the largest one is predicted,
    which need not be that of the predicted class. ``places``: of each class, the number of its
    group, 0..G-1.
    """
    folded = np.zeros((len(probabilities), max(places) + 1))
    np.add.at(folded.T, list(places), np.asarray(probabilities, np.float64).T)
    return folded, np.asarray(places, np.int64)[np.asarray(labels, np.int64)]


def group_places(groups: Mapping[str, Sequence[str]], classes: Sequence[str]) -> list[int]:
    """Return the number of each class's group; ConfigError unless each class is in exactly one, and
    there are two.
    """
    named = [name for members in groups.values() for name in members]
    wrong = [
        f"{name}, which is no class{did_you_mean(name, classes)}"
        for name in named
        if name not in classes
    ]
    wrong += [f"{name} {named.count(name)} times" for name in classes if named.count(name) != 1]
    wrong += ["one group alone"] if len(groups) == 1 else []
    if wrong:
        expected = f"two groups or more, with each of {listed(classes)} in one"
        remedy = "Write for example --groups malignant=MEL,BCC benign=NV,BKL, with all classes of the model."
        raise ConfigError("--groups", expected=expected, found="; ".join(wrong), remedy=remedy)
    return [
        place
        for name in classes
        for place, members in enumerate(groups.values())
        if name in members
    ]


def _bootstrapped(
    scores: Array,
    truth: NDArray[np.int64],
    support: NDArray[np.int64],
    present: Sequence[int],
    rng: np.random.Generator,
) -> list[Estimate | None]:
    """Return macro F1, macro AUROC, and the AUROC of each class present; None where there is one
    class alone.
    """

    def measured(index: NDArray[np.int64]) -> Array:
        values = per_class_values(scores[index], truth[index], support)
        f1, auroc = (values[name][present] for name in ("f1", "auroc"))
        return np.array([f1.mean(), auroc.mean(), *auroc])

    return _estimates(measured, truth, rng)


def _estimates(
    measured: Callable[[NDArray[np.int64]], Array],
    labels: NDArray[np.int64],
    rng: np.random.Generator,
) -> list[Estimate | None]:
    values = measured(np.arange(len(labels)))
    ends = bootstrap_intervals(measured, labels, rng)
    found = zip(values.tolist(), *ends.tolist(), strict=True)
    return [None if np.isnan(value) else _estimate(value, low, high) for value, low, high in found]


def _estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, None, None) if low == high else Estimate(value, low, high)


def _cells(counts: Binned, place: int) -> list[int | None]:
    shown = [int(count) or None for count in counts.cells[place]]
    shown[place] = int(counts.found[place])
    return shown


def _json(value: Share | Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
