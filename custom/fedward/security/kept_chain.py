"""Ledgers of a site that notice when lines are missing: of its privacy budget, and of its
questions.

A ledger is a :mod:`chain <fedward.storage.chain>` that starts from its own file's name, with a line
for each thing that counts. Two other places know where it ends. A file beside it says how many
lines there are, and the hash of the last. The site's log of answers holds the hash of the last line
in each answer. All three must agree: a ledger that was cut, edited, forked, exchanged, or put back
from an older copy is refused.

Somebody who rewrites all three places, or puts back an older copy of the whole folder, is not
noticed here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.digests import canonical
from fedward.errors import DataError, RunError
from fedward.storage.chain import Chain, check_end, checked, parse, read
from fedward.storage.disk import append, replacing


@dataclass(frozen=True)
class LedgerKind:
    """What a ledger is for."""

    name: str
    """As errors call it."""
    prefix: str
    """Beginning of its file's name, before the site's."""
    field: str
    """The field in the site's log of answers that holds the hash of the ledger's last line."""
    remedy: str
    """What happens now, and what to do."""

    def file(self, folder: Path, site: str) -> Path:
        """Return the ledger in a site's own folder, which the simulator's sites share."""
        return folder / f"{self.prefix}-{site}.jsonl"


def last_hash(path: Path) -> str:
    """Return the hash of a ledger's last line, unchecked; empty where there is no line."""
    lines, _ = read(path)
    return str((parse(lines[-1]) or {}).get("hash", "")) if lines else ""


class KeptChain:
    """One ledger. Whoever adds a line holds its lock (:func:`fedward.storage.lock.locked`) from the
    reading on.

    Args:
        path: the file; need not exist. Its end is kept beside it, the site's logs of answers in
            ``answers`` there.
        kind: what it is for.
    """

    def __init__(self, path: Path, kind: LedgerKind) -> None:
        self.path = path
        self._kind = kind
        self._end_path = path.with_suffix(".end.json")

    def rows(self) -> list[dict[str, Any]]:
        """Return the content of all whole lines; nothing if there is no ledger and nobody knows of
        one.

        A line with the key ``torn`` holds the half line that a crash left.

        Raises:
            DataError: the ledger is not what was written, or lines are missing.
        """
        self.check_files()
        known = (
            self.known()
        )  # before the lines, as is the end: a line written in between must not look like one cut
        end = self.end()
        lines, _ = read(self.path)
        if not end and (lines or known):
            raise self.refused(self.path, f"its end in {self._end_path.name}", "no such file")
        try:
            rows = list(checked(lines, self.path.name, self.path.name))
            check_end(lines, end, self.path.name, self._end_path.name)
        except RunError as error:
            raise self.refused(
                self.path, error.expected, f"{error.problem}: {error.found}"
            ) from error
        self.check_known(known, rows)
        return rows

    def add(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Append a line and return it. It is on the disk when this returns, and so is the new end."""
        if not self.end():
            self.keep_end(
                {"lines": 0, "last_hash": self.path.name}
            )  # first, so that no chain is ever without an end
        chain = Chain(self.path, self.path.name)
        row = chain.add(content)
        self.keep_end(chain.end)
        return row

    def check_files(self) -> None:
        """Raise DataError where the ledger or its end is a link, or no file."""
        for file in (self.path, self._end_path):
            if file.is_symlink() or (file.exists() and not file.is_file()):
                raise self.refused(file, "a file of its own", "a link, or no file")

    def known(self) -> set[str]:
        """Return the newest hash of the ledger in each of the site's logs of answers.

        Raises:
            DataError: a log of answers cannot be read.
        """
        found = set[str]()
        field = self._kind.field
        mark = f'"{field}":"'.encode()
        for log in (self.path.parent / "answers").glob("*.jsonl"):
            rows = (json.loads(line) for line in reversed(read(log)[0]) if mark in line)
            try:  # the sites of a simulator share a folder
                ours = (
                    str(row[field])
                    for row in rows
                    if self._kind.file(self.path.parent, row["site"]) == self.path
                )
                newest = next(ours, "")
                if newest:
                    found.add(newest)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                expected = "lines of the site's log of answers"
                what = f"{type(error).__name__}: {error}"
                raise self.refused(log, expected, what) from error
        return found

    def check_known(self, known: set[str], rows: list[dict[str, Any]]) -> None:
        """Raise DataError where the site's log of answers knows of a line that the ledger lacks."""
        if known - {row.get("hash") for row in rows}:
            raise self.refused(
                self.path, "every line that the site's log of answers knows of", "not all of them"
            )

    def end(self) -> dict[str, Any] | None:
        """Return what the file beside the ledger says of its end; None where there is none.

        Raises:
            DataError: it says something else.
        """
        if not self._end_path.exists():
            return None
        try:
            end = json.loads(self._end_path.read_text(encoding="utf-8"))
            newest = (
                end["last_hash"] if "last_hash" in end else end["head"]
            )  # its name in earlier versions
            if isinstance(end["lines"], int) and isinstance(newest, str):
                return {"lines": end["lines"], "last_hash": newest}
            found = repr(end)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            found = f"{type(error).__name__}: {error}"
        raise self.refused(self._end_path, "the number of lines and the last hash", found)

    def keep_end(self, end: Mapping[str, Any]) -> None:
        """Write where the ledger ends."""
        with replacing(self._end_path) as partial:
            append(partial, f"{canonical(end)}\n".encode(), 0o600)

    def refused(self, path: Path, expected: str, found: str) -> DataError:
        """Return the error that says what is wrong with one of its files."""
        return DataError(
            f"{self._kind.name} {path}", expected=expected, found=found, remedy=self._kind.remedy
        )
