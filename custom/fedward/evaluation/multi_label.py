"""Metrics of one model on one site's images, each of which may show several classes or none.

Each class is a question of its own, and the small-count rule
(:mod:`fedward.evaluation.small_counts`) holds for both answers to it: a class that fewer than five
images show, or that fewer than five do not show, is in no number.
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
"""Probability from which the model's answer is that an image shows a class."""


def evaluated(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which classes five images or more show and five or more do not, (K,).

    ``labels``: (N, K) of 0 and 1.
    """
    shown = labels.sum(axis=0)
    is_common: NDArray[np.bool_] = np.minimum(shown, len(labels) - shown) >= SMALLEST_COUNT
    return is_common


def multi_label_metrics(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> list[Metric]:
    """Return the metrics of one model on N images of which each shows any number of K classes.

    Args:
        probabilities: (N, K) float, each in [0, 1]; from 0.5 on the answer is that the image shows
            the class.
        labels: (N, K) int, 1 where the image shows the class, else 0.
        classes: K names, in the order of the columns.

    Returns:
        Rows of :data:`~fedward.evaluation.names.MULTI_LABEL`, then ``f1/<class>``,
        ``auroc/<class>``, ``auprc/<class>`` and ``support/<class>``, the images that show it, for
        each class.

    Averages run over the classes that are :func:`evaluated`, each counting once.
    ``hamming_accuracy`` is the share of right answers over all images and these classes, one minus
    the Hamming loss; ``exact_match`` the share of images for which all of them are right. AUPRC is
    the average precision. All but exact match are scikit-learn's numbers.

    Edge cases: a class that is not evaluated: its numbers None. no class is evaluated: every value
    None, n = 0. fewer than five images match exactly: None, as a model that always gives one set of
    classes would count its images.

    Raises DataError: shapes that do not fit, labels other than 0 and 1, probabilities that are not
    finite or not in [0, 1].
    """
    scores, truth = _checked(probabilities, labels, classes)
    used = evaluated(truth)
    values_of_class = per_class(scores, truth, used)
    values: dict[str, float | None] = dict.fromkeys(MULTI_LABEL)
    if used.any():
        for kind in ("auroc", "auprc", "f1"):
            values[f"{kind}_macro"] = mean_defined(values_of_class[kind])
        is_right = (scores >= THRESHOLD)[:, used] == truth[:, used]
        exact_matches = int(is_right.all(axis=1).sum())
        values["hamming_accuracy"] = float(is_right.mean())
        if exact_matches >= SMALLEST_COUNT:
            values["exact_match"] = exact_matches / len(truth)
    for place, name in enumerate(classes):
        for kind in ("f1", "auroc", "auprc"):
            values[f"{kind}/{name}"] = mean_defined(values_of_class[kind][[place]])
        values[f"support/{name}"] = float(truth[:, place].sum()) if used[place] else None
    images = len(truth) if used.any() else 0
    reported = [name for name, is_used in zip(classes, used, strict=True) if is_used]
    return [
        {"name": name, "value": value, "n": images, "classes": list(reported)}
        for name, value in values.items()
    ]


def per_class(scores: Array, truth: NDArray[np.int64], used: NDArray[np.bool_]) -> dict[str, Array]:
    """Return (K,) arrays of f1, auroc and auprc; NaN for classes that are not used.

    Args:
        scores: (N, K) probabilities.
        truth: (N, K) of 0 and 1.
        used: (K,) classes to use; some images show each of them, and some do not.
    """
    answered_yes = scores >= THRESHOLD
    hits = (answered_yes & (truth == 1)).sum(axis=0)
    shown_or_answered = answered_yes.sum(axis=0) + truth.sum(axis=0)
    table = {kind: np.full(len(used), np.nan) for kind in ("f1", "auroc", "auprc")}
    table["f1"][used] = (2 * hits / np.maximum(shown_or_answered, 1))[used]
    for place in np.flatnonzero(used):
        auroc, auprc = ranking(scores[:, place], truth[:, place] == 1)
        table["auroc"][place] = auroc
        table["auprc"][place] = auprc
    return table


def one_versus_rest(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer]
) -> dict[str, Any] | None:
    """Return the counts of each class against its rest that may leave a site, as plain JSON values.

    Args:
        probabilities: (N, K) float in [0, 1]; from 0.5 on the answer is that the image shows the
            class.
        labels: (N, K) int, 1 where the image shows the class, else 0.

    Returns:
        As :func:`~fedward.evaluation.binned.binned_counts`. ``images`` show a class, ``found`` are
        those of them for which the answer is yes, and ``mistaken`` the others with that answer;
        ``scores`` of a class sum to N. There are no cells. A class that is not evaluated has zeros,
        and so has all that is by the highest probability. None where no class is evaluated.
    """
    used = evaluated(labels)
    if not used.any():
        return None
    scores = np.asarray(probabilities, float)
    shown = labels == 1
    answered_yes = (scores >= THRESHOLD) & used
    score_counts = []
    shown_counts = []
    for place, is_used in enumerate(used):
        if is_used:
            all_images, images_with_class = histogram(scores[:, place], shown[:, place])
        else:
            all_images = images_with_class = np.zeros(INTERVALS)
        score_counts.append(all_images.astype(int).tolist())
        shown_counts.append(images_with_class.astype(int).tolist())
    return {
        "images": (shown & used).sum(axis=0).tolist(),
        "found": (answered_yes & shown).sum(axis=0).tolist(),
        "mistaken": (answered_yes & ~shown).sum(axis=0).tolist(),
        "cells": [],
        "scores": score_counts,
        "inside": shown_counts,
        "sure": [0] * INTERVALS,
        "right": [0] * INTERVALS,
        "confidence": [0] * INTERVALS,
    }


def _checked(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], classes: Sequence[str]
) -> tuple[Array, NDArray[np.int64]]:
    """Return float64 probabilities and int64 labels; DataError where they cannot be evaluated."""
    scores = np.asarray(probabilities, dtype=np.float64)
    truth = np.asarray(labels)
    if truth.ndim != 2 or scores.shape != truth.shape or truth.shape[1] != len(classes):
        raise DataError(
            "evaluation",
            "Give one row per image and one column per class.",
            expected=f"probabilities and labels (N, {len(classes)})",
            found=f"{scores.shape} and {truth.shape}",
        )
    if not np.isin(truth, (0, 1)).all():
        raise DataError(
            "evaluation: there are labels other than 0 and 1", "Evaluate labelled images only."
        )
    check_probabilities(scores)
    return scores, truth.astype(np.int64)
