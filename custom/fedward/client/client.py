"""A site's half of every run: it answers the server's requests.

Both engines call :class:`Client`.
"""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fedward.client.admission import Admission
from fedward.client.memory import OWN, site_models
from fedward.client.queries import Queries
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.client.survey import answer_survey, hashable
from fedward.errors import FedwardError, RunError, WireError, WorkError
from fedward.evaluation.small_counts import withhold_small_counts
from fedward.methods.algorithm import Algorithm
from fedward.methods.local import Measurement
from fedward.methods.workflow import State
from fedward.nets.trainable import HEAD
from fedward.protocol import wire, wire_checks
from fedward.protocol.fields import RefusedError
from fedward.protocol.requests import DecryptRequest, Request, SurveyRequest, TaskRequest
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey
from fedward.security.encryption_site import open_sum, seal
from fedward.security.policy import JobRefusedError
from fedward.security.sums import image_set
from fedward.sites import SiteData
from fedward.terminal import reason, shown
from fedward.training.device_data import DeviceData
from fedward.training.features import stored_features
from fedward.training.learner import Aborted, Learner, LocalUpdate
from fedward.training.machine import described, device_of, threads_limited
from fedward.training.networks import Networks

_log = logging.getLogger(__name__)


class SiteTraining(Protocol):
    """Trains a site's model in a round: a learner, several processes, or an observed learner."""

    def train(
        self,
        model: State,
        peers: Sequence[State],
        round_: int,
        *,
        task: str,
        part: int,
        memory: MutableMapping[str, State],
        aborted: Aborted,
    ) -> LocalUpdate:
        """Train as :meth:`fedward.training.learner.Learner.train` does."""


class TrainingObserver(Protocol):
    """Notes how a site's training goes; only a simulation has one."""

    def observed(self, learner: Learner, run: str) -> SiteTraining:
        """Return what trains as the learner does and notes what it observes of the run."""


