"""Metrics of one model on one site's labelled images, as rows ready for the wire and for
metrics.jsonl.

Hospitals miss classes, so every average says what it runs over and a class nobody has is absent,
not zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedward.errors import DataError
from fedward.evaluation.names import OVERALL

Array = NDArray[np.float64]
MetricFunction = Callable[[Array, NDArray[np.int64]], float | None]
"""A metric of another package: from probabilities (N, K) and labels (N,), 0..K-1, to a number in
[0, 1]; None where it is not defined. N is at least 1, and the arrays are its own to change."""

SLACK = 1e-3
"""How far outside [0, 1] rounding in half precision may push a probability."""


class Metric(TypedDict):
    """One number about one model on one set of images; plain JSON values."""

    name: str
    value: float | None
    """None where the number is not defined, e.g. the AUROC of an absent class."""
    n: int
    """Images the number was computed on."""
    classes: list[str]
    """Classes that occur among those images, in the data set's order."""


def classification_metrics(
    probabilities: NDArray[np.floating],
    labels: NDArray[np.integer],
    classes: Sequence[str],
    extra: Mapping[str, MetricFunction] | None = None,
) -> list[Metric]:
    """Return the metrics of one model on N images of K classes.

    Args:
        probabilities: (N, K) float, each in [0, 1]; the predicted class is the first largest one of
            a row.
        labels: (N,) int, the true class as 0..K-1.
        classes: K names, in the order of the columns.
        extra: further metrics by name.

    Returns:
        Rows of :data:`~fedward.evaluation.names.OVERALL` and of ``extra``, then ``f1/<class>``,
        ``auroc/<class>``, ``auprc/<class>`` and ``support/<class>`` for each class, present or not.

    Averages: macro means and balanced accuracy run over the classes PRESENT in ``labels``, each
    counting once; weighted means weight a class by its number of images. AUROC and AUPRC are
    one-vs-rest on the probabilities; AUPRC is the average precision (a step-wise sum, no
    interpolation). A class never predicted has precision 0.

    Edge cases: N = 0: every value None, n = 0, support 0. class absent from the labels: its f1,
    auroc, auprc None; left out of every average. class of every image: its auroc and auprc None,
    hence both macros None.

    Raises DataError: shapes that do not fit, labels outside 0..K-1, probabilities that are not
    finite or not in [0, 1], or an extra metric that is no number in [0, 1].

    """
    scores, truth = _checked(probabilities, labels, classes)
    support = np.bincount(truth, minlength=len(classes))
    per_class = per_class_values(scores, truth, support)
    values: dict[str, float | None] = dict.fromkeys(OVERALL)
    if len(truth):
        values |= _overall(scores, truth, support, per_class)
    values |= {name: _extra(name, metric, scores, truth) for name, metric in (extra or {}).items()}
    for index, name in enumerate(classes):
        values |= {
            f"{kind}/{name}": mean_defined(per_class[kind][[index]])
            for kind in ("f1", "auroc", "auprc")
        }
        values[f"support/{name}"] = float(support[index])
    seen = [name for name, count in zip(classes, support, strict=True) if count]
    return [
        {"name": name, "value": value, "n": len(truth), "classes": list(seen)}
        for name, value in values.items()
    ]


def _extra(
    name: str, metric: MetricFunction, scores: Array, truth: NDArray[np.int64]
) -> float | None:
    value = metric(scores.copy(), truth.copy()) if len(truth) else None
    if value is not None and not 0 <= value <= 1:
        remedy = "Scale it, or return None where it is not defined."
        raise DataError(
            f"metric {name}",
            expected="a number in [0, 1], or None",
            found=f"{value}",
            remedy=remedy,
        )
    return None if value is None else float(value)


