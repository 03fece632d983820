"""Checks of sites' own logs: each by itself, and against the server's audit log."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

from fedward.client.request_check import Turns
from fedward.digests import digest
from fedward.errors import RunError, WireError
from fedward.methods.algorithm import Algorithm, evaluation_turn
from fedward.methods.survey import Survey
from fedward.protocol.messages import Split
from fedward.protocol.requests import DECRYPT
from fedward.storage import chain
from fedward.storage.audit import fault
from fedward.storage.info import read_info

Row = Mapping[str, Any]
"""The content of one line of a log."""


@dataclass(frozen=True)
class SiteRecord:
    """A site's log of one run, in which nothing wrong was found."""

    file: Path
    """The log itself."""
    run: str
    """Id of the run."""
    rows: Sequence[Row]
    """Content of its lines, except of those that quote the half line that a crash left."""

    @property
    def sites(self) -> list[str]:
        """Names of the sites whose log it is: several if they share a folder."""
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
    """Read a site's log, and check that its chain is whole and its answers are in order.

    Args:
        file: ``answers/<run id>.jsonl`` of a site's own folder, or a copy.
        run: id of the run that it must belong to; by default any.

    Raises:
        RunError: a line is wrong, and the error names the first such line; or the file is not a
            site's log, or belongs to another run.
    """
    lines, _ = chain.read(file)
    first_row = chain.parse(lines[0]) if lines else None
    # The first line of a chain has no line before it, and names the run instead.
    run_id = str(first_row.get("previous")) if first_row else run or ""
    if not lines:
        raise _not_a_site_log(file, "nothing")
    if first_row and not re.fullmatch(r"[0-9a-f]{32}", run_id):
        raise _not_a_site_log(file, "something else in line 1")
    if run and run_id != run:
        raise _not_a_site_log(file, f"one of run {run_id}")
    rows: list[Row] = []
    turns_of_site: dict[Any, Turns] = {}
    for row in chain.checked(lines, run_id, str(file)):
        if "torn" in row:  # It quotes the half line that a crash left.
            continue
        try:
            if row["event"] == "answered":
                turns = turns_of_site.setdefault(row["site"], Turns())
                turns.check(row)
                turns.add(row)
        except WireError as error:
            expected = f"answers in turn: {error.expected}"
            raise chain.fault(str(file), row["seq"], expected, error.found) from error
        except (KeyError, TypeError) as error:
            expected = "a line as this version of fedward writes it"
            problem = f"{type(error).__name__}: {error}"
            raise chain.fault(str(file), row["seq"], expected, problem) from error
        rows.append(row)
    return SiteRecord(file, run_id, rows)


def check_against(
    folder: Path, audit_rows: Sequence[Row], record: SiteRecord, algorithm: Algorithm[Any] | Survey
) -> int:
    """Compare a site's log with the server's log of the run.

    Args:
        folder: the run folder.
        audit_rows: the lines of its audit log.
        record: the site's log; it may end earlier than the run.
        algorithm: the run's algorithm, which says when models are evaluated.

    Returns:
        The number of answers in the audit log to requests after the end of the site's log.

    Raises:
        RunError: the site's log contradicts the audit log, and the error names the first such line
            of the audit log; or it contradicts the numbers in the run folder.
    """
    requests = {row["hash"]: row for row in audit_rows if row["event"] == "asked"}
    # Site -> the line of the audit log with the last request that is in the site's log.
    last_requests: dict[str, Row] = {}
    for site_row in record.rows:
        _check_request(audit_rows, requests, record, site_row)
        request = requests[site_row["last_hash"]]
        site = site_row["site"]
        last_requests[site] = max(request, last_requests.get(site, request), key=itemgetter("seq"))
    later_answers = 0
    whole_logs = set(last_requests)
    # The line before that of the answers holds the request.
    for request, answered in pairwise(audit_rows):
        if answered["event"] != "answered":
            continue
        answered_sites = {*answered["details"]["replied"], *answered["details"]["evaluated"]}
        for site in sorted(answered_sites & set(last_requests)):
            if request["seq"] > last_requests[site]["seq"]:
                later_answers += 1
                whole_logs.discard(site)
            else:
                _check_reply(request, answered, record, site)
    last_exchanges = {site: _exchange(request) for site, request in last_requests.items()}
    _check_numbers(folder, audit_rows, record, algorithm, last_exchanges)
    _check_surveys(folder, audit_rows, record, last_requests)
    _check_cards(folder, audit_rows, record, whole_logs)
    return later_answers


