"""What the rows of a CSV stay together with: a patient or, where that is unknown, a lesion."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedward.lab.partition.torn_patients import are_torn
from fedward.sites.any_csv import is_of_patients
from fedward.sites.label_texts import group_or_empty
from fedward.sites.patient_words import are_of_few
from fedward.sites.table import Record


class RowGroups(NamedTuple):
    """What the rows of a CSV stay together with."""

    of_lines: Mapping[int, str]
    """Line of a row -> name of its group; empty: the row is alone."""
    further_columns: Sequence[str] = ()
    """Columns that group rows whose cell in the first one is empty."""


def row_groups(records: Sequence[Record], column: str, further: Sequence[str]) -> RowGroups:
    """Return what the rows of a CSV stay together with.

    A row with an empty cell stays with the others of its lesion: in the group of one that has a
    group, or else in a group of the lesion.

    Args:
        records: the rows.
        column: the column of groups. If it is empty, no row has a group.
        further: further columns of groups, those of patients before those of lesions. One counts
            only if its values are of few images each, as ids are.
    """
    if not column:
        return RowGroups({record.line: "" for record in records})
    groups = _ids(records, column)
    used = []
    for name in further:
        ids = _ids(records, name)
        ungrouped = [line for line, own_id in ids.items() if own_id and not groups[line]]
        if not ungrouped or not are_of_few(ids.values()):
            continue
        # Of several groups of an id, that of its first row counts.
        group_of = {ids[line]: group for line, group in reversed(groups.items()) if group}
        for line in ungrouped:
            groups[line] = group_of.get(ids[line], f"{name} {ids[line]}")
        used.append(name)
    return RowGroups(groups, used)


def column_of_torn_patients(records: Sequence[Record], column: str, further: Sequence[str]) -> str:
    """Return a column of patients some of whom have several groups; empty without one.

    A column ``group`` may name batches, or the arms of a trial, beside a column of patients.

    Args:
        records: the rows.
        column: the column of groups, whose name may be one of patients; empty: there is none.
        further: further columns of groups. One counts only if its values are of few images each.
    """
    if not column or is_of_patients(column):
        return ""
    groups = list(_ids(records, column).values())
    for name in filter(is_of_patients, further):
        if are_torn(list(_ids(records, name).values()), groups):
            return name
    return ""


def _ids(records: Sequence[Record], column: str) -> dict[int, str]:
    """Return line of a row -> the id in a column; empty where it says that nobody knows."""
    return {record.line: group_or_empty(record.cells[column]) for record in records}
