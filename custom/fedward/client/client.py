"""A site's half of every method: it answers the server's requests. Both engines call
:class:`Client`.
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
from fedward.protocol.requests import DecryptRequest, SurveyRequest, TaskRequest
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

    The data of ``source`` are read once a request has been admitted. Under secure aggregation
    updates are encrypted with ``key``. The site works on the device that its own file names, and
    where that says ``auto`` on ``device``. Where one process trains, ``observer`` observes it.
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
        """What trains and evaluates, under active learning with the labels of the last request.

        What it draws by stays that of the first request of this process.
        """
        if self._learner is None:
            plain = self.algorithm.requirements.plain_images
            cache = self.source.features
            features = stored_features(self._networks.on_images, self.experiment, cache, plain)
            images = DeviceData(self.data, self._networks.device, features=features)
            draws = self.admission.draws()
            self._learner = Learner(
                self.name, self.experiment, self.algorithm, self._networks, images, draws
            )
        return self._learner

    @cached_property
    def data(self) -> SiteData:
        """The site's data as their source gives them, read at first use."""
        return self.source.read(class_totals=self.algorithm.requirements.sends.class_totals)

    def handle(self, request: Message, aborted: Aborted = lambda: False) -> Message:
        """Do what the server asks, write it into the site's log, and return the answer; see
        :meth:`answer`.
        """
        answer = self.answer(request, aborted)
        try:
            self.log.add(answer)
        except Exception as error:
            return self._error(request, error)
        return answer

    def answer(self, request: Message, aborted: Aborted = lambda: False) -> Message:
        """Do what the server asks and return the answer. It never raises: an error becomes an
        answer.

        Such an answer says only what kind of error it was. Paths and rows stay in the site's own
        log. An answer must be in :attr:`log` before it leaves the site.
        """
        try:
            asked = self.log.admit(request)
            waiting = self.admission.waiting(asked, request.arrays)
            if waiting:
                return waiting
            if isinstance(asked, SurveyRequest) != self.experiment.is_survey:
                raise WireError(
                    f"task {shown(asked.task)}",
                    expected="a survey in a job that is one, and there nothing else",
                    found="another",
                    remedy="Send a job for each.",
                )
            if isinstance(asked, SurveyRequest):
                return answer_survey(asked, request, self.source, self.admission)
            if isinstance(asked, DecryptRequest):
                return self._decrypt(asked, request.arrays)
            return self._work(asked, request, aborted)
        except Exception as error:
            return self._error(request, error)

    def _error(self, request: Message, error: Exception) -> Message:
        log = (
            _log.error if isinstance(error, FedwardError) else _log.exception
        )  # with its traceback
        log("site %s, round %s: %s", self.name, shown(request.meta.get("round")), error)
        meta = {"site": self.name, "round": request.meta.get("round"), "error": public_text(error)}
        return Message(meta | ({"refused": True} if isinstance(error, JobRefusedError) else {}))

    def _work(self, asked: TaskRequest, request: Message, aborted: Aborted) -> Message:
        self.source.require_same(asked.run)
        self.source.record(asked.run, described(self._networks.device))
        with threads_limited(self.data.threads):
            return self._carry_out(asked, request, aborted)

    def _carry_out(self, asked: TaskRequest, request: Message, aborted: Aborted) -> Message:
        self._networks.require_base(asked.base)
        memory = site_models(self.source.folder / "memory", asked.run)
        known = {**(memory.before(asked.round, asked.part) or {})}
        model = {
            **wire.unflatten("model", request.arrays, self._networks.template),
            **self._own(known, asked.round),
        }
        counts: dict[str, Any] = {}
        active = self.algorithm.active
        if active:
            queries = Queries(active, self.source, self.data, self.admission)
            self._learner, counts = queries.carry_out(asked, self.learner, model, known, aborted)
        data = self.learner.images.data
        meta: dict[str, Any] = {
            "site": self.name,
            "round": asked.round,
            "steps": 0,
            "train": {},
            **counts,
        }
        meta |= {"labelled": len(data.labelled), "unlabelled": len(data.unlabelled)}
        meta |= {"synthetic": True} if self.source.file is None else {}
        meta |= self._evaluation(model) if asked.evaluate else {"metrics": []}
        arrays: dict[str, np.ndarray] = {}
        if asked.task not in wire.UNTRAINED:
            update = self._train(asked, request, model, known, aborted)
            meta |= {"steps": update.steps, "train": update.means}
            memory.save(asked.round, asked.part, known)
            if update.steps:
                arrays = wire.difference(
                    update.model, model, self.algorithm.requirements.tensors.withheld(asked.task)
                )
        return self._checked(Message(meta, arrays), request, model)

    def _evaluation(self, model: State) -> dict[str, Any]:
        """Return what the server may know of a model on the site's images."""
        found = self.learner.evaluate(model)
        binned = {} if found.binned is None else {"binned": found.binned}
        return {"metrics": withhold_small_counts(found.metrics), **binned}

    def _train(
        self,
        asked: TaskRequest,
        request: Message,
        model: State,
        known: dict[str, State],
        aborted: Aborted,
    ) -> LocalUpdate:
        """Train as the request asks; ``known``, what the site keeps for itself, is changed."""
        algorithm = self.algorithm
        template = self._networks.template
        learner = replace(self.learner, smallest_batch=self.admission.smallest_batch())
        peers = [
            wire.decode_peer(role, request.arrays, template) for role in wire.roles(request.arrays)
        ]
        data = learner.images.data
        processes = self.data.processes
        phases = algorithm.phases(asked.task, asked.round, len(data.labelled))
        self.admission.check_training(phases, data)
        if any(isinstance(phase.objective, Measurement) for phase in phases):
            self.admission.grant_sums(asked.run, "oneshot", image_set(hashable(data.labelled)))
        training: SiteTraining = learner
        # A head alone takes less time to train than a process takes to start.
        if processes > 1 and self.experiment.trainable != HEAD:
            from fedward.client.ranks import Processes

            training = Processes(self.source, learner, processes)
        # Methods on plain images have no features of unlabelled images to observe.
        elif self._observer and not algorithm.requirements.plain_images:
            training = self._observer.observed(learner, asked.run)
        update = training.train(
            model,
            peers,
            asked.round,
            task=asked.task,
            part=asked.part,
            memory=known,
            aborted=aborted,
        )
        self.admission.check_steps(
            update.steps
        )  # a high threshold leaves batches from which no step is taken
        if update.steps:
            if algorithm.active and algorithm.active.sampler.uses.own_model:
                known["local"] = update.model
            private = algorithm.requirements.tensors.private
            own = {key: update.model[key] for key in update.model if key.startswith(private)}
            if own:
                known[OWN] = own
        return update

    def _own(self, known: Mapping[str, State], round_: int) -> State:
        """Return the private tensors as trained so far; log once if they are missing in a later
        round.
        """
        private = self.algorithm.requirements.tensors.private
        if private and OWN not in known and round_ > 1 and not self._warned:
            self._warned = True
            what = ", ".join(name.rstrip(".") for name in private)
            text = "site %s, round %d: no %s of its own is remembered here, the server's first tensors are used"
            _log.warning(text, self.name, round_, what)
        return known.get(OWN, {})

    def _checked(self, answer: Message, request: Message, model: State) -> Message:
        """Return the answer as it may leave. Under secure aggregation its update is encrypted."""
        spec = self.experiment
        method = self.algorithm
        rules = spec.answer_rules(method.requirements)
        wire_checks.check_answer(answer, self.name, request, rules)
        if spec.secure_aggregation:
            # The server cannot check the norm of an encrypted update.
            wire_checks.check_norm(self.name, answer, model, spec.largest_update)
            answer = seal(answer, request.meta["task"], method.weight, self.key)
            wire_checks.check_answer(answer, self.name, request, rules, encrypted=True)
        return wire.encode_update(answer) if spec.update_dtype == "float16" else answer

    def _decrypt(self, request: DecryptRequest, sums: Mapping[str, np.ndarray]) -> Message:
        template = self._networks.template
        names = wire.travelling(
            template, self.algorithm.requirements.tensors.withheld(request.trained)
        )
        model = {name: tuple(template[name].shape) for name in names}
        folder = self.source.folder / "decrypted"
        own = self.log.weight(request)
        return open_sum(
            request, sums, self.name, self.experiment, self.key, model=model, folder=folder, own=own
        )


def public_text(error: BaseException) -> str:
    """Return what the server may know of a site's error.

    Texts made for the server hold no data and no path, and pass as they are. Of an answer that the
    wire list refused, where and what was expected passes: what was found may be data. Of all others
    only the kind does.
    """
    if isinstance(error, RefusedError):
        return reason(
            f"{error.problem}: expected {error.expected}; what was found is in the site's own log"
        )
    if isinstance(error, WireError | WorkError):
        return reason(str(error))
    kind = "an unexpected error"
    if isinstance(error, FedwardError):
        kind = (
            "what it keeps of the run"
            if isinstance(error, RunError)
            else "the site's data or settings"
        )
    return f"{type(error).__name__}: {kind}; the details are in the site's own log"
