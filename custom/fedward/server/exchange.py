"""One exchange with the sites: requests go out, answers are checked as they come, updates become
models on disk.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedward.digests import arrays_digest
from fedward.errors import WireError
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import ClientUpdate, Exchange, State
from fedward.protocol import wire, wire_checks
from fedward.protocol.messages import Answer, ErrorAnswer, SurveyAnswer, WaitingAnswer
from fedward.protocol.transport import Transport
from fedward.protocol.versions import versions
from fedward.protocol.wire import Message
from fedward.server.claims import Claims
from fedward.server.consent import Consent
from fedward.storage.run_folder import RunFolder
from fedward.storage.spill import Spill
from fedward.terminal import reason

if TYPE_CHECKING:
    from fedward.console.listener import Listener

_NOTHING_TO_DO = "took no step as {}: {} labelled, {} unlabelled images"
_WAITING = "waiting for approval of job {} by the site's administrator"


@dataclass
class Result:
    """What came back from one exchange, by site."""

    requests: dict[str, Message]
    updates: dict[str, ClientUpdate] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    surveys: dict[str, SurveyAnswer] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Why there is no update."""
    refused: set[str] = field(default_factory=set)
    """Those of ``failed`` whose policy forbids the job."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Digest of the job that the site's administrator has not approved yet."""
    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each update that is used, as it came."""
    bytes_up: dict[str, int] = field(default_factory=dict)
    mean: State | None = None
    """The model of all updates, where the sites encrypt."""

    @property
    def useful(self) -> list[str]:
        """Sites that did what they were asked for, sorted."""
        return sorted(site for site, update in self.updates.items() if update.useful)

    def forget(self, sites: Collection[str]) -> None:
        """Drop why these sites have no update: they are asked again."""
        for site in sites:
            self.failed.pop(site, None)
            self.waiting.pop(site, None)
        self.refused -= set(sites)


class Communicator:
    """Carries out the exchanges of one run."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
        run: RunFolder,
        transport: Transport,
        consent: Consent,
        listener: "Listener",
    ) -> None:
        self._experiment = run.experiment
        self._algorithm = algorithm
        self._run = run
        self._transport = transport
        self._consent = consent
        self._listener = listener
        self._claims = Claims(algorithm)

    def exchange(self, exchange: Exchange, evaluate: Sequence[str]) -> Result:
        """Send an exchange to the sites and return what came back; sites in ``evaluate`` also
        evaluate the model.

        Sites that wait for approval are asked again as long as their updates are needed.
        """
        result = Result(self._requests(exchange, evaluate))
        pending = set[str]()

        def deliver(site: str, answer: Message) -> None:
            if site not in pending:
                return  # a second or stale answer: the first one stands
            pending.discard(site)
            self._listener.answered(site)
            try:
                self._accept(exchange, site, answer, result)
            except WireError as error:
                result.failed[site] = reason(str(error))

        def send(sites: Collection[str]) -> None:
            pending.update(sites)
            result.forget(sites)
            requests = {site: result.requests[site] for site in sorted(sites)}
            self._listener.asked(exchange.round, exchange.part, requests)
            self._transport.exchange(requests, self._experiment.timeout, deliver)
            self._consent.report(result.waiting)

        send(set(result.requests))
        while self._is_worth_waiting(exchange, result):
            self._consent.pause()
            send(set(result.waiting))
            if not result.waiting and self._lacks(exchange, result):
                send(set(exchange.tasks) - set(result.updates))  # theirs was one of too few
        result.failed |= {site: _WAITING.format(digest) for site, digest in result.waiting.items()}
        result.failed |= dict.fromkeys(
            sorted(pending), f"no answer within {self._experiment.timeout} s"
        )
        self._drop_too_few(exchange, result)
        evaluated = sorted(site for site, answer in result.answers.items() if answer.metrics)
        facts = {
            "replied": result.useful,
            "updates": result.hashes,
            "evaluated": evaluated,
            "failed": result.failed,
        }
        self._run.audit.add("answered", round=exchange.round, part=exchange.part, **facts)
        return result

    def _requests(self, exchange: Exchange, evaluate: Sequence[str]) -> dict[str, Message]:
        """Return the requests, which name the line of the audit log that was written about them."""
        run = self._run
        init = self._run.info.init
        models = wire.models(exchange, evaluate, Spill(run.path).put)
        tasks = {site: task.name for site, task in exchange.tasks.items()}
        asked = {
            "tasks": tasks,
            "evaluate": list(evaluate),
            "decisions": exchange.record,
            **wire.sent(models),
        }
        last_hash = run.audit.add("asked", round=exchange.round, part=exchange.part, **asked)
        facts = {
            "run": run.info.id,
            "members": len(run.sites),
            "experiment": self._experiment.digest,
        }
        facts |= {"versions": versions(), "last_hash": last_hash}
        facts |= {"weights": init.get("model", init["sha256"])} if init else {}
        facts |= {"base": run.info.base} if run.info.base else {}
        return wire.requests(exchange, models, evaluate, facts)

    def _counting(self, exchange: Exchange, result: Result) -> list[str]:
        """Return the sites that did what they were asked for, but for those whose update has no
        weight in a mean.
        """
        updates = {site: result.updates[site] for site in result.useful}
        return [
            site
            for site, update in updates.items()
            if not update.steps or self._weight(exchange, update)
        ]

    def _weight(self, exchange: Exchange, update: ClientUpdate) -> int:
        task = exchange.tasks[update.site].name
        return self._algorithm.weight(task, update.labelled, update.unlabelled, update.steps)

    def _lacks(self, exchange: Exchange, result: Result) -> bool:
        return len(self._counting(exchange, result)) < self._experiment.minimum_replies

    def _is_worth_waiting(self, exchange: Exchange, result: Result) -> bool:
        """Return whether updates are too few, and may be enough once sites that wait for approval
        have it.
        """
        willing = set(exchange.tasks) - result.refused
        enough = len(willing) >= self._experiment.minimum_replies
        return enough and self._lacks(exchange, result) and bool(willing & set(result.waiting))

    def _drop_too_few(self, exchange: Exchange, result: Result) -> None:
        """Drop updates of which there are fewer than an exchange needs: neither averages nor peers
        come of them.
        """
        if not self._lacks(exchange, result):
            return
        counting = self._counting(exchange, result)
        needed = self._experiment.minimum_replies
        for site in result.useful:
            self._run.models.forget(site, exchange.round)
            del result.updates[site]
            result.hashes.pop(site, None)
            result.failed[site] = f"not used: minimum_replies is {needed}, came {len(counting)}"

    def _accept(self, exchange: Exchange, site: str, answer: Message, result: Result) -> None:
        """Check an answer and add it to the result; WireError if it cannot be used."""
        spec = self._experiment
        request = result.requests[site]
        needs = self._algorithm.requirements
        if spec.update_dtype == "float16":
            answer = wire.decode_update(
                answer, wire.shapes(request, needs.tensors.withheld(request.meta["task"]))
            )
        listed = (needs, spec.data.classes, spec.metrics)
        checked = wire_checks.check_answer(
            answer, site, request, *listed, label_kind=spec.data.label_kind
        )
        if isinstance(checked, ErrorAnswer):
            result.failed[site] = reason(checked.error)
            result.refused |= {site} if checked.refused else set()
            return
        if isinstance(checked, WaitingAnswer):
            result.waiting[site] = checked.waiting
            return
        if isinstance(checked, SurveyAnswer):
            result.surveys[site] = checked
            counts = checked.survey.model_dump()
            result.updates[site] = ClientUpdate(site, exchange.model, 0, 0, 0, survey=counts)
            return
        self._claims.check(checked, request.meta)
        result.bytes_up[site], result.answers[site] = answer.nbytes, checked
        state = exchange.model
        images = (checked.labelled, checked.unlabelled)
        if checked.steps:
            state = self._trained(exchange, site, answer, result)
        elif (task := request.meta["task"]) not in wire.UNTRAINED:
            result.failed[site] = _NOTHING_TO_DO.format(task, *images)
        scores = checked.scores or ()
        due = checked.due or 0
        result.updates[site] = ClientUpdate(site, state, *images, checked.steps, scores, due)

    def _trained(self, exchange: Exchange, site: str, answer: Message, result: Result) -> State:
        """Return a site's trained model as it lies on disk, or the mean of all, once, where the
        sites encrypt.
        """
        wire_checks.check_norm(site, answer, exchange.model, self._experiment.largest_update)
        result.hashes[site] = answer.received or arrays_digest(answer.arrays)
        if not self._experiment.secure_aggregation:
            return self._run.models.put(site, exchange.round, wire.rebuild(exchange.model, answer))
        if result.mean is None:
            result.mean = wire.rebuild(exchange.model, answer)
        return result.mean