def _check_request(
    audit_rows: Sequence[Row], requests: Mapping[str, Row], record: SiteRecord, site_row: Row
) -> None:
    """Check that the audit log holds a request in a site's log, as the site received it.

    Args:
        audit_rows: the lines of the audit log.
        requests: hash -> the line of the audit log with a request.
        record: the site's log.
        site_row: the line of it with the request.
    """
    request = requests.get(site_row["last_hash"])
    if request is None or _exchange(request) != (site_row["round"], site_row["part"]):
        raise _contradicted(audit_rows, record, site_row)
    if site_row["task"] == DECRYPT:
        return
    details = request["details"]
    site = site_row["site"]
    sent = {
        "task": details["tasks"].get(site, "idle"),
        "model": details["model"],
        "peers": details["peers"].get(site),
        "experiment": audit_rows[0]["details"]["experiment"],
    }
    for name, value in sent.items():
        if site_row[name] != value:
            place = f"{record.file}, line {site_row['seq']}"
            expected = f"the {name} that {site} was sent, {site_row[name]} ({place})"
            raise fault(request["seq"], expected, str(value))


def _check_reply(request: Row, answered: Row, record: SiteRecord, site: str) -> None:
    """Check that a site's log holds an answer that the server names.

    Args:
        request: the line of the audit log with the request.
        answered: the line of the audit log with the answers to it.
        record: the site's log, which does not end before the request.
        site: name of the site.
    """
    answers = [
        row
        for row in record.rows
        if row["site"] == site
        and row["last_hash"] == request["hash"]
        and row["event"] == "answered"
        and row["task"] != DECRYPT
    ]
    if not answers:
        expected = f"only answers to requests that {site}'s log knows"
        problem = f"one to line {request['seq']}, which it does not know"
        raise fault(answered["seq"], expected, problem)
    update = answered["details"]["updates"].get(site)
    if update and update not in [row["gave"] for row in answers]:
        digests = ", ".join(str(row["gave"]) for row in answers)
        place = f"{record.file}, line {answers[-1]['seq']}"
        expected = f"the update that {site} gave, SHA-256 {digests} ({place})"
        raise fault(answered["seq"], expected, update)


def _check_numbers(
    folder: Path,
    audit_rows: Sequence[Row],
    record: SiteRecord,
    algorithm: Algorithm[Any] | Survey,
    last_exchanges: Mapping[str, tuple[int, int]],
) -> None:
    """Check that metrics.jsonl and binned.jsonl hold exactly the numbers that a site gave.

    Args:
        folder: the run folder.
        audit_rows: the lines of its audit log.
        record: the site's log.
        algorithm: the run's algorithm.
        last_exchanges: site -> round and part of the last exchange in the site's log.
    """
    committed = _committed_evaluations(audit_rows, algorithm)
    reported_numbers: dict[str, Mapping[tuple[str, int], Any]] = {
        "metrics": _metrics(folder),
        "binned": _binned(folder),
    }
    for log, reported in reported_numbers.items():
        for site, last_exchange in last_exchanges.items():
            reported_rounds = {round_ for name, round_ in reported if name == site}
            due_rounds = {round_ for name, round_ in committed if name == site}
            for round_ in sorted(reported_rounds | due_rounds):
                turn = evaluation_turn(algorithm, round_)
                if turn > last_exchange:
                    continue  # The site's log ends before the evaluation.
                digests = _given_digests(record, site, turn, log)
                where = f"{log}.jsonl, round {round_}, {site}"
                if round_ in reported_rounds:
                    if digest(reported[site, round_]) not in digests:
                        raise _other_numbers(where, record, "others")
                elif digests:
                    raise _other_numbers(where, record, "none")


def _given_digests(record: SiteRecord, site: str, turn: tuple[int, int], log: str) -> set[Any]:
    """Return the digests of the numbers that a site gave in an exchange or later in its round.

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


def _committed_evaluations(
    audit_rows: Sequence[Row], algorithm: Algorithm[Any] | Survey
) -> set[tuple[str, int]]:
    """Return (site, round) of each evaluation whose numbers the run must hold, by its audit log.

    The numbers are in the run's logs from the next commit on. A run that is resumed drops the
    numbers of the rounds after the one from which it goes on.
    """
    # (site, round of the evaluated model) -> round of the exchange in which the site evaluated it.
    committed: dict[tuple[str, int], int] = {}
    pending: dict[tuple[str, int], int] = {}
    for request, row in pairwise(audit_rows):
        event = row["event"]
        details = row["details"]
        if event == "answered":
            asked_round, part = _exchange(request)
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


def _model_round(algorithm: Algorithm[Any] | Survey, asked_round: int, part: int) -> int:
    """Return how many rounds had trained the model that an exchange evaluates."""
    round_, first_part = evaluation_turn(algorithm, asked_round)
    is_evaluation_of_round = round_ == asked_round and first_part <= part
    return asked_round if is_evaluation_of_round else asked_round - 1


def _check_surveys(
    folder: Path, audit_rows: Sequence[Row], record: SiteRecord, sites: Collection[str]
) -> None:
    """Check that surveys.jsonl holds exactly the surveys that sites gave.

    Args:
        folder: the run folder.
        audit_rows: the lines of its audit log.
        record: the log of the sites.
        sites: names of the sites to check.
    """
    reported_digests = {}
    for survey in _lines(folder / "surveys.jsonl"):
        site = survey.pop("site")
        survey.pop("round", None)
        reported_digests[site] = digest(survey)
    replied_sites = set()
    for row in audit_rows:
        if row["event"] == "answered":
            replied_sites |= set(row["details"]["replied"])
    for site in sorted(sites):
        given_digests = _logged_digests(record, site, "survey")
        reported_digest = reported_digests.get(site)
        if reported_digest in given_digests:
            continue
        if reported_digest:
            raise _other_numbers(f"surveys.jsonl, {site}", record, "others")
        if given_digests and site in replied_sites:
            raise _other_numbers(f"surveys.jsonl, {site}", record, "none")


def _logged_digests(record: SiteRecord, site: str, kind: str) -> set[str]:
    """Return the digests of all surveys, or cards, that a site's log says it gave."""
    digests = [row.get(kind) for row in record.rows if row["site"] == site]
    return {given_digest for given_digest in digests if given_digest}


