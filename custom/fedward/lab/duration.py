"""How long a run takes on this machine, from a few batches that are timed beforehand."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedward.config import Experiment
from fedward.methods import method_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.groups import SUPERVISED, UNSUPERVISED
from fedward.methods.local import Measurement, Phase
from fedward.methods.selffed.algorithm import FINE_TUNE, PRETRAIN
from fedward.methods.steps import most_steps
from fedward.nets import build
from fedward.nets.trainable import HEAD
from fedward.training.machine import device_of

_TASKS = (SUPERVISED, UNSUPERVISED, PRETRAIN, FINE_TUNE)
"""Tasks of sites. A method that has others, or one alone, does not look at the name."""

_TIMED_BATCHES = 2
"""Few, because a large network needs seconds for a batch on a CPU, and an estimate is enough."""


@dataclass(frozen=True)
class Duration:
    """An estimate of the training time of a run, without evaluations and messages."""

    device: str
    """Where the batches were timed: ``cpu`` or ``cuda``."""
    batch: int
    """Number of images in a batch."""
    training_seconds: float
    """Seconds for one batch, forwards and backwards."""
    forward_seconds: float
    """Seconds for one batch, forwards alone."""
    hours: float
    """Hours for all rounds, if the sites train one after another."""


class Passes(NamedTuple):
    """How many images pass through the network in a whole run; an image counts each time."""

    training: float
    """Forwards and backwards."""
    forward: float = 0.0
    """Forwards alone."""


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
    Where the head alone is trained, features are computed once for each stored view.
    """
    algorithm = method_of(experiment)
    evaluated = sum(site.evaluated for site in sites)
    rounds = algorithm.settings.rounds
    evaluations = rounds // experiment.evaluate_every + 1
    if experiment.trainable == HEAD:
        images = sum(site.labelled + site.unlabelled for site in sites)
        return Passes(0.0, images * (2 * experiment.stored_views + 1) + evaluated)
    share = min(1.0, (algorithm.settings.participants or len(sites)) / max(1, len(sites)))
    training = 0.0
    forward = 0.0
    for site in sites:
        passes = max(_passes_of_a_round(algorithm, task, site) for task in _TASKS)
        training += rounds * share * passes.training
        forward += rounds * share * passes.forward
    return Passes(training, forward + evaluations * evaluated)


def _passes_of_a_round(algorithm: Algorithm[Any], task: str, site: SiteSize) -> Passes:
    """Return how many images pass through the network in a site's round with this task."""
    rounds = algorithm.settings.rounds
    passes = [
        _passes_of_a_phase(algorithm, phase, site)
        for phase in algorithm.phases(task, rounds, site.labelled)
    ]
    return Passes(sum(each.training for each in passes), sum(each.forward for each in passes))


def _passes_of_a_phase(algorithm: Algorithm[Any], phase: Phase, site: SiteSize) -> Passes:
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
    peers = algorithm.requirements.server.peers > 0
    return Passes(training + images, images * (two_views + peers))


def duration_of(experiment: Experiment, passes: Passes) -> Duration:
    """Time a few batches of the experiment's network, and return how long its rounds take.

    The network has random weights, because trained ones would take as long.

    Args:
        experiment: its network, image size and batch are timed.
        passes: how many images pass through the network in the run.

    Raises: what :func:`fedward.nets.build` raises.
    """
    settings = method_of(experiment).settings
    device = device_of("auto", "this machine")
    net = build(experiment.net, len(experiment.data.classes), experiment.data.channels).to(device)
    size = experiment.data.image_size
    images = torch.full((settings.batch, experiment.data.channels, size, size), 0.5, device=device)
    with _one_thread():
        _train(net, images)  # The first batch also prepares memory and kernels.
        training_seconds = _seconds_per_batch(_train, net, images)
        forward_seconds = _seconds_per_batch(_predict, net, images)

    batches_trained = passes.training / settings.batch
    batches_predicted = passes.forward / settings.batch
    seconds = batches_trained * training_seconds + batches_predicted * forward_seconds
    return Duration(device.type, settings.batch, training_seconds, forward_seconds, seconds / 3600)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one CPU thread inside the block, as a site does by default."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(net: nn.Module, images: Tensor) -> None:
    net.train()
    net.zero_grad()
    # Any loss will do whose gradient passes through all layers.
    net(images).logsumexp(dim=1).mean().backward()


def _predict(net: nn.Module, images: Tensor) -> None:
    net.eval()
    with torch.no_grad():
        net(images)


def _seconds_per_batch(
    pass_through: Callable[[nn.Module, Tensor], None], net: nn.Module, images: Tensor
) -> float:
    """Return the mean wall-clock time of a few batches."""
    _wait_for(images.device)
    start = time.perf_counter()
    for _ in range(_TIMED_BATCHES):
        pass_through(net, images)
    _wait_for(images.device)
    return (time.perf_counter() - start) / _TIMED_BATCHES


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished, because calls return before their work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