class Client:
    """Answers the requests of one site.

    Args:
        source: of the site's data, which are read once a request has been admitted.
        algorithm: the job's method.
        log: the site's log of requests and answers.
        admission: decides whether a request is answered.
        key: encrypts updates under secure aggregation.
        device: where the site works if its own file says ``auto``.
        observer: observes the training, if it runs in a single process.
    """

    def __init__(
        self,
        source: DataSource,
        algorithm: Algorithm[Any],
        log: SiteLog,
        admission: Admission,
        key: SiteKey | None = None,
        device: str = "auto",
        observer: TrainingObserver | None = None,
    ) -> None:
        self.name = source.site
        self.experiment = source.experiment
        self.source = source
        self.log = log
        self.admission = admission
        self.key = key
        self.algorithm = algorithm
        self._device = device
        self._observer = observer
        self._learner: Learner | None = None
        self._warned = False
        """Whether the log says already that the site has no tensors of its own."""

    @cached_property
    def _networks(self) -> Networks:
        chosen = self._device if self.data.device == "auto" else self.data.device
        device = device_of(chosen, f"site {self.name}")
        _log.info(
            "site %s works on %s with %d CPU threads",
            self.name,
            described(device),
            self.data.threads,
        )
        return Networks(self.experiment, self.algorithm, device)

    @property
    def learner(self) -> Learner:
        """Trains and evaluates, under active learning with the labels of the last request.

        Its random draws stay those of the first request of this process.
        """
        if self._learner is None:
            features = stored_features(
                self._networks.on_images,
                self.experiment,
                self.source.features,
                self.algorithm.requirements.plain_images,
            )
            images = DeviceData(self.data, self._networks.device, features=features)
            self._learner = Learner(
                self.name,
                self.experiment,
                self.algorithm,
                self._networks,
                images,
                self.admission.draws(),
            )
        return self._learner

    @cached_property
    def data(self) -> SiteData:
        """The site's data as their source gives them, read at first use."""
        return self.source.read(class_totals=self.algorithm.requirements.sends.class_totals)

    def handle(self, request: Message, aborted: Aborted = lambda: False) -> Message:
        """Answer a request and write the answer into the site's log; see :meth:`answer`."""
        answer = self.answer(request, aborted)
        try:
            self.log.add(answer)
        except Exception as error:
            return self._error(request, error)
        return answer

    def answer(self, request: Message, aborted: Aborted = lambda: False) -> Message:
        """Do what the server asks and return the answer. An error becomes an answer, too.

        Such an answer says only what kind of error it was. Paths and rows stay in the site's own
        log. An answer must be in :attr:`log` before it leaves the site.

        Args:
            request: of the server.
            aborted: asked before every step of a training; True ends it.
        """
        try:
            asked = self.log.admit(request)
            waiting = self.admission.waiting(asked, request.arrays)
            if waiting:
                return waiting
            return self._work(asked, request, aborted)
        except Exception as error:
            return self._error(request, error)

    def _error(self, request: Message, error: Exception) -> Message:
        """Log an error and return the answer that reports it."""
        round_ = request.meta.get("round")
        # The traceback of an unexpected error is logged, too.
        log = _log.error if isinstance(error, FedwardError) else _log.exception
        log("site %s, round %s: %s", self.name, shown(round_), error)
        meta = {"site": self.name, "round": round_, "error": public_text(error)}
        if isinstance(error, JobRefusedError):
            meta["refused"] = True
        return Message(meta)

    def _work(self, asked: Request, request: Message, aborted: Aborted) -> Message:
        """Return the answer to a request that the site's rules admit."""
        if isinstance(asked, SurveyRequest) != self.experiment.is_survey:
            raise WireError(
                f"task {shown(asked.task)}",
                "Send a job for each.",
                expected="a survey in a job that is one, and there nothing else",
                found="another",
            )
        if isinstance(asked, SurveyRequest):
            return answer_survey(asked, request, self.source, self.admission)
        if isinstance(asked, DecryptRequest):
            return self._decrypt(asked, request.arrays)
        self.source.require_same(asked.run)
        self.source.record(asked.run, described(self._networks.device))
        with threads_limited(self.data.threads):
            return self._carry_out(asked, request, aborted)

    def _carry_out(self, asked: TaskRequest, request: Message, aborted: Aborted) -> Message:
        """Evaluate the model, buy labels and train, as far as the request asks for it."""
        self._networks.require_base(asked.base)
        memory = site_models(self.source.folder / "memory", asked.run)
        kept_models = dict(memory.before(asked.round, asked.part) or {})
        model = wire.unflatten("model", request.arrays, self._networks.template)
        model.update(self._private_tensors(kept_models, asked.round))
        meta: dict[str, Any] = {"site": self.name, "round": asked.round, "steps": 0, "train": {}}
        if self.algorithm.active:
            queries = Queries(self.algorithm.active, self.source, self.data, self.admission)
            self._learner, reported = queries.carry_out(
                asked, self.learner, model, kept_models, aborted
            )
            meta |= reported
        data = self.learner.images.data
        meta["labelled"] = len(data.labelled)
        meta["unlabelled"] = len(data.unlabelled)
        if self.source.file is None:
            meta["synthetic"] = True
        meta |= self._evaluation(model) if asked.evaluate else {"metrics": []}
        arrays: dict[str, np.ndarray] = {}
        if asked.task not in wire.UNTRAINED:
            update = self._train(asked, request, model, kept_models, aborted)
            meta["steps"] = update.steps
            meta["train"] = update.means
            memory.save(asked.round, asked.part, kept_models)
            if update.steps:
                withheld = self.algorithm.requirements.tensors.withheld(asked.task)
                arrays = wire.difference(update.model, model, withheld)
        return self._checked(Message(meta, arrays), request, model)

    def _evaluation(self, model: State) -> dict[str, Any]:
        """Return what the server may know of a model on the site's images."""
        evaluation = self.learner.evaluate(model)
        fields: dict[str, Any] = {"metrics": withhold_small_counts(evaluation.metrics)}
        if evaluation.binned is not None:
            fields["binned"] = evaluation.binned
        return fields

    def _train(
        self,
        asked: TaskRequest,
        request: Message,
        model: State,
        kept_models: dict[str, State],
        aborted: Aborted,
    ) -> LocalUpdate:
        """Train as the request asks.

        ``kept_models``: what the site keeps for itself between rounds, by role. It is changed.
        """
        algorithm = self.algorithm
        data = self.learner.images.data
        phases = algorithm.phases(asked.task, asked.round, len(data.labelled))
        self.admission.check_training(phases, data)
        if any(isinstance(phase.objective, Measurement) for phase in phases):
            self.admission.grant_sums(asked.run, "oneshot", image_set(hashable(data.labelled)))
        peers = [
            wire.decode_peer(role, request.arrays, self._networks.template)
            for role in wire.roles(request.arrays)
        ]
        update = self._training(asked.run).train(
            model,
            peers,
            asked.round,
            task=asked.task,
            part=asked.part,
            memory=kept_models,
            aborted=aborted,
        )
        # A high threshold may leave batches from which no step is taken.
        self.admission.check_steps(update.steps)
        if update.steps:
            if algorithm.active and algorithm.active.sampler.uses.own_model:
                kept_models["local"] = update.model
            prefixes = algorithm.requirements.tensors.private
            private = {
                name: tensor for name, tensor in update.model.items() if name.startswith(prefixes)
            }
            if private:
                kept_models[OWN] = private
        return update

    def _training(self, run: str) -> SiteTraining:
        """Return what trains at this site: several processes, or one that may be observed."""
        learner = replace(self.learner, smallest_batch=self.admission.smallest_batch())
        # A head alone takes less time to train than a process takes to start.
        if self.data.processes > 1 and self.experiment.trainable != HEAD:
            from fedward.client.ranks import Processes

            return Processes(self.source, learner, self.data.processes)
        # Methods on plain images have no features of unlabelled images to observe.
        if self._observer and not self.algorithm.requirements.plain_images:
            return self._observer.observed(learner, run)
        return learner

    def _private_tensors(self, kept_models: Mapping[str, State], round_: int) -> State:
        """Return the tensors that the site trains for itself, as trained so far.

        The log says once if they are missing in a later round.
        """
        private = self.algorithm.requirements.tensors.private
        if private and OWN not in kept_models and round_ > 1 and not self._warned:
            self._warned = True
            _log.warning(
                "site %s, round %d: no %s of its own is remembered here, the server's first "
                "tensors are used",
                self.name,
                round_,
                ", ".join(name.rstrip(".") for name in private),
            )
        return kept_models.get(OWN, {})

    def _checked(self, answer: Message, request: Message, model: State) -> Message:
        """Return the answer as it may leave. Under secure aggregation its update is encrypted."""
        spec = self.experiment
        rules = spec.answer_rules(self.algorithm.requirements)
        wire_checks.check_answer(answer, self.name, request, rules)
        if spec.secure_aggregation:
            # The server cannot check the norm of an encrypted update.
            wire_checks.check_norm(self.name, answer, model, spec.largest_update)
            answer = seal(answer, request.meta["task"], self.algorithm.weight, self.key)
            wire_checks.check_answer(answer, self.name, request, rules, encrypted=True)
        return wire.encode_update(answer) if spec.update_dtype == "float16" else answer

    def _decrypt(self, request: DecryptRequest, sums: Mapping[str, np.ndarray]) -> Message:
        """Return the mean that a sum of encrypted updates stands for."""
        template = self._networks.template
        withheld = self.algorithm.requirements.tensors.withheld(request.trained)
        names = wire.travelling(template, withheld)
        return open_sum(
            request,
            sums,
            self.name,
            self.experiment,
            self.key,
            model={name: tuple(template[name].shape) for name in names},
            folder=self.source.folder / "decrypted",
            own=self.log.weight(request),
        )


def public_text(error: BaseException) -> str:
    """Return what the server may know of a site's error.

    Texts made for the server hold no data and no path, and pass as they are. Of an answer that the
    wire list refused, what was expected and where passes: what was found may be data. Of all other
    errors only the kind passes.
    """
    if isinstance(error, RefusedError):
        expected = f"{error.problem}: expected {error.expected}"
        return reason(f"{expected}; what was found is in the site's own log")
    if isinstance(error, WireError | WorkError):
        return reason(str(error))
    kind = "an unexpected error"
    if isinstance(error, RunError):
        kind = "what it keeps of the run"
    elif isinstance(error, FedwardError):
        kind = "the site's data or settings"
    return f"{type(error).__name__}: {kind}; the details are in the site's own log"
