"""Columns of a site's CSV by which test images are counted in groups, such as sex or age.

A site file names the columns and all of their groups, so that the names of groups say nothing about
who is there. A cell that is in no named group, or empty, counts as :data:`NOT_STATED`.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from fedward.sites.label_texts import known_or_empty

NOT_STATED = "not stated"
"""The last group of every column: cells that are empty, or in no named group."""
MOST_COLUMNS = 5
MOST_GROUPS = 12
"""Groups of a column at most, with :data:`NOT_STATED`."""
LONGEST_NAME = 40
"""Characters of the name of a column or a group."""
EXPECTED_NAME = f"1 to {LONGEST_NAME} printable characters in one line"
"""What such a name is, for errors."""

Groups: TypeAlias = Mapping[str, Sequence[str]]
"""Name of a group -> the cells that are in it: texts, or bands of numbers such as 40-64 or 65+."""

_BAND = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(?:-(\d{1,6}(?:\.\d{1,3})?)|\+)")


def is_group_name(text: str) -> bool:
    """Return whether a text may name a column or a group: short, in one line, printable."""
    return 1 <= len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()


def columns_of_groups(columns: object) -> object:
    """Return columns of groups as mappings; a list of groups is one in which each is its cell.

    Raises:
        ValueError: these are no columns with their groups.
    """
    if not isinstance(columns, Mapping):
        raise ValueError("columns, each with its groups, as in {sex: [F, M], age: [0-64, 65+]}")
    return {name: _groups(groups) for name, groups in columns.items()}


def _groups(groups: object) -> object:
    if isinstance(groups, list | tuple):
        return {str(group): (str(group),) for group in groups}
    if isinstance(groups, Mapping):
        return {
            name: cells if isinstance(cells, list | tuple) else (cells,)
            for name, cells in groups.items()
        }
    return groups


def check_columns(columns: Mapping[str, Groups]) -> None:
    """Refuse columns that cannot be counted by.

    Raises:
        ValueError: a column has no group or too many; a name is too long or not printable; a cell
            is in two groups; or bands overlap. Its text says what is expected.
    """
    if len(columns) > MOST_COLUMNS:
        raise ValueError(f"at most {MOST_COLUMNS} columns")
    for column, groups in columns.items():
        if not 1 <= len(groups) < MOST_GROUPS:
            raise ValueError(
                f"{column}: 1 to {MOST_GROUPS - 1} groups, such as [F, M] or [0-39, 40-64, 65+]"
            )
        names = [column, *groups]
        if not all(is_group_name(name) for name in names) or NOT_STATED in groups:
            raise ValueError(f"{EXPECTED_NAME} as names, and no group {NOT_STATED}")
        cells = [_plain(cell) for group in groups.values() for cell in group]
        if len(set(cells)) < len(cells) or not all(groups.values()) or "" in cells:
            raise ValueError(f"{column}: cells that are in one group each")
        bands = sorted(band for band in map(_band, cells) if band)
        for (_, end), (start, _) in pairwise(bands):
            if start <= end:
                raise ValueError(f"{column}: bands that do not overlap, such as 0-39 and 40-64")


def group_of(cell: str, groups: Groups) -> str:
    """Return the group of a cell.

    A text belongs to the group that lists it, in small or capital letters. A number belongs to the
    group that lists it, where 2 and 2.0 are the same, or to the band that holds it: ``40-64`` holds
    40 and 64.9, but not 65, unless an end has decimals.
    """
    text = _plain(known_or_empty(cell))
    for name, cells in groups.items():
        if text in map(_plain, cells):
            return name
    number = _number(text)
    if number is not None:
        for name, cells in groups.items():
            # Spreadsheets write whole numbers of a column with empty cells as 2.0.
            if number in [_number(_plain(listed)) for listed in cells]:
                return name
        for name, cells in groups.items():
            if any(_holds(band, number) for band in map(_band, cells) if band):
                return name
    return NOT_STATED


def _plain(text: str) -> str:
    return text.strip().casefold()


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _band(text: str) -> tuple[float, float] | None:
    """Return the first number of a band and the last one; None for another text.

    An end without decimals holds all decimals: 64 stands for 64.999.
    """
    match = _BAND.fullmatch(text)
    if match is None:
        return None
    start, end = match.groups()
    if end is None:
        return float(start), float("inf")
    last = float(end) if "." in end else float(end) + 0.9999
    return float(start), last


def _holds(band: tuple[float, float], number: float) -> bool:
    return band[0] <= number <= band[1]
