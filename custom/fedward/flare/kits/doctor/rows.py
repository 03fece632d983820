"""The lines of a kit's report."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from fedward.errors import FedwardError

_WIDTH = 80
"""Columns of the report."""

_INDENT = 25
"""Columns before a row's text: its mark and its name."""

_TEXT = _WIDTH - _INDENT
"""Columns of a row's text, as wide as the first half of a fingerprint."""

_MARKS = {"ok": "ok", "warning": "WARNING", "failed": "FAILED", "skipped": "-"}


@dataclass(frozen=True)
class Row:
    """The result of one check."""

    name: str
    status: Literal["ok", "warning", "failed", "skipped"]
    found: str
    """What the check found."""
    expected: str = ""
    """What it expected; empty if all is well."""
    remedy: str = ""
    """What to do; empty if there is nothing to do."""

    def lines(self) -> list[str]:
        """Return the row for an 80-column terminal."""
        parts = [self.found]
        if self.expected:
            parts = [f"found {self.found}", f"expected {self.expected}"]
        if self.remedy:
            parts.append(f"-> {self.remedy}")
        lines = []
        for part in "\n".join(parts).splitlines():
            lines += _wrapped(part)
        head = f"  {_MARKS[self.status]:<9}{self.name}"
        if len(head) < _INDENT and len(lines[0]) <= _TEXT:
            head = f"{head:<{_INDENT}}{lines.pop(0)}"
        return [head, *map(_indented, lines)]


def _wrapped(text: str) -> list[str]:
    """Return the lines of a text.

    A word that is too long for one, such as a digest, gets a line of its own, so that it can be
    copied. One that no line of the terminal holds is broken: a fingerprint into its halves.
    """
    lines = []
    for line in wrap(text, _TEXT, break_on_hyphens=False, break_long_words=False):
        if len(line) <= _WIDTH:
            lines.append(line)
        else:
            lines += wrap(line, _TEXT, break_on_hyphens=False)
    return lines


def _indented(line: str) -> str:
    indent = min(_INDENT, _WIDTH - len(line))
    return " " * indent + line


def done(name: str, found: str) -> Row:
    """Return the row of a check that passed."""
    return Row(name, "ok", found)


def warning(name: str, *, expected: str, found: str, remedy: str) -> Row:
    """Return the row of something that works but should be known."""
    return Row(name, "warning", found, expected, remedy)


def failed(name: str, *, expected: str, found: str, remedy: str) -> Row:
    """Return the row of something that must be fixed."""
    return Row(name, "failed", found, expected, remedy)


def broken(name: str, error: FedwardError) -> Row:
    """Return the row of a check that ended with an error."""
    found = f"{error.problem}: {error.found}" if error.found else error.problem
    return failed(name, expected=error.expected, found=found, remedy=error.remedy)


def skipped(name: str, reason: str) -> Row:
    """Return the row of a check that could not be done."""
    return Row(name, "skipped", f"not checked: {reason}")


def unnamed(name: str, error: FedwardError) -> Row:
    """Return the row of a check that needs the participant's own folder, which nothing names."""
    return skipped(name, f"{error.problem}: expected {error.expected}, found {error.found}")


def report_text(headline: str, rows: Sequence[Row]) -> str:
    """Return the report for an 80-column terminal."""
    failures = sum(row.status == "failed" for row in rows)
    warnings = sum(row.status == "warning" for row in rows)
    verdict = "All well."
    if failures or warnings:
        verdict = f"{failures} failed, warnings: {warnings}"
    lines = [*wrap(headline, _WIDTH), ""]
    for row in rows:
        lines += row.lines()
    return "\n".join([*lines, "", verdict])
