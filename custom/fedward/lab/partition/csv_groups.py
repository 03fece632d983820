"""What the rows of a CSV stay together with: a patient or, where that is unknown, a lesion."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
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

    A row with an empty cell stays with all rows that have an id in common with it, and with those
    that have one in common with these: in the group of one that has a group, or else in a group of
    the id.

    Args:
        records: the rows.
        column: the column of groups. If it is empty, no row has a group.
        further: further columns of groups, those of patients before those of lesions. One counts
            only if its values are of few images each, as ids are.
    """
    if not column:
        return RowGroups({record.line: "" for record in records})
    groups = _ids(records, column)
    ids_of: dict[str, dict[int, str]] = {}
    for name in further:
        ids = _ids(records, name)
        is_needed = any(own_id and not groups[line] for line, own_id in ids.items())
        if is_needed and are_of_few(ids.values()):
            ids_of[name] = ids
    links = _Links(groups, ids_of)
    for name, ids in ids_of.items():
        links.add(_Link(name, ids[line], group) for line, group in groups.items() if group)
    links.spread()
    # No chain of ids leads from the other rows to one that has a group.
    for name, ids in ids_of.items():
        for line, own_id in ids.items():
            if own_id and not groups[line]:
                links.add([_Link(name, own_id, f"{name} {own_id}")])
                links.spread()
    return RowGroups(groups, list(ids_of))


class _Link(NamedTuple):
    """A group that the rows of an id may be in."""

    column: str
    own_id: str
    """Id in the column; empty: there is none, and the link leads nowhere."""
    group: str


class _Links:
    """Brings groups to the rows that have an id in common, from each of them to the next.

    Args:
        groups: line of a row -> its group, which changes where it is empty.
        ids_of: further column -> line of a row -> its id; empty: it has none.
    """

    def __init__(self, groups: dict[int, str], ids_of: Mapping[str, Mapping[int, str]]) -> None:
        self._groups = groups
        self._ids_of = ids_of
        self._waiting = deque[_Link]()
        self._lines_of = defaultdict[tuple[str, str], list[int]](list)
        """Column and id -> lines of its rows, as long as no link has led there."""
        for name, ids in ids_of.items():
            for line, own_id in ids.items():
                if own_id:
                    self._lines_of[name, own_id].append(line)

    def add(self, links: Iterable[_Link]) -> None:
        """Add links, which come after those that wait."""
        self._waiting.extend(links)

    def spread(self) -> None:
        """Follow the links that wait, and those of the rows to which they lead."""
        while self._waiting:
            name, own_id, group = self._waiting.popleft()
            # Of several groups of an id, that of the first link counts.
            for line in self._lines_of.pop((name, own_id), ()):
                if not self._groups[line]:
                    self._groups[line] = group
                    self.add(_Link(other, ids[line], group) for other, ids in self._ids_of.items())


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
