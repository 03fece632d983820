"""The audit log: what a run decided and when, in lines that each hold the hash of the line before.

``audit.jsonl`` in the run folder is written line by line, at once and to the disk, and never cut.
It is a :mod:`chain <fedward.storage.chain>` that starts from the run's id. A line has besides
``time`` (UTC), ``event``, ``details`` and ``salt`` (random: a site that is shown a hash cannot
guess the line).

==============  =====================================================================================================
event           details
==============  =====================================================================================================
``begun``       hash of the experiment, engine, sites, seed, versions; of the weights it starts from, if not fresh
``joined``      sites that take part from now on
``unusable``    a saved state that a resumed run cannot go on from: its round, and what is wrong with it
``resumed``     the round after which the run goes on, and the hash of its saved state
``asked``       round, part, the task of each site, who evaluates, decisions (peers chosen), hashes of the models that
                are sent; before the request leaves
``answered``    round, part, who trained, hash of each update that is used, who evaluated, who failed or was refused and
                why
``recorded``    a decision after the answers, such as the weights of a group
``committed``   round, hash of the saved state's ``state.safetensors``
``ended``       status, reason of a failure, hashes of what run.json says and of all files that the run leaves
``reported``    hashes of ``report.html`` and ``clinician.html``, each time it is written after the end
``torn``        the half line that a crash had left at the end, as text
``damaged``     what was wrong with the log when the run was resumed
==============  =====================================================================================================
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
    """Return a row of another log with each matrix (a list of lists) replaced by its
    :func:`digest`.
    """
    if isinstance(value, Mapping):
        return {key: small(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(entry, list | tuple) for entry in value):
        return {"sha256": digest(value)}
    return value


class AuditLog:
    """Writer of one run's log; opening it changes nothing but what a crash or a stranger has left
    wrong.

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
        self._chain = chain.Chain(path, run, lambda text: _content("torn", {"text": text}))
        lines, _ = chain.read(path)
        try:
            check_chain(lines, run)
            chain.check_end(lines, end, LOG, "run.json")
        except RunError as error:
            self.add("damaged", found=str(error))

    @property
    def end(self) -> dict[str, Any]:
        """How many lines there are, and the hash of the last."""
        return self._chain.end

    def add(self, event: str, **details: Any) -> str:
        """Write one line and return its hash; it is on the disk when this returns."""
        return str(self._chain.add(_content(event, details))["hash"])


def rows(run: Path, *events: str) -> Iterator[dict[str, Any]]:
    """Yield the content of the whole lines of a run's log, the newest first; of these ``events``
    alone if any.

    Whether a line stands in its place is open.
    """
    yield from _contents(reversed(chain.read(run / LOG)[0]), events)


def _contents(lines: Iterable[bytes], events: Collection[str]) -> Iterator[dict[str, Any]]:
    for row in map(chain.parse, lines):
        if row and set(row) == _FIELDS and (not events or row["event"] in events):
            yield row


def oldest(run: Path, event: str) -> dict[str, Any] | None:
    """Return the content of the first whole line of an event in a run's log, as :func:`rows`; None
    if there is none.
    """
    return next(_contents(chain.read(run / LOG)[0], (event,)), None)


def check_chain(lines: Sequence[bytes], run: str) -> list[dict[str, Any]]:
    """Return the lines' content; RunError names the first that is not what was written, or not
    where it was written.
    """
    rows = []
    for number, row in enumerate(chain.checked(lines, run, LOG), 1):
        if set(row) != _FIELDS:
            raise fault(number, f"the fields {', '.join(sorted(_FIELDS))}", ", ".join(sorted(row)))
        if row["event"] == "damaged":
            raise fault(
                number, "an unbroken log when the run was resumed", str(row["details"]["found"])
            )
        rows.append(row)
    return rows


def fault(number: int, expected: str, found: str) -> RunError:
    """Return the error that says what is wrong with a line of the log, counted from 1."""
    return chain.fault(LOG, number, expected, found)


def _content(event: str, details: Mapping[str, Any]) -> dict[str, Any]:
    return {"time": now(), "event": event, "details": small(details), "salt": secrets.token_hex(16)}
