"""The networks of one process, into which models are loaded."""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import nn

from fedward.config import Experiment
from fedward.errors import WorkError
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import State
from fedward.nets import build, require_logits
from fedward.nets.trainable import ALL, HEAD, Head, TrainablePart


class Networks:
    """A network for the model that is trained or evaluated, and one for each peer. Each is built at
    its first use.

    An experiment names it, an algorithm may add modules, and ``prepare`` is called on each new one.
    Where a part of it is frozen, a model is the tensors of the other part; where that is the head
    alone, the networks take features.
    """

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        device: torch.device,
        prepare: Callable[[nn.Module], nn.Module] = lambda net: net,
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
        return (
            Head(net)
            if isinstance(net, TrainablePart) and self._experiment.trainable == HEAD
            else net
        )

    @cached_property
    def on_images(self) -> nn.Module:
        """The network of place 0 as it takes images; it has the weights loaded there last."""
        spec = self._experiment
        data = self._experiment.data
        pretrained = (
            spec.trainable != ALL and spec.pretrained
        )  # else all weights come with the model
        of_data = (len(data.classes), data.channels)
        net = build(spec.net, *of_data, pretrained, spec.seed, self._extend, spec.trainable)
        require_logits(net, spec.net, *of_data, data.image_size)
        net = net.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return (
            net.of(self._prepare(net.whole))
            if isinstance(net, TrainablePart)
            else self._prepare(net)
        )

    @cached_property
    def base(self) -> str | None:
        """SHA-256 of what is frozen; None where nothing is."""
        if self._experiment.trainable == ALL:
            return None
        net = self.on_images
        return net.base if isinstance(net, TrainablePart) else None

    def require_base(self, expected: str | None) -> None:
        """Raise WorkError unless ``expected``, the server's word, is the SHA-256 of what is frozen
        here.
        """
        if expected != self.base:
            where = f"net {self._experiment.net}, its frozen part"
            remedy = "Server and sites need the same weights of it, and the same versions of fedward, timm and torch."
            raise WorkError(
                where, expected=f"SHA-256 {expected}", found=f"{self.base}", remedy=remedy
            )

    def load(self, state: State, place: int = 0) -> nn.Module:
        """Return the network of a place with the weights of ``state``."""
        self[place].load_state_dict(state)
        return self[place]

    @cached_property
    def template(self) -> State:
        """Names, shapes and dtypes of a model's tensors; the values are those that were loaded or
        trained last.
        """
        state: State = self[0].state_dict()
        return state
