"""Right answers by subgroup, such as sex or age band, under the small-count rule.

The rule, for each class by itself: each of the columns divides the class's N test images, and the
server knows N from other counts.

- A group with fewer than five of these images has no numbers. It is called small here.
- Images are left out until 4 are missing for each small group of any column, whatever the small
  groups hold: ``N - kept = 4 · small groups``. Their order is the same for all models and says
  nothing of groups. An image whose larger groups would fall below five stays.
- All columns are counted on the images that are kept. Otherwise a column that refines another one,
  such as models of cameras and their makers, would give a small group as a difference.
- Where not enough can be left out, a larger group has five images only with those of small groups,
  or a group's images are of fewer than five patients, the class has no numbers in any column.

Why this protects: all numbers are computed from the images that are kept, and from which groups are
small. An image that is left out first is missing whether it is in a small group or not, so that the
numbers fit 0 to 4 images in each small group, whatever models a server sends and in how many
rounds.

Not protected: that a group has fewer than five images. Whoever holds a patient's image, and chooses
the models, may learn in which group it is counted, or that it is in none. What several runs say
together if they test other images, group them by other names or bands, or count patients in place
of images: an image that is counted in one of them is in no small group there. Where an image may
show several classes, what the counts of two classes say together.
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
        units: N ids of the images. By these and by their patients those to leave out are chosen.
        owners: N patients; an image whose patient is not named is its own.
        inside: (N, K) which images show which class, of the classes that may be reported.
        is_right: (N, K) which of these the model assigns to the class.
    """
    order = _order(owners, units)
    owner_of = np.unique(list(owners), return_inverse=True)[1]
    names = [(*named, NOT_STATED) for named in columns.values()]
    group_of = np.zeros((len(subgroups), len(names)), np.int64)
    for place, groups in enumerate(names):
        group_of[:, place] = [groups.index(row[place]) for row in subgroups]
    counted = []
    for column, groups in zip(columns, names, strict=True):
        nothing = np.zeros((inside.shape[1], len(groups)), np.int64)
        counted.append(SubgroupCounts(column, groups, nothing, nothing.copy()))
    for number in range(inside.shape[1]):
        members = np.flatnonzero(inside[:, number])
        kept = members[_kept(group_of[members], list(map(len, names)), order[members])]
        owners_of_groups = [_fewest_owners(groups, owner_of[kept]) for groups in group_of[kept].T]
        if min(owners_of_groups, default=0) < SMALLEST_COUNT:
            continue
        is_right_of_kept = is_right[kept, number]
        for place, counts in enumerate(counted):
            groups_of_kept = group_of[kept, place]
            size = len(counts.groups)
            counts.images[number] = np.bincount(groups_of_kept, minlength=size)
            counts.right[number] = np.bincount(groups_of_kept[is_right_of_kept], minlength=size)
    return counted


def _order(owners: Sequence[str], units: Sequence[str]) -> NDArray[np.int64]:
    """Return the rank of each of N images; images of a patient follow one another.

    So the images that are left out are also among the patients that are left out where the same
    site counts patients in another run.
    """
    keys = [
        hashlib.sha256(owner.encode()).hexdigest() + hashlib.sha256(unit.encode()).hexdigest()
        for owner, unit in zip(owners, units, strict=True)
    ]
    return np.argsort(np.argsort(keys))


def _kept(
    group_of: NDArray[np.int64], sizes: Sequence[int], order: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which of a class's N images are counted by group: (N,), all False where none is.

    Args:
        group_of: (N, C) group in each column.
        sizes: C numbers of groups.
        order: (N,) rank of each image; those of the lowest ranks are left out first.
    """
    none = np.zeros(len(group_of), np.bool_)
    counts = [np.bincount(group_of[:, place], minlength=size) for place, size in enumerate(sizes)]
    kept = ~none
    for place, images in enumerate(counts):
        kept &= images[group_of[:, place]] >= SMALLEST_COUNT
    small_groups = sum(int((images < SMALLEST_COUNT).sum()) for images in counts)
    to_leave_out = LEFT_OUT * small_groups - int((~kept).sum())
    remaining = [
        np.bincount(group_of[kept, place], minlength=size) for place, size in enumerate(sizes)
    ]
    for image in np.flatnonzero(kept)[np.argsort(order[kept])]:
        if not to_leave_out:
            break
        own_groups = list(zip(remaining, group_of[image], strict=True))
        if all(images[group] > SMALLEST_COUNT for images, group in own_groups):
            for images, group in own_groups:
                images[group] -= 1
            kept[image] = False
            to_leave_out -= 1
    is_large = [images >= SMALLEST_COUNT for images in counts]
    has_enough = all(
        (images[large] >= SMALLEST_COUNT).all()
        for images, large in zip(remaining, is_large, strict=True)
    )
    return kept if not to_leave_out and has_enough else none


def _fewest_owners(group_of: NDArray[np.int64], owners: NDArray[np.int64]) -> int:
    """Return the fewest patients that a group's images are of; 0 without images."""
    return min((len(set(owners[group_of == group])) for group in set(group_of)), default=0)
