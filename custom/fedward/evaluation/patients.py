"""What is evaluated as one: an image, or all images of a patient.

A patient's answer is the mean of the probabilities of its images.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Values
from fedward.labels import Labels
from fedward.sites.data import Images
from fedward.sites.subgroups import NOT_STATED


class Units(NamedTuple):
    """What the site knows of the U units that are evaluated, besides their labels."""

    names: tuple[str, ...]
    """An image's id, or a patient's."""
    patients: tuple[str, ...]
    """Whose each unit is; a unit whose patient is not named is its own."""
    subgroups: tuple[tuple[str, ...], ...]
    """Each unit's group in each of the site's columns; empty without columns."""


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


def units_of(images: Images) -> Units:
    """Return the units of a split, in the order of :func:`unit_labels`.

    A patient whose images are in several groups of a column is in the one that is not stated.
    """
    if not images.groups:
        return Units(images.ids, images.patients or images.ids, images.subgroups)
    names, unit_of_image = np.unique(images.groups, return_inverse=True)
    groups_of_unit: list[list[str]] = [[] for _ in names]
    for unit, row in zip(unit_of_image.tolist(), images.subgroups, strict=False):
        groups_so_far = groups_of_unit[unit] or list(row)
        groups_of_unit[unit] = [
            group if group == other else NOT_STATED
            for group, other in zip(groups_so_far, row, strict=True)
        ]
    subgroups = tuple(map(tuple, groups_of_unit)) if images.subgroups else ()
    patients = tuple(str(name) for name in names)
    return Units(patients, patients, subgroups)
