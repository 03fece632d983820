"""An objective whose state a test hands from step to step."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fedward.methods.local import Batch, Losses, Objective, RoundInputs


class Stepping:
    """One phase on a network; a test calls ``follow`` after each optimiser step."""

    def __init__(self, objective: Objective[Any], net: nn.Module, inputs: RoundInputs) -> None:
        self.objective = objective
        self.net = net
        self.inputs = inputs
        self.state = objective.init(net, inputs)
        self.batch = Batch()
        self.newest = Losses({})

    def losses(self, batch: Batch) -> Losses:
        self.batch = batch
        self.newest = self.objective.losses(self.net, batch, self.inputs, self.state)
        return self.newest

    def follow(self) -> None:
        self.state = self.objective.after_step(self.net, self.batch, self.newest, self.state)

    @property
    def memory(self) -> Mapping[str, Mapping[str, Tensor]]:
        return self.objective.remember(self.state)
