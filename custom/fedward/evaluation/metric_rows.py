"""Rows of metrics, as they leave a site and stand in metrics.jsonl."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedward.errors import DataError
from fedward.evaluation.arrays import Values, mean_defined

if TYPE_CHECKING:
    from fedward.evaluation.class_metrics import ClassMetrics

MetricFunction = Callable[[Values, NDArray[np.int64]], float | None]
"""A metric of another package.

It maps probabilities (N, K) and labels (N,) in 0..K-1 to a number in [0, 1], or to None where it is
not defined. N is at least 1. It may change the arrays: they are copies.
"""

_SLACK = 1e-3
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


def metric_rows(
    overall: Mapping[str, float | None],
    metrics: "ClassMetrics",
    support: Sequence[float | None],
    classes: Sequence[str],
    images: int,
) -> list[Metric]:
    """Return rows of ``overall``, then f1, auroc, auprc and support of each class.

    Args:
        overall: metrics of all classes by name.
        metrics: the metrics of each class.
        support: images of each class; None where it is not reported.
        classes: K names.
        images: images that the numbers were computed on.
    """
    values = dict(overall)
    of_class = {"f1": metrics.confusion.f1, "auroc": metrics.auroc, "auprc": metrics.auprc}
    for place, name in enumerate(classes):
        for kind, numbers in of_class.items():
            values[f"{kind}/{name}"] = mean_defined(numbers[[place]])
        values[f"support/{name}"] = support[place]
    present = [name for name, count in zip(classes, support, strict=True) if count]
    return [
        {"name": name, "value": value, "n": images, "classes": list(present)}
        for name, value in values.items()
    ]


def require_probabilities(scores: Values) -> None:
    """Raise DataError unless all of (N, K) are finite and in [0, 1]."""
    usable = np.isfinite(scores) & (scores >= -_SLACK) & (scores <= 1 + _SLACK)
    wrong_rows = np.flatnonzero(~usable.all(axis=1))
    if len(wrong_rows):
        raise DataError(
            f"evaluation: {len(wrong_rows)} of {len(scores)} images have numbers that are not "
            f"probabilities in [0, 1], the first at position {wrong_rows[0]}",
            "If the model diverged (NaN), lower the learning rate or clip gradients. "
            "Take the softmax of logits.",
        )
