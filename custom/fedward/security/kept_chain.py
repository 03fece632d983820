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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.digests import canonical
from fedward.disk import append, replacing
from fedward.errors import DataError, RunError, reason_of
from fedward.json_text import read_json, read_json_file
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


def last_hashes(paths: Mapping[LedgerKind, Path]) -> dict[LedgerKind, str | None]:
    """Return the hash of each ledger's last line; None without a line, or if it is refused.

    The site's logs of answers grow with every run, so they are read once for all ledgers.

    Args:
        paths: the ledgers' files, which need not exist, all in one folder.
    """
    hashes: dict[LedgerKind, str | None] = dict.fromkeys(paths)
    ledgers = {kind: KeptChain(path, kind) for kind, path in paths.items() if path.exists()}
    logs = _AnswerLogs(list(ledgers.values()))
    for kind, ledger in ledgers.items():
        try:
            rows = ledger.rows(logs)
        except DataError:
            continue
        if rows:
            hashes[kind] = str(rows[-1]["hash"])
    return hashes


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

    def rows(self, logs: "_AnswerLogs | None" = None) -> list[dict[str, Any]]:
        """Return the content of all whole lines; nothing for a ledger that never existed.

        A row with the key ``torn`` holds the half line that a crash left.

        Args:
            logs: the site's logs of answers, where they have just been read for this ledger and
                others; None reads them.

        Raises:
            DataError: the ledger is not what was written, or lines are missing.
        """
        self._check_files()
        # Both are read before the lines. A line that another job adds in between would otherwise be
        # in one of them and not in the lines, and would look as if it had been cut.
        if logs is None:
            logs = _AnswerLogs([self])
        hashes_in_answers = logs.hashes_of(self)
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

    def newest_hash_in(self, lines: Sequence[bytes]) -> str:
        """Return the newest hash of this ledger in a log of answers; empty if it holds none.

        Raises:
            ValueError, KeyError, TypeError: a line is no line of such a log.
        """
        mark = f'"{self._kind.field}":"'.encode()
        for line in reversed(lines):
            if mark not in line:
                continue
            row = read_json(line)
            # The sites of a simulation share a folder: a row may be of another site's ledger.
            if self._kind.file(self.path.parent, row["site"]) == self.path:
                return str(row[self._kind.field])
        return ""

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
            end = read_json_file(self._end_path)
            if isinstance(end["lines"], int) and isinstance(end["last_hash"], str):
                return {"lines": end["lines"], "last_hash": end["last_hash"]}
            found = repr(end)
        except (OSError, ValueError, KeyError, TypeError) as error:
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


class _AnswerLogs:
    """What a site's logs of answers say of ledgers; each log is read once, for all of them.

    Args:
        ledgers: of one folder, which has the logs in its folder ``answers``.
    """

    def __init__(self, ledgers: Sequence[KeptChain]) -> None:
        self._hashes: dict[Path, set[str]] = {ledger.path: set() for ledger in ledgers}
        """Ledger -> its newest hash in each log."""
        self._errors: dict[Path, DataError] = {}
        """Ledger -> what is wrong with the first log that does not tell its hash."""
        for folder in {ledger.path.parent / "answers" for ledger in ledgers}:
            for log in folder.glob("*.jsonl"):
                self._read(log, ledgers)

    def hashes_of(self, ledger: KeptChain) -> set[str]:
        """Return the newest hash of a ledger in each of the logs.

        Raises:
            DataError: a log cannot be read, or a line about the ledger was damaged.
        """
        if ledger.path in self._errors:
            raise self._errors[ledger.path]
        return self._hashes[ledger.path]

    def _read(self, log: Path, ledgers: Sequence[KeptChain]) -> None:
        """Note what one log says of each ledger."""
        try:
            lines, _ = read(log)
        except OSError as error:
            for ledger in ledgers:
                self._refuse(ledger, log, error)
            return
        for ledger in ledgers:
            try:
                newest = ledger.newest_hash_in(lines)
            except (ValueError, KeyError, TypeError) as error:
                # A line about one ledger says nothing against the others.
                self._refuse(ledger, log, error)
                continue
            if newest:
                self._hashes[ledger.path].add(newest)

    def _refuse(self, ledger: KeptChain, log: Path, error: Exception) -> None:
        expected = "lines of the site's log of answers"
        refusal = ledger.refused(log, expected, _in_words(error))
        refusal.__cause__ = error
        self._errors.setdefault(ledger.path, refusal)


def _in_words(error: Exception) -> str:
    """Return what an error says of a file of JSON objects."""
    if isinstance(error, TypeError):
        return "other values"
    return reason_of(error)
