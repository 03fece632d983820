"""How many labels all runs together have asked a site for: a ledger over all jobs, and its limit.

Each line records that a query of a run asks for labels, and is on the disk before anybody is asked.
A run that is continued asks again, and its queries count once. The ledger notices when lines are
missing (:mod:`fedward.security.kept_chain`).
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
    remedy=(
        "Nobody is asked. "
        "Restore the ledger and its end from one backup; see docs/policy_reasons.md."
    ),
)


class Query(NamedTuple):
    """A query for labels, identified by its run and exchange."""

    run: str
    """The run's id."""
    round: int
    """The round, from 1."""
    part: int
    """The exchange within the round, from 0."""


def questions_file(folder: Path, site: str) -> Path:
    """Return the ledger in a site's own folder, which the sites of a simulation share."""
    return QUESTIONS.file(folder, site)


def grant(path: Path, query: Query, labels: int, most: int | None) -> int:
    """Grant a query some or all of its labels, and record them.

    Labels that the query was granted before are not counted again. Several jobs may call this at
    the same time.

    Args:
        path: the ledger.
        query: which query asks.
        labels: how many labels it wants in all.
        most: how many labels all runs together may ask for; None: any number.

    Returns:
        How many labels the query may ask for, at most ``labels``.

    Raises:
        DataError: the ledger is not what was written.
    """
    make_folder(path.parent, PRIVATE)
    with locked(path):
        ledger = KeptChain(path, QUESTIONS)
        _adopt(ledger)
        granted_labels = _granted(ledger)
        granted_before = granted_labels.get(query, 0)
        further = max(labels - granted_before, 0)
        if most is not None:
            left_of_budget = max(most - sum(granted_labels.values()), 0)
            further = min(further, left_of_budget)
        if further:
            # The hash of a line leaves the site. The salt keeps it from telling what was asked.
            salt = secrets.token_hex(16)
            ledger.add({**query._asdict(), "labels": further, "salt": salt})
        return min(labels, granted_before + further)


def granted(path: Path) -> dict[Query, int]:
    """Return how many labels each query was granted; nothing without a ledger.

    Raises:
        DataError: the ledger is not what was written.
    """
    with locked(path):
        ledger = KeptChain(path, QUESTIONS)
        _adopt(ledger)
        return _granted(ledger)


def _granted(ledger: KeptChain) -> dict[Query, int]:
    labels: dict[Query, int] = {}
    for row in ledger.rows():
        if "torn" in row:
            continue  # A crash left half a line: nobody was asked.
        query = Query(row["run"], row["round"], row["part"])
        labels[query] = labels.get(query, 0) + row["labels"]
    return labels


def _adopt(ledger: KeptChain) -> None:
    """Write the end of a ledger that an earlier version left without one.

    Only a ledger that no answer of the site has named yet is adopted.

    Raises:
        DataError: the ledger is a link.
    """
    ledger.check_files()
    has_lines = bool(read(ledger.path)[0])
    if has_lines and not ledger.end() and not ledger.hashes_in_answers():
        ledger.keep_end(Chain(ledger.path, ledger.path.name).end)
