"""Training and evaluation of one model on one set of images.

Sites, the server with its own images, and all processes of a distributed training do it this way.
"""

import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedward.config import Experiment
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.clusters import ClusterCounts
from fedward.evaluation.patients import unit_answers, units_of
from fedward.evaluation.subgroups import SubgroupCounts, subgroup_counts
from fedward.methods.algorithm import Algorithm
from fedward.methods.class_weights import chosen_class_weights
from fedward.methods.local import Phase, RoundInputs
from fedward.methods.settings import Settings
from fedward.model_state import State
from fedward.nets.trainable import HEAD
from fedward.registry import METRICS
from fedward.seeds import Draws
from fedward.training.batches import RoundBatches
from fedward.training.device_data import DeviceData
from fedward.training.evaluation import predict
from fedward.training.features import stored_views
from fedward.training.networks import Networks
from fedward.views import VIEWS, Views

if TYPE_CHECKING:
    from fedward.training.trainer import SharedLosses, Trained

Aborted = Callable[[], bool]
"""Called before every step; True ends the training."""


class Evaluation(NamedTuple):
    """How good a model is on some splits of the images."""

    metrics: list[dict[str, Any]]
    """Rows of :func:`~fedward.evaluation.one_label.classification_metrics`, with their split.

    Where the job evaluates by patient, all numbers here are of patients.
    """
    counts: AnswerCounts | None
    """Counts of the model's answers on the test images; None if that split was not asked for."""
    test_answers: NDArray[np.int64] | None = None
    """(N,) index of the class that the model gives each test image; it never leaves the site.

    None if that split was not asked for, or where an image may show several classes.
    """
    subgroups: Sequence[SubgroupCounts] = ()
    """Right answers to test images by each of the site's columns of subgroups."""
    clusters: ClusterCounts | None = None
    """What the test images are worth in intervals; None where the site names no patients."""


class LocalUpdate(NamedTuple):
    """What a round of training returns."""

    model: State
    """The trained model, on the CPU; the model that was given, if no step was taken."""
    steps: int
    """Number of optimiser steps in all phases; a batch that is measured counts as one."""
    means: dict[str, float]
    """Mean losses and logs by name; after a step also the ``seconds`` that the training took."""


def _never_aborted() -> bool:
    return False


@dataclass(frozen=True)
class PhaseRequest:
    """One phase of a round that is to be trained."""

    net: nn.Module
    """The network, which is trained in place."""
    batches: RoundBatches
    """The batches, each of which makes at most one step."""
    phase: Phase
    """What is minimised, and how fast."""
    inputs: RoundInputs
    """What stays fixed during the phase."""
    settings: Settings
    """The method's settings."""
    device: torch.device
    """Where to train."""
    aborted: Aborted
    """Called before every step; True ends the training."""


class TrainsPhase(Protocol):
    """Trains one phase of a round."""

    def __call__(self, request: PhaseRequest, /) -> "Trained":
        """Train the request's network in place."""
        ...


def train_phase(request: PhaseRequest, shared: "SharedLosses | None" = None) -> "Trained":
    """Train one phase by :func:`fedward.training.trainer.train`."""
    # Imported here, because a process that only evaluates needs no trainer.
    from fedward.training.trainer import train

    return train(
        request.net,
        request.batches,
        request.phase,
        request.inputs,
        request.settings,
        device=request.device,
        aborted=request.aborted,
        shared=shared,
    )


