"""What is evaluated as one: an image, or all images of a patient, whose answer is the mean of their
probabilities.
"""

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.classification import Array
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.sites.data import Images, Labels


def unit_labels(images: Images) -> tuple[NDArray[np.intp], Labels]:
    """Return the unit of each of N images (N,), as a number below U, and the label of each unit
    (U,).

    Units are the images' groups, each of one label; without groups, each image is one.
    """
    if not images.groups:
        return np.arange(len(images)), images.labels
    _, first, member = np.unique(images.groups, return_index=True, return_inverse=True)
    return member, images.labels[first]


def unit_answers(probabilities: NDArray[np.floating], images: Images) -> tuple[Array, Labels]:
    """Return the mean probabilities (U, K) of each unit of N images, and its label (U,).

    Args:
        probabilities: (N, K), a row for each image.
        images: N of them.
    """
    member, labels = unit_labels(images)
    sums = np.zeros((len(labels), probabilities.shape[1]))
    np.add.at(sums, member, np.asarray(probabilities, np.float64))
    return sums / np.maximum(np.bincount(member, minlength=len(labels)), 1)[:, None], labels


def reportable(images: Images) -> Images:
    """Return the labelled images of one split that may be evaluated: those of classes with at least
    five in it.

    Where patients are evaluated, a class needs five patients. They are the images themselves where
    every class has enough, else a copy without the others, in their order. In a multi-label job
    they are all of them.
    """
    if images.labels.ndim == 2:
        return images
    keep = (np.bincount(unit_labels(images)[1]) >= SMALLEST_COUNT)[images.labels]
    return images if keep.all() else images.taken(np.flatnonzero(keep))
