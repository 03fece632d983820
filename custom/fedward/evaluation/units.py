"""What is evaluated as one: an image, or all images of a patient.

A patient's answer is the mean of the probabilities of its images.
"""

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.classification import Array
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.labels import Labels
from fedward.sites.data import Images


def unit_labels(images: Images) -> tuple[NDArray[np.intp], Labels]:
    """Return which unit each image belongs to, and the label of each unit.

    Units are the images' groups, each of one label. Without groups, each image is a unit.

    Returns:
        (N,) numbers below U, and (U,) labels.
    """
    if not images.groups:
        return np.arange(len(images)), images.labels
    _, first_image, unit_of_image = np.unique(images.groups, return_index=True, return_inverse=True)
    return unit_of_image, images.labels[first_image]


def unit_answers(probabilities: NDArray[np.floating], images: Images) -> tuple[Array, Labels]:
    """Return the mean probabilities (U, K) of each unit, and its label (U,).

    Args:
        probabilities: (N, K), a row for each image.
        images: N of them.
    """
    unit_of_image, labels = unit_labels(images)
    sums = np.zeros((len(labels), probabilities.shape[1]))
    np.add.at(sums, unit_of_image, np.asarray(probabilities, np.float64))
    sizes = np.bincount(unit_of_image, minlength=len(labels))
    return sums / np.maximum(sizes, 1)[:, None], labels


def reportable(images: Images) -> Images:
    """Return the labelled images of one split that the small-count rule lets be evaluated.

    These are the images of classes with five images or more in the split; where patients are
    evaluated, with five patients or more. Where an image may show several classes it is never left
    out, as it may show common classes too.

    Returns:
        The argument itself if all of it may be evaluated, else a copy in the same order.
    """
    if images.labels.ndim == 2:
        return images
    _, labels = unit_labels(images)
    is_common = np.bincount(labels) >= SMALLEST_COUNT
    keep = is_common[images.labels]
    return images if keep.all() else images.taken(np.flatnonzero(keep))
