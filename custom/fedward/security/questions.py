"""How many labels all runs together have asked a site for: a ledger over all jobs, and a limit.

A line says that a query of a run asks for labels, and is on the disk before anybody is asked. A run
that is continued asks again: its queries count once. The ledger notices when lines are missing
(:mod:`fedward.security.kept_chain`).
"""

import secrets
from pathlib import Path
from typing import NamedTuple

from fedward.security.kept_chain import KeptChain, LedgerKind
from fedward.storage.chain import Chain, read
from fedward.storage.disk import PRIVATE, make_folder
from fedward.storage.lock import locked

QUESTIONS = LedgerKind(
    "ledger of questions",
    prefix="questions",
    field="questions",
    remedy="Nobody is asked. Restore the ledger and its end from one backup; see docs/policy.md.",
)


class Query(NamedTuple):
    """A query for labels, by run and exchange."""

    run: str
    round: int
    part: int


def questions_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the simulator's sites share."""
    return QUESTIONS.file(folder, site)


def grant(path: Path, query: Query, labels: int, most: int | None) -> int:
    """Return for how many of its labels a query may ask if all runs together ask for ``most``, and
    count them.

    What the query has been granted before is not counted again. Jobs may run at the same time.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        ledger = KeptChain(path, QUESTIONS)
        _adopt(ledger)
        known = _granted(ledger)
        before = known.get(query, 0)
        more = max(labels - before, 0)
        if most is not None:
            more = min(more, max(most - sum(known.values()), 0))
        if more:
            salt = secrets.token_hex(16)  # whoever is shown the hash cannot guess what was asked
            ledger.add({**query._asdict(), "labels": more, "salt": salt})
        return min(labels, before + more)


def granted(path: Path) -> dict[Query, int]:
    """Return how many labels each query may ask for; nothing where there is no ledger; raises as
    :func:`grant`.
    """
    with locked(path):
        ledger = KeptChain(path, QUESTIONS)
        _adopt(ledger)
        return _granted(ledger)


def _granted(ledger: KeptChain) -> dict[Query, int]:
    found: dict[Query, int] = {}
    for row in ledger.rows():
        if "torn" not in row:  # half a line that a crash left: nobody was asked
            query = Query(row["run"], row["round"], row["part"])
            found[query] = found.get(query, 0) + row["labels"]
    return found


def _adopt(ledger: KeptChain) -> None:
    """Give a ledger of an earlier version, of which no answer knows, the end that it lacks.

    Raises:
        DataError: it is a link.
    """
    ledger.check_files()
    if read(ledger.path)[0] and not ledger.end() and not ledger.known():
        ledger.keep_end(Chain(ledger.path, ledger.path.name).end)
