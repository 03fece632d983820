"""How long a run takes on this machine, from a few batches that are timed beforehand."""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedward.config import Experiment
from fedward.methods import method_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.groups import SUPERVISED, UNSUPERVISED
from fedward.methods.local import Measurement, Phase
from fedward.methods.selffed.algorithm import FINE_TUNE, PRETRAIN
from fedward.methods.settings import Settings
from fedward.methods.steps import most_steps
from fedward.nets import build
from fedward.nets.trainable import HEAD
from fedward.seeds import torch_generator
from fedward.training.machine import device_of
from fedward.training.optimizers import optimizer_of
from fedward.views import VIEWS, Views

_TASKS = (SUPERVISED, UNSUPERVISED, PRETRAIN, FINE_TUNE)
"""Tasks of sites. A method that has others, or one alone, does not look at the name."""

_SHORTEST = 0.6
_LONGEST = 1.5
"""Shares of the estimate between which runs took their time.

They were runs of a frozen encoder, of whole networks with and without pseudo-labels, and of images
of 32 to 224 pixels.
"""
_COPIES = 4
"""Times that a model is copied and hashed on its way to a site and back."""
_TIMED_BATCHES = 2
"""Few, because a large network needs seconds for a batch on a CPU, and an estimate is enough."""


@dataclass(frozen=True)
class Duration:
    """An estimate of the time of a run, without its start-up."""

    device: str
    """Where the batches were timed: ``cpu`` or ``cuda``."""
    hours: float
    """Hours for all rounds, if the sites work one after another."""

    def range_of(self, workers: int) -> tuple[float, float]:
        """Return the shortest and longest time in seconds that is to be expected.

        Args:
            workers: sites that work at the same time.
        """
        seconds = 3600 * self.hours / workers
        return _SHORTEST * seconds, _LONGEST * seconds


class Passes(NamedTuple):
    """How many images pass through the network in a whole run; an image counts each time."""

    training: float
    """Forwards and backwards."""
    forward: float = 0.0
    """Forwards alone, of views of images."""
    evaluated: float = 0.0
    """Forwards alone, of images as they are."""
    head_steps: float = 0.0
    """Steps of a classifier on stored features."""
    exchanges: float = 0.0
    """Models that sites receive and send back."""


class SiteSize(NamedTuple):
    """Numbers of a site's images."""

    labelled: int
    unlabelled: int
    evaluated: int
    """Validation and test images that are evaluated."""


