"""How dark the cells of a table are shown."""

SHADES = 4
"""Shades beside the page's own colour, each of which ``report.css`` has as ``.level-N``."""


def shade(part: int, whole: int) -> int:
    """Return the shade of a cell that holds a part of a whole: 0 for none, up to SHADES for all.

    Raises ZeroDivisionError: the whole is 0.
    """
    # A negative number is rounded down, so that any part at all has a shade.
    return -(-SHADES * part // whole)
