"""How long a run takes on this machine, from a few batches that are timed beforehand."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedward.config import Experiment
from fedward.methods import method_of
from fedward.nets import build
from fedward.paper_jobs import Work
from fedward.training.machine import device_of

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


def duration_of(experiment: Experiment, work: Work) -> Duration:
    """Time a few batches of the experiment's network, and return how long its rounds take.

    The network has random weights, because trained ones would take as long.

    Args:
        experiment: its network, image size and batch are timed, and its rounds are counted.
        work: how many images pass through the network in a round.

    Raises: what :func:`fedward.nets.build` raises.
    """
    settings = method_of(experiment).settings
    device = device_of("auto", "this machine")
    net = build(experiment.net, len(experiment.data.classes), experiment.data.channels).to(device)
    size = experiment.data.image_size
    images = torch.full((settings.batch, experiment.data.channels, size, size), 0.5, device=device)
    _train(net, images)  # The first batch also prepares memory and kernels.
    training_seconds = _seconds_per_batch(_train, net, images)
    forward_seconds = _seconds_per_batch(_predict, net, images)

    trained_images, predicted_images = work.passes(settings.rounds)
    batches_trained = trained_images / settings.batch
    batches_predicted = predicted_images / settings.batch
    seconds = batches_trained * training_seconds + batches_predicted * forward_seconds
    return Duration(device.type, settings.batch, training_seconds, forward_seconds, seconds / 3600)


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
