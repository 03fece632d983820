"""Columns of a site's CSV by which test images are counted in groups, such as sex or age.

A site file names the columns and all of their groups, so that the names of groups say nothing about
who is there. A cell that is in no named group, or empty, counts as :data:`NOT_STATED`.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias
from unicodedata import normalize

from fedward.sites.label_texts import looks_unknown

NOT_STATED = "not stated"
"""The last group of every column: cells that are empty, or in no named group."""
MOST_COLUMNS = 5
MOST_GROUPS = 12
"""Groups of a column at most, with :data:`NOT_STATED`."""
LONGEST_NAME = 40
"""Characters of the name of a column or a group."""
EXPECTED_NAME = f"1 to {LONGEST_NAME} printable characters in one line"
"""What such a name is, for errors."""

SubgroupCells: TypeAlias = Mapping[str, Sequence[str]]
"""Name of a group -> the cells that are in it: texts, or bands of numbers such as 40-64 or 65+."""

_NUMBER = re.compile(r"(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d{1,2})?")
_BAND = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(?:-(\d{1,6}(?:\.\d{1,3})?)|\+)")


def is_group_name(text: str) -> bool:
    """Return whether a text may name a column or a group: short, in one line, printable."""
    return 1 <= len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()


def cells_by_group(columns: object) -> object:
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


def check_columns(columns: Mapping[str, SubgroupCells]) -> None:
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
        cells: list[str] = []
        for group in groups.values():
            # A group may list a cell in small and in capital letters, though either is enough.
            cells += {same_as(cell) for cell in group}
        if len(set(cells)) < len(cells) or not all(groups.values()) or "" in cells:
            raise ValueError(f"{column}: cells that are in one group each")
        listed = [_plain(cell) for group in groups.values() for cell in dict.fromkeys(group)]
        bands = sorted(band for band in map(_band, listed) if band)
        for (_, end), (start, _) in pairwise(bands):
            if start <= end:
                raise ValueError(f"{column}: bands that do not overlap, such as 0-39 and 40-64")


def subgroup_of(cell: str, groups: SubgroupCells) -> str:
    """Return the group of a cell.

    A cell belongs to the group that lists it, in small or capital letters, where 2 and 2.0 are the
    same. Otherwise a number belongs to the band that holds it: ``40-64`` holds 40 and 64.9, but not
    65, unless an end has decimals. A cell that is a band itself, as ``85+`` where ages are coarse,
    belongs to the band that holds all of it.

    Numbers that often stand for no answer, such as 99 and 999, are in no band without an end.
    """
    for name, cells in groups.items():
        if same_as(cell) in map(same_as, cells):
            return name
    number = _number(cell)
    wanted = _band(_plain(cell)) if number is None else (number, number)
    if wanted is None:
        return NOT_STATED
    for name, cells in groups.items():
        for band in map(_band, map(_plain, cells)):
            if band and _holds(band, wanted) and not (looks_unknown(cell) and _is_open(band)):
                return name
    return NOT_STATED


def is_band(group: str) -> bool:
    """Return whether a group is a band of numbers, as 40-64 or 65+."""
    return _band(_plain(group)) is not None


def is_left_over(cell: str, groups: SubgroupCells) -> bool:
    """Return whether a cell states something, and is in no group."""
    return states_something(cell) and subgroup_of(cell, groups) == NOT_STATED


def states_something(cell: str) -> bool:
    """Return whether a cell is neither empty nor a word for an absent value.

    A number is stated, even if it often stands for no answer.
    """
    if _plain(cell) in ("", NOT_STATED):
        return False
    return _number(cell) is not None or not looks_unknown(cell)


def same_as(cell: str) -> str:
    """Return what two cells share that are the same: in small letters, and 2 for 2.0.

    Spreadsheets write whole numbers of a column with empty cells as 2.0. Accents may be letters of
    their own, as macOS writes them.
    """
    number = _number(cell)
    return _plain(cell) if number is None else repr(number)


def _plain(text: str) -> str:
    return " ".join(normalize("NFC", text).casefold().split())


def _number(cell: str) -> float | None:
    text = _plain(cell)
    return float(text.replace(",", ".")) if _NUMBER.fullmatch(text) else None


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


def _holds(band: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether a band holds all of another one."""
    return band[0] <= other[0] and other[1] <= band[1]


def _is_open(band: tuple[float, float]) -> bool:
    return band[1] == float("inf")