def _check_cards(
    folder: Path, audit_rows: Sequence[Row], record: SiteRecord, sites: Collection[str]
) -> None:
    """Check that run.json holds the cards that sites gave, and no others.

    Args:
        folder: the run folder.
        audit_rows: the lines of its audit log.
        record: the log of the sites.
        sites: names of the sites to check, whose log knows all answers of the run.
    """
    info = read_info(folder)
    for site in sorted(sites):
        given_digests = _logged_digests(record, site, "card")
        where = f"card of {site} in run.json"
        if site in info.cards:
            if digest(info.cards[site].model_dump(mode="json")) not in given_digests:
                found = "another one" if given_digests else "one that the site did not give"
                raise _other_card(where, record, found)
        elif given_digests and info.status == "finished" and _has_replied(audit_rows, site):
            raise _other_card(where, record, "none")


def _has_replied(audit_rows: Sequence[Row], site: str) -> bool:
    """Return whether the server has accepted an answer of a site."""
    for row in audit_rows:
        if row["event"] == "answered" and site in (
            *row["details"]["replied"],
            *row["details"]["evaluated"],
        ):
            return True
    return False


def _other_card(where: str, record: SiteRecord, found: str) -> RunError:
    """Return the error about a card in run.json that is not the site's."""
    return RunError(
        where,
        expected=f"the card that the site gave, by {record.file}",
        found=found,
        remedy="Do not rely on it; ask the site for its own.",
    )


def _other_numbers(where: str, record: SiteRecord, found: str) -> RunError:
    """Return the error about numbers in the run folder that a site did not give."""
    return RunError(
        where,
        expected=f"the numbers that the site gave, by {record.file}",
        found=found,
        remedy="Do not rely on them; ask the site for its own.",
    )


def _metrics(folder: Path) -> dict[tuple[str, int], list[Any]]:
    """Return (site, round) -> the rows of metrics.jsonl, in the form that the site gave."""
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
    """Return (site, round) -> counts of binned.jsonl; the last row replaces earlier ones."""
    return dict(_rows(folder / "binned.jsonl"))


def _rows(log: Path) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield (site, round) of each row of a run's log, and its other fields."""
    for row in _lines(log):
        yield (row.pop("site"), row.pop("round")), row


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run's log; none if it does not exist."""
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _contradicted(audit_rows: Sequence[Row], record: SiteRecord, site_row: Row) -> RunError:
    """Return the error about an audit log that lacks a line whose hash a site was shown.

    Args:
        audit_rows: the lines of the audit log.
        record: the site's log.
        site_row: the line of it with the hash.
    """
    exchange = (site_row["round"], site_row["part"])
    place = f"{record.file}, line {site_row['seq']}"
    expected = (
        f"the hash {site_row['last_hash']}, which {site_row['site']} was shown ({place}) "
        f"in round {site_row['round']}, part {site_row['part']}"
    )
    requests = [row for row in audit_rows if row["event"] == "asked"]
    same_exchange = [row["seq"] for row in requests if _exchange(row) == exchange]
    if same_exchange:
        problem = "another: this line or one before it was changed, or some are missing"
        return fault(same_exchange[-1], expected, problem)
    if None not in exchange:  # A site's line may lack a round or a part.
        later_exchanges = [row["seq"] for row in requests if _exchange(row) > exchange]
        if later_exchanges:
            problem = "a later round: lines before this one were removed, or never written"
            return fault(later_exchanges[0], expected, problem)
    problem = "the end of the log: it was cut, or the request is missing"
    return fault(len(audit_rows) + 1, expected, problem)


def _exchange(row: Row) -> tuple[int, int]:
    """Return round and part of the request in a line of the audit log."""
    return row["details"]["round"], row["details"]["part"]


def _not_a_site_log(file: Path, found: str) -> RunError:
    """Return the error about a file that is not a site's log of the run."""
    return RunError(
        f"site's log {file}",
        expected="a site's answers in this run",
        found=found,
        remedy="Ask a site for answers/<run id>.jsonl of its own folder; the id is in run.json.",
    )
