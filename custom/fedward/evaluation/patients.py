"""What is evaluated as one: an image, or all images of a patient.

A patient's answer is the mean of the probabilities of its images.
"""

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Values
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


def unit_answers(probabilities: NDArray[np.floating], images: Images) -> tuple[Values, Labels]:
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
