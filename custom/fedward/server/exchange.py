"""One exchange of models with the sites: requests go out, checked answers become models on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedward.digests import arrays_digest
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange
from fedward.model_state import State
from fedward.protocol import answer_checks, wire
from fedward.protocol.messages import Answer, ErrorAnswer, WaitingAnswer
from fedward.protocol.transport import Transport
from fedward.protocol.update_size import check_update_size
from fedward.protocol.wire import Message
from fedward.server.asking import Inquiry, Replies, common_fields
from fedward.server.claims import Claims
from fedward.server.consent import Consent
from fedward.server.requests import models_by_site, sent_hashes, task_requests
from fedward.storage.run_folder import RunFolder
from fedward.storage.spill import Spill

if TYPE_CHECKING:
    from fedward.console.listener import Listener

_NO_STEP = "took no training step: {} labelled, {} unlabelled images"


@dataclass
class Result(Replies):
    """What came back from one exchange of models, by site."""

    tasks: Mapping[str, ClientTask] = field(default_factory=dict)
    """Site -> its task. Sites without a task are only asked to evaluate the model."""
    updates: dict[str, ClientUpdate] = field(default_factory=dict)
    """Updates for the method's workflow, including those of sites that took no step."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """The checked answers, without their tensors."""
    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each update that is used, as it arrived."""
    bytes_up: dict[str, int] = field(default_factory=dict)
    """Site -> bytes of its answers, also of those that cannot be used."""
    mean: State | None = None
    """The mean model of all updates, where the sites encrypt."""

    @property
    def trained(self) -> list[str]:
        """Names of the sites that trained, sorted."""
        return sorted(site for site, update in self.updates.items() if update.trained)

    @property
    def without_images(self) -> set[str]:
        """Sites that were to train and have no training image: they can only evaluate."""
        return {
            site
            for site, update in self.updates.items()
            if site in self.failed and not update.labelled + update.unlabelled
        }

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
        """Send an exchange to the sites and return what came back.

        Sites that wait for approval are asked again as long as their updates are needed.

        Args:
            exchange: what the method's workflow wants.
            evaluate: sites that also evaluate the model.
        """
        result = Result(self._requests(exchange, evaluate), tasks=exchange.tasks)

        def accept(site: str, answer: Message) -> None:
            self._accept(exchange, site, answer, result)

        def too_few() -> bool:
            if self._algorithm.requirements.server.learns_alone:
                return len(result.answers) < self._experiment.minimum_replies
            return self._has_too_few(exchange, result)

        self._inquiry.ask(exchange.turn, result, accept, too_few)
        if self._has_too_few(exchange, result):
            self._drop_updates(exchange, result)
        self._run.audit.add(
            "answered",
            round=exchange.round,
            part=exchange.part,
            replied=result.trained,
            updates=result.hashes,
            evaluated=sorted(site for site, answer in result.answers.items() if answer.metrics),
            failed=result.failed,
        )
        return result

    def _requests(self, exchange: Exchange, evaluate: Sequence[str]) -> dict[str, Message]:
        """Log the requests in the audit log, and return them; they name its line."""
        run = self._run
        models = models_by_site(exchange, evaluate, Spill(run.path).put)
        last_hash = run.audit.add(
            "asked",
            round=exchange.round,
            part=exchange.part,
            tasks={site: task.name for site, task in exchange.tasks.items()},
            evaluate=list(evaluate),
            decisions=exchange.decisions,
            **sent_hashes(models),
        )
        fields = common_fields(run, last_hash)
        init = run.info.init
        if init:
            fields["weights"] = init.get("model", init["sha256"])
        if run.info.base:
            fields["base"] = run.info.base
        return task_requests(exchange, models, evaluate, fields)

    def _sites_that_count(self, exchange: Exchange, result: Result) -> list[str]:
        """Return the sites that trained and whose update has a weight above 0 in an average."""
        sites = []
        for site in result.trained:
            update = result.updates[site]
            if self._weight(exchange, update):
                sites.append(site)
        return sites

    def _weight(self, exchange: Exchange, update: ClientUpdate) -> int:
        """Return the weight of an update in an average, before any limit to one site's share."""
        task = exchange.tasks[update.site].name
        return self._algorithm.weight(task, update.labelled, update.unlabelled, update.steps)

    def _has_too_few(self, exchange: Exchange, result: Result) -> bool:
        return len(self._sites_that_count(exchange, result)) < self._experiment.minimum_replies

    def _drop_updates(self, exchange: Exchange, result: Result) -> None:
        """Drop all updates, which are too few for an average. None becomes a peer model either."""
        number = len(self._sites_that_count(exchange, result))
        needed = self._experiment.minimum_replies
        for site in result.trained:
            self._run.models.forget(site, exchange.round)
            del result.updates[site]
            result.hashes.pop(site, None)
            result.drop([site], needed, number)

    def _accept(self, exchange: Exchange, site: str, answer: Message, result: Result) -> None:
        """Check an answer and add it to the result; raise WireError if it cannot be used."""
        result.bytes_up[site] = result.bytes_up.get(site, 0) + answer.nbytes
        experiment = self._experiment
        request = result.requests[site]
        task = request.meta["task"]
        requirements = self._algorithm.requirements
        with answer_checks.only_refusals(f"answer of {site}"):
            if experiment.update_dtype == "float16":
                shapes = wire.shapes(request, requirements.tensors.withheld(task))
                answer = wire.decode_update(answer, shapes)
            checked = answer_checks.check_answer(
                answer, site, request, experiment.answer_rules(requirements)
            )
            if isinstance(checked, Answer):
                self._claims.check(checked, request.meta)
        if isinstance(checked, ErrorAnswer | WaitingAnswer):
            result.note_unwilling(site, checked)
            return
        result.answers[site] = checked
        state = exchange.model
        if checked.steps:
            state = self._trained(exchange, site, answer, result)
        elif task not in wire.UNTRAINED:
            result.failed[site] = _NO_STEP.format(checked.labelled, checked.unlabelled)
        result.updates[site] = ClientUpdate(
            site,
            state,
            labelled=checked.labelled,
            unlabelled=checked.unlabelled,
            steps=checked.steps,
        )

    def _trained(self, exchange: Exchange, site: str, answer: Message, result: Result) -> State:
        """Return a site's trained model, read from disk.

        Where the sites encrypt, all answers hold the same mean of all models. It is rebuilt once
        and stays in memory.
        """
        check_update_size(site, answer, exchange.model, self._experiment.largest_update)
        result.hashes[site] = answer.received or arrays_digest(answer.arrays)
        if not self._experiment.secure_aggregation:
            return self._run.models.put(site, exchange.round, wire.rebuild(exchange.model, answer))
        if result.mean is None:
            result.mean = wire.rebuild(exchange.model, answer)
        return result.mean
