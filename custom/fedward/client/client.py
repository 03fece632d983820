"""A site's half of a training: it evaluates models, trains them and decrypts sums."""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fedward.client.admission import Admission
from fedward.client.earlier_answers import read_for_run
from fedward.client.memory import LOCAL, OWN, site_models
from fedward.client.queries import Queries
from fedward.client.respondent import Respondent
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.client.survey import SurveyClient, counted_images
from fedward.evaluation.in_fives import in_fives
from fedward.evaluation.small_counts import withhold_small_counts
from fedward.methods.algorithm import Algorithm
from fedward.methods.evaluation_turn import rounds_of_model
from fedward.methods.local import Measurement
from fedward.methods.survey import Survey
from fedward.methods.workflow import Turn
from fedward.model_state import State
from fedward.nets.trainable import HEAD
from fedward.protocol import answer_checks, wire
from fedward.protocol.requests import DecryptRequest, Request, TaskRequest
from fedward.protocol.update_size import check_update_size
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey
from fedward.security.encryption_site import open_sum, seal
from fedward.security.sums import MEASURED, image_set
from fedward.sites import SiteData
from fedward.text import count
from fedward.training.device_data import DeviceData
from fedward.training.features import encoder_of
from fedward.training.learner import Aborted, Evaluation, Learner, LocalUpdate
from fedward.training.machine import described, device_of, threads_limited
from fedward.training.networks import Networks

_log = logging.getLogger(__name__)


class SiteTraining(Protocol):
    """Trains a site's model in a round, in one process or several."""

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
    """Records how a site's training goes, and what its models answer.

    Only a simulation has one.
    """

    def observed(self, learner: Learner, run: str) -> SiteTraining:
        """Return something that trains as the learner does, and records what it observes."""

    def evaluated(self, data: SiteData, run: str, round_: int, evaluation: Evaluation) -> None:
        """Record what the model after ``round_`` rounds answers about the site's test images."""


