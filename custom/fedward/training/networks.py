"""The networks of one process, into which models are loaded."""

import copy
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import torch
from torch import nn

from fedward.config import Experiment
from fedward.errors import WorkError
from fedward.methods.algorithm import Algorithm
from fedward.model_state import State
from fedward.nets import build, classifier_tensors, require_logits
from fedward.nets.trainable import ALL, HEAD, Head, TrainablePart


def _unchanged(net: nn.Module) -> nn.Module:
    return net


class Networks:
    """A network for the model that is trained or evaluated, and one for each peer.

    Each is built when it is first used. Where a part of the network is frozen, a model consists of
    the tensors of the other part. Where only the head trains, the networks take features in place
    of images.

    Args:
        experiment: names the network.
        algorithm: may add modules to it.
        device: where the networks are.
        prepare: called with each new network, returns the one to use.
    """

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        device: torch.device,
        prepare: Callable[[nn.Module], nn.Module] = _unchanged,
    ) -> None:
        self.device = device
        self._experiment = experiment
        self._extend = algorithm.extend
        self._prepare = prepare
        self._nets: dict[int, nn.Module] = {}

    def __getitem__(self, place: int) -> nn.Module:
        """Return the network of a place: 0 is for the model, 1 and higher are for the peers."""
        if place not in self._nets:
            self._nets[place] = copy.deepcopy(self[0]) if place else self._first()
        return self._nets[place]

    def _first(self) -> nn.Module:
        net = self.on_images
        if isinstance(net, TrainablePart) and self._experiment.trainable == HEAD:
            return Head(net)
        return net

    @cached_property
    def on_images(self) -> nn.Module:
        """The network of place 0 as it takes images, with the weights that were loaded last."""
        experiment = self._experiment
        data = experiment.data
        # Where everything trains, all weights come with the model.
        pretrained = experiment.trainable != ALL and experiment.pretrained
        net = build(
            experiment.net,
            len(data.classes),
            data.channels,
            pretrained,
            experiment.seed,
            self._extend,
            experiment.trainable,
        )
        require_logits(net, experiment.net, len(data.classes), data.channels, data.image_size)
        net = net.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if isinstance(net, TrainablePart):
            return net.of(self._prepare(net.whole))
        return self._prepare(net)

    @cached_property
    def base(self) -> str | None:
        """SHA-256 of the frozen tensors; None where all of the network trains."""
        if self._experiment.trainable == ALL:
            return None
        net = self.on_images
        return net.base if isinstance(net, TrainablePart) else None

    def require_base(self, expected: str | None) -> None:
        """Refuse to work on other frozen tensors than the server's.

        Args:
            expected: SHA-256 of the frozen tensors at the server.

        Raises:
            WorkError: those here differ.
        """
        if expected != self.base:
            raise WorkError(
                f"net {self._experiment.net}, its frozen part",
                "Server and sites need the same weights of it, and the same versions of fedward, "
                "timm and torch.",
                expected=f"SHA-256 {expected}",
                found=f"{self.base}",
            )

    @property
    def classifier(self) -> Collection[str]:
        """Names of the model's tensors that turn features into logits."""
        return classifier_tensors(self.on_images)

    def load(self, state: State, place: int = 0) -> nn.Module:
        """Return the network of a place with the weights of ``state``."""
        self[place].load_state_dict(state)
        return self[place]

    @cached_property
    def template(self) -> State:
        """Names, shapes and dtypes of a model's tensors.

        The values are those that were loaded or trained last.
        """
        state: State = self[0].state_dict()
        return state
