"""Right answers by subgroup, such as sex or age band, under the small-count rule.

The rule, for each column of subgroups and each class by itself: V groups divide the class's test
images, of which the server knows the number N from other counts.

- A group with fewer than five of these images has no numbers. It is called small here.
- As many images of the larger groups are left out of the column as are needed for 4 images of each
  small group to be missing: ``N - Σ n_v = 4 · small groups``, whatever the small groups hold. They
  are taken from the largest group at the time, in an order that is the same for all models.
- Where this would leave a larger group with fewer than five images, or with images of fewer than
  five patients, the class has no numbers in this column.

Why this protects: numbers are computed from the images that are kept, and from how many groups are
small. Every number of 0 to 4 images in each small group is compatible with all of them, whatever
models a server sends and in how many rounds. No sums over classes or over two columns are sent, so
the counts of one column and class say nothing about those of another.

Not protected: that a group has fewer than five images. Whoever holds a patient's image, and chooses
the models, may learn in which group it is counted, or that it is in none.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Counts
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.sites.subgroups import (
    EXPECTED_NAME,
    MOST_COLUMNS,
    MOST_GROUPS,
    NOT_STATED,
    is_group_name,
)

# Protocol imports the names of groups from here, as it does not know sites.
__all__ = [
    "EXPECTED_NAME",
    "MOST_COLUMNS",
    "MOST_GROUPS",
    "NOT_STATED",
    "SubgroupCounts",
    "is_group_name",
    "subgroup_counts",
]

LEFT_OUT = SMALLEST_COUNT - 1
"""Images that are missing from a class's numbers for each of its small groups."""


@dataclass(frozen=True)
class SubgroupCounts:
    """Images and right answers of one column's groups, by class."""

    column: str
    groups: tuple[str, ...]
    """V names; the last one is of images whose group is not stated."""
    images: Counts
    """(K, V) test images of each class; 0 where they are withheld."""
    right: Counts
    """(K, V) those among them that the model assigns to their class."""

    def to_wire(self) -> dict[str, Any]:
        """Return the counts as plain JSON values, by the names of the wire."""
        return {
            "column": self.column,
            "groups": list(self.groups),
            "images": self.images.tolist(),
            "right": self.right.tolist(),
        }

    @classmethod
    def from_wire(cls, sent: Mapping[str, Any]) -> "SubgroupCounts":
        """Return the counts that :meth:`to_wire` wrote."""
        return cls(
            sent["column"],
            tuple(sent["groups"]),
            np.asarray(sent["images"], np.int64),
            np.asarray(sent["right"], np.int64),
        )


def subgroup_counts(
    columns: Mapping[str, Sequence[str]],
    subgroups: Sequence[Sequence[str]],
    units: Sequence[str],
    owners: Sequence[str],
    inside: NDArray[np.bool_],
    is_right: NDArray[np.bool_],
) -> list[SubgroupCounts]:
    """Count right answers by each column, under the rule of this module.

    Args:
        columns: column -> its named groups.
        subgroups: for each of N images its group in each column.
        units: N ids of the images, by which those to leave out are chosen.
        owners: N patients; an image whose patient is not named is its own.
        inside: (N, K) which images show which class, of the classes that may be reported.
        is_right: (N, K) which of these the model assigns to the class.
    """
    order = np.argsort(np.argsort([hashlib.sha256(unit.encode()).digest() for unit in units]))
    owner_of = np.unique(list(owners), return_inverse=True)[1]
    counted = []
    for place, (column, named) in enumerate(columns.items()):
        groups = (*named, NOT_STATED)
        group_of = np.array([groups.index(row[place]) for row in subgroups], np.int64)
        images = np.zeros((inside.shape[1], len(groups)), np.int64)
        right = np.zeros_like(images)
        for number in range(inside.shape[1]):
            members = np.flatnonzero(inside[:, number])
            kept = members[_kept(group_of[members], len(groups), order[members])]
            if _fewest_owners(group_of[kept], owner_of[kept]) < SMALLEST_COUNT:
                continue
            images[number] = np.bincount(group_of[kept], minlength=len(groups))
            right_groups = group_of[kept[is_right[kept, number]]]
            right[number] = np.bincount(right_groups, minlength=len(groups))
        counted.append(SubgroupCounts(column, groups, images, right))
    return counted


def _kept(group_of: NDArray[np.int64], groups: int, order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of a class's N images are counted by group: (N,), all False where none is.

    Args:
        group_of: (N,) below V.
        groups: V.
        order: (N,) rank of each image; those of the lowest ranks are left out first.
    """
    counts = np.bincount(group_of, minlength=groups)
    is_small = counts < SMALLEST_COUNT
    missing = LEFT_OUT * int(is_small.sum())
    left = len(group_of) - missing
    if is_small.all() or left < SMALLEST_COUNT * int((~is_small).sum()):
        return np.zeros(len(group_of), np.bool_)
    remaining = np.where(is_small, 0, counts)
    for _ in range(missing - int(counts[is_small].sum())):
        remaining[remaining.argmax()] -= 1
    kept = np.zeros(len(group_of), np.bool_)
    for group in np.flatnonzero(remaining):
        members = np.flatnonzero(group_of == group)
        by_rank = members[np.argsort(-order[members])]
        kept[by_rank[: remaining[group]]] = True
    return kept


def _fewest_owners(group_of: NDArray[np.int64], owners: NDArray[np.int64]) -> int:
    """Return the fewest patients that a group's images are of; 0 without images."""
    return min((len(set(owners[group_of == group])) for group in set(group_of)), default=0)
