"""Who is in which split, and whose label is seen: whole groups, stratified by class, the same in
every row order.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Whole: TypeAlias = npt.NDArray[np.int64]
"""N whole numbers: labels, or of several labels :func:`fedward.sites.labels.strata`; or parts."""


def group_split(groups: Sequence[str], labels: Whole, shares: Sequence[float], seed: int) -> Whole:
    """Give every row one of ``len(shares)`` parts; all rows of a group get the same part.

    Groups are taken class by class in an order hashed from (seed, group name), each by the part
    that is furthest behind its share of that class. A part is therefore off its share by less than
    the largest group per class, a class's only group goes to the largest share, and a group's size
    has no say in where it goes.

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
    part = np.zeros(len(names), np.int64)
    order = sorted(range(len(names)), key=lambda g: _rank(seed, str(names[g])))
    filled: dict[int, list[float]] = {}
    for g in order:
        have = filled.setdefault(int(kinds[g]), [0.0] * len(shares))
        reach = sum(have) + sizes[g]
        part[g] = max(
            range(len(shares)), key=lambda p: (shares[p] > 0, shares[p] * reach - have[p])
        )
        have[part[g]] += sizes[g]
    return part[member]


def even_parts(groups: Sequence[str], labels: npt.ArrayLike, parts: int, seed: int) -> Whole:
    """Cut rows into equal parts as :func:`group_split`; ``labels`` (N,) may be of any kind that
    sorts.
    """
    codes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return group_split(groups, codes, [1 / parts] * parts, seed)


def commonest_labels(member: npt.NDArray[np.intp] | Whole, labels: Whole, groups: int) -> Whole:
    """Return the commonest label (ties: the lowest) of each group, -1 of one without any.

    Args:
        member: (N,) the row's group, 0 to ``groups - 1``.
        labels: int64 (N,), -1 = none.
        groups: how many there are.
    """
    known = labels >= 0
    votes = np.zeros((groups, int(labels.max(initial=0)) + 1), np.int64)
    np.add.at(votes, (member[known], labels[known]), 1)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), -1)


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\x1f{name}".encode()).digest()


def labelled_share(labels: Whole, share: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Choose which of a site's labels are seen: a share of each class, by largest remainder.

    ``round(share * n)`` labels are chosen among the n known ones; every class present gets at least
    one if share > 0 (a class nobody labelled cannot be learnt), so rare classes may push the total
    above that.

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
    turn = rng.permutation(len(labels))
    for label, take in enumerate(apportion(np.bincount(labels[labels >= 0]), share)):
        seen[turn[labels[turn] == label][:take]] = True
    return seen


def apportion(counts: npt.NDArray[np.intp], share: float) -> list[int]:
    """Return how many labels of each class :func:`labelled_share` chooses, of so many known ones."""
    quota = share * counts
    take = np.floor(quota).astype(np.int64)
    if share > 0:
        take = np.maximum(take, counts > 0)
    spare = max(round(share * int(counts.sum())) - int(take.sum()), 0)
    take[np.argsort(take - quota, kind="stable")[:spare]] += 1
    return [int(number) for number in take]
