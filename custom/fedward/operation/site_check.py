"""Checks of sites' own logs: each by itself, and against the server's audit log."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

from fedward.client.site_log import check_turn
from fedward.digests import digest
from fedward.errors import RunError, WireError
from fedward.methods.algorithm import Algorithm, evaluation_turn
from fedward.protocol.messages import Split
from fedward.protocol.requests import DECRYPT
from fedward.storage import chain
from fedward.storage.audit import fault

Row = Mapping[str, Any]
"""A line of a log."""


@dataclass(frozen=True)
class SiteRecord:
    """A site's log of one run, in which nothing wrong was found."""

    file: Path
    run: str
    """Id of the run."""
    rows: Sequence[Row]
    """Its lines, except those that quote half a line."""

    @property
    def sites(self) -> list[str]:
        """Names of the sites whose log it is; several, if they share a folder."""
        return sorted({str(row["site"]) for row in self.rows})

    def __str__(self) -> str:
        events = [row["event"] for row in self.rows]
        counts = ", ".join(
            f"{events.count(event)} {event}" for event in ("answered", "failed", "refused")
        )
        last_hash = self.rows[-1]["hash"]
        sites = ", ".join(self.sites)
        return f"{self.file}: {sites}, run {self.run}: {counts}; last hash {last_hash}"


def read_site_log(file: Path, run: str | None = None) -> SiteRecord:
    """Return a site's log, if its chain is whole and the site answered exchanges in their order.

    Args:
        file: ``answers/<run id>.jsonl`` of a site's own folder, or a copy.
        run: id of the run that it must belong to; by default any.

    Raises:
        RunError: names the first line that is wrong; or the file is not a log, or of another run.
    """
    lines, _ = chain.read(file)
    first = chain.parse(lines[0]) if lines else None
    start = str(first.get("previous")) if first else run or ""
    if not lines or (first and not re.fullmatch(r"[0-9a-f]{32}", start)):
        raise _no_log(file, "something else in line 1" if lines else "nothing")
    if run and start != run:
        raise _no_log(file, f"one of run {start}")
    rows: list[Row] = []
    for row in chain.checked(lines, start, str(file)):
        if "torn" in row:
            continue
        try:
            if row["event"] == "answered":
                site = row.get("site")
                earlier_answers = [
                    earlier
                    for earlier in rows
                    if earlier["event"] == "answered" and earlier["site"] == site
                ]
                check_turn(earlier_answers, row)
        except WireError as error:
            expected = f"answers in turn: {error.expected}"
            raise chain.fault(str(file), row["seq"], expected, error.found) from error
        except (KeyError, TypeError) as error:
            expected = "a line as this version of fedward writes it"
            problem = f"{type(error).__name__}: {error}"
            raise chain.fault(str(file), row["seq"], expected, problem) from error
        rows.append(row)
    return SiteRecord(file, start, rows)


def check_against(
    folder: Path, rows: Sequence[Row], record: SiteRecord, algorithm: Algorithm[Any]
) -> int:
    """Compare a site's log with the run of a server.

    Args:
        folder: the run folder.
        rows: the lines of its audit log.
        record: the site's log; it may end earlier than the run.
        algorithm: the run's, which says when models are evaluated.

    Returns:
        The number of answers in the audit log that come after the end of the site's log.

    Raises:
        RunError: names the first line of the audit log that the site's log contradicts.
    """
    asked = {row["hash"]: row for row in rows if row["event"] == "asked"}
    reached: dict[str, Row] = {}
    for row in record.rows:
        _check_request(rows, asked, record, row)
        line = asked[row["last_hash"]]
        site = row["site"]
        reached[site] = max(line, reached.get(site, line), key=itemgetter("seq"))
    later = 0
    for before, row in pairwise(rows):
        if row["event"] != "answered":
            continue
        answered_sites = {*row["details"]["replied"], *row["details"]["evaluated"]}
        for site in sorted(answered_sites & set(reached)):
            if before["seq"] > reached[site]["seq"]:
                later += 1
            else:
                _check_reply(before, row, record, site)
    last_exchanges = {site: _exchange(line) for site, line in reached.items()}
    _check_numbers(folder, rows, record, algorithm, last_exchanges)
    _check_surveys(folder, rows, record, reached)
    return later


