"""Training and evaluation of one model on one set of images: at a site, at the server, in each of
several processes.
"""

import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import nn

from fedward.config import Experiment
from fedward.evaluation.units import unit_answers
from fedward.methods.algorithm import Algorithm
from fedward.methods.local import Phase, RoundInputs
from fedward.methods.missing_classes import rule_of
from fedward.methods.settings import Settings
from fedward.methods.workflow import State
from fedward.nets.trainable import HEAD
from fedward.registry import METRICS
from fedward.seeds import Draws
from fedward.training.batches import RoundBatches
from fedward.training.device_data import DeviceData
from fedward.training.evaluation import predict
from fedward.training.features import stored_views
from fedward.training.networks import Networks
from fedward.views import VIEWS

if TYPE_CHECKING:
    from fedward.training.trainer import SharedLosses, Trained

Aborted = Callable[[], bool]
"""Asked before every step; True ends the training."""


class Evaluation(NamedTuple):
    """What a model is on some splits of the images."""

    metrics: list[dict[str, Any]]
    """Rows of :func:`~fedward.evaluation.classification.classification_metrics`, with their split.

    Where the job evaluates by patient, all numbers here are of patients.
    """
    binned: dict[str, Any] | None
    """Counts of its answers on the test images (``binned_counts``); None where there are none to
    tell.
    """


class LocalUpdate(NamedTuple):
    """What a round of training gives."""

    model: State
    """On the CPU; without a step the model that was given."""
    steps: int
    """Optimiser steps of all phases."""
    means: dict[str, float]
    """Mean losses and logs by name, and after a step the seconds of the training."""


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
    """A method, its networks and the images that it trains and evaluates on."""

    name: str
    """Of the site, or ``server``: each draws its own random numbers."""
    experiment: Experiment
    algorithm: Algorithm[Any]
    networks: Networks
    images: DeviceData
    draws: Draws
    """What draws at random, of the experiment's seed."""
    batch: int | None = None
    """Images of a step, those of all processes together; by default the job's batch."""
    smallest_batch: int = 1
    """Images that a step must be of, where it learns from pseudo-labels alone."""
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
        aborted: Aborted = lambda: False,
    ) -> LocalUpdate:
        """Train from ``model`` through the method's phases for a task.

        Args:
            model, peers: the one to start from, and those that help to make pseudo-labels.
            round_, part: from 1, and the number of the exchange in it, from 0.
            task: what the server asks for; the method knows its tasks.
            memory: models kept between rounds, by role. It is changed.
            aborted: asked before every step; True ends the training.

        Raises WorkError: aborted, or the loss is no longer finite.
        """
        started = time.perf_counter()
        steps = 0
        means = dict[str, float]()
        known = {} if memory is None else memory
        net = self.networks.load(model)
        device = self.networks.device
        committee = [self.networks.load(peer, place).eval() for place, peer in enumerate(peers, 1)]
        stream: tuple[int | str, ...] = (self.name, round_, part) if part else (self.name, round_)
        # One GPU is named, as a look at another would take up memory there.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.draws.derive(*stream, "dropout"))
            for phase in self.algorithm.phases(task, round_, len(self.images.data.labelled)):
                purpose = (*stream, *phase.stream)
                batches = self._batches(phase, committee, purpose)
                if not len(batches):
                    continue
                generator = self.draws.torch_generator(*purpose, "mask")
                counts = self.images.class_counts.to(device)
                rule = rule_of(self._settings.missing_classes, counts)
                before = (round_ - 1) * len(batches)
                inputs = RoundInputs(
                    class_weights=self._class_weights(),
                    steps_before=before,
                    memory=known,
                    generator=generator,
                    class_counts=counts,
                    seen_by_losses=rule,
                    outputs=self.experiment.data.label_kind.outputs,
                    smallest_batch=self.smallest_batch,
                )
                trained = self.run_phase(
                    PhaseRequest(net, batches, phase, inputs, self._settings, device, aborted)
                )
                steps = steps + trained.steps
                means = means | trained.means
                known.update(trained.memory)
        if not steps:
            return LocalUpdate(model, 0, means)
        state = {key: value.cpu().clone() for key, value in net.state_dict().items()}
        return LocalUpdate(state, steps, {**means, "seconds": time.perf_counter() - started})

    def evaluate(self, model: State, splits: Iterable[str] = ("val", "test")) -> Evaluation:
        """Return what ``model`` is on splits of the images."""
        net = self.networks.load(model)
        data = self.images.data
        rows = list[dict[str, Any]]()
        binned = None
        label_kind = self.experiment.data.label_kind
        extra = {name: METRICS[name] for name in self.experiment.metrics}
        for split in splits:
            outputs, labels = unit_answers(
                predict(net, self.images[split]).numpy(), getattr(data, split)
            )
            metrics = label_kind.metrics(outputs, labels, data.classes, extra)
            rows += [{"split": split, **row} for row in metrics]
            if split == "test":
                binned = label_kind.counts(outputs, labels)
        return Evaluation(rows, binned)

    def _batches(
        self, phase: Phase, peers: Sequence[nn.Module], stream: tuple[int | str, ...]
    ) -> RoundBatches:
        uses = phase.objective.uses
        spec = self.experiment
        views = (
            stored_views(spec.stored_views) if spec.trainable == HEAD else VIEWS[spec.data.views]
        )
        return RoundBatches(
            self.images["labelled"] if uses.labelled else None,
            None if uses.unlabelled == "none" else self.images[uses.unlabelled],
            peers,
            self._settings,
            self.draws,
            stream,
            views=views._replace(strong=views.weak) if uses.second_view == "weak" else views,
            uses=uses,
        )

    def _class_weights(self) -> torch.Tensor:
        if self.algorithm.settings.class_weighting == "none":
            return torch.ones(len(self.images.data.classes), device=self.networks.device)
        return self.images.class_weights

    @property
    def _settings(self) -> Settings:
        # The copy is not validated: the images of a round need not be a multiple of the larger
        # batch.
        settings = self.algorithm.settings
        return settings if self.batch is None else settings.model_copy(update={"batch": self.batch})
