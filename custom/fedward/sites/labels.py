"""What an image shows: one class; or in a multi-label job any number of the classes, of which none
is an answer too.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fedward.sites.data import Labels

NO_FINDING = "No Finding"
"""In a multi-label job: how a site says that an image shows none of the classes. ChestX-ray14 and
CheXpert write it so. An empty cell says that nobody has labelled the image."""
SEPARATOR = "|"
"""Between the findings in a cell."""


def known(labels: "Labels") -> npt.NDArray[np.bool_]:
    """Return which images have a label, (N,)."""
    return (labels if labels.ndim == 1 else labels[:, 0]) >= 0


def shows(labels: "Labels", place: int) -> npt.NDArray[np.bool_]:
    """Return which images show the class at this place, (N,)."""
    found: npt.NDArray[np.bool_] = labels == place if labels.ndim == 1 else labels[:, place] == 1
    return found


def shows_none(labels: "Labels") -> npt.NDArray[np.bool_]:
    """Return which images of a multi-label job show none of the classes, (N,)."""
    found: npt.NDArray[np.bool_] = (labels == 0).all(axis=1)
    return found


def class_counts(labels: "Labels", classes: int) -> npt.NDArray[np.int64]:
    """Return how many images show each class, (K,)."""
    return np.array([np.count_nonzero(shows(labels, place)) for place in range(classes)], np.int64)


def strata(labels: "Labels") -> npt.NDArray[np.int64]:
    """Return by what images are divided evenly, (N,): the class of each, -1 of one without a label.

    Of several classes it is the one that the fewest of these images show, as rare ones are the
    hardest to divide; where an image shows none, it is K. Source: Sechidis et al., *On the
    stratification of multi-label data*, ECML PKDD 2011, who divide the rarest class first.
    """
    if labels.ndim == 1:
        return labels
    shown = labels == 1
    rarest = np.argsort(shown.sum(axis=0), kind="stable")
    first = rarest[shown[:, rarest].argmax(axis=1)]
    return np.where(known(labels), np.where(shown.any(axis=1), first, labels.shape[1]), -1)