def _check_request(
    rows: Sequence[Row], asked: Mapping[str, Row], record: SiteRecord, row: Row
) -> None:
    """Check that the server's log holds the request of a site's line, as the site got it."""
    line = asked.get(row["last_hash"])
    if line is None or _exchange(line) != (row["round"], row["part"]):
        raise _contradicted(rows, record, row)
    if row["task"] == DECRYPT:
        return
    details = line["details"]
    site = row["site"]
    sent = {
        "task": details["tasks"].get(site, "idle"),
        "model": details["model"],
        "peers": details["peers"].get(site),
        "experiment": rows[0]["details"]["experiment"],
    }
    for name, value in sent.items():
        if row[name] != value:
            place = f"{record.file}, line {row['seq']}"
            expected = f"the {name} that {site} was sent, {row[name]} ({place})"
            raise fault(line["seq"], expected, str(value))


def _check_reply(asked: Row, answered: Row, record: SiteRecord, site: str) -> None:
    """Check that a site's log holds an answer that the server names.

    Args:
        asked: the line of the audit log with the request.
        answered: the line with the answers to it.
        record: the site's log, which reaches beyond the request.
        site: name of the site.
    """
    answers = [
        row
        for row in record.rows
        if row["site"] == site
        and row["last_hash"] == asked["hash"]
        and row["event"] == "answered"
        and row["task"] != DECRYPT
    ]
    if not answers:
        expected = f"only answers to requests that {site}'s log knows"
        problem = f"one to line {asked['seq']}, which it does not know"
        raise fault(answered["seq"], expected, problem)
    update = answered["details"]["updates"].get(site)
    if update and update not in [row["gave"] for row in answers]:
        digests = ", ".join(str(row["gave"]) for row in answers)
        place = f"{record.file}, line {answers[-1]['seq']}"
        expected = f"the update that {site} gave, SHA-256 {digests} ({place})"
        raise fault(answered["seq"], expected, update)


def _check_numbers(
    folder: Path,
    rows: Sequence[Row],
    record: SiteRecord,
    algorithm: Algorithm[Any],
    reached: Mapping[str, tuple[int, int]],
) -> None:
    """Check that metrics.jsonl and binned.jsonl hold exactly the numbers that a site gave.

    Args:
        folder: the run folder.
        rows: the lines of its audit log.
        record: the site's log.
        algorithm: the run's.
        reached: site -> the last exchange, by round and part, in its log.
    """
    committed = _committed_evaluations(rows, algorithm)
    for log, reported in (("metrics", _metrics(folder)), ("binned", _binned(folder))):
        for site, last_exchange in reached.items():
            reported_rounds = {round_ for name, round_ in reported if name == site}
            due_rounds = {round_ for name, round_ in committed if name == site}
            for round_ in sorted(reported_rounds | due_rounds):
                turn = evaluation_turn(algorithm, round_)
                if turn > last_exchange:
                    continue
                digests = _given_digests(record, site, turn, log)
                where = f"{log}.jsonl, round {round_}, {site}"
                if round_ in reported_rounds:
                    if digest(reported[site, round_]) not in digests:
                        raise _other_numbers(where, record, "others")
                elif digests:
                    raise _other_numbers(where, record, "none")


def _given_digests(record: SiteRecord, site: str, turn: tuple[int, int], log: str) -> set[Any]:
    """Return the digests of the numbers that a site gave in an exchange or in later parts of it.

    Args:
        record: the site's log.
        site: name of the site.
        turn: round and part of the exchange.
        log: ``metrics`` or ``binned``.
    """
    round_, part = turn
    digests = set()
    for row in record.rows:
        if row["site"] == site and row["round"] == round_ and (row["part"] or 0) >= part:
            digests.add(row.get(log))
    return digests - {None}


def _committed_evaluations(rows: Sequence[Row], algorithm: Algorithm[Any]) -> set[tuple[str, int]]:
    """Return (site, round) of each evaluation whose numbers the run must hold, by its audit log.

    The numbers are in the run's logs from the next commit on. A run that is resumed drops those of
    later rounds.
    """
    committed: dict[tuple[str, int], int] = {}
    pending: dict[tuple[str, int], int] = {}
    for before, row in pairwise(rows):
        event = row["event"]
        details = row["details"]
        if event == "answered":
            asked_round, part = _exchange(before)
            for site in details["evaluated"]:
                pending[site, _model_round(algorithm, asked_round, part)] = asked_round
        elif event == "committed" or (event == "ended" and details["status"] == "finished"):
            committed |= pending
            pending = {}
        elif event == "resumed":
            last_round = details["round"]
            committed = {key: round_ for key, round_ in committed.items() if round_ <= last_round}
            pending = {}
    return set(committed)


