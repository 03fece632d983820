"""Ledgers of a site that notice missing lines: of its privacy budget, its questions and its sums.

A ledger is a :mod:`chain <fedward.storage.chain>` that starts from the name of its own file, with
one line for each thing that counts. Two other places record where it ends. A file beside it holds
the number of lines and the hash of the last one. The site's log of answers holds, in each answer,
the hash of the last line at that time. All three must agree: a ledger that was cut, edited, forked,
exchanged, or restored from an older copy is refused. Of a refused ledger an answer holds no hash,
so that answers in the meantime do not vouch for it.

Somebody who rewrites all three places, or restores an older copy of the whole folder, is not
noticed here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.digests import canonical
from fedward.disk import append, replacing
from fedward.errors import DataError, RunError, reason_of
from fedward.storage.chain import Chain, check_end, checked, read


@dataclass(frozen=True)
class LedgerKind:
    """What a ledger is for."""

    name: str
    """What errors call it."""
    prefix: str
    """Beginning of its file's name, before the site's name."""
    field: str
    """The field in the site's log of answers that holds the hash of the ledger's last line."""
    remedy: str
    """What a refused ledger means for the site, and what to do."""

    def file(self, folder: Path, site: str) -> Path:
        """Return the ledger in a site's own folder, which the sites of a simulation share."""
        return folder / f"{self.prefix}-{site}.jsonl"


def last_hash(path: Path, kind: LedgerKind) -> str | None:
    """Return the hash of a ledger's last line; None without a line, or if the ledger is refused."""
    if not path.exists():
        return None
    try:
        rows = KeptChain(path, kind).rows()
    except DataError:
        return None
    return str(rows[-1]["hash"]) if rows else None


class KeptChain:
    """One ledger.

    Whoever adds a line holds the ledger's lock (:func:`fedward.storage.lock.locked`) from reading
    it until the line is written.

    Args:
        path: the ledger's file, which need not exist. Its end is kept beside it, and the site's
            logs of answers are in the folder ``answers`` beside it.
        kind: what the ledger is for.
    """

    def __init__(self, path: Path, kind: LedgerKind) -> None:
        self.path = path
        self._kind = kind
        self._end_path = path.with_suffix(".end.json")

    def rows(self) -> list[dict[str, Any]]:
        """Return the content of all whole lines; nothing for a ledger that never existed.

        A row with the key ``torn`` holds the half line that a crash left.

        Raises:
            DataError: the ledger is not what was written, or lines are missing.
        """
        self._check_files()
        # Both are read before the lines. A line that another job adds in between would otherwise be
        # in one of them and not in the lines, and would look as if it had been cut.
        hashes_in_answers = self._hashes_in_answers()
        end = self._end()
        try:
            lines, _ = read(self.path)
        except OSError as error:
            raise self.refused(self.path, "a file that can be read", reason_of(error)) from error
        if not end and (lines or hashes_in_answers):
            raise self.refused(self.path, f"its end in {self._end_path.name}", "no such file")
        try:
            rows = list(checked(lines, self.path.name, self.path.name))
            check_end(lines, end, self.path.name, self._end_path.name)
        except RunError as error:
            found = f"{error.problem}: {error.found}"
            raise self.refused(self.path, error.expected, found) from error
        self._check_all_present(hashes_in_answers, rows)
        return rows

    def add(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Append a line and return it. The line and the new end are then on the disk."""
        if not self._end():
            # The end comes first, so that no chain is ever without one.
            self._keep_end({"lines": 0, "last_hash": self.path.name})
        chain = Chain(self.path, self.path.name)
        row = chain.add(content)
        self._keep_end(chain.end)
        return row

    def _check_files(self) -> None:
        """Raise DataError if the ledger or its end is a link, a folder or a device."""
        for file in (self.path, self._end_path):
            if file.is_symlink() or (file.exists() and not file.is_file()):
                raise self.refused(file, "a file of its own", "a link, or no file")

    def _hashes_in_answers(self) -> set[str]:
        """Return the newest hash of this ledger in each of the site's logs of answers.

        Raises:
            DataError: a log of answers cannot be read.
        """
        hashes: set[str] = set()
        for log in (self.path.parent / "answers").glob("*.jsonl"):
            try:
                newest = next(self._hashes_in(log), "")
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                expected = "lines of the site's log of answers"
                raise self.refused(log, expected, _in_words(error)) from error
            if newest:
                hashes.add(newest)
        return hashes

    def _hashes_in(self, log: Path) -> Iterator[str]:
        """Yield the hashes of this ledger in one log of answers, the newest first."""
        mark = f'"{self._kind.field}":"'.encode()
        lines, _ = read(log)
        for line in reversed(lines):
            if mark not in line:
                continue
            row = json.loads(line)
            # The sites of a simulation share a folder: a row may be of another site's ledger.
            if self._kind.file(self.path.parent, row["site"]) == self.path:
                yield str(row[self._kind.field])

    def _check_all_present(self, hashes_in_answers: set[str], rows: list[dict[str, Any]]) -> None:
        """Raise DataError if the site's log of answers names a line that the ledger lacks."""
        hashes_in_ledger = {row.get("hash") for row in rows}
        if hashes_in_answers - hashes_in_ledger:
            expected = "every line that the site's log of answers knows of"
            raise self.refused(self.path, expected, "not all of them")

    def _end(self) -> dict[str, Any] | None:
        """Return the end that the file beside the ledger records; None without that file.

        Raises:
            DataError: the file holds anything else.
        """
        if not self._end_path.exists():
            return None
        try:
            end = json.loads(self._end_path.read_text(encoding="utf-8"))
            if isinstance(end["lines"], int) and isinstance(end["last_hash"], str):
                return {"lines": end["lines"], "last_hash": end["last_hash"]}
            found = repr(end)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            found = _in_words(error)
        raise self.refused(self._end_path, "the number of lines and the last hash", found)

    def _keep_end(self, end: Mapping[str, Any]) -> None:
        """Record where the ledger ends."""
        with replacing(self._end_path) as partial:
            append(partial, f"{canonical(end)}\n".encode(), 0o600)

    def refused(self, path: Path, expected: str, found: str) -> DataError:
        """Return the error that says what is wrong with one of the ledger's files."""
        return DataError(
            f"{self._kind.name} {path}", self._kind.remedy, expected=expected, found=found
        )


def _in_words(error: Exception) -> str:
    """Return what an error says of a file of JSON objects."""
    if isinstance(error, TypeError | RecursionError):
        return "other values"
    return reason_of(error)
