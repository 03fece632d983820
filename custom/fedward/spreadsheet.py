"""Cells that a spreadsheet shows as they are: whoever names a file or a class cannot make one
compute.
"""

import re

_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")
"""How a cell begins that some spreadsheet would compute. The leading quotes are part of the match,
so that a text which begins with a quote of its own comes back with it."""


def inert(cell: object) -> object:
    """Return a text that a spreadsheet shows as it is: a quote goes before what looks like a
    formula.
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def as_it_was(cell: str) -> str:
    """Return the text that :func:`inert` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