@dataclass(frozen=True)
class Learner:
    """A method, its networks, and the images on which it trains and evaluates."""

    name: str
    """The site's name, or ``server``. Each name draws random numbers of its own."""
    experiment: Experiment
    """The job's configuration."""
    algorithm: Algorithm[Any]
    """The method, whose phases are trained."""
    networks: Networks
    """The networks into which models are loaded."""
    images: DeviceData
    """The images, on the device that trains."""
    draws: Draws
    """Makes generators of random numbers from the experiment's seed."""
    batch: int | None = None
    """Number of images in a step, over all processes; None: the job's batch."""
    smallest_batch: int = 1
    """Smallest number of images in a step that learns from pseudo-labels alone."""
    run_phase: TrainsPhase = train_phase
    """Trains one phase of a round."""

    def train(
        self,
        model: State,
        peers: Sequence[State],
        round_: int,
        *,
        task: str = "train",
        part: int = 0,
        memory: MutableMapping[str, State] | None = None,
        aborted: Aborted = _never_aborted,
    ) -> LocalUpdate:
        """Train from ``model`` through the method's phases for a task.

        Args:
            model: where the training starts.
            peers: models that help to make pseudo-labels.
            round_: number of the round, from 1; at the server 0 before the first one.
            task: name of the task that the server asks for, one of the method's.
            part: number of the exchange in the round, from 0.
            memory: models that the site keeps between rounds, by role. Phases add to it.
            aborted: called before every step; True ends the training.

        Raises:
            WorkError: the run was aborted, or the loss is no longer finite.
        """
        started = time.perf_counter()
        remembered = {} if memory is None else memory
        net = self.networks.load(model)
        peer_nets: list[nn.Module] = []
        # Place 0 is that of the network that trains.
        for place, peer in enumerate(peers, 1):
            peer_nets.append(self.networks.load(peer, place).eval())
        stream: tuple[int | str, ...] = (self.name, round_)
        # Part 0 is left out, so that a round's first exchange draws as in methods with only one.
        if part:
            stream = (*stream, part)
        steps = 0
        means: dict[str, float] = {}
        device = self.networks.device
        # Only the GPU that trains, because the states of others would take memory on each of them.
        forked_devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=forked_devices):
            torch.manual_seed(self.draws.derive(*stream, "dropout"))
            for phase in self.algorithm.phases(task, round_, len(self.images.data.labelled)):
                purpose = (*stream, *phase.stream)
                batches = self._batches(phase, peer_nets, purpose)
                # The site has no images of the kind that the phase uses.
                if not len(batches):
                    continue
                inputs = self._inputs(len(batches), round_, remembered, purpose)
                trained = self.run_phase(
                    PhaseRequest(net, batches, phase, inputs, self._settings, device, aborted)
                )
                steps += trained.steps
                means |= trained.means
                remembered.update(trained.memory)
        if not steps:
            return LocalUpdate(model, 0, means)
        # Cloned, because on a CPU the tensors would be the network's own, which change
        # when it is used again.
        state = {key: value.cpu().clone() for key, value in net.state_dict().items()}
        means["seconds"] = time.perf_counter() - started
        return LocalUpdate(state, steps, means)

    def evaluate(self, model: State, splits: Iterable[str] = ("val", "test")) -> Evaluation:
        """Return the metrics of ``model`` on splits of the images, in the order of ``splits``."""
        net = self.networks.load(model)
        data = self.images.data
        label_kind = self.experiment.data.label_kind
        extra_metrics = {name: METRICS[name] for name in self.experiment.metrics}
        rows: list[dict[str, Any]] = []
        counts = None
        test_answers = None
        subgroups: Sequence[SubgroupCounts] = ()
        clusters = None
        for split in splits:
            probabilities = predict(net, self.images[split]).numpy()
            outputs, labels = unit_answers(probabilities, getattr(data, split))
            for row in label_kind.metrics(outputs, labels, data.classes, extra_metrics):
                rows.append({"split": split, **row})
            if split == "test":
                counts = label_kind.counts(outputs, labels)
                if label_kind.exclusive:
                    test_answers = outputs.argmax(axis=1)
                inside, is_right = label_kind.right_by_class(outputs, labels)
                units = units_of(data.test)
                if units.subgroups:
                    subgroups = subgroup_counts(
                        data.subgroups,
                        units.subgroups,
                        units.names,
                        units.patients,
                        inside,
                        is_right,
                    )
                if data.test.patients and not data.test.groups:
                    clusters = ClusterCounts.of_answers(
                        units.patients, inside, is_right, label_kind.exclusive
                    )
        return Evaluation(rows, counts, test_answers, subgroups, clusters)

    def _inputs(
        self,
        steps: int,
        round_: int,
        memory: Mapping[str, State],
        purpose: tuple[int | str, ...],
    ) -> RoundInputs:
        """Return what stays fixed during a phase of ``steps`` steps."""
        # Computed on the CPU, so that every device has the same weights.
        class_weights = chosen_class_weights(
            self._settings.class_weighting, self.images.class_counts
        )
        return RoundInputs(
            class_weights=class_weights.to(self.networks.device),
            steps_before=max(round_ - 1, 0) * steps,
            memory=memory,
            generator=self.draws.torch_generator(*purpose, "mask"),
            outputs=self.experiment.data.label_kind.outputs,
            smallest_batch=self.smallest_batch,
        )

    def _batches(
        self, phase: Phase, peers: Sequence[nn.Module], stream: tuple[int | str, ...]
    ) -> RoundBatches:
        """Return the batches of a phase, with the images and views that its objective uses."""
        uses = phase.objective.uses
        views = self._views()
        if uses.second_view == "weak":
            views = views._replace(strong=views.weak)
        labelled = self.images["labelled"] if uses.labelled else None
        unlabelled = self.images[uses.unlabelled] if uses.unlabelled != "none" else None
        return RoundBatches(
            labelled,
            unlabelled,
            peers,
            self._settings,
            self.draws,
            stream,
            views=views,
            uses=uses,
        )

    def _views(self) -> Views:
        # Where only the head trains, views of the images were passed through the frozen network
        # before, and batches draw among the features that were stored.
        if self.experiment.trainable == HEAD:
            return stored_views(self.experiment.stored_views)
        return VIEWS[self.experiment.data.views]

    @property
    def _settings(self) -> Settings:
        settings = self.algorithm.settings
        if self.batch is None:
            return settings
        # A copy is not validated, and need not be: a round's images may be no multiple of this
        # batch.
        return settings.model_copy(update={"batch": self.batch})
