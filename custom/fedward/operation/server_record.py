"""What the server has written down of a run: its audit log, and the rows of its other logs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from fedward.errors import UnreadableJsonError
from fedward.json_text import read_json
from fedward.methods.algorithm import Algorithm
from fedward.methods.evaluation_turn import rounds_of_model
from fedward.methods.survey import Survey
from fedward.methods.workflow import Turn
from fedward.operation.site_record import Row
from fedward.storage import chain
from fedward.storage.rows import LOGS, row_of

Evaluation: TypeAlias = tuple[str, int]
"""A site, and the number of rounds that had made the model that it evaluated."""


@dataclass(frozen=True)
class AnsweredExchange:
    """An exchange that was carried out to its end, by two lines of the audit log."""

    request: Row
    """The line with the request."""
    answers: Row
    """The line with the answers, which follows it."""

    @property
    def round(self) -> int:
        """Its round."""
        return int(self.request["details"]["round"])

    @property
    def turn(self) -> Turn:
        """Its place in the run."""
        return Turn(self.round, int(self.request["details"]["part"]))

    def tasked(self, site: str) -> bool:
        """Return whether a site was given a task."""
        return site in self.request["details"]["tasks"]


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of a run that were answered, by what became of their rows in the logs."""

    committed: Sequence[AnsweredExchange]
    """Their rows must be in the logs."""
    open: Sequence[AnsweredExchange]
    """Their rows may be in the logs.

    No commit has followed yet, or the run was resumed from an earlier round and has not gone on.
    """
    dropped: Sequence[AnsweredExchange]
    """Their rows must not be in the logs: the run was resumed from an earlier round."""

    @property
    def named(self) -> list[AnsweredExchange]:
        """Those that may have rows in the logs."""
        return [*self.committed, *self.open]


@dataclass(frozen=True)
class ServerRecord:
    """What the server has written down of a run."""

    folder: Path
    """The run folder."""
    audit_rows: Sequence[Row]
    """The lines of its audit log."""
    algorithm: Algorithm[Any] | Survey
    """The run's algorithm, which says when models are evaluated."""

    @property
    def requests(self) -> list[Row]:
        """The lines with a request."""
        return [row for row in self.audit_rows if row["event"] == "asked"]

    @cached_property
    def request_of_hash(self) -> Mapping[str, Row]:
        """Hash of a line with a request -> the line."""
        return {row["hash"]: row for row in self.requests}

    def answers(self) -> Iterator[tuple[Row, Row]]:
        """Yield each line with answers, after the line before it, which holds their request."""
        for request, row in pairwise(self.audit_rows):
            if row["event"] == "answered":
                yield request, row

    def has_replied(self, site: str) -> bool:
        """Return whether the server has accepted an update, or a survey, of a site."""
        return any(site in row["details"]["replied"] for _, row in self.answers())

    def has_answered(self, site: str) -> bool:
        """Return whether the server has accepted any answer of a site."""
        return any(site in answered_sites(row) for _, row in self.answers())

    @cached_property
    def exchanges(self) -> Exchanges:
        """The exchanges that were answered.

        The rows of an exchange are in the logs from the next commit on. A run that is resumed drops
        the rows of the rounds after the one from which it goes on. It has done so before its next
        request.
        """
        committed: list[AnsweredExchange] = []
        pending: list[AnsweredExchange] = []
        # Those whose rows a resumed run drops before it goes on.
        leaving: list[AnsweredExchange] = []
        dropped: list[AnsweredExchange] = []
        for request, row in pairwise(self.audit_rows):
            event = row["event"]
            details = row["details"]
            if event == "answered":
                pending.append(AnsweredExchange(request, row))
            elif event == "resumed":
                # A state may have been saved without a line that says so, in the moment in which
                # the server was killed.
                written = [*committed, *pending]
                last_round = details["round"]
                committed = [exchange for exchange in written if exchange.round <= last_round]
                leaving += [exchange for exchange in written if exchange.round > last_round]
                pending = []
            elif event in ("asked", "committed") or _is_end(row):
                dropped += leaving
                leaving = []
                if event != "asked":
                    committed += pending
                    pending = []
        return Exchanges(committed, [*pending, *leaving], dropped)

    @property
    def _has_finished(self) -> bool:
        """Whether the run has ended well, and has not gone on since."""
        ends = [row for row in self.audit_rows if row["event"] in ("ended", "resumed")]
        return bool(ends) and _is_end(ends[-1])

    def evaluations(
        self, exchanges: Sequence[AnsweredExchange]
    ) -> dict[Evaluation, AnsweredExchange]:
        """Return each evaluation whose numbers the server accepted in some exchanges."""
        return {
            (site, rounds_of_model(self.algorithm, exchange.turn)): exchange
            for exchange in exchanges
            for site in exchange.answers["details"]["evaluated"]
        }

    def rows(self, log: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of one of the run's logs; none if it does not exist.

        A last line that is cut off is omitted, as readers of the log do, unless the run has
        finished: such a run has written whole lines.

        Raises:
            RunError: a line is not as fedward writes it, and readers might see another row in it;
                or the log of a finished run is cut off.
        """
        for _, row in self.numbered_rows(log):
            yield row

    def numbered_rows(self, log: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows as :meth:`rows` does, each with the number of its line, from 1."""
        path = self.folder / f"{log}.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n") and _is_cut_off(log, line):
                    if self._has_finished:
                        expected = "a whole line, as the run has finished"
                        raise chain.fault(f"{log}.jsonl", number, expected, "half a line")
                    return
                yield number, _as_written(log, number, line.removesuffix(b"\n"))


def turn_of(row: Row) -> Turn:
    """Return round and part of the request in a line of the audit log."""
    return Turn(row["details"]["round"], row["details"]["part"])


def answered_sites(row: Row) -> set[str]:
    """Return the sites whose answers the server has accepted, by a line with answers."""
    return {*row["details"]["replied"], *row["details"]["evaluated"]}


def _is_end(row: Row) -> bool:
    """Return whether a line of the audit log ends a run well, which writes all its rows."""
    return bool(row["event"] == "ended" and row["details"]["status"] == "finished")


def _is_cut_off(log: str, line: bytes) -> bool:
    """Return whether readers of a log take its last line, without a newline, for cut off."""
    if log not in LOGS:
        return True
    try:
        row_of(LOGS[log], line.decode("utf-8"))
    except ValueError:
        return True
    return False


def _as_written(log: str, number: int, line: bytes) -> dict[str, Any]:
    """Return the row in a line.

    Args:
        log: name of the log.
        number: of the line, from 1.
        line: without its newline.

    Raises:
        RunError: the JSON is laid out by another writer. A field may then be there twice, of which
            a reader sees one; or the line may not begin with the round, by which readers find it.
    """
    expected = "a row as fedward writes it, with the round first and each field once"
    try:
        row = read_json(line)
        is_as_written = isinstance(row, dict) and json.dumps(row).encode() == line
    except UnreadableJsonError:
        is_as_written = False
    if is_as_written and log in LOGS:
        # 1.0 and True equal 1 in Python, but readers would not find them.
        is_as_written = next(iter(row), None) == "round" and type(row["round"]) is int
    if not is_as_written:
        raise chain.fault(f"{log}.jsonl", number, expected, "another: the line was changed")
    return dict(row)
