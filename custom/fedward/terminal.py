"""What a terminal is shown: texts of others cannot move its cursor, hide what stands there, or turn
its direction.
"""

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import TextWrapper
from threading import Event, RLock, Thread
from typing import Any, TextIO

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and newline; marks of direction; line separators; halves of surrogate
pairs.
"""


def printable(text: str) -> str:
    r"""Return a text with each control character written out, as ``\x1b``; tabs and newlines stay."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


_TICK = 1.0
"""Seconds until a line that changes is drawn anew."""
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
    """Return a text with white space of any kind as single spaces, so that it cannot pass for
    several lines.
    """
    return " ".join(text.split())


def shortened(name: str, width: int) -> str:
    """Return a name of at most ``width`` characters; one that is cut ends with an ellipsis."""
    return name if len(name) <= width else f"{name[: width - 1]}…"


def subcommand(parser: ArgumentParser, command: Callable[[Namespace], int]) -> Callable[..., Any]:
    """Let a subcommand's parser lead to what runs it, and return what adds arguments to it."""
    parser.set_defaults(command=command)
    return parser.add_argument


def named_column(argument: str) -> tuple[str, str]:
    """Return the purpose and the name of a CSV's column, from an argument ``label=diagnosis``."""
    purpose, equals, name = argument.partition("=")
    if not equals:
        raise ArgumentTypeError(f"write for example label=diagnosis, not {argument}")
    return purpose, name


def complain(text: str) -> None:
    """Print an error or warning of this command: folded between words on a terminal, else as it is,
    to be searched.
    """
    text = f"fedward: {text}"
    if sys.stderr.isatty():
        width = get_terminal_size().columns
        fold = TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap
        text = "\n".join(row for line in text.splitlines() for row in fold(line))
    print(text, file=sys.stderr)


class Printer:
    """Prints lines; silent once its reader has left.

    Args:
        stream: where to; standard output by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._unread = False
        """Whether the other end of the pipe is closed, as by ``| head``: no reason to end a run of
        hours.
        """

    def line(self, text: str) -> None:
        """Print a line, its control characters written out."""
        if self._unread:
            return
        try:
            print(printable(text), file=self._stream or sys.stdout, flush=True)
        except BrokenPipeError:
            self._unread = True


@contextmanager
def printing_safely() -> Iterator[None]:
    """Let everything that is printed inside, by whichever module, pass through :func:`printable`."""
    before = (sys.stdout, sys.stderr)
    below = _Below(sys.stdout)
    sys.stdout = _Printable(sys.stdout, below)
    sys.stderr = _Printable(sys.stderr, below)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def line_below(text: Callable[[], str]) -> Iterator[None]:
    """Keep a line below all that is printed inside, drawn anew each second, if standard output is a
    terminal.

    It needs :func:`printing_safely` around it, which knows of all that is printed.
    """
    below = getattr(sys.stdout, "below", None)
    ended = Event()
    if not (below and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"):
        yield
        return

    def draw() -> None:
        while not ended.wait(_TICK):
            below.show(text())

    drawing = Thread(target=draw, daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()
        below.show("")


class _Below:
    """The line below all that is printed."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lock = RLock()
        self._drawn = False
        self._at_start = True
        """Whether what is printed next begins a line."""

    def show(self, text: str) -> None:
        """Draw this line in place of the one before; none if it is empty."""
        with self._lock:
            self._erase()
            if text and self._at_start:
                self._terminal.write(printable(text)[: get_terminal_size().columns - 1])
                self._terminal.flush()
                self._drawn = True

    def above(self, stream: TextIO, text: str) -> None:
        """Print a text in place of the line, which comes back when it is shown again."""
        with self._lock:
            self._erase()
            stream.write(text)
            self._at_start = text.endswith("\n") if text else self._at_start

    def _erase(self) -> None:
        if self._drawn:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
            self._drawn = False


class _Printable:
    """A text stream whose ``write`` is safe for a terminal."""

    def __init__(self, stream: TextIO, below: _Below) -> None:
        self._stream = stream
        self.below = below

    def write(self, text: str) -> int:
        self.below.above(self._stream, printable(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
