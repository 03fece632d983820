"""Divides rows into splits by whole groups, and chooses labels that are seen, both by class.

The result depends on the set of rows, not on their order.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedward.sites.label_texts import without_accents
from fedward.sites.patient_names import words_of

_SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("entrainement", "apprentissage", "entrenamiento", "addestramento"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("validierung", "validacion", "validazione"), "val"),
    **dict.fromkeys(("test", "testing", "prueba"), "test"),
}
"""Name of a split in a data set, in lower case and without accents -> name of the split here."""
Whole: TypeAlias = npt.NDArray[np.int64]
"""N whole numbers: labels, :func:`fedward.labels.strata` of several labels, or parts."""


def split_named(name: str) -> str:
    """Return the split that a folder or cell of a data set names; empty if it names none."""
    return _SPLIT_NAMES.get(without_accents(name), "")


def owners(groups: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return what each of N rows stays together with: its group, or else the row alone, by its id.

    A row alone whose id also names a group (:func:`fedward.sites.patient_names.words_of`) gets
    another name: image 7 without a patient does not belong to patient 007.

    Args:
        groups: of each row; empty: it has none.
        ids: of each row.
    """
    named = set(map(words_of, set(groups)))
    taken = named.union(map(words_of, ids))
    names = []
    for group, sample_id in zip(groups, ids, strict=True):
        owner = group or sample_id
        if not group and words_of(sample_id) in named:
            while words_of(owner) in taken:
                owner += " (alone)"
        names.append(owner)
    return names


def group_split(groups: Sequence[str], labels: Whole, shares: Sequence[float], seed: int) -> Whole:
    """Give every row one of ``len(shares)`` parts; all rows of a group get the same part.

    Groups are visited in an order hashed from (seed, group name). Each goes to the part that is
    furthest behind its share of the group's class. A part is therefore off its share by less than
    the largest group of each class, a class's only group goes to the largest share, and a group's
    size does not decide where it goes.

    Args:
        groups: N group names.
        labels: int64 (N,), -1 = none. A group's class is its commonest label (ties: the lowest
            index); groups without any label are a class of their own.
        shares: at least one, none negative, summing to 1 within 1e-6.
        seed: another seed gives another split.

    Returns:
        int64 (N,) part indices: a function of the set of rows, whatever their order.

    Raises:
        ValueError: lengths differ, or the shares do not sum to 1.
    """
    if len(groups) != len(labels):
        raise ValueError(f"{len(groups)} groups for {len(labels)} labels")
    if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares must be >= 0 and sum to 1, got {list(shares)}")
    if not len(groups):
        return np.zeros(0, np.int64)
    names, member = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    sizes = np.bincount(member)
    kinds = commonest_labels(member, labels, len(names))
    part_of = np.zeros(len(names), np.int64)
    order = sorted(range(len(names)), key=lambda group: _rank(seed, str(names[group])))
    filled: dict[int, list[float]] = {}
    """Class of groups -> rows in each part so far."""
    for group in order:
        rows = filled.setdefault(int(kinds[group]), [0.0] * len(shares))
        total = sum(rows) + sizes[group]
        # A part without a share gets nothing, even if it is behind by 0 and the others are not.
        behind = [
            (share > 0, share * total - in_part)
            for share, in_part in zip(shares, rows, strict=True)
        ]
        chosen = behind.index(max(behind))
        part_of[group] = chosen
        rows[chosen] += sizes[group]
    return part_of[member]


def parts_of_labelled_groups(
    groups: Sequence[str], labels: Whole, shares: Sequence[float], seed: int
) -> Whole:
    """Return the parts of :func:`group_split`; groups without any label are in part 0.

    Part 0 is for training: a group without a label cannot be evaluated. Arguments and errors are
    those of :func:`group_split`.
    """
    labelled_groups = {
        group for group, label in zip(groups, labels.tolist(), strict=True) if label >= 0
    }
    rows = [row for row, group in enumerate(groups) if group in labelled_groups]
    parts = np.zeros(len(groups), np.int64)
    parts[rows] = group_split([groups[row] for row in rows], labels[rows], shares, seed)
    return parts


def commonest_labels(member: npt.NDArray[np.intp] | Whole, labels: Whole, groups: int) -> Whole:
    """Return the commonest label (ties: the lowest) of each group, -1 for one without labels.

    Args:
        member: (N,) the row's group, 0 to ``groups - 1``.
        labels: int64 (N,), -1 = none.
        groups: number of groups.
    """
    known = labels >= 0
    # Pairs that occur are counted, as a table of all groups and labels may not fit into memory.
    pairs, votes = np.unique(
        np.stack([member[known], labels[known]], axis=1), axis=0, return_counts=True
    )
    commonest = np.full(groups, -1, np.int64)
    # The pair of a group with most votes is written last; among equals, that of the lowest label.
    order = np.lexsort((-pairs[:, 1], votes))
    commonest[pairs[order, 0]] = pairs[order, 1]
    return commonest


def _rank(seed: int, name: str) -> bytes:
    """Return a group's place in the order of groups."""
    return hashlib.sha256(f"{seed}\x1f{name}".encode()).digest()


def labelled_share(labels: Whole, share: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Choose which of a site's labels are seen: a share of each class, by largest remainder.

    ``round(share * n)`` of n known labels are chosen. If share > 0, at least one of every class is,
    because a class without labels cannot be learnt; rare classes may push the total above that.

    Args:
        labels: int64 (N,), -1 = none (never chosen).
        share: 0 (none) to 1 (all).
        rng: draws which images of a class are chosen.

    Returns:
        bool (N,), True where the label is seen.

    Raises:
        ValueError: share outside [0, 1].
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1], got {share}")
    seen = np.zeros(len(labels), np.bool_)
    order = rng.permutation(len(labels))
    numbers = apportion(np.bincount(labels[labels >= 0]), share)
    for label, number in enumerate(numbers):
        of_class = order[labels[order] == label]
        seen[of_class[:number]] = True
    return seen


def apportion(counts: npt.NDArray[np.intp], share: float) -> list[int]:
    """Return how many labels of each class :func:`labelled_share` chooses.

    Args:
        counts: known labels of each class, (K,).
        share: to choose, from 0 to 1.
    """
    quotas = share * counts
    numbers = np.floor(quotas).astype(np.int64)
    if share > 0:
        numbers = np.maximum(numbers, counts > 0)
    remaining = max(round(share * int(counts.sum())) - int(numbers.sum()), 0)
    furthest_below = np.argsort(numbers - quotas, kind="stable")
    numbers[furthest_below[:remaining]] += 1
    return [int(number) for number in numbers]
