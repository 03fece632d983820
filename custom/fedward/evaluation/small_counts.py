"""The small-count rule: what a site reports about its evaluation images reveals no rare class.

The rule: in each split, an image whose class has fewer than five images there is never evaluated.
No model sees it, no metric counts it, and ``n`` does not include it. A rare class is reported like
a class that the site does not have.
:func:`fedward.evaluation.evaluated_images.images_of_common_classes` leaves these images out.

Why this protects: everything that is reported about a split is computed from the other images
alone. It is therefore the same for 0, 1, 2, 3 and 4 images of each rare class, whatever models a
server sends and in how many rounds.

Not protected: that a class has fewer than five images; where splits are drawn, that a patient of
several classes goes to one split with all images; whether a site refuses a job that leaves its
classes out; and what the training images reveal by their number and by updates, which noise limits
(docs/inference.md). From these and a site's shares the number of test images may be estimated.

Where an image may show several classes it is not left out, as it may show other classes too. A
class that fewer than five images of a split show, or that fewer than five do not show, is left out
of all numbers there (:func:`common_findings`): these are the same whatever the images
show of it.

Labelled training images follow the same rule where a method sends sums of each class by itself:
those of a rare class are never used, nor counted.

Where a job evaluates by patient, all of this counts patients in place of images.

Images that belong to nobody, synthetic ones and public ones at the server, are evaluated in full.
Only the per-class numbers of rare classes are left out there. The wire lets a site's counts hold
such images only if the site says that its images are synthetic.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST_COUNT = 5
"""Images of a class that a split needs for the class to be evaluated and reported."""


def common_classes(labels: NDArray[np.integer], classes: int) -> NDArray[np.bool_]:
    """Return which of K classes five images or more show, (K,).

    ``labels``: (N,) in 0..K-1.
    """
    return np.bincount(labels, minlength=classes) >= SMALLEST_COUNT


def common_findings(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which of K classes five images or more show and five or more do not, (K,).

    ``labels``: (N, K) of 0 and 1.
    """
    shown = labels.sum(axis=0)
    is_common: NDArray[np.bool_] = np.minimum(shown, len(labels) - shown) >= SMALLEST_COUNT
    return is_common


def withhold_small_counts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return metric rows without the numbers of classes with fewer than five images in a split.

    Their values are None, whether the class is rare or absent, and no row names them among the
    classes present.

    Args:
        rows: of :func:`~fedward.evaluation.one_label.classification_metrics`, each with its
            ``split``. A split's ``support`` rows are among them.
    """
    rare = set[tuple[str, str]]()
    """Split and class."""
    for row in rows:
        support = row["value"] or 0
        if row["name"].startswith("support/") and support < SMALLEST_COUNT:
            rare.add(_split_and_class(row))
    return [_without(rare, row) for row in rows]


def _without(rare: set[tuple[str, str]], row: Mapping[str, Any]) -> dict[str, Any]:
    classes = [name for name in row["classes"] if (row["split"], name) not in rare]
    value = None if _split_and_class(row) in rare else row["value"]
    return {**row, "value": value, "classes": classes}


def _split_and_class(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return a row's split and class; the class is empty for a metric of all images."""
    return row["split"], row["name"].partition("/")[2]
