"""CSV files for people, who open them in a spreadsheet.

A spreadsheet shows every cell as text and computes none as a formula.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from typing import TextIO

ENCODING = "utf-8-sig"
"""UTF-8 with a mark, without which Excel takes a file for one of a Western code page."""

_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")
"""How a cell begins that some spreadsheet would compute.

The leading quotes are part of the match, so that a text which begins with a quote of its own comes
back with it.
"""


def write_rows(file: TextIO, rows: Iterable[Sequence[object]]) -> None:
    """Write rows of a CSV, each cell quoted and :func:`inert`.

    Args:
        file: opened with ``newline=""`` and :data:`ENCODING`.
        rows: the cells of each row.
    """
    # In some countries a spreadsheet takes semicolons for separators. It splits a cell without
    # quotes at them, and could find a formula in a part.
    table = csv.writer(file, quoting=csv.QUOTE_ALL)
    table.writerows([inert(cell) for cell in row] for row in rows)


def is_formula(text: str) -> bool:
    """Return whether some spreadsheet that opens a CSV would compute a text in it."""
    return _FORMULA.match(text) is not None


def inert(cell: object) -> object:
    """Return a cell with a quote in front if it is a text that looks like a formula."""
    if isinstance(cell, str) and is_formula(cell):
        return f"'{cell}"
    return cell


def as_it_was(cell: str) -> str:
    """Return the text that :func:`inert` was given."""
    if cell.startswith("'") and is_formula(cell):
        return cell[1:]
    return cell
