"""What a terminal is shown: texts of others cannot move its cursor, hide what stands there, or turn its direction."""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline; marks of direction; line separators; halves of surrogate pairs."""


def printable(text: str) -> str:
    r"""Return a text with each control character written out, as ``\x1b``; tabs and newlines stay."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


LONGEST_REASON = 500
"""Characters of what one participant tells another of an error."""


def reason(text: str) -> str:
    """Return what a participant tells of an error as one printable line of bounded length."""
    line = printable(one_line(text[: 10 * LONGEST_REASON]))
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 4]} ..."


def shown(value: object) -> str:
    """Return the beginning of a value as text; of a number too long to print that it is one."""
    try:
        return repr(value)[:100]
    except ValueError:
        return "a number of thousands of digits"


def one_line(text: str) -> str:
    """Return a text with white space of any kind as single spaces, so that it cannot pass for several lines."""
    return " ".join(text.split())


def subcommand(parser: ArgumentParser, command: Callable[[Namespace], int]) -> Callable[..., Any]:
    """Let a subcommand's parser lead to what runs it, and return what adds arguments to it."""
    parser.set_defaults(command=command)
    return parser.add_argument


@contextmanager
def printing_safely() -> Iterator[None]:
    """Let everything that is printed inside, by whichever module, pass through :func:`printable`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Printable(sys.stdout), _Printable(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Printable:
    """A text stream whose ``write`` is safe for a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
