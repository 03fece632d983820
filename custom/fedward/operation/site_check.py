"""Checks of a site's own log against the audit log and the numbers in the server's run folder."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias, get_args

from fedward.digests import arrays_digest, digest
from fedward.errors import RunError
from fedward.methods.evaluation_turn import evaluation_turn
from fedward.methods.workflow import Turn
from fedward.operation.server_record import (
    AnsweredExchange,
    Evaluation,
    ServerRecord,
    answered_sites,
    turn_of,
)
from fedward.operation.site_record import Row, SiteRecord
from fedward.protocol.messages import Split
from fedward.protocol.requests import DECRYPT
from fedward.storage.audit import beginning, fault
from fedward.storage.info import read_info

_IMAGES = ("labelled", "unlabelled")
"""Numbers of training images that an answer gives, and rows of metrics.jsonl repeat."""
_Images: TypeAlias = tuple[Any, ...]
"""For each of them its value, and the number of all training images."""


@dataclass(frozen=True)
class SiteAnswers:
    """A site's log that the audit log agrees with."""

    record: SiteRecord
    """The log."""
    last_requests: Mapping[str, Row]
    """Site -> the line of the audit log with the last request that is in the site's log."""
    later: Sequence[str]
    """The site of each answer to a request after the end of its log, a name for each of them."""
    unused: int
    """Number of answers with numbers or an update that the server did not use, by its audit log."""

    @property
    def complete(self) -> set[str]:
        """Names of the sites whose log knows all answers of the run."""
        return self.last_requests.keys() - set(self.later)


def compared(server: ServerRecord, record: SiteRecord) -> SiteAnswers:
    """Compare a site's log with the server's audit log.

    Args:
        server: the server's side of the run.
        record: the site's log; it may end earlier than the run.

    Raises:
        RunError: they contradict each other, and the error names the first such line of the audit
            log.
    """
    last_requests = _check_requests(server, record)
    later_answers = _check_replies(server, record, last_requests)
    unused = _unused_answers(server, record)
    return SiteAnswers(record, last_requests, later_answers, unused)


def check_given(server: ServerRecord, answers: SiteAnswers) -> None:
    """Compare what the run folder says of sites with what they gave, by their log.

    Args:
        server: the server's side of the run, whose own logs agree with each other.
        answers: the sites' log.

    Raises:
        RunError: the run folder says something else, or holds nothing where the sites gave numbers.
    """
    record = answers.record
    _check_numbers(server, record, answers.last_requests)
    _check_trainings(server, record, answers.last_requests)
    _check_surveys(server, record, sites=answers.last_requests.keys())
    # A log that ends earlier may lack a card that the site has given.
    _check_cards(server, record, sites=answers.complete)
    _check_origins(server, record, sites=answers.complete)


def _check_requests(server: ServerRecord, record: SiteRecord) -> dict[str, Row]:
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


def _checked_request(server: ServerRecord, record: SiteRecord, site_row: Row) -> Row:
    """Return the line of the audit log with the request in a line of a site's log.

    Raises:
        RunError: there is no such request, or the site was asked for something else.
    """
    request = server.request_of_hash.get(site_row["last_hash"])
    if request is None or turn_of(request) != (site_row["round"], site_row["part"]):
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
        "experiment": beginning(server.audit_rows)["details"]["experiment"],
    }
    for name, value in sent.items():
        if site_row[name] != value:
            place = record.place(site_row)
            expected = f"the {name} that {site} was sent, {site_row[name]} ({place})"
            raise fault(request["seq"], expected, str(value))
    return request


def _check_replies(
    server: ServerRecord, record: SiteRecord, last_requests: Mapping[str, Row]
) -> list[str]:
    """Check that a site's log holds the answers that the audit log names, up to its end.

    Returns:
        The site of each answer to a request after the end of its log, so a name for each of them.
    """
    later_answers = []
    for request, answered in server.answers():
        for site in sorted(answered_sites(answered) & last_requests.keys()):
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
    answers = _answers_to(request, record, site)
    if not answers:
        expected = f"only answers to requests that {site}'s log knows"
        problem = f"one to line {request['seq']}, which it does not know"
        raise fault(answered["seq"], expected, problem)
    update = answered["details"]["updates"].get(site)
    # A site that keeps all that it trains gives an update without arrays.
    given_updates = [row["gave"] or arrays_digest({}) for row in answers]
    if update and update not in given_updates:
        digests = ", ".join(given_updates)
        place = record.place(answers[-1])
        expected = f"the update that {site} gave, SHA-256 {digests} ({place})"
        raise fault(answered["seq"], expected, update)


