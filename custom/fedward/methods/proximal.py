"""The proximal term, which keeps a site's model close to the one that it received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated optimization in heterogeneous networks*,
MLSys 2020 (FedProx).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic

import torch
from torch import Tensor, nn

from fedward.methods.local import Batch, CarriedT, Losses, Objective, RoundInputs

LOSS = "loss_proximal"
"""Name of the term among an objective's losses."""


def proximal(parameters: list[Tensor], anchors: list[Tensor]) -> Tensor:
    """Return half the squared distance of a network from the model it started from.

    ``½ ‖w - w_0‖²``, whose gradient is ``w - w_0``.
    Source: Li et al., MLSys 2020, eq. (2).

    Args:
        parameters: w, one or more tensors.
        anchors: w_0, tensors of the same shapes, which get no gradient.

    Returns:
        Scalar >= 0.

    Deviates: common implementations take the norm of each tensor, or omit the square. Their
    gradient has a constant length, however close the network is to its start.
    """
    squares = [
        (w - w_0.detach()).square().sum() for w, w_0 in zip(parameters, anchors, strict=True)
    ]
    return 0.5 * torch.stack(squares).sum()


@dataclass(frozen=True)
class ProximalState(Generic[CarriedT]):
    """What :class:`Proximal` carries from step to step of a phase."""

    anchors: list[Tensor]
    """w_0: copies of the parameters received, because training changes these in place."""
    inner: CarriedT
    """State of the objective that the term is added to."""


class Proximal(Objective[ProximalState[CarriedT]]):
    """An objective of any method, and the proximal term: ``L(w) + μ/2 ‖w - w_0‖²``.

    From a batch without inner losses nothing is learned: the term alone takes no step.

    Args:
        inner: the objective that the term is added to.
        weight: μ >= 0.
    """

    def __init__(self, inner: Objective[CarriedT], weight: float) -> None:
        self._inner = inner
        self._weight = weight
        self.uses = inner.uses

    def init(self, net: nn.Module, inputs: RoundInputs) -> ProximalState[CarriedT]:
        """Return the model received, and the first state of the inner objective."""
        anchors = [parameter.detach().clone() for parameter in net.parameters()]
        return ProximalState(anchors, self._inner.init(net, inputs))

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: ProximalState[CarriedT]
    ) -> Losses:
        """Return the inner losses and ``μ/2 ‖w - w_0‖²`` (Li et al., eq. (2))."""
        losses = self._inner.losses(net, batch, inputs, state.inner)
        if not losses.terms:
            return losses
        term = self._weight * proximal(list(net.parameters()), state.anchors)
        return replace(losses, terms={**losses.terms, LOSS: term})

    def after_step(
        self, net: nn.Module, batch: Batch, losses: Losses, state: ProximalState[CarriedT]
    ) -> ProximalState[CarriedT]:
        """Return the state, in which the inner objective's is the one after the step."""
        return replace(state, inner=self._inner.after_step(net, batch, losses, state.inner))

    def remember(self, state: ProximalState[CarriedT]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return what the inner objective keeps; the model received is not kept."""
        return self._inner.remember(state.inner)


def with_proximal_term(objective: Objective[Any], weight: float) -> Objective[Any]:
    """Return the objective with the proximal term, or the objective itself where μ is 0."""
    if weight == 0:
        return objective
    return Proximal(objective, weight)