class Client(Respondent):
    """Answers the requests of a training at one site.

    Args:
        source: gives the site's data, which are read once a request has been admitted.
        algorithm: the job's method.
        log: the site's log of requests and answers.
        admission: decides whether a request is answered.
        key: encrypts updates under secure aggregation.
        device: where the site computes if its own file says ``auto``.
        observer: observes the training, if it runs in a single process.
    """

    answers = (TaskRequest, DecryptRequest)

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
        super().__init__(source, algorithm.requirements, log, admission)
        self.key = key
        self.algorithm = algorithm
        self._device = device
        self._observer = observer
        self._learner: Learner | None = None
        self._run = ""
        """Id of the run of the first request in this process; empty before it."""
        self._warned_of_missing_tensors = False
        """Whether the log already says that the site has no tensors of its own."""

    @cached_property
    def _networks(self) -> Networks:
        """The job's networks on the device where the site computes, built at first use."""
        device_name = self._device if self.data.device == "auto" else self.data.device
        device = device_of(device_name, f"site {self.name}")
        _log.info(
            "site %s works on %s with %s",
            self.name,
            described(device),
            count(self.data.threads, "CPU thread"),
        )
        return Networks(self.experiment, self.algorithm, device)

    @property
    def learner(self) -> Learner:
        """The learner that trains and evaluates; under active learning it has the newest labels.

        Its source of random draws is that of the first request in this process.
        """
        if self._learner is None:
            encoder = encoder_of(
                self._networks.on_images,
                self.experiment,
                self.source.features,
                self.algorithm.requirements.plain_images,
            )
            images = DeviceData(self.data, self._networks.device, encoder=encoder)
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
        """The site's data as they were when the run began, read at first use."""
        requirements = self.algorithm.requirements
        return read_for_run(
            self.source,
            self._run,
            class_totals=requirements.sends.class_totals,
            hidden_labels=requirements.hidden_labels,
        )

    @property
    def image_bytes(self) -> int:
        """Bytes of images that it keeps in memory between requests; 0 before they are read."""
        # A cached property is among the instance's variables once it was read.
        has_read_data = "data" in vars(self)
        return self.data.bytes_in_memory if has_read_data else 0

    def _work(self, request: Request, message: Message, aborted: Aborted) -> Message:
        """Return the answer to a request that the site's policy admits."""
        assert isinstance(request, TaskRequest | DecryptRequest)
        self._run = self._run or request.run
        if isinstance(request, DecryptRequest):
            return self._decrypt(request, message.arrays)
        self.source.require_same(request.run)
        self.source.record(request.run, described(self._networks.device))
        with threads_limited(self.data.threads):
            return self._carry_out(request, message, aborted)

    def _carry_out(self, request: TaskRequest, message: Message, aborted: Aborted) -> Message:
        """Buy labels, evaluate the model and train, as far as the request asks for it."""
        self._networks.require_base(request.base)
        memory = site_models(self.source.folder / "memory", request.run)
        kept_models = dict(memory.before(request.round, request.part) or {})
        model = wire.unflatten("model", message.arrays, self._networks.template)
        model.update(self._private_tensors(kept_models, request.round))
        meta: dict[str, Any] = {"site": self.name, "round": request.round, "steps": 0, "train": {}}
        if self.algorithm.active:
            queries = Queries(self.algorithm.active, self.source, self.data, self.admission)
            self._learner, reported = queries.carry_out(
                request, self.learner, model, kept_models, aborted
            )
            meta |= reported
        meta |= self._facts()
        if request.evaluate:
            meta |= self._evaluation(request, model)
        else:
            meta["metrics"] = []
        arrays: dict[str, np.ndarray] = {}
        if request.task not in wire.UNTRAINED:
            update = self._train(request, message, model, kept_models, aborted)
            meta["steps"] = update.steps
            meta["train"] = update.means
            memory.save(request.round, request.part, kept_models)
            if update.steps:
                withheld = self.algorithm.requirements.tensors.withheld(request.task)
                arrays = wire.difference(update.model, model, withheld)
        return self._checked(Message(meta, arrays), message, model)

    def _facts(self) -> dict[str, Any]:
        """Return the fields of an answer about the site's images themselves."""
        data = self.learner.images.data
        facts: dict[str, Any] = {
            "labelled": len(data.labelled),
            "unlabelled": len(data.unlabelled),
        }
        if self.source.file is None:
            facts["synthetic"] = True
        if data.card and self.requirements.sends.card and self.admission.lets_card_out():
            unusable_rows = sum(row.counted for row in data.rejected)
            facts["card"] = {"texts": dict(data.card), "unusable": in_fives(unusable_rows)}
        return facts

    def _evaluation(self, request: TaskRequest, model: State) -> dict[str, Any]:
        """Return the fields of an answer about a model's results on the site's images.

        Small counts are withheld.
        """
        evaluation = self.learner.evaluate(model)
        if self._observer:
            data = self.learner.images.data
            rounds = rounds_of_model(self.algorithm, Turn(request.round, request.part))
            self._observer.evaluated(data, request.run, rounds, evaluation)
        fields: dict[str, Any] = {"metrics": withhold_small_counts(evaluation.metrics)}
        if evaluation.counts is not None:
            fields["binned"] = evaluation.counts.to_wire() | self._further_counts(evaluation)
        return fields

    def _further_counts(self, evaluation: Evaluation) -> dict[str, Any]:
        """Return counts by subgroup and patient, as far as method, site and policy have them."""
        sends = self.requirements.sends
        counts: dict[str, Any] = {}
        if evaluation.subgroups and sends.subgroups and self.admission.lets_subgroups_out():
            counts["subgroups"] = [column.to_wire() for column in evaluation.subgroups]
        if evaluation.clusters and sends.clusters:
            counts["clusters"] = evaluation.clusters.to_wire()
        return counts

    def _train(
        self,
        request: TaskRequest,
        message: Message,
        model: State,
        kept_models: dict[str, State],
        aborted: Aborted,
    ) -> LocalUpdate:
        """Train as the request asks.

        Args:
            request: the checked request.
            message: the message that it came in, with the peers' models.
            model: where the training starts.
            kept_models: models that the site keeps for itself between rounds, by role. This method
                changes them.
            aborted: called before every step; True ends the training.
        """
        algorithm = self.algorithm
        data = self.learner.images.data
        phases = algorithm.phases(request.task, request.round, len(data.labelled))
        self.admission.check_training(phases, data)
        if any(isinstance(phase.objective, Measurement) for phase in phases):
            # Sums of nearly the same images, reported twice, would tell the images that differ.
            images = image_set(counted_images(data.labelled, self.experiment.data.classes))
            self.admission.grant_sums(request.run, MEASURED, images)
        peers = [
            wire.decode_peer(role, message.arrays, self._networks.template)
            for role in wire.roles(message.arrays)
        ]
        update = self._training(request.run).train(
            model,
            peers,
            request.round,
            task=request.task,
            part=request.part,
            memory=kept_models,
            aborted=aborted,
        )
        # A high threshold for pseudo-labels may leave batches from which no step is taken.
        self.admission.check_steps(update.steps)
        if update.steps:
            self._keep(update.model, kept_models)
        return update

    def _keep(self, trained: State, kept_models: dict[str, State]) -> None:
        """Put what later rounds need of a trained model among the models that the site keeps."""
        algorithm = self.algorithm
        if algorithm.active and algorithm.active.sampler.uses.own_model:
            kept_models[LOCAL] = trained
        private_prefixes = algorithm.requirements.tensors.private
        private = {}
        for name, tensor in trained.items():
            if name.startswith(private_prefixes):
                private[name] = tensor
        if private:
            kept_models[OWN] = private

    def _training(self, run: str) -> SiteTraining:
        """Return several processes that train, or a learner in this one, which may be observed."""
        learner = replace(self.learner, smallest_batch=self.admission.smallest_batch())
        # A head alone takes less time to train than a process takes to start.
        if self.data.processes > 1 and self.experiment.trainable != HEAD:
            from fedward.client.ranks import Processes

            return Processes(self.source, run, learner, self.data.processes)
        # Methods on plain images have no features of unlabelled images to observe.
        if self._observer and not self.algorithm.requirements.plain_images:
            return self._observer.observed(learner, run)
        return learner

    def _private_tensors(self, kept_models: Mapping[str, State], round_: int) -> State:
        """Return the tensors that the site trains for itself and never sends, as trained so far.

        A warning is logged once if they are missing in a round after the first.
        """
        private = self.algorithm.requirements.tensors.private
        are_missing = private and OWN not in kept_models and round_ > 1
        if are_missing and not self._warned_of_missing_tensors:
            self._warned_of_missing_tensors = True
            _log.warning(
                "site %s, round %d: no %s of its own is remembered here, the server's first "
                "tensors are used",
                self.name,
                round_,
                ", ".join(name.rstrip(".") or "model" for name in private),
            )
        return kept_models.get(OWN, {})

    def _checked(self, answer: Message, message: Message, model: State) -> Message:
        """Check an answer, and return it encrypted or in float16 if the job says so."""
        experiment = self.experiment
        rules = experiment.answer_rules(self.algorithm.requirements)
        answer_checks.check_answer(answer, self.name, message, rules)
        if experiment.secure_aggregation:
            # The server cannot check the norm of an encrypted update.
            check_update_size(self.name, answer, model, experiment.largest_update)
            answer = seal(answer, message.meta["task"], self.algorithm.weight, self.key)
            answer_checks.check_answer(answer, self.name, message, rules, encrypted=True)
        if experiment.update_dtype == "float16":
            return wire.encode_update(answer)
        return answer

    def _decrypt(self, request: DecryptRequest, sums: Mapping[str, np.ndarray]) -> Message:
        """Return the mean of updates, decrypted from their encrypted sum."""
        template = self._networks.template
        withheld = self.algorithm.requirements.tensors.withheld(request.trained)
        tensor_names = wire.travelling(template, withheld)
        return open_sum(
            request,
            sums,
            self.name,
            self.experiment,
            self.key,
            model={name: tuple(template[name].shape) for name in tensor_names},
            folder=self.source.folder / "decrypted",
            own=self.log.weight(request, self.algorithm.weight),
        )


def client_of(
    source: DataSource,
    algorithm: Algorithm[Any] | Survey,
    log: SiteLog,
    admission: Admission,
    key: SiteKey | None = None,
    device: str = "auto",
    observer: TrainingObserver | None = None,
) -> Client | SurveyClient:
    """Return the client of a site for the kind of job that it works on.

    The arguments are those of :class:`Client`; a survey needs the first four.
    """
    if isinstance(algorithm, Survey):
        return SurveyClient(source, algorithm.requirements, log, admission)
    return Client(source, algorithm, log, admission, key, device, observer)
