"""The lines of a kit's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from fedward.errors import FedwardError

_WIDTH = 80
_INDENT = 25
_TEXT = _WIDTH - _INDENT
"""As wide as the first half of a fingerprint."""
_MARKS = {"ok": "ok", "warning": "WARNING", "failed": "FAILED", "skipped": "-"}


@dataclass(frozen=True)
class Row:
    """One check: what was expected, what was found, and what to do; the first and last are empty if
    all is well.
    """

    name: str
    status: Literal["ok", "warning", "failed", "skipped"]
    found: str
    expected: str = ""
    remedy: str = ""

    def lines(self) -> list[str]:
        """Return the row for an 80-column terminal."""
        parts = (
            [self.found]
            if not self.expected
            else [f"found {self.found}", f"expected {self.expected}"]
        )
        parts += [f"-> {self.remedy}"] if self.remedy else []
        lines = [line for part in "\n".join(parts).splitlines() for line in _wrapped(part)]
        head = f"  {_MARKS[self.status]:<9}{self.name}"
        fits = len(head) < _INDENT and len(lines[0]) <= _TEXT
        first = [f"{head:<{_INDENT}}{lines.pop(0)}"] if fits else [head]
        return [*first, *(" " * min(_INDENT, _WIDTH - len(line)) + line for line in lines)]


def _wrapped(text: str) -> list[str]:
    """Return the lines of a text; a longer word, such as a digest to be copied, has a line of its
    own.
    """
    lines = wrap(text, _TEXT, break_on_hyphens=False, break_long_words=False)
    return [part for line in lines for part in wrap(line, _WIDTH, break_on_hyphens=False)]


def done(name: str, found: str) -> Row:
    """Return a row of a check that went well."""
    return Row(name, "ok", found)


def warning(name: str, *, expected: str, found: str, remedy: str) -> Row:
    """Return a row of something that works, and should be known."""
    return Row(name, "warning", found, expected, remedy)


def failed(name: str, *, expected: str, found: str, remedy: str) -> Row:
    """Return a row of something that must be fixed."""
    return Row(name, "failed", found, expected, remedy)


def broken(name: str, error: FedwardError) -> Row:
    """Return the row of an error."""
    return failed(
        name, expected=error.expected, found=f"{error.problem}: {error.found}", remedy=error.remedy
    )


def skipped(name: str, reason: str) -> Row:
    """Return a row of a check that could not be done."""
    return Row(name, "skipped", f"not checked: {reason}")


def text(headline: str, rows: Sequence[Row]) -> str:
    """Return the report for an 80-column terminal."""
    failures, warnings = (
        sum(row.status == status for row in rows) for status in ("failed", "warning")
    )
    verdict = f"{failures} failed, warnings: {warnings}" if failures or warnings else "All well."
    return "\n".join(
        [*wrap(headline, _WIDTH), "", *(line for row in rows for line in row.lines()), "", verdict]
    )
