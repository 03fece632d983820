"""Metrics of one model on one site's images where each may show several classes, or none: one class
against its rest.

Each class is a question of its own, and the small-count rule
(:mod:`fedward.evaluation.small_counts`) holds for both answers to it: a class that fewer than five
images show, or fewer than five do not, is in no number.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.errors import DataError
from fedward.evaluation.binned import INTERVALS, histogram
from fedward.evaluation.classification import (
    Array,
    Metric,
    check_probabilities,
    mean_defined,
    ranking,
)
from fedward.evaluation.names import MULTI_LABEL
from fedward.evaluation.small_counts import SMALLEST_COUNT

THRESHOLD = 0.5
"""Probability from which on the model says that an image shows a class."""


def evaluated(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which classes have five images or more on both sides, (K,), by labels (N, K) of 0 and
    1.
    """
    shown = labels.sum(axis=0)
    both: NDArray[np.bool_] = np.minimum(shown, len(labels) - shown) >= SMALLEST_COUNT
    return both


def multi_label_metrics(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> list[Metric]:
    """Return the metrics of one model on N images of which each shows any number of K classes.

    Args:
        probabilities: (N, K) float, each in [0, 1]; from 0.5 on the model says that the image shows
            the class.
        labels: (N, K) int, 1 where the image shows the class, else 0.
        classes: K names, in the order of the columns.

    Returns:
        Rows of :data:`~fedward.evaluation.names.MULTI_LABEL`, then ``f1/<class>``,
        ``auroc/<class>``, ``auprc/<class>`` and ``support/<class>``, the images that show it, for
        each class.

    Averages run over the classes that are :func:`evaluated`, each counting once.
    ``hamming_accuracy`` is the share of right answers of all images and these classes, one less
    Hamming loss; ``exact_match`` the share of images for which all of them are right. AUPRC is the
    average precision. All but exact match are scikit-learn's numbers.

    Edge cases: a class that is not evaluated: its numbers None. none is: every value None, n = 0.
    fewer than five images match exactly: None, as a model that always gives one set of classes
    would count its images.

    Raises DataError: shapes that do not fit, labels other than 0 and 1, probabilities that are not
    finite or not in [0, 1].
    """
    scores, truth = _checked(probabilities, labels, classes)
    use = evaluated(truth)
    per = per_class(scores, truth, use)
    values: dict[str, float | None] = dict.fromkeys(MULTI_LABEL)
    if use.any():
        right = (scores >= THRESHOLD)[:, use] == truth[:, use]
        exact = int(right.all(axis=1).sum())
        values |= {f"{kind}_macro": mean_defined(per[kind]) for kind in ("auroc", "auprc", "f1")}
        values["hamming_accuracy"] = float(right.mean())
        values["exact_match"] = exact / len(truth) if exact >= SMALLEST_COUNT else None
    for place, name in enumerate(classes):
        values |= {
            f"{kind}/{name}": mean_defined(per[kind][[place]]) for kind in ("f1", "auroc", "auprc")
        }
        values[f"support/{name}"] = float(truth[:, place].sum()) if use[place] else None
    n = len(truth) if use.any() else 0
    told = [name for name, there in zip(classes, use, strict=True) if there]
    return [
        {"name": name, "value": value, "n": n, "classes": list(told)}
        for name, value in values.items()
    ]


def per_class(scores: Array, truth: NDArray[np.int64], use: NDArray[np.bool_]) -> dict[str, Array]:
    """Return (K,) arrays of f1, auroc and auprc; NaN where a class is not to be used.

    Those that are used have images on both sides. Arguments as of :func:`multi_label_metrics`.
    """
    said = scores >= THRESHOLD
    hits = (said & (truth == 1)).sum(axis=0)
    given = said.sum(axis=0) + truth.sum(axis=0)
    table = {kind: np.full(len(use), np.nan) for kind in ("f1", "auroc", "auprc")}
    table["f1"][use] = (2 * hits / np.maximum(given, 1))[use]
    for place in np.flatnonzero(use):
        table["auroc"][place], table["auprc"][place] = ranking(
            scores[:, place], truth[:, place] == 1
        )
    return table


def one_versus_rest(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer]
) -> dict[str, Any] | None:
    """Return the counts of one model that may leave a site, as plain JSON: those of each class
    against its rest.

    Args:
        probabilities: (N, K) float in [0, 1]; from 0.5 on the model says that the image shows the
            class.
        labels: (N, K) int, 1 where the image shows the class, else 0.

    Returns:
        As :func:`~fedward.evaluation.binned.binned_counts`: ``images`` show a class, of which it is
        ``found`` in some, and ``mistaken`` in others; ``scores`` of a class add up to N. Without
        cells, and 0 for a class that is not evaluated and for all that is by the highest
        probability. None where no class is evaluated.
    """
    use = evaluated(labels)
    scores = np.asarray(probabilities, float)
    if not use.any():
        return None
    inside = labels == 1
    none = [np.zeros(INTERVALS)] * 2
    said = (scores >= THRESHOLD) & use
    rows = [histogram(scores[:, k], inside[:, k]) if use[k] else none for k in range(len(use))]
    return {
        "images": (inside & use).sum(axis=0).tolist(),
        "found": (said & inside).sum(axis=0).tolist(),
        "mistaken": (said & ~inside).sum(axis=0).tolist(),
        "cells": [],
        "scores": [row[0].astype(int).tolist() for row in rows],
        "inside": [row[1].astype(int).tolist() for row in rows],
        **{name: [0] * INTERVALS for name in ("sure", "right", "confidence")},
    }


def _checked(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> tuple[Array, NDArray[np.int64]]:
    scores = np.asarray(probabilities, dtype=np.float64)
    truth = np.asarray(labels)
    if truth.ndim != 2 or scores.shape != truth.shape or truth.shape[1] != len(classes):
        expected = f"probabilities and labels (N, {len(classes)})"
        remedy = "Give one row per image and one column per class."
        found = f"{scores.shape} and {truth.shape}"
        raise DataError("evaluation", expected=expected, found=found, remedy=remedy)
    if not np.isin(truth, (0, 1)).all():
        remedy = "Evaluate labelled images only."
        raise DataError("evaluation", expected="labels 0 and 1", found="others", remedy=remedy)
    check_probabilities(scores)
    return scores, truth.astype(np.int64)
