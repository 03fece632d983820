"""The checks of a site's counts by subgroup and by patient: their form, and the rule they obey."""

from collections.abc import Sequence

import numpy as np

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.evaluation.subgroups import (
    LEFT_OUT,
    MOST_COLUMNS,
    MOST_GROUPS,
    NOT_STATED,
    SubgroupCounts,
)
from fedward.protocol.answer_rules import AnswerRules
from fedward.protocol.fields import require
from fedward.protocol.messages import BinnedCounts, Clusters, SubgroupsOfColumn


def check_further_counts(
    where: str, sent: BinnedCounts, counts: AnswerCounts, rules: AnswerRules
) -> None:
    """Raise RefusedError unless counts by subgroup and patient are possible ones.

    Args:
        where: beginning of the place that an error names.
        sent: all counts of an answer.
        counts: those that are by class alone, which were checked before.
        rules: what answers of the job may hold.
    """
    if sent.subgroups is not None:
        require(f"{where}, subgroups", rules.subgroups, "none in this job")
        columns = [column.column for column in sent.subgroups]
        is_distinct = 0 < len(columns) == len(set(columns)) <= MOST_COLUMNS
        require(f"{where}, subgroups", is_distinct, f"1 to {MOST_COLUMNS} different columns")
        by_column = [
            _checked_column(f"{where}, subgroups", column, counts) for column in sent.subgroups
        ]
        for place in range(len(counts.confusion.images)):
            _check_class(f"{where}, subgroups", by_column, counts, place)
    if sent.clusters is not None:
        require(f"{where}, clusters", rules.clusters, "none in this job")
        _check_clusters(f"{where}, clusters", sent.clusters, counts, rules.exclusive)


def _checked_column(where: str, column: SubgroupsOfColumn, counts: AnswerCounts) -> SubgroupCounts:
    """Return the counts of a column that is possible by itself; refuse others."""
    names = column.groups
    is_named = 2 <= len(set(names)) == len(names) <= MOST_GROUPS and names[-1] == NOT_STATED
    require(f"{where}, groups", is_named, f"different ones, and {NOT_STATED} as the last")
    for rows in (column.images, column.right):
        is_whole = len(rows) == len(counts.confusion.images)
        is_whole = is_whole and all(len(row) == len(names) for row in rows)
        require(where, is_whole, "a count for each class and group")
    by_group = SubgroupCounts.from_wire(column.model_dump())
    is_small = (by_group.images > 0) & (by_group.images < SMALLEST_COUNT)
    expected = f"0, or {SMALLEST_COUNT} images or more"
    require(f"{where}, images", not is_small.any(), expected)
    is_possible = bool((by_group.right <= by_group.images).all())
    require(f"{where}, right", is_possible, "no more right answers than images")
    return by_group


def _check_class(
    where: str, columns: Sequence[SubgroupCounts], counts: AnswerCounts, place: int
) -> None:
    """Refuse a class from whose other counts a small group's could be computed."""
    images = {int(column.images[place].sum()) for column in columns}
    right = {int(column.right[place].sum()) for column in columns}
    is_of_the_same = len(images) == len(right) == 1
    require(where, is_of_the_same, "counts of the same images of a class in all columns")
    (kept,) = images
    if not kept:
        return
    missing = int(counts.confusion.images[place]) - kept
    small_groups = sum(int((column.images[place] == 0).sum()) for column in columns)
    expected = f"{LEFT_OUT} images left out for each group without a number"
    require(f"{where}, images", missing == LEFT_OUT * small_groups, expected)
    (found_in_groups,) = right
    found = int(counts.confusion.true_positives[place])
    is_possible = found_in_groups <= found <= found_in_groups + missing
    require(f"{where}, right", is_possible, "right answers that fit those of the class")


def _check_clusters(where: str, sent: Clusters, counts: AnswerCounts, exclusive: bool) -> None:
    images = counts.confusion.images
    for name in ("patients", "effective"):
        is_whole = len(getattr(sent, name)) == len(images)
        require(f"{where}, {name}", is_whole, "a count for each class")
    patients = np.array([*sent.patients, sent.all_patients])
    # Of several labels there are no answers to all classes.
    effective = np.array([*sent.effective, sent.all_effective if exclusive else 0])
    total = int(counts.confusion.total.max())
    if exclusive:
        # Classes of fewer than five patients are in no number, or the others would give theirs.
        total = int(images[np.array(sent.effective) > 0].sum())
    most = np.array([*images, total])
    require(f"{where}, patients", bool((patients <= most).all()), "no more than images")
    require(f"{where}, effective", bool((effective <= most).all()), "no more than images")
    is_counted = (effective > 0) == (patients > 0)
    if not exclusive:
        is_counted[-1] = sent.all_effective == 0
    require(f"{where}, effective", bool(is_counted.all()), "0 where there are no patients alone")
