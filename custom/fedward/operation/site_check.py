"""Checks of a site's own log against the audit log and the numbers in the server's run folder."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, get_args

from fedward.digests import digest
from fedward.errors import RunError
from fedward.methods.algorithm import Algorithm, evaluation_turn
from fedward.methods.survey import Survey
from fedward.operation.site_record import Row, SiteRecord
from fedward.protocol.messages import Split
from fedward.protocol.requests import DECRYPT
from fedward.storage.audit import fault
from fedward.storage.info import read_info

_Exchange: TypeAlias = tuple[int, int]
"""Round and part."""
_Evaluation: TypeAlias = tuple[str, int]
"""A site, and the number of rounds that had trained the model that it evaluated."""


@dataclass(frozen=True)
class _ServerRecord:
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
        for row in self.audit_rows:
            if row["event"] == "answered" and site in row["details"]["replied"]:
                return True
        return False

    def has_answered(self, site: str) -> bool:
        """Return whether the server has accepted any answer of a site."""
        for row in self.audit_rows:
            if row["event"] == "answered" and site in _answered_sites(row):
                return True
        return False

    def committed_evaluations(self) -> set[_Evaluation]:
        """Return each evaluation whose numbers the run must hold, by its audit log.

        The numbers are in the run's logs from the next commit on. A run that is resumed drops the
        numbers of the rounds after the one from which it goes on.
        """
        # Evaluation -> round of the exchange in which the site was asked for it.
        committed: dict[_Evaluation, int] = {}
        pending: dict[_Evaluation, int] = {}
        for request, row in pairwise(self.audit_rows):
            event = row["event"]
            details = row["details"]
            if event == "answered":
                asked_round, part = _exchange(request)
                for site in details["evaluated"]:
                    pending[site, self._model_round(asked_round, part)] = asked_round
            elif event == "committed" or (event == "ended" and details["status"] == "finished"):
                committed |= pending
                pending = {}
            elif event == "resumed":
                last_round = details["round"]
                committed = {
                    evaluation: asked_round
                    for evaluation, asked_round in committed.items()
                    if asked_round <= last_round
                }
                pending = {}
        return set(committed)

    def _model_round(self, asked_round: int, part: int) -> int:
        """Return how many rounds had trained the model that an exchange evaluates."""
        round_, first_part = evaluation_turn(self.algorithm, asked_round)
        is_evaluation_of_round = round_ == asked_round and first_part <= part
        return asked_round if is_evaluation_of_round else asked_round - 1


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
    server = _ServerRecord(folder, audit_rows, algorithm)
    last_requests = _check_requests(server, record)
    later_answers = _check_replies(server, record, last_requests)
    _check_numbers(server, record, last_requests)
    _check_surveys(server, record, sites=last_requests.keys())
    # A log that ends earlier may lack a card that the site has given.
    _check_cards(server, record, sites=last_requests.keys() - set(later_answers))
    return len(later_answers)


def _check_requests(server: _ServerRecord, record: SiteRecord) -> dict[str, Row]:
    """Check that the audit log holds all requests in a site's log, as the site received them.

    Returns:
        Site -> the line of the audit log with the last request that is in the site's log.
    """
    last_requests: dict[str, Row] = {}
    for site_row in record.rows:
        request = _checked_request(server, record, site_row)
        site = site_row["site"]
        if site not in last_requests or request["seq"] > last_requests[site]["seq"]:
            last_requests[site] = request
    return last_requests


def _checked_request(server: _ServerRecord, record: SiteRecord, site_row: Row) -> Row:
    """Return the line of the audit log with the request in a line of a site's log.

    Raises:
        RunError: there is no such request, or the site was asked for something else.
    """
    request = server.request_of_hash.get(site_row["last_hash"])
    if request is None or _exchange(request) != (site_row["round"], site_row["part"]):
        raise _contradicted(server, record, site_row)
    if site_row["task"] == DECRYPT:
        # The audit log has no line of its own for the request to decrypt a sum of updates.
        return request
    details = request["details"]
    site = site_row["site"]
    sent = {
        "task": details["tasks"].get(site, "idle"),
        "model": details["model"],
        "peers": details["peers"].get(site),
        "experiment": server.audit_rows[0]["details"]["experiment"],
    }
    for name, value in sent.items():
        if site_row[name] != value:
            place = record.place(site_row)
            expected = f"the {name} that {site} was sent, {site_row[name]} ({place})"
            raise fault(request["seq"], expected, str(value))
    return request


def _check_replies(
    server: _ServerRecord, record: SiteRecord, last_requests: Mapping[str, Row]
) -> list[str]:
    """Check that a site's log holds the answers that the audit log names, up to its end.

    Returns:
        The site of each answer to a request after the end of its log, so a name for each of them.
    """
    later_answers = []
    for request, answered in server.answers():
        for site in sorted(_answered_sites(answered) & last_requests.keys()):
            if request["seq"] > last_requests[site]["seq"]:
                later_answers.append(site)
            else:
                _check_reply(request, answered, record, site)
    return later_answers


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
        place = record.place(answers[-1])
        expected = f"the update that {site} gave, SHA-256 {digests} ({place})"
        raise fault(answered["seq"], expected, update)


def _check_numbers(
    server: _ServerRecord, record: SiteRecord, last_requests: Mapping[str, Row]
) -> None:
    """Check that metrics.jsonl and binned.jsonl hold exactly the numbers that a site gave.

    Args:
        server: the server's side of the run.
        record: the site's log.
        last_requests: site -> the line of the audit log with the last request in the site's log.
    """
    committed = server.committed_evaluations()
    reported_numbers: dict[str, Mapping[_Evaluation, Any]] = {
        "metrics": _metrics(server.folder),
        "binned": _binned(server.folder),
    }
    for log, reported in reported_numbers.items():
        for site, last_request in last_requests.items():
            rounds = {round_ for name, round_ in {*reported, *committed} if name == site}
            for round_ in sorted(rounds):
                turn = evaluation_turn(server.algorithm, round_)
                if turn > _exchange(last_request):
                    continue  # The site's log ends before the evaluation.
                given_digests = _given_digests(record, site, turn, log)
                where = f"{log}.jsonl, round {round_}, {site}"
                if (site, round_) in reported:
                    if digest(reported[site, round_]) not in given_digests:
                        raise _other_numbers(where, record, "others")
                elif given_digests:
                    raise _other_numbers(where, record, "none")


def _given_digests(record: SiteRecord, site: str, turn: _Exchange, log: str) -> set[str]:
    """Return the digests of the numbers that a site gave in an exchange or later in its round.

    Args:
        record: the site's log.
        site: name of the site.
        turn: the exchange.
        log: ``metrics`` or ``binned``.
    """
    round_, part = turn
    digests: set[str] = set()
    for row in record.rows:
        # The part is None where it was malformed in the request, which the site then refused.
        is_of_turn = row["round"] == round_ and (row["part"] or 0) >= part
        if row["site"] == site and is_of_turn and row.get(log) is not None:
            digests.add(row[log])
    return digests


def _check_surveys(server: _ServerRecord, record: SiteRecord, sites: Collection[str]) -> None:
    """Check that surveys.jsonl holds exactly the surveys that sites gave.

    Args:
        server: the server's side of the run.
        record: the log of the sites.
        sites: names of the sites to check.
    """
    reported_digests = {}
    for survey in _lines(server.folder / "surveys.jsonl"):
        site = survey.pop("site")
        survey.pop("round", None)
        reported_digests[site] = digest(survey)
    for site in sorted(sites):
        given_digests = _logged_digests(record, site, "survey")
        where = f"surveys.jsonl, {site}"
        if site in reported_digests:
            if reported_digests[site] not in given_digests:
                raise _other_numbers(where, record, "others")
        elif given_digests and server.has_replied(site):
            raise _other_numbers(where, record, "none")


def _check_cards(server: _ServerRecord, record: SiteRecord, sites: Collection[str]) -> None:
    """Check that run.json holds the cards that sites gave, and no others.

    Args:
        server: the server's side of the run.
        record: the log of the sites.
        sites: names of the sites to check, whose log knows all answers of the run.
    """
    info = read_info(server.folder)
    for site in sorted(sites):
        given_digests = _logged_digests(record, site, "card")
        where = f"card of {site} in run.json"
        if site in info.cards:
            if digest(info.cards[site].model_dump(mode="json")) not in given_digests:
                found = "another one" if given_digests else "one that the site did not give"
                raise _other_card(where, record, found)
        elif given_digests and info.status == "finished" and server.has_answered(site):
            raise _other_card(where, record, "none")


def _logged_digests(record: SiteRecord, site: str, kind: str) -> set[str]:
    """Return the digests of all surveys, or cards, that a site's log says it gave.

    Args:
        record: the site's log.
        site: name of the site.
        kind: ``survey`` or ``card``.
    """
    digests = [row.get(kind) for row in record.rows if row["site"] == site]
    return {given_digest for given_digest in digests if given_digest}


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


def _metrics(folder: Path) -> dict[_Evaluation, list[Any]]:
    """Return the rows of metrics.jsonl by evaluation, in the form that the site gave."""
    reported: dict[_Evaluation, list[Any]] = {}
    # Only the first row of a site, round and split names the classes.
    classes: dict[tuple[_Evaluation, str], Any] = {}
    for evaluation, row in _rows(folder / "metrics.jsonl"):
        split = row["split"]
        # Rows of the split ``train`` are about the training of a round, not about an evaluation.
        if split in get_args(Split):
            row["classes"] = classes.setdefault((evaluation, split), row.get("classes", []))
            reported.setdefault(evaluation, []).append(row)
    return reported


def _binned(folder: Path) -> dict[_Evaluation, Any]:
    """Return the counts of binned.jsonl by evaluation; the last row replaces earlier ones."""
    return dict(_rows(folder / "binned.jsonl"))


def _rows(log: Path) -> Iterator[tuple[_Evaluation, dict[str, Any]]]:
    """Yield the evaluation of each row of a run's log, and the row's other fields."""
    for row in _lines(log):
        site = row.pop("site")
        round_ = row.pop("round")
        yield (site, round_), row


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run's log; none if it does not exist."""
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _contradicted(server: _ServerRecord, record: SiteRecord, site_row: Row) -> RunError:
    """Return the error about an audit log that lacks a line whose hash a site was shown.

    Args:
        server: the server's side of the run.
        record: the site's log.
        site_row: the line of it with the hash.
    """
    exchange = (site_row["round"], site_row["part"])
    expected = (
        f"the hash {site_row['last_hash']}, which {site_row['site']} was shown "
        f"({record.place(site_row)}) "
        f"in round {site_row['round']}, part {site_row['part']}"
    )
    same_exchange = [row["seq"] for row in server.requests if _exchange(row) == exchange]
    if same_exchange:
        problem = "another: this line or one before it was changed, or some are missing"
        return fault(same_exchange[-1], expected, problem)
    if None not in exchange:  # A site's line may lack a round or a part.
        later_exchanges = [row["seq"] for row in server.requests if _exchange(row) > exchange]
        if later_exchanges:
            problem = "a later round: lines before this one were removed, or never written"
            return fault(later_exchanges[0], expected, problem)
    problem = "the end of the log: it was cut, or the request is missing"
    return fault(len(server.audit_rows) + 1, expected, problem)


def _exchange(row: Row) -> _Exchange:
    """Return round and part of the request in a line of the audit log."""
    return row["details"]["round"], row["details"]["part"]


def _answered_sites(row: Row) -> set[str]:
    """Return the sites whose answers the server has accepted, by a line with answers."""
    return {*row["details"]["replied"], *row["details"]["evaluated"]}