def _overall(
    scores: Array, truth: NDArray[np.int64], support: NDArray[np.int64], per: dict[str, Array]
) -> dict[str, float | None]:
    """Averages of at least one image; NaN marks an absent class in ``per``."""
    present = support > 0
    share = support[present] / support.sum()
    weighted = {
        f"{kind}_weighted": float(per[kind][present] @ share)
        for kind in ("f1", "precision", "recall")
    }
    macro = {f"{kind}_macro": mean_defined(per[kind]) for kind in ("f1", "auroc", "auprc")}
    accuracy = float(np.mean(scores.argmax(axis=1) == truth))
    balanced = mean_defined(per["recall"])
    return {"accuracy": accuracy, "balanced_accuracy": balanced, **weighted, **macro}


def per_class_values(
    scores: Array, truth: NDArray[np.int64], support: NDArray[np.int64]
) -> dict[str, Array]:
    """Return (K,) arrays of precision, recall, f1, auroc and auprc; NaN where not defined.

    Args:
        scores: (N, K) float64.
        truth: (N,) in 0..K-1.
        support: (K,) images of each class among them.
    """
    guesses = scores.argmax(axis=1)
    nan = np.full(len(support), np.nan)
    hits, said = (
        np.bincount(chosen, minlength=len(support)) for chosen in (truth[guesses == truth], guesses)
    )
    present = support > 0
    table = {
        "precision": np.where(present, hits / np.maximum(said, 1), nan),
        "recall": np.where(present, hits / np.maximum(support, 1), nan),
        "f1": np.where(present, 2 * hits / np.maximum(said + support, 1), nan),
        "auroc": nan.copy(),
        "auprc": nan.copy(),
    }
    for index in np.flatnonzero(present & (support < len(truth))):
        table["auroc"][index], table["auprc"][index] = ranking(scores[:, index], truth == index)
    return table


def ranking(scores: Array, inside: NDArray[np.bool_]) -> tuple[float, float]:
    """Return area under the ROC curve and average precision of N scores, by which of them belong to
    the class.

    Equal scores are one step of both curves. Some scores belong to the class and some do not.
    """
    order = np.argsort(-scores)
    last = np.flatnonzero(np.diff(scores[order], append=-np.inf))  # of each run of equal scores
    found = np.cumsum(inside[order])[last]
    wrong = last + 1 - found
    new = np.diff(found, prepend=0)
    before = np.concatenate([[0], found[:-1]])
    area = np.diff(wrong, prepend=0) @ (before + found) / (2 * found[-1] * wrong[-1])
    return float(area), float(new / found[-1] @ (found / (found + wrong)))


def _checked(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> tuple[Array, NDArray[np.int64]]:
    where = "evaluation"
    scores = np.asarray(probabilities, dtype=np.float64)
    truth = np.asarray(labels)
    if truth.ndim != 1 or scores.shape != (len(truth), len(classes)):
        expected = f"probabilities (N, {len(classes)}) and labels (N,)"
        remedy = "Give one row of probabilities per image and one column per class."
        raise DataError(
            where, expected=expected, found=f"{scores.shape} and {truth.shape}", remedy=remedy
        )
    if len(truth) and (
        not np.issubdtype(truth.dtype, np.integer) or truth.min() < 0 or truth.max() >= len(classes)
    ):
        found = f"{truth.dtype} from {truth.min()} to {truth.max()}"
        remedy = "Evaluate labelled images only, with the classes the net was built for."
        raise DataError(
            where, expected=f"integer labels 0..{len(classes) - 1}", found=found, remedy=remedy
        )
    check_probabilities(scores)
    return scores, truth.astype(np.int64)


def check_probabilities(scores: Array) -> None:
    """Raise DataError unless all of (N, K) are finite and in [0, 1]."""
    wrong = ~(np.isfinite(scores) & (scores >= -SLACK) & (scores <= 1 + SLACK))
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1))
        found = f"{len(rows)} of {len(scores)} images with others, first at position {rows[0]}"
        remedy = "If the model diverged (NaN), lower the learning rate or clip gradients. Of logits take the softmax."
        raise DataError(
            "evaluation", expected="probabilities in [0, 1]", found=found, remedy=remedy
        )


def mean_defined(values: Array) -> float | None:
    """Return the mean of the values that are not NaN; None where there is none."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else None
