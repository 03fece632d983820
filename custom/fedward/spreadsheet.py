"""Cells of a CSV that a spreadsheet shows as text and does not compute as a formula."""

import re

_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")
"""How a cell begins that some spreadsheet would compute.

The leading quotes are part of the match, so that a text which begins with a quote of its own comes
back with it.
"""


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
