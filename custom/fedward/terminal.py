"""Text for a terminal: names from elsewhere cannot move its cursor, hide text or turn direction."""

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite, nan
from shutil import get_terminal_size
from textwrap import TextWrapper
from types import TracebackType
from typing import Any, TextIO

from fedward.text import composed

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except tab and newline, direction marks, line separators, lone surrogates."""
WIDTH = 80
"""Columns of a terminal that output is written for."""
_NARROWEST = 20
"""Columns of the narrowest terminal for which texts are wrapped."""
_PLAIN = {
    "·": "-",
    "…": "...",
    "–": "-",
    "—": "-",
    "−": "-",
    "×": "x",
    "±": "+/-",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "’": "'",
    "“": '"',
    "”": '"',
}
"""Typographical character of our own texts -> ASCII, for streams that have no such character."""
_HELD = "\x00"
"""Stands for a space at which no line ends."""
_MARKS_OF_COPIED = (_HELD, "/", "\\", "`", "'", '"')
"""Characters of paths, quotes and commands."""
_QUOTED = re.compile(r"""`[^`\n]*`|(?<![\w\x00])'[^'\n]*'|"[^"\n]*\"""")
"""Commands between backticks, and words in quotes, as a shell or a sentence has them.

An apostrophe within a word is no quote."""
_WHITE_SPACE = re.compile(r"[^\S ]")
"""White space but the space itself."""
_OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*) (?=\S)")
"""An option and the space before its value."""
_MOST_SPACES = 8
"""Spaces that a path may have to be recognised."""
LONGEST_REASON = 500
"""Characters of an error that one participant reports to another."""

_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A comma that is not between quotes: as many of them follow as pairs need."""


def printable(text: str) -> str:
    r"""Return a text with each control character escaped, as ``\x1b``; tabs and newlines stay."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def encodable(text: str, encoding: str | None) -> str:
    r"""Return a text in characters that an encoding has; None is UTF-8.

    A stream may be ASCII, as in containers without a locale and in logs of service managers. Other
    characters are then written as in ASCII where they are typographical, else as ``\xfc``.
    """
    if encoding is None or _has(text, encoding):
        return text
    return "".join(
        character if _has(character, encoding) else _PLAIN.get(character, ascii(character)[1:-1])
        for character in text
    )


def _has(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def columns(stream: TextIO | None = None) -> int:
    """Return the width for texts in a stream: :data:`WIDTH`, or that of a narrower terminal.

    A file gets :data:`WIDTH` columns, so that it does not depend on who wrote it.
    """
    if not (stream or sys.stdout).isatty():
        return WIDTH
    return min(WIDTH, max(_NARROWEST, get_terminal_size().columns))


def reason(text: str) -> str:
    """Return an error that a participant reports as one printable line of bounded length."""
    line = on_one_line(text[: 10 * LONGEST_REASON])
    if len(line) <= LONGEST_REASON:
        return line
    return f"{line[: LONGEST_REASON - 4]} ..."


def shown(value: object) -> str:
    """Return the first 100 characters of a value's ``repr``."""
    try:
        return repr(value)[:100]
    except ValueError:  # Python refuses to print whole numbers of more than 4300 digits
        return "a number of thousands of digits"


def one_line(text: str) -> str:
    """Return a text with each run of white space as one space, so that it is a single line."""
    return " ".join(text.split())


def on_one_line(name: str) -> str:
    """Return a name from elsewhere as one printable line.

    Each run of white space is one space, so that a name with a line break is no line of a table or
    a log. Control characters are escaped.
    """
    return printable(one_line(name))


def shortened(name: str, width: int) -> str:
    """Return :func:`on_one_line` of a name, of at most ``width`` characters.

    A cut one ends in an ellipsis.
    """
    name = on_one_line(name)
    if len(name) <= width:
        return name
    return f"{name[: width - 1]}…"


def names_in_list(text: str) -> list[str]:
    """Return the names of a list with commas; one with a comma of its own is in double quotes.

    It is the list that :func:`fedward.errors.listed` writes.
    """
    names = []
    for part in _COMMA.split(text):
        name = part.strip()
        is_quoted = len(name) > 1 and name[0] == name[-1] == '"'
        names.append(name[1:-1] if is_quoted else name)
    return names


def column_with_names(argument: str) -> tuple[str, tuple[str, ...]]:
    """Return a column and the names after it, none by default, of ``COLUMN=NAME,NAME``."""
    column, equals, names = argument.partition("=")
    return column, tuple(names_in_list(names)) if equals else ()


def named_column(argument: str) -> tuple[str, str]:
    """Return the purpose and the name of a CSV's column, from an argument ``label=diagnosis``."""
    purpose, equals, name = argument.partition("=")
    if not equals:
        raise ArgumentTypeError(f"write for example label=diagnosis, not {argument}")
    return purpose, composed(name)


def read_numbers(parser: ArgumentParser) -> None:
    """Let the arguments of a parser that are an ``int`` or a ``float`` say what is expected."""
    parser.register("type", int, whole_number)
    parser.register("type", float, number)


def whole_number(argument: str) -> int:
    """Return the whole number that an argument is."""
    try:
        return int(argument)
    except ValueError:
        raise ArgumentTypeError(f"expected a whole number, found {argument}") from None


def number(argument: str, expected: str = "a number, such as 0.5") -> float:
    """Return the finite number that an argument is; ``expected`` says what an error asks for."""
    try:
        value = float(argument)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise ArgumentTypeError(f"expected {expected}, found {argument}")
    return value


def from_0_to_1(argument: str) -> float:
    """Return the share or probability that an argument is."""
    expected = "a number from 0 to 1 with a decimal point, such as 0.5"
    value = number(argument, expected)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"expected {expected}, found {argument}")
    return value


def complain(text: str) -> None:
    """Print an error or warning of this command to standard error.

    On a terminal it is folded between words. In a file it stays as it is, so that it can be
    searched.
    """
    text = f"fedward: {text}"
    if sys.stderr.isatty():
        text = hanging(text, max(_NARROWEST, get_terminal_size().columns))
    print(text, file=sys.stderr)


def hanging(text: str, width: int) -> str:
    """Return a text in lines as of :func:`fold`; what continues a line is indented.

    Lines that are commands stay whole, so that they can be copied.
    """
    lines = []
    for line in text.splitlines():
        content = line.lstrip()
        if content.startswith("fedward "):
            lines.append(line)
            continue
        indent = line[: min(len(line) - len(content), width // 2)]
        lines += fold(content, width, indent, f"{indent}  ") or [""]
    return "\n".join(lines)


def fold(text: str, width: int | None = None, first: str = "", others: str = "") -> list[str]:
    """Return a text in lines of at most ``width`` columns; an empty one has no line.

    Commands between backticks, paths, and what is in quotes stay whole, so that they can be copied:
    they get a line of their own, which is longer if need be. An option stays beside its value. A
    path with spaces is recognised if it exists. Any other word of more than 80 characters is cut.

    Args:
        text: of one paragraph.
        width: of the lines; None: as :func:`columns` returns it for standard output.
        first: what the first line begins with.
        others: what all others begin with.
    """
    width = columns() if width is None else width
    wrapper = TextWrapper(
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    text = _WHITE_SPACE.sub(" ", text.replace(_HELD, "\\x00"))
    whole = _QUOTED.sub(lambda match: match[0].replace(" ", _HELD), text)
    whole = _OPTION.sub(rf"\1{_HELD}", whole)
    room = max(width - max(len(first), len(others)), 1)
    whole = _with_short_words(_with_whole_paths(whole), room)
    return [line.replace(_HELD, " ") for line in wrapper.wrap(whole)]


def _with_short_words(text: str, step: int) -> str:
    """Return a text whose words of more than 80 characters are cut every ``step`` characters.

    Those that are copied stay whole.
    """
    words = []
    for word in text.split(" "):
        if len(word) <= WIDTH or any(mark in word for mark in _MARKS_OF_COPIED):
            words.append(word)
        else:
            words += [word[start : start + step] for start in range(0, len(word), step)]
    return " ".join(words)


def _with_whole_paths(text: str) -> str:
    """Return a text in which the spaces of paths that exist are :data:`_HELD`."""
    words = text.split(" ")
    place = 0
    while place < len(words):
        if "/" in words[place]:
            for end in range(min(len(words), place + _MOST_SPACES + 1), place + 1, -1):
                path = " ".join(words[place:end]).replace(_HELD, " ").rstrip(":,.;")
                if os.path.lexists(path):
                    words[place:end] = [_HELD.join(words[place:end])]
                    break
        place += 1
    return " ".join(words)


class Printer:
    """Prints lines until its reader has left.

    Args:
        stream: where to print; standard output by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._reader_left = False
        """Whether the pipe is closed, as by ``| head``: no reason to end a run of hours."""

    def line(self, text: str) -> None:
        """Print a line, its control characters escaped."""
        if self._reader_left:
            return
        stream = self._stream or sys.stdout
        try:
            print(encodable(printable(text), stream.encoding), file=stream, flush=True)
        except BrokenPipeError:
            self._reader_left = True


class SafeStream:
    """A text stream that escapes what would steer a terminal, and what its encoding lacks.

    Args:
        stream: the stream behind it, to which everything but ``write`` is forwarded.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._encoding = getattr(stream, "encoding", None)

    def write(self, text: str) -> int:
        """Write a text through :func:`printable` and :func:`encodable`."""
        self.stream.write(encodable(printable(text), self._encoding))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write each line through :func:`printable`."""
        for line in lines:
            self.write(line)

    @contextmanager
    def redirected(self, stream: TextIO) -> Iterator[None]:
        """Write to another stream inside the ``with`` block, also from code that holds this one."""
        before = self.stream
        self.stream = stream
        try:
            yield
        finally:
            self.stream = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def printing_safely() -> Iterator[None]:
    """Make standard output and standard error :class:`SafeStream` inside the ``with`` block.

    An error that leaves the block, and that nobody handles, is printed through one as well.
    """
    before = sys.stdout, sys.stderr
    sys.stdout = SafeStream(sys.stdout)
    sys.stderr = SafeStream(sys.stderr)
    try:
        yield
    except Exception:
        # The interpreter prints it when the streams are back. Its text may quote a file.
        sys.excepthook = _print_safely
        raise
    finally:
        sys.stdout, sys.stderr = before


def _print_safely(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Print an error as the interpreter does, to a :class:`SafeStream`."""
    # Few commands fail, and only those need this module.
    from traceback import format_exception

    SafeStream(sys.stderr).writelines(format_exception(kind, error, traceback))
