"""What happened in a run's exchanges: rounds, failures and bytes, added up from its rows."""

from collections.abc import Sequence
from typing import NamedTuple

from fedward.runs.run import Run
from fedward.storage.rows import RoundRow


class Failure(NamedTuple):
    """An answer that failed, never came, or brought no training."""

    round: int | str
    """The round's number, or ``last evaluation``, which follows the last round."""
    site: str
    reason: str


class Traffic(NamedTuple):
    """What moved between the server and one site."""

    down: int = 0
    """Bytes to the site."""
    up: int = 0
    """Bytes from the site."""
    peer_models: int = 0
    """Peer models that the site received."""


def took_no_step(reason: str) -> bool:
    """Return whether the reason of a failure only says that a site had nothing to train on."""
    return reason.startswith("took no training step")


def merged_rounds(run: Run) -> list[RoundRow]:
    """Return one row per round, in order; the exchanges of one round are added up."""
    by_round: dict[int, list[RoundRow]] = {}
    for row in run.rounds:
        by_round.setdefault(row.round, []).append(row)
    return [_merged(rows) for _, rows in sorted(by_round.items())]


def _merged(rows: Sequence[RoundRow]) -> RoundRow:
    return RoundRow(
        round=rows[0].round,
        asked=tuple(dict.fromkeys(site for row in rows for site in row.asked)),
        replied=tuple(dict.fromkeys(site for row in rows for site in row.replied)),
        failed={site: reason for row in rows for site, reason in row.failed.items()},
        seconds=sum(row.seconds for row in rows),
        bytes_down=sum(row.bytes_down for row in rows),
        bytes_up=sum(row.bytes_up for row in rows),
        peer_models=sum(row.peer_models for row in rows),
    )


def traffic_by_site(run: Run) -> dict[str, Traffic]:
    """Return site -> what moved to and from it over the whole run."""
    totals = dict.fromkeys(run.info.sites, Traffic())
    for row in run.bytes:
        before = totals.get(row.site, Traffic())
        totals[row.site] = Traffic(
            before.down + row.down, before.up + row.up, before.peer_models + row.peer_models
        )
    return totals


def failures(run: Run) -> list[Failure]:
    """Return all failures, those of the last evaluation first: no other table shows them."""
    not_evaluated = run.info.summary.not_evaluated
    listed = [Failure("last evaluation", site, reason) for site, reason in not_evaluated.items()]
    for row in run.rounds:
        listed += [Failure(row.round, site, reason) for site, reason in row.failed.items()]
    return listed
