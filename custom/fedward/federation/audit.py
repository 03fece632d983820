"""The audit log: what a run decided and when, in lines that each hold the hash of the line before.

``audit.jsonl`` in the run folder is written line by line, at once and to the disk, and never cut: what a round decided
before it was interrupted stays. A line is JSON with ``seq`` (from 1), ``time`` (UTC), ``event``, ``details``, ``salt``
(random: a site that is shown a hash cannot guess the line), ``previous`` (the hash of the line before; the run's id in
the first) and ``hash``, the SHA-256 of the canonical JSON of all the rest.

==============  =====================================================================================================
event           details
==============  =====================================================================================================
``begun``       hash of the experiment, engine, sites, seed, versions; of the weights it starts from, if not fresh
``joined``      sites that take part from now on
``unusable``    a saved state that a resumed run cannot go on from: its round, and what is wrong with it
``resumed``     the round after which the run goes on, and the hash of its saved state
``asked``       round, part, the task of each site, who evaluates, decisions (peers chosen); before the request leaves
``answered``    round, part, who trained, who evaluated, who failed or was refused and why
``noted``       a decision after the answers, such as the weights of a group
``committed``   round, hash of the saved state's ``state.safetensors``
``ended``       status, reason of a failure, hash of ``model.safetensors``
``torn``        the half line that a crash had left at the end, as text
``damaged``     what was wrong with the log when the run was resumed
==============  =====================================================================================================
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fedward.digests import canonical, digest
from fedward.errors import RunError
from fedward.federation.disk import append, replace

LOG = "audit.jsonl"
_FIELDS = {"seq", "time", "event", "details", "salt", "previous", "hash"}


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def small(value: Any) -> Any:
    """Return a row of another log with each matrix (a list of lists) replaced by its :func:`digest`."""
    if isinstance(value, Mapping):
        return {key: small(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(entry, list | tuple) for entry in value):
        return {"sha256": digest(value)}
    return value


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Write one line of canonical JSON and wait until it is on the disk."""
    append(path, f"{canonical(row)}\n".encode())


class AuditLog:
    """Writer of one run's log; opening it changes nothing but what a crash or a stranger has left wrong.

    ==================================  =================================================================
    found when opened or before a line  done
    ==================================  =================================================================
    half a line at the end              its text moves into a line ``torn``; nothing had relied on it
    a broken chain, or fewer lines      a line ``damaged`` says so, and the log goes on; ``verify`` fails
    than ``end`` tells                  from then on
    ==================================  =================================================================

    Args:
        path: the file; need not exist.
        run: the run's id.
        end: what run.json tells of the log's end, see :attr:`end`; None in a new run.
    """

    def __init__(self, path: Path, run: str, end: Mapping[str, Any] | None = None) -> None:
        self._path, self._lines, self.head = path, 0, run
        lines, _ = read(path)
        if lines:
            self._lines, self.head = len(lines), _hash_of(lines[-1])
        try:
            check_chain(lines, run)
            check_end(lines, end)
        except RunError as error:
            self.add("damaged", found=str(error))

    @property
    def end(self) -> dict[str, Any]:
        """How many lines there are, and the hash of the last."""
        return {"lines": self._lines, "head": self.head}

    def add(self, event: str, **details: Any) -> str:
        """Write one line and return its hash; it is on the disk when this returns."""
        if not ends_whole(self._path):
            self._mend(*read(self._path))
        row = self._next(event, details)
        append_line(self._path, row)
        self._took(row)
        return self.head

    def _mend(self, lines: Sequence[bytes], rest: bytes) -> None:
        """Replace half a line by a line that quotes it, in one step: a crash here must not lose it either."""
        row = self._next("torn", {"text": rest.decode("utf-8", errors="backslashreplace")})
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_bytes(b"".join(line + b"\n" for line in lines))
        append_line(partial, row)
        replace(partial, self._path)
        self._took(row)

    def _next(self, event: str, details: Mapping[str, Any]) -> dict[str, Any]:
        row = {"seq": self._lines + 1, "time": now(), "event": event, "details": small(details)}
        row |= {"salt": secrets.token_hex(16), "previous": self.head}
        return row | {"hash": digest(row)}

    def _took(self, row: Mapping[str, Any]) -> None:
        self._lines, self.head = row["seq"], row["hash"]


def ends_whole(path: Path) -> bool:
    """Return whether a file of lines is empty, absent, or ends with a newline: a crash may leave half a line."""
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read(path: Path) -> tuple[list[bytes], bytes]:
    """Return a log's whole lines, without their newlines, and what follows the last newline."""
    *lines, rest = (path.read_bytes() if path.exists() else b"").split(b"\n")
    return lines, rest


def parse(line: bytes) -> dict[str, Any] | None:
    """Return a line's content, None unless it is canonical JSON with all fields, and ``hash`` is that of the rest."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or set(row) != _FIELDS or canonical(row).encode() != line:
        return None
    rest = {key: value for key, value in row.items() if key != "hash"}
    return row if row["hash"] == digest(rest) and isinstance(row["seq"], int) else None


def check_chain(lines: Sequence[bytes], run: str) -> None:
    """Raise RunError that names the first line that is not what was written, or not where it was written."""
    previous = run
    for number, line in enumerate(lines, 1):
        row = parse(line)
        if row is None:
            raise fault(number, "what its hash was made of", "something else: the line was changed")
        if row["seq"] != number or row["previous"] != previous:
            raise _misplaced(number, row, lines)
        if row["event"] == "damaged":
            raise fault(number, "an unbroken log when the run was resumed", str(row["details"]["found"]))
        previous = row["hash"]


def check_end(lines: Sequence[bytes], end: Mapping[str, Any] | None) -> None:
    """Raise RunError if lines are missing that run.json knows of, or others stand in their place."""
    if end is None or not end["lines"]:
        return
    if len(lines) < end["lines"]:
        raise fault(
            len(lines) + 1, f"{end['lines']} lines, as run.json tells", f"{len(lines)}: the log was cut at the end"
        )
    if _hash_of(lines[end["lines"] - 1]) != end["head"]:
        raise fault(end["lines"], f"the hash {end['head']}, as run.json tells", "another: the log was written anew")


def fault(number: int, expected: str, found: str) -> RunError:
    """Return the error that says what is wrong with a line of the log, counted from 1."""
    return RunError(
        f"{LOG}, line {number}",
        expected=expected,
        found=found,
        remedy="What the log says from there on is no proof; compare it with a copy and with the sites' witnesses.",
    )


def _misplaced(number: int, row: Mapping[str, Any], lines: Sequence[bytes]) -> RunError:
    expected, seq = f"line {number}, after the one before it", row["seq"]
    if seq == number and number == 1:
        return fault(number, "the first line of this run", "one of another run")
    if seq == number:
        return fault(number - 1, f"the line that line {number} follows", "another: it was changed and given a new hash")
    if seq < number:
        return fault(number, expected, f"a second line {seq}: one was inserted")
    elsewhere = any((parse(line) or {}).get("seq") == number for line in lines[number:])
    return fault(number, expected, f"line {seq}: lines were {'put in another order' if elsewhere else 'removed'}")


def _hash_of(line: bytes) -> str:
    """Return the hash a line states; of a line that was changed, some hash of its own."""
    row = parse(line)
    return str(row["hash"]) if row else hashlib.sha256(line).hexdigest()
