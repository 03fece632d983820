"""Classes that count as one, such as all malignant ones."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedward.errors import ConfigError, did_you_mean, listed
from fedward.evaluation.arrays import Values


def fold(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], places: Sequence[int]
) -> tuple[Values, NDArray[np.int64]]:
    """Return the probabilities (N, G) and labels (N,) of groups of classes.

    A group's probability is the sum of its classes' probabilities. The group with the largest one
    is predicted, which need not be that of the predicted class.

    Args:
        probabilities: (N, K).
        labels: (N,) in 0..K-1.
        places: for each class the number of its group, 0..G-1.
    """
    groups = max(places) + 1
    of_group = np.zeros((len(probabilities), groups))
    for of_class, group in zip(np.asarray(probabilities, np.float64).T, places, strict=True):
        of_group[:, group] += of_class
    group_of_class = np.asarray(places, np.int64)
    return of_group, group_of_class[np.asarray(labels, np.int64)]


def group_places(groups: Mapping[str, Sequence[str]], classes: Sequence[str]) -> list[int]:
    """Return for each class the number of its group.

    Raises ConfigError: a class is not in exactly one group, a member is not a class, or there is a
    single group.
    """
    members = [name for group in groups.values() for name in group]
    problems = []
    for name in members:
        if name not in classes:
            problems.append(f"{name}, which is no class{did_you_mean(name, classes)}")
    for name in classes:
        if members.count(name) != 1:
            problems.append(f"{name} {members.count(name)} times")
    if len(groups) == 1:
        problems.append("one group alone")
    if problems:
        raise ConfigError(
            "--groups",
            "Write for example --groups malignant=MEL,BCC benign=NV,BKL, "
            "with all classes of the model.",
            expected=f"two groups or more, with each of {listed(classes)} in one",
            found="; ".join(problems),
        )
    group_of = {name: place for place, group in enumerate(groups.values()) for name in group}
    return [group_of[name] for name in classes]
