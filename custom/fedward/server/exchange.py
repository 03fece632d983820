"""One exchange with the sites: requests go out, answers are checked as they come, updates become
models on disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedward.digests import arrays_digest
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange, State
from fedward.protocol import wire, wire_checks
from fedward.protocol.messages import Answer, ErrorAnswer, WaitingAnswer
from fedward.protocol.transport import Transport
from fedward.protocol.wire import Message
from fedward.server.asking import Inquiry, Replies, common_fields
from fedward.server.claims import Claims
from fedward.server.consent import Consent
from fedward.server.requests import models_by_site, sent_hashes, task_requests
from fedward.storage.run_folder import RunFolder
from fedward.storage.spill import Spill

if TYPE_CHECKING:
    from fedward.console.listener import Listener

_NOTHING_TO_DO = "took no step as {}: {} labelled, {} unlabelled images"


@dataclass
class Result(Replies):
    """What came back from one exchange with a model, by site."""

    tasks: Mapping[str, ClientTask] = field(default_factory=dict)
    """Sites with a task; others are only asked to evaluate the model."""
    updates: dict[str, ClientUpdate] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each update that is used, as it came."""
    bytes_up: dict[str, int] = field(default_factory=dict)
    mean: State | None = None
    """The model of all updates, where the sites encrypt."""

    @property
    def useful(self) -> list[str]:
        """Sites that did what they were asked for, sorted."""
        return sorted(site for site, update in self.updates.items() if update.useful)

    @property
    def wanted(self) -> set[str]:
        """Sites with a task."""
        return set(self.tasks)

    @property
    def given(self) -> set[str]:
        """Sites that have an update."""
        return set(self.updates)


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
        self._inquiry = Inquiry(run, transport, consent, listener)
        self._claims = Claims(algorithm)

    def exchange(self, exchange: Exchange, evaluate: Sequence[str]) -> Result:
        """Send an exchange to the sites and return what came back; sites in ``evaluate`` also
        evaluate the model.

        Sites that wait for approval are asked again as long as their updates are needed.
        """
        result = Result(self._requests(exchange, evaluate), tasks=exchange.tasks)

        def accept(site: str, answer: Message) -> None:
            self._accept(exchange, site, answer, result)

        def too_few() -> bool:
            return self._lacks(exchange, result)

        self._inquiry.ask((exchange.round, exchange.part), result, accept, too_few)
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
        models = models_by_site(exchange, evaluate, Spill(run.path).put)
        tasks = {site: task.name for site, task in exchange.tasks.items()}
        asked = {
            "tasks": tasks,
            "evaluate": list(evaluate),
            "decisions": exchange.record,
            **sent_hashes(models),
        }
        last_hash = run.audit.add("asked", round=exchange.round, part=exchange.part, **asked)
        fields = common_fields(run, last_hash)
        if init:
            fields["weights"] = init.get("model", init["sha256"])
        if run.info.base:
            fields["base"] = run.info.base
        return task_requests(exchange, models, evaluate, fields)

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
        checked = wire_checks.check_answer(answer, site, request, spec.answer_rules(needs))
        if isinstance(checked, ErrorAnswer | WaitingAnswer):
            result.note_unwilling(site, checked)
            return
        self._claims.check(checked, request.meta)
        result.bytes_up[site], result.answers[site] = answer.nbytes, checked
        state = exchange.model
        images = (checked.labelled, checked.unlabelled)
        if checked.steps:
            state = self._trained(exchange, site, answer, result)
        elif (task := request.meta["task"]) not in wire.UNTRAINED:
            result.failed[site] = _NOTHING_TO_DO.format(task, *images)
        result.updates[site] = ClientUpdate(site, state, *images, checked.steps)

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
