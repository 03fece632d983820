"""The run's network at the server, for images that a workflow makes itself."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedward.config import Experiment
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import ServerNetwork
from fedward.model_state import State
from fedward.training.machine import threads_limited
from fedward.training.networks import Networks


class NetworkAtServer:
    """What :class:`~fedward.methods.workflow.ServerNetwork` describes, on the CPU.

    One thread works, so that logits are the same on every machine of a kind. The network is built
    when it is first used.

    Args:
        experiment: names the network and the size of its images.
        algorithm: the experiment's method.
    """

    def __init__(self, experiment: Experiment, algorithm: Algorithm[Any]) -> None:
        data = experiment.data
        self.image_shape = (data.channels, data.image_size, data.image_size)
        self._classes = len(data.classes)
        self._networks = Networks(experiment, algorithm, torch.device("cpu"))

    @cached_property
    def class_rows(self) -> frozenset[str]:
        """Names of the classifier's tensors with one row for each class."""
        template = self._networks.template
        names = self._networks.classifier
        return frozenset(name for name in names if len(template[name]) == self._classes)

    @torch.no_grad()
    def logits(self, model: State, images: Tensor) -> Tensor:
        """Return the logits (N, K) of a model, in evaluation mode."""
        with threads_limited(1):
            self._networks.load(dict(model))
            logits: Tensor = self._networks.on_images.eval()(images)
        return logits


def network_for(algorithm: Algorithm[Any], experiment: Experiment) -> ServerNetwork | None:
    """Return the run's network at the server; None where the method's workflow needs none."""
    if algorithm.requirements.server.network:
        return NetworkAtServer(experiment, algorithm)
    return None
