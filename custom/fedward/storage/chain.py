"""Chains: append-only files of JSON lines that each hold the hash of the line before.

A line is canonical JSON with ``seq`` (from 1), ``previous`` (the hash of the line before; in the
first line a name that the file starts from), ``hash`` (the SHA-256 of the canonical JSON of all the
rest), and what its writer adds.

Five files are chains: the server's audit log, a site's log of its answers, its privacy ledger, and
its ledgers of questions and of sums.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.digests import canonical, digest
from fedward.disk import append, replacing
from fedward.errors import RunError, UnreadableJsonError
from fedward.json_text import read_json

_PRIVATE = 0o600


class Chain:
    """Writer of one chain.

    Opening a chain changes nothing, and trusts the lines that are there; :func:`checked` does not.
    Two processes may write one file: each opens it again for every line, within
    :func:`fedward.storage.lock.locked`.

    Args:
        path: the file, which need not exist. It is made readable for its owner alone.
        start: what the first line names as ``previous``.
        torn: makes the content of a line from the text of a half line, which a crash left at the
            end. Nothing has relied on the half line. The next :meth:`add` replaces it by that line.
    """

    def __init__(
        self,
        path: Path,
        start: str,
        torn: Callable[[str], Mapping[str, Any]] = lambda text: {"torn": text},
    ) -> None:
        self._path = path
        self._torn = torn
        self._lines = 0
        self.last_hash = start
        self._find_end()

    def _find_end(self) -> None:
        """Let the next line follow the last one in the file."""
        lines, _ = read(self._path)
        if lines:
            self._lines = len(lines)
            self.last_hash = _hash_of(lines[-1])

    @property
    def end(self) -> dict[str, Any]:
        """Number of lines and hash of the last one, which :func:`check_end` compares."""
        return {"lines": self._lines, "last_hash": self.last_hash}

    def add(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write one line to the disk and return it.

        ``content`` has no ``seq``, ``previous`` or ``hash`` of its own.
        """
        try:
            if not ends_whole(self._path):
                self._advance(self._replace_half_line())
            row = self._append(self._path, content)
        except OSError:
            # A disk may refuse a line only after it is in the file, as a full one does over a
            # network.
            self._find_end()
            raise
        self._advance(row)
        return row

    def _replace_half_line(self) -> dict[str, Any]:
        """Put a line with the text of the half line at the end in its place, and return it."""
        lines, rest = read(self._path)
        text = rest.decode("utf-8", errors="backslashreplace")
        # The file is replaced in one step, so that a crash here does not lose the half line.
        with replacing(self._path) as partial:
            append(partial, b"".join(line + b"\n" for line in lines), _PRIVATE)
            return self._append(partial, self._torn(text))

    def _append(self, path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
        row = {**content, "seq": self._lines + 1, "previous": self.last_hash}
        row["hash"] = digest(row)
        append(path, f"{canonical(row)}\n".encode(), _PRIVATE)
        return row

    def _advance(self, row: Mapping[str, Any]) -> None:
        """Let the next line follow ``row``, which is on the disk."""
        self._lines = row["seq"]
        self.last_hash = row["hash"]


class Checked:
    """Reader of a chain that grows: it checks each line once, unless an earlier line has changed.

    ``path``, ``start`` and ``name`` are those of :class:`Chain` and :func:`checked`.
    """

    def __init__(self, path: Path, start: str, name: str) -> None:
        self._path = path
        self._start = start
        self._name = name
        self._lines: list[bytes] = []
        self._rows: list[dict[str, Any]] = []

    def rows(self) -> list[dict[str, Any]]:
        """Return the content of all whole lines; RunError names the first that is wrong."""
        lines, _ = read(self._path)
        if lines[: len(self._lines)] != self._lines:
            self._lines = []
            self._rows = []
        self._rows = [*self._rows, *checked(lines, self._start, self._name, self._rows)]
        self._lines = lines
        return self._rows


def read(path: Path) -> tuple[list[bytes], bytes]:
    """Return a chain's whole lines, without newlines, and what follows the last newline.

    A file that does not exist has neither.
    """
    content = path.read_bytes() if path.exists() else b""
    *lines, rest = content.split(b"\n")
    return lines, rest


def parse(line: bytes) -> dict[str, Any] | None:
    """Return a line's content; None if the line was changed.

    A line that was not changed is canonical JSON, has a ``seq``, and its ``hash`` is that of all
    the rest.
    """
    try:
        row = read_json(line)
    except UnreadableJsonError:
        return None
    if not isinstance(row, dict) or canonical(row).encode() != line:
        return None
    if not isinstance(row.get("seq"), int):
        return None
    content = {key: value for key, value in row.items() if key != "hash"}
    return row if row.get("hash") == digest(content) else None


def checked(
    lines: Sequence[bytes], start: str, name: str, known: Sequence[Mapping[str, Any]] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the content of a chain's lines, as long as each is unchanged and in its place.

    Args:
        lines: the whole lines of the file.
        start: what the first line names as ``previous``.
        name: what errors call the file.
        known: content of the first lines, if they were checked before; they are not yielded.

    Raises:
        RunError: a line was changed, or is not in its place; the error names the first such line.
    """
    previous = known[-1]["hash"] if known else start
    for number, line in enumerate(lines[len(known) :], len(known) + 1):
        row = parse(line)
        if row is None:
            changed = "something else: the line was changed"
            raise fault(name, number, "what its hash was made of", changed)
        if row["seq"] != number or row.get("previous") != previous:
            raise _misplaced(name, number, row, lines)
        yield row
        previous = row["hash"]


def check_end(
    lines: Sequence[bytes], end: Mapping[str, Any] | None, name: str, source: str
) -> None:
    """Raise RunError if lines are missing that another file knows of, or were replaced.

    Args:
        lines: the whole lines of the file.
        end: an earlier :attr:`Chain.end`, kept in ``source``; None checks nothing.
        name: what errors call the file.
        source: what errors call the file that keeps ``end``.
    """
    if end is None or not end["lines"]:
        return
    count = end["lines"]
    if len(lines) < count:
        found = f"{len(lines)}: the log was cut at the end"
        raise fault(name, len(lines) + 1, f"{count} lines, as {source} says", found)
    if _hash_of(lines[count - 1]) != end["last_hash"]:
        expected = f"the hash {end['last_hash']}, as {source} says"
        raise fault(name, count, expected, "another: the log was rewritten")


def fault(name: str, number: int, expected: str, found: str) -> RunError:
    """Return the error that says what is wrong with a line of a chain, counted from 1."""
    return RunError(
        f"{name}, line {number}",
        "What the file says from there on proves nothing; compare it with a copy, "
        "and with what others keep of it.",
        expected=expected,
        found=found,
    )


def _misplaced(name: str, number: int, row: Mapping[str, Any], lines: Sequence[bytes]) -> RunError:
    """Return the error of an unchanged line ``number`` that is not where it was written."""
    seq = row["seq"]
    if seq == number == 1:
        return fault(name, number, "the first line of this run", "one of another run")
    if seq == number:
        changed = "another: it was changed and given a new hash"
        return fault(name, number - 1, f"the line that line {number} follows", changed)
    expected = f"line {number}, after the one before it"
    if seq < number:
        return fault(name, number, expected, f"a second line {seq}: one was inserted")
    later_numbers = {(parse(line) or {}).get("seq") for line in lines[number:]}
    action = "put in another order" if number in later_numbers else "removed"
    return fault(name, number, expected, f"line {seq}: lines were {action}")


def ends_whole(path: Path) -> bool:
    """Return whether a file has no half line, as a crash leaves one, at its end."""
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _hash_of(line: bytes) -> str:
    """Return the hash that a line states; the SHA-256 of its bytes if the line was changed."""
    row = parse(line)
    return str(row["hash"]) if row else hashlib.sha256(line).hexdigest()
