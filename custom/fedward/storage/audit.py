"""The audit log: what a run decided and when, in lines that each hold the hash of the line before.

Every line of ``audit.jsonl`` in the run folder is on the disk at once, and no line is ever cut. The
log is a :mod:`chain <fedward.storage.chain>` that starts from the run's id. Its lines also have
``time`` (UTC), ``event``, ``details`` and ``salt``, which is random, so that a site that is shown a
hash cannot guess the line.

==============  ===================================================================================
event           details
==============  ===================================================================================
``begun``       hash of the experiment, engine, sites, seed, versions; hash of the weights it
                starts from, if they are not fresh; of the frozen part of its network, if it has
                one; of what else run.json says of the beginning
``joined``      sites that take part from now on
``unusable``    a saved state that a resumed run cannot use: its round, and what is wrong with it
``resumed``     the round after which the run goes on, and the hash of its saved state
``asked``       round, part, the task of each site, the sites that evaluate, decisions (peers
                chosen), hashes of the models that are sent; before the request leaves
``answered``    round, part, the sites that trained, hash of each update that is used, the sites
                that evaluated, those that failed or were refused, and why
``recorded``    a decision after the answers, such as the weights of a group
``committed``   round, hash of the saved state's ``state.safetensors``
``ended``       status, reason of a failure, hashes of the content of run.json and of all files
                that the run leaves
``reported``    hashes of ``report.html`` and ``clinician.html``, each time they are written after
                the end
``torn``        the half line that a crash had left at the end, as text
``damaged``     what was wrong with the log when the run was resumed
==============  ===================================================================================
"""

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedward.digests import digest
from fedward.errors import RunError
from fedward.storage import chain

LOG = "audit.jsonl"
_FIELDS = {"seq", "time", "event", "details", "salt", "previous", "hash"}


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def small(value: Any) -> Any:
    """Return a row of another log with the :func:`digest` in place of each list of lists."""
    if isinstance(value, Mapping):
        return {key: small(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(entry, list | tuple) for entry in value):
        return {"sha256": digest(value)}
    return value


class AuditLog:
    """Writer of one run's log.

    Opening the log, or adding to it, mends and reports what a crash or a stranger has left:

    ============================  ================================================================
    state of the log              repair
    ============================  ================================================================
    half a line at the end        its text moves into a line ``torn``; nothing had relied on it
    a broken chain, or fewer      a line ``damaged`` says so, and the log goes on; ``verify``
    lines than ``end`` records    fails from then on
    ============================  ================================================================

    Args:
        path: the file, which need not exist.
        run: the run's id.
        end: the log's :attr:`end` as run.json records it; None in a new run.
    """

    def __init__(self, path: Path, run: str, end: Mapping[str, Any] | None = None) -> None:
        self._chain = chain.Chain(path, run, lambda text: _content("torn", {"text": text}))
        self.is_begun = True
        """Whether the log has more than what a crash left of its first line."""
        lines, _ = chain.read(path)
        try:
            rows = check_chain(lines, run)
            chain.check_end(lines, end, LOG, "run.json")
            self.is_begun = any(row["event"] != "torn" for row in rows)
        except RunError as error:
            self.add("damaged", found=str(error))

    @property
    def end(self) -> dict[str, Any]:
        """Number of lines, and hash of the last one."""
        return self._chain.end

    def add(self, event: str, **details: Any) -> str:
        """Write one line to the disk, and return its hash."""
        return str(self._chain.add(_content(event, details))["hash"])


def rows(run: Path, *events: str) -> Iterator[dict[str, Any]]:
    """Yield the content of the whole lines of a run's log, the newest first.

    Each line is unchanged, but need not be in its place: :func:`check_chain` checks that.

    Args:
        run: the run folder.
        events: only lines of these events; of all events if none is named.
    """
    lines, _ = chain.read(run / LOG)
    yield from _contents(reversed(lines), events)


def _contents(lines: Iterable[bytes], events: Collection[str]) -> Iterator[dict[str, Any]]:
    for row in map(chain.parse, lines):
        if row and set(row) == _FIELDS and (not events or row["event"] in events):
            yield row


def oldest(run: Path, event: str) -> dict[str, Any] | None:
    """Return the content of the first line of an event in a run's log; None without such a line."""
    lines, _ = chain.read(run / LOG)
    return next(_contents(lines, (event,)), None)


def check_chain(lines: Sequence[bytes], run: str) -> list[dict[str, Any]]:
    """Return the content of all lines.

    Raises:
        RunError: a line was changed, or is not in its place, or says that the log was damaged; the
            error names the first such line.
    """
    rows = []
    for number, row in enumerate(chain.checked(lines, run, LOG), 1):
        if set(row) != _FIELDS:
            raise fault(number, f"the fields {', '.join(sorted(_FIELDS))}", ", ".join(sorted(row)))
        if row["event"] == "damaged":
            expected = "an unbroken log when the run was resumed"
            raise fault(number, expected, str(row["details"]["found"]))
        rows.append(row)
    return rows


def beginning(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the line ``begun``: the first one, but for what a crash left of it before.

    Args:
        rows: those of :func:`check_chain`.

    Raises:
        RunError: another event comes before it, or it is not there.
    """
    expected = "the line that says how the run began"
    for row in rows:
        if row["event"] == "begun":
            return row
        if row["event"] != "torn":
            raise fault(row["seq"], expected, f"the event {row['event']}")
    raise fault(len(rows) + 1, expected, "no further line")


def fault(number: int, expected: str, found: str) -> RunError:
    """Return the error that says what is wrong with a line of the log, counted from 1."""
    return chain.fault(LOG, number, expected, found)


def _content(event: str, details: Mapping[str, Any]) -> dict[str, Any]:
    return {"time": now(), "event": event, "details": small(details), "salt": secrets.token_hex(16)}