def _model_round(algorithm: Algorithm[Any], asked_round: int, part: int) -> int:
    """Return the number of rounds after which the model was that an exchange evaluates."""
    round_, first_part = evaluation_turn(algorithm, asked_round)
    is_after_the_round = round_ == asked_round and first_part <= part
    return asked_round if is_after_the_round else asked_round - 1


def _check_surveys(
    folder: Path, rows: Sequence[Row], record: SiteRecord, reached: Collection[str]
) -> None:
    """Check that surveys.jsonl holds exactly the surveys that a site gave."""
    reported = {}
    for row in _lines(folder / "surveys.jsonl"):
        site = row.pop("site")
        row.pop("round", None)
        reported[site] = digest(row)
    replied = set()
    for line in rows:
        if line["event"] == "answered":
            replied |= set(line["details"]["replied"])
    for site in sorted(reached):
        surveys = [line.get("survey") for line in record.rows if line["site"] == site]
        given = {survey for survey in surveys if survey}
        found = reported.get(site)
        if found in given:
            continue
        if found:
            raise _other_numbers(f"surveys.jsonl, {site}", record, "others")
        if given and site in replied:
            raise _other_numbers(f"surveys.jsonl, {site}", record, "none")


def _other_numbers(where: str, record: SiteRecord, found: str) -> RunError:
    return RunError(
        where,
        expected=f"the numbers that the site gave, by {record.file}",
        found=found,
        remedy="Do not rely on them; ask the site for its own.",
    )


def _metrics(folder: Path) -> dict[tuple[str, int], list[Any]]:
    """Return (site, round) -> metric rows as the site gave them."""
    reported: dict[tuple[str, int], list[Any]] = {}
    # Only the first row of a site, round and split names the classes.
    classes: dict[tuple[str, int, str], Any] = {}
    for (site, round_), row in _rows(folder / "metrics.jsonl"):
        if row["split"] in get_args(Split):
            key = (site, round_, row["split"])
            row["classes"] = classes.setdefault(key, row.get("classes", []))
            reported.setdefault((site, round_), []).append(row)
    return reported


def _binned(folder: Path) -> dict[tuple[str, int], Any]:
    """Return (site, round) -> counts as the site gave them; the last row replaces earlier ones."""
    return dict(_rows(folder / "binned.jsonl"))


def _rows(log: Path) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield (site, round) of each row, and its other fields."""
    for row in _lines(log):
        yield (row.pop("site"), row.pop("round")), row


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run's log, which may not exist."""
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _contradicted(rows: Sequence[Row], record: SiteRecord, row: Row) -> RunError:
    """Return the error about an audit log that lacks a line whose hash a site was shown.

    Args:
        rows: the lines of the audit log.
        record: the site's log.
        row: its line with the hash.
    """
    exchange = (row["round"], row["part"])
    place = f"{record.file}, line {row['seq']}"
    expected = (
        f"the hash {row['last_hash']}, which {row['site']} was shown ({place}) "
        f"in round {row['round']}, part {row['part']}"
    )
    requests = [line for line in rows if line["event"] == "asked"]
    same = [line["seq"] for line in requests if _exchange(line) == exchange]
    if same:
        problem = "another: this line or one before it was changed, or some are missing"
        return fault(same[-1], expected, problem)
    if None not in exchange:
        later = [line["seq"] for line in requests if _exchange(line) > exchange]
        if later:
            problem = "a later round: lines before this one were removed, or never written"
            return fault(later[0], expected, problem)
    problem = "the end of the log: it was cut, or the request is missing"
    return fault(len(rows) + 1, expected, problem)


def _exchange(row: Row) -> tuple[int, int]:
    """Return round and part of a line with a request."""
    return row["details"]["round"], row["details"]["part"]


def _no_log(file: Path, found: str) -> RunError:
    return RunError(
        f"site's log {file}",
        expected="a site's answers in this run",
        found=found,
        remedy="Ask a site for answers/<run id>.jsonl of its own folder; the id is in run.json.",
    )
