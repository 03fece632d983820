"""What rows of a data set stay together with: a patient or, where that is unknown, a lesion."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fedward.sites.patient_words import are_of_few, is_called_patients


class RowGroups(NamedTuple):
    """What the rows of a data set stay together with."""

    of_rows: Mapping[int, str]
    """Number of a row, such as its line -> name of its group; empty: the row is alone."""
    further_columns: Sequence[str] = ()
    """Columns that group rows without a group in the first one."""


def filled(groups: Mapping[int, str], further: Mapping[str, Mapping[int, str]]) -> RowGroups:
    """Return groups of rows, of which those without a group get one by their ids.

    A row without a group stays with all rows that have an id in common with it, and with those that
    have one in common with these: in the group of one that has a group, or else in a group that is
    called by the column and the id, such as ``lesion L6``.

    Args:
        groups: number of a row -> its group; empty: it has none.
        further: column -> number of a row -> its id; empty: it has none. Columns of patients come
            before those of lesions. One that is not called as those of patients counts only if its
            ids are of few images each.
    """
    groups = dict(groups)
    ids_of: dict[str, Mapping[int, str]] = {}
    for name, ids in further.items():
        is_needed = any(own_id and not groups[row] for row, own_id in ids.items())
        if is_needed and (is_called_patients(name) or are_of_few(ids.values())):
            ids_of[name] = ids
    links = _Links(groups, ids_of)
    for name, ids in ids_of.items():
        links.add(_Link(name, ids[row], group) for row, group in groups.items() if group)
    links.spread()
    # No chain of ids leads from the other rows to one that has a group.
    for name, ids in ids_of.items():
        for row, own_id in ids.items():
            if own_id and not groups[row]:
                links.add([_Link(name, own_id, f"{name} {own_id}")])
                links.spread()
    return RowGroups(groups, list(ids_of))


class _Link(NamedTuple):
    """A group that the rows of an id may be in."""

    column: str
    own_id: str
    """Id in the column. An empty one belongs to no row."""
    group: str


class _Links:
    """Brings groups to the rows that have an id in common, from each of them to the next.

    Args:
        groups: number of a row -> its group, which changes where it is empty.
        ids_of: further column -> number of a row -> its id; empty: it has none.
    """

    def __init__(self, groups: dict[int, str], ids_of: Mapping[str, Mapping[int, str]]) -> None:
        self._groups = groups
        self._ids_of = ids_of
        self._waiting = deque[_Link]()
        self._rows_of = defaultdict[tuple[str, str], list[int]](list)
        """Column and id -> numbers of its rows, as long as no link has led there."""
        for name, ids in ids_of.items():
            for row, own_id in ids.items():
                if own_id:
                    self._rows_of[name, own_id].append(row)

    def add(self, links: Iterable[_Link]) -> None:
        """Add links, which come after those that wait."""
        self._waiting.extend(links)

    def spread(self) -> None:
        """Follow the links that wait, and those of the rows to which they lead."""
        while self._waiting:
            name, own_id, group = self._waiting.popleft()
            # Of several groups of an id, that of the first link counts.
            for row in self._rows_of.pop((name, own_id), ()):
                if not self._groups[row]:
                    self._groups[row] = group
                    self.add(_Link(other, ids[row], group) for other, ids in self._ids_of.items())