def _unused_answers(server: ServerRecord, record: SiteRecord) -> int:
    """Return the number of answers of sites that the server calls failed, or says nothing of.

    They may have been lost on their way, or be too few for an average. A site that was asked for
    the same again has answered twice, which is one answer.
    """
    answered = {request["hash"]: row["details"] for request, row in server.answers()}
    unused = set()
    for row in record.rows:
        if row["event"] != "answered" or row["task"] == DECRYPT:
            continue
        details = answered.get(row["last_hash"], {"replied": [], "evaluated": []})
        lacks_update = row["gave"] and row["site"] not in details["replied"]
        lacks_numbers = row["metrics"] and row["site"] not in details["evaluated"]
        if lacks_update or lacks_numbers:
            unused.add((row["site"], row["last_hash"]))
    return len(unused)


def _answers_to(request: Row, record: SiteRecord, site: str) -> list[Row]:
    """Return the lines of a site's log with its answers to a request of the audit log."""
    return [
        row
        for row in record.rows
        if row["site"] == site
        and row["last_hash"] == request["hash"]
        and row["event"] == "answered"
        and row["task"] != DECRYPT
    ]


def _check_numbers(
    server: ServerRecord, record: SiteRecord, last_requests: Mapping[str, Row]
) -> None:
    """Check that metrics.jsonl and binned.jsonl hold exactly the numbers that a site gave.

    Args:
        server: the server's side of the run.
        record: the site's log.
        last_requests: site -> the line of the audit log with the last request in the site's log.
    """
    committed = server.evaluations(server.exchanges.committed)
    reported_numbers: dict[str, Mapping[Evaluation, Any]] = {
        "metrics": _metrics(server),
        "binned": dict(_by_evaluation(server.rows("binned"))),
    }
    for log, reported in reported_numbers.items():
        for site, last_request in last_requests.items():
            rounds = {round_ for name, round_ in {*reported, *committed} if name == site}
            for round_ in sorted(rounds):
                turn = evaluation_turn(server.algorithm, round_)
                if turn > turn_of(last_request):
                    continue  # The site's log ends before the evaluation.
                given_digests = _given_digests(record, site, turn, log)
                where = f"{log}.jsonl, round {round_}, {site}"
                if (site, round_) in reported:
                    if digest(reported[site, round_]) not in given_digests:
                        raise _other_numbers(where, record, "others")
                elif given_digests:
                    raise _other_numbers(where, record, "none")


def _check_trainings(
    server: ServerRecord, record: SiteRecord, last_requests: Mapping[str, Row]
) -> None:
    """Check that metrics.jsonl holds the numbers of training images that a site gave.

    The rows of several exchanges of one round do not tell which exchange they are of, so they are
    compared together.

    Args:
        server: the server's side of the run.
        record: the site's log.
        last_requests: site -> the line of the audit log with the last request in the site's log.
    """
    reported = _reported_images(server)
    for site, last_request in last_requests.items():
        exchanges_of_round: dict[int, list[AnsweredExchange]] = {}
        for exchange in server.exchanges.named:
            if exchange.tasked(site):
                exchanges_of_round.setdefault(exchange.round, []).append(exchange)
        for round_, exchanges in sorted(exchanges_of_round.items()):
            last_exchange = max(exchange.request["seq"] for exchange in exchanges)
            if last_exchange > last_request["seq"]:
                continue  # The site's log ends before it.
            required, possible = _given_images(server, record, site, exchanges)
            found = reported.get((site, round_), Counter())
            if not required <= found <= possible:
                where = f"metrics.jsonl, round {round_}, {site}, images of its training"
                raise _other_numbers(where, record, "others" if found else "none")


def _reported_images(server: ServerRecord) -> dict[tuple[str, int], Counter[_Images]]:
    """Return site, round -> the numbers of training images of each exchange, by metrics.jsonl."""
    columns: dict[tuple[str, int], dict[str, list[Any]]] = {}
    for row in server.rows("metrics"):
        if row["split"] == "train" and row["name"] in _IMAGES:
            names = columns.setdefault((row["site"], row["round"]), {name: [] for name in _IMAGES})
            names[row["name"]].append((row["value"], row["n"]))
    return {training: Counter(zip_longest(*names.values())) for training, names in columns.items()}