def passes_of(experiment: Experiment, sites: Collection[SiteSize]) -> Passes:
    """Return about how many images pass through the network in a run, at most.

    In each round a site counts with the most expensive of the method's tasks. Of unlabelled images
    a strong view is learned from and a weak one gives the pseudo-label, where there are two views.
    Where the head alone is trained, features are computed once for each image and stored view.
    """
    algorithm = method_of(experiment)
    rounds = algorithm.settings.rounds
    share = min(1.0, (algorithm.settings.participants or len(sites)) / max(1, len(sites)))
    rounds_of_a_site = rounds * share
    peers = min(algorithm.requirements.server.peers, len(sites) - 1)
    training = 0.0
    forward = 0.0
    for site in sites:
        passes = max(_passes_of_a_round(algorithm, task, site, peers) for task in _TASKS)
        training += rounds_of_a_site * passes.training
        forward += rounds_of_a_site * passes.forward
    evaluated = (rounds // experiment.evaluate_every + 1) * sum(site.evaluated for site in sites)
    exchanges = rounds_of_a_site * len(sites)
    if experiment.trainable != HEAD:
        return Passes(training, forward, evaluated, exchanges=exchanges)
    # An image as it is and its views go through the encoder once.
    trained = sum(site.labelled + site.unlabelled for site in sites)
    return Passes(
        training=0.0,
        forward=trained * 2 * experiment.stored_views,
        evaluated=trained + sum(site.evaluated for site in sites),
        head_steps=training / algorithm.settings.batch,
        exchanges=exchanges,
    )


def _passes_of_a_round(algorithm: Algorithm[Any], task: str, site: SiteSize, peers: int) -> Passes:
    """Return how many images pass through the network in a site's round with this task."""
    rounds = algorithm.settings.rounds
    passes = [
        _passes_of_a_phase(algorithm, phase, site, peers)
        for phase in algorithm.phases(task, rounds, site.labelled)
    ]
    return Passes(sum(each.training for each in passes), sum(each.forward for each in passes))


def _passes_of_a_phase(
    algorithm: Algorithm[Any], phase: Phase, site: SiteSize, peers: int
) -> Passes:
    """Return how many images pass through the network in a phase of a site's round."""
    uses = phase.objective.uses
    steps = most_steps(uses, algorithm.settings, site.labelled, site.unlabelled)
    images = steps * algorithm.settings.batch
    if isinstance(phase.objective, Measurement):
        return Passes(0.0, images)
    training = images if uses.labelled and site.labelled else 0
    if uses.unlabelled == "none":
        return Passes(training)
    two_views = uses.second_view != "none"
    return Passes(training + images, images * (two_views + peers))


def duration_of(experiment: Experiment, passes: Passes) -> Duration:
    """Time a few steps as a site takes them, and return how long the run takes.

    The network has random weights, because trained ones would take as long.

    Args:
        experiment: its network, views, optimiser, image size and batch are timed.
        passes: how many images pass through the network in the run.

    Raises: what :func:`fedward.nets.build` raises.
    """
    settings = method_of(experiment).settings
    device = device_of("auto", "this machine")
    spec = experiment.data
    net = build(experiment.net, len(spec.classes), spec.channels).to(device)
    shape = (settings.batch, spec.channels, spec.image_size, spec.image_size)
    images = torch.rand(shape, generator=torch_generator(0, "duration")).to(device)
    timed = _Timed(net, images, VIEWS[spec.views], settings, passes)
    with _one_thread():
        step = _seconds_of(timed.step, device) if passes.training else 0.0
        forward = _seconds_of(timed.forward, device) if passes.forward else 0.0
        evaluation = _seconds_of(timed.evaluation, device) if passes.evaluated else 0.0
        exchange = _seconds_of(timed.exchange, device) if passes.exchanges else 0.0
        head_step = _seconds_of(timed.head_step, device) if passes.head_steps else 0.0
    seconds = (
        passes.training / settings.batch * step
        + passes.forward / settings.batch * forward
        + passes.evaluated / settings.batch * evaluation
        + passes.exchanges * exchange
        + passes.head_steps * head_step
    )
    return Duration(device.type, seconds / 3600)


class _Timed:
    """What a run repeats: steps, passes and exchanges of a batch."""

    def __init__(
        self, net: nn.Module, images: Tensor, views: Views, settings: Settings, passes: Passes
    ) -> None:
        self._net = net
        self._images = images
        self._views = views
        self._two_views = passes.forward > 0 and len(images) > 1
        self._generator = torch_generator(0, "views")
        self._optimizer = optimizer_of(net, settings, learning_rate=0.0)
        self._head = nn.Linear(1024, 8).to(images.device)
        self._head_optimizer = optimizer_of(self._head, settings, learning_rate=0.0)
        self._features = torch.rand(len(images), 1024, device=images.device)

    def step(self) -> None:
        """Take a step of training."""
        self._net.train()
        # A method that also looks at unlabelled images learns from as many strong views.
        size = len(self._images) // 2 if self._two_views else len(self._images)
        views = [self._views.weak(self._images[:size], self._generator)]
        if self._two_views:
            views.append(self._views.strong(self._images[size:], self._generator))
        self._learn(self._net, torch.cat(views), self._optimizer)

    def forward(self) -> None:
        """Look at a view of each image."""
        self._net.eval()
        with torch.no_grad():
            self._net(self._views.weak(self._images, self._generator))

    def evaluation(self) -> None:
        """Look at each image as it is."""
        self._net.eval()
        with torch.no_grad():
            self._net(self._images)

    def exchange(self) -> None:
        """Copy and hash the model, as it happens on its way to a site and back."""
        for _ in range(_COPIES):
            for tensor in self._net.state_dict().values():
                hashlib.sha256(tensor.detach().cpu().clone().numpy().tobytes())

    def head_step(self) -> None:
        """Take a step of training of a classifier on stored features."""
        self._learn(self._head, self._features, self._head_optimizer)

    @staticmethod
    def _learn(net: nn.Module, images: Tensor, optimizer: Optimizer) -> None:
        optimizer.zero_grad(set_to_none=True)
        # Any loss will do whose gradient passes through all layers.
        net(images).logsumexp(dim=1).mean().backward()
        optimizer.step()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one CPU thread inside the block, as a site does by default."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds_of(work: Callable[[], None], device: torch.device) -> float:
    """Return the mean wall-clock time of a few repetitions of some work."""
    work()  # The first one also prepares memory and kernels.
    _wait_for(device)
    start = time.perf_counter()
    for _ in range(_TIMED_BATCHES):
        work()
    _wait_for(device)
    return (time.perf_counter() - start) / _TIMED_BATCHES


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished, because calls return before their work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
