"""Metrics of one model on one site's labelled images, each of exactly one class.

The rows are ready for the wire and for metrics.jsonl. Hospitals lack classes, so every average says
what it runs over, and a class that no image shows is absent, not zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedward.errors import DataError
from fedward.evaluation.names import OVERALL

Array = NDArray[np.float64]
MetricFunction = Callable[[Array, NDArray[np.int64]], float | None]
"""A metric of another package.

It maps probabilities (N, K) and labels (N,) in 0..K-1 to a number in [0, 1], or to None where it is
not defined. N is at least 1. It may change the arrays: they are copies.
"""

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
    finite or not in [0, 1], or an extra metric that is not in [0, 1].
    """
    scores, true_class = _checked(probabilities, labels, classes)
    support = np.bincount(true_class, minlength=len(classes))
    per_class = per_class_values(scores, true_class, support)
    values: dict[str, float | None] = dict.fromkeys(OVERALL)
    if len(true_class):
        values |= _overall(scores, true_class, support, per_class)
    for name, metric in (extra or {}).items():
        values[name] = _extra(name, metric, scores, true_class)
    for place, name in enumerate(classes):
        for kind in ("f1", "auroc", "auprc"):
            values[f"{kind}/{name}"] = mean_defined(per_class[kind][[place]])
        values[f"support/{name}"] = float(support[place])
    present = [name for name, count in zip(classes, support, strict=True) if count]
    return [
        {"name": name, "value": value, "n": len(true_class), "classes": list(present)}
        for name, value in values.items()
    ]


def _extra(
    name: str, metric: MetricFunction, scores: Array, true_class: NDArray[np.int64]
) -> float | None:
    """Return the value of another package's metric; DataError where it is not in [0, 1]."""
    if not len(true_class):
        return None
    value = metric(scores.copy(), true_class.copy())
    if value is None:
        return None
    if not 0 <= value <= 1:
        raise DataError(
            f"metric {name}",
            "Scale it, or return None where it is not defined.",
            expected="a number in [0, 1], or None",
            found=f"{value}",
        )
    return float(value)


def _overall(
    scores: Array,
    true_class: NDArray[np.int64],
    support: NDArray[np.int64],
    per_class: Mapping[str, Array],
) -> dict[str, float | None]:
    """Return the metrics of at least one image; NaN marks an absent class in ``per_class``."""
    present = support > 0
    share_of_images = support[present] / support.sum()
    values: dict[str, float | None] = {
        "accuracy": float(np.mean(scores.argmax(axis=1) == true_class)),
        "balanced_accuracy": mean_defined(per_class["recall"]),
    }
    for kind in ("f1", "precision", "recall"):
        values[f"{kind}_weighted"] = float(per_class[kind][present] @ share_of_images)
    for kind in ("f1", "auroc", "auprc"):
        values[f"{kind}_macro"] = mean_defined(per_class[kind])
    return values


def per_class_values(
    scores: Array, true_class: NDArray[np.int64], support: NDArray[np.int64]
) -> dict[str, Array]:
    """Return (K,) arrays of precision, recall, f1, auroc and auprc; NaN where not defined.

    Args:
        scores: (N, K) float64.
        true_class: (N,) in 0..K-1.
        support: (K,) images of each class among them.
    """
    classes = len(support)
    predicted = scores.argmax(axis=1)
    hits = np.bincount(true_class[predicted == true_class], minlength=classes)
    predictions = np.bincount(predicted, minlength=classes)
    present = support > 0
    undefined = np.full(classes, np.nan)
    table = {
        "precision": np.where(present, hits / np.maximum(predictions, 1), undefined),
        "recall": np.where(present, hits / np.maximum(support, 1), undefined),
        "f1": np.where(present, 2 * hits / np.maximum(predictions + support, 1), undefined),
        "auroc": undefined.copy(),
        "auprc": undefined.copy(),
    }
    for place in np.flatnonzero(present & (support < len(true_class))):
        auroc, auprc = ranking(scores[:, place], true_class == place)
        table["auroc"][place] = auroc
        table["auprc"][place] = auprc
    return table


def ranking(scores: Array, inside: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the area under the ROC curve and the average precision of one class.

    Equal scores are one step of both curves.

    Args:
        scores: (N,) of the class.
        inside: (N,) which images are of the class; some are and some are not.
    """
    order = np.argsort(-scores)
    # The last place of each run of equal scores: a threshold lies behind it.
    last = np.flatnonzero(np.diff(scores[order], append=-np.inf))
    true_positives = np.cumsum(inside[order])[last]
    false_positives = last + 1 - true_positives
    new_true = np.diff(true_positives, prepend=0)
    new_false = np.diff(false_positives, prepend=0)
    true_before = np.concatenate([[0], true_positives[:-1]])
    positives = true_positives[-1]
    negatives = false_positives[-1]
    area = new_false @ (true_before + true_positives) / (2 * positives * negatives)
    precision = true_positives / (true_positives + false_positives)
    return float(area), float(new_true / positives @ precision)


def _checked(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> tuple[Array, NDArray[np.int64]]:
    """Return float64 probabilities and int64 labels; DataError where they cannot be evaluated."""
    scores = np.asarray(probabilities, dtype=np.float64)
    true_class = np.asarray(labels)
    if true_class.ndim != 1 or scores.shape != (len(true_class), len(classes)):
        raise DataError(
            "evaluation",
            "Give one row of probabilities per image and one column per class.",
            expected=f"probabilities (N, {len(classes)}) and labels (N,)",
            found=f"{scores.shape} and {true_class.shape}",
        )
    if len(true_class):
        is_integer = np.issubdtype(true_class.dtype, np.integer)
        if not is_integer or true_class.min() < 0 or true_class.max() >= len(classes):
            raise DataError(
                "evaluation",
                "Evaluate labelled images only, with the classes the net was built for.",
                expected=f"integer labels 0..{len(classes) - 1}",
                found=f"{true_class.dtype} from {true_class.min()} to {true_class.max()}",
            )
    check_probabilities(scores)
    return scores, true_class.astype(np.int64)


def check_probabilities(scores: Array) -> None:
    """Raise DataError unless all of (N, K) are finite and in [0, 1]."""
    usable = np.isfinite(scores) & (scores >= -SLACK) & (scores <= 1 + SLACK)
    wrong_rows = np.flatnonzero(~usable.all(axis=1))
    if len(wrong_rows):
        raise DataError(
            f"evaluation: {len(wrong_rows)} of {len(scores)} images have numbers that are not "
            f"probabilities in [0, 1], the first at position {wrong_rows[0]}",
            "If the model diverged (NaN), lower the learning rate or clip gradients. "
            "Take the softmax of logits.",
        )


def mean_defined(values: Array) -> float | None:
    """Return the mean of the values that are not NaN; None where all are."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None
