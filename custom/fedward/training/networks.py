"""The networks of one process, into which models are loaded."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import nn

from fedward.config import Experiment
from fedward.methods.algorithm import Algorithm
from fedward.methods.workflow import State
from fedward.nets import build, require_logits


class Networks:
    """A network for the model that is trained or evaluated, and one for each peer. Each is built at its first use.

    An experiment names it, an algorithm may add modules, and ``prepare`` is called on each new one.
    """

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm[Any],
        device: torch.device,
        prepare: Callable[[nn.Module], nn.Module] = lambda net: net,
    ) -> None:
        self.device = device
        self._experiment, self._extend, self._prepare = experiment, algorithm.extend, prepare
        self._nets: dict[int, nn.Module] = {}

    def __getitem__(self, place: int) -> nn.Module:
        """Return the network of a place: 0 is for the model, 1 and higher are for the peers."""
        if place not in self._nets:
            spec = self._experiment
            net = build(spec.net, len(spec.data.classes), spec.data.channels, extend=self._extend)
            if place == 0:
                require_logits(net, spec.net, len(spec.data.classes), spec.data.channels, spec.data.image_size)
            net = net.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._nets[place] = self._prepare(net)
        return self._nets[place]

    def load(self, state: State, place: int = 0) -> nn.Module:
        """Return the network of a place with the weights of ``state``."""
        self[place].load_state_dict(state)
        return self[place]

    @cached_property
    def template(self) -> State:
        """Names, shapes and dtypes of a model's tensors; the values are those that were loaded or trained last."""
        state: State = self[0].state_dict()
        return state