def _given_images(
    server: ServerRecord, record: SiteRecord, site: str, exchanges: Iterable[AnsweredExchange]
) -> tuple[Counter[_Images], Counter[_Images]]:
    """Return the numbers of training images that a site gave in the exchanges of one round.

    Returns:
        Those that metrics.jsonl must hold, and all those that it may hold. It need not hold those
        of an answer that the server did not use, by its audit log, or has not committed yet.
    """
    required: Counter[_Images] = Counter()
    possible: Counter[_Images] = Counter()
    committed = {exchange.request["seq"] for exchange in server.exchanges.committed}
    for exchange in exchanges:
        given = set()
        for row in _answers_to(exchange.request, record, site):
            if row["labelled"] is None:  # It is of a survey.
                continue
            all_images = row["labelled"] + row["unlabelled"]
            given.add(tuple((row[name], all_images) for name in _IMAGES))
        possible.update(given)
        is_used = site in exchange.answers["details"]["replied"]
        # A site that was asked again in the same exchange may have given two answers.
        if is_used and exchange.request["seq"] in committed and len(given) == 1:
            required.update(given)
    return required, possible


def _given_digests(record: SiteRecord, site: str, turn: Turn, log: str) -> set[str]:
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


def _check_surveys(server: ServerRecord, record: SiteRecord, sites: Collection[str]) -> None:
    """Check that surveys.jsonl holds exactly the surveys that sites gave.

    Args:
        server: the server's side of the run.
        record: the log of the sites.
        sites: names of the sites to check.
    """
    reported_digests = {}
    for survey in server.rows("surveys"):
        site = survey.pop("site")
        del survey["round"]
        reported_digests[site] = digest(survey)
    for site in sorted(sites):
        given_digests = _logged_digests(record, site, "survey")
        where = f"surveys.jsonl, {site}"
        if site in reported_digests:
            if reported_digests[site] not in given_digests:
                raise _other_numbers(where, record, "others")
        elif given_digests and server.has_replied(site):
            raise _other_numbers(where, record, "none")


def _check_cards(server: ServerRecord, record: SiteRecord, sites: Collection[str]) -> None:
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


def _check_origins(server: ServerRecord, record: SiteRecord, sites: Collection[str]) -> None:
    """Check that run.json says of sites' images what the sites said: whether fedward drew them.

    Args:
        server: the server's side of the run.
        record: the log of the sites.
        sites: names of the sites to check, whose log knows all answers of the run.
    """
    info = read_info(server.folder)
    for site in sorted(sites):
        said = {
            bool(row["synthetic"])
            for row in record.rows
            if row["site"] == site and row["event"] == "answered" and row["task"] != DECRYPT
        }
        if not said:
            continue
        found = info.synthetic.get(site)
        # The server notes it with the next commit.
        may_be_missing = info.status != "finished" or not server.has_answered(site)
        if found not in said and not (found is None and may_be_missing):
            raise RunError(
                f"synthetic of {site} in run.json",
                expected=f"{' or '.join(map(str, sorted(said)))}, by {record.file}",
                found=str(found),
                remedy="Do not rely on it; ask the site whether its images are real.",
            )


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


def _metrics(server: ServerRecord) -> dict[Evaluation, list[Any]]:
    """Return the rows of metrics.jsonl by evaluation, in the form that the site gave."""
    reported: dict[Evaluation, list[Any]] = {}
    # Only the first row of a site, round and split names the classes.
    classes: dict[tuple[Evaluation, str], Any] = {}
    for evaluation, row in _by_evaluation(server.rows("metrics")):
        split = row["split"]
        # Rows of the split ``train`` are about the training of a round, not about an evaluation.
        if split in get_args(Split):
            row["classes"] = classes.setdefault((evaluation, split), row.get("classes", []))
            reported.setdefault(evaluation, []).append(row)
    return reported


def _by_evaluation(
    rows: Iterable[dict[str, Any]],
) -> Iterator[tuple[Evaluation, dict[str, Any]]]:
    """Yield the evaluation of each row of a log, and the row's other fields."""
    for row in rows:
        site = row.pop("site")
        round_ = row.pop("round")
        yield (site, round_), row


def _contradicted(server: ServerRecord, record: SiteRecord, site_row: Row) -> RunError:
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
    same_exchange = [row["seq"] for row in server.requests if turn_of(row) == exchange]
    if same_exchange:
        problem = "another: this line or one before it was changed, or some are missing"
        return fault(same_exchange[-1], expected, problem)
    if None not in exchange:  # A site's line may lack a round or a part.
        later_exchanges = [row["seq"] for row in server.requests if turn_of(row) > exchange]
        if later_exchanges:
            problem = "a later round: lines before this one were removed, or never written"
            return fault(later_exchanges[0], expected, problem)
    problem = "the end of the log: it was cut, or the request is missing"
    return fault(len(server.audit_rows) + 1, expected, problem)
