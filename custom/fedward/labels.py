"""What images show: one class each, or in a multi-label job any number of classes, or none."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Label: TypeAlias = int | Sequence[int]
"""Label of one image: the index of its class, -1 = none.

In a multi-label job it is 0 or 1 for each of K classes, all -1 = none.
"""
Labels: TypeAlias = npt.NDArray[np.int64]
"""Labels of N images: (N,), or in a multi-label job (N, K)."""

NO_FINDING = "No Finding"
"""In a multi-label job, how a site says that an image shows none of the classes.

ChestX-ray14 and CheXpert write it so. An empty cell means that nobody has labelled the image.
"""
SEPARATOR = "|"
"""Separates the findings in a cell."""


def known(labels: Labels) -> npt.NDArray[np.bool_]:
    """Return which images have a label, (N,)."""
    first_column = labels if labels.ndim == 1 else labels[:, 0]
    return first_column >= 0


def shows(labels: Labels, place: int) -> npt.NDArray[np.bool_]:
    """Return which images show the class at this place, (N,)."""
    if labels.ndim == 1:
        return np.asarray(labels == place)
    return np.asarray(labels[:, place] == 1)


def shows_none(labels: Labels) -> npt.NDArray[np.bool_]:
    """Return which images of a multi-label job show none of the classes, (N,)."""
    return np.asarray((labels == 0).all(axis=1))


def class_counts(labels: Labels, classes: int) -> npt.NDArray[np.int64]:
    """Return how many images show each class, (K,)."""
    return np.array([np.count_nonzero(shows(labels, place)) for place in range(classes)], np.int64)


def strata(labels: Labels) -> npt.NDArray[np.int64]:
    """Return the stratum of each image, by which images are divided evenly, (N,).

    It is the image's class, and -1 without a label. Of several classes it is the one that the
    fewest images show, because rare classes are the hardest to divide; if an image shows none of K
    classes it is K.

    Source: Sechidis et al., *On the stratification of multi-label data*, ECML PKDD 2011, who divide
    the rarest class first.
    """
    if labels.ndim == 1:
        return labels
    shown = labels == 1
    rarest_first = np.argsort(shown.sum(axis=0), kind="stable")
    rarest_shown = rarest_first[shown[:, rarest_first].argmax(axis=1)]
    none_shown = labels.shape[1]
    stratum = np.where(shown.any(axis=1), rarest_shown, none_shown)
    return np.where(known(labels), stratum, -1)
