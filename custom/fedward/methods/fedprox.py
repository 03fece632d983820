"""FedProx: supervised training that stays close to the model that a site received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated optimization in heterogeneous networks*,
MLSys 2020.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from fedward.methods.algorithm import Algorithm
from fedward.methods.distances import images_of_group
from fedward.methods.groups import (
    SUPERVISED,
    GroupedState,
    Groups,
    WFedAvgSettings,
    group_requirements,
)
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs
from fedward.methods.schedule import rate_of_round
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import Federation, Rounds


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


class FedProxSettings(WFedAvgSettings):
    """Settings of FedProx. Sites are weighted by their images, as in federated averaging."""

    proximal_weight: float = Field(0.01, ge=0.0)
    """μ, weight of the proximal term. Paper: the best of 0.001, 0.01, 0.1 and 1."""
    distance_scale: float = Field(0.0, ge=0.0)
    """λ_c of :func:`fedward.methods.distances.distance_weights`.

    Paper: 0, as sites are weighted by their images alone."""

    @property
    def pull(self) -> float:
        """μ; see :attr:`fedward.methods.settings.Settings.pull`."""
        return self.proximal_weight


class ProximalSupervised(Objective[list[Tensor]]):
    """Cross-entropy and the proximal term. Its state is the model received.

    Args:
        proximal_weight: μ, weight of the proximal term.
    """

    def __init__(self, proximal_weight: float) -> None:
        self._proximal_weight = proximal_weight

    def init(self, net: nn.Module, inputs: RoundInputs) -> list[Tensor]:
        """Return copies of the parameters received, w_0, because training changes them in place."""
        return [parameter.detach().clone() for parameter in net.parameters()]

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: list[Tensor]
    ) -> Losses:
        """Return cross-entropy and ``μ/2 ‖w - w_0‖²``; Li et al., eq. (2)."""
        supervised = Supervised().losses(net, batch, inputs)
        proximal_term = self._proximal_weight * proximal(list(net.parameters()), state)
        return Losses({**supervised.terms, "loss_proximal": proximal_term})


class FedProx(Algorithm[GroupedState]):
    """Federated averaging with a proximal term.

    Fewer replies than asked for: see :class:`~fedward.methods.groups.Groups`.
    """

    settings_type = FedProxSettings
    state_type = GroupedState

    def __init__(self, settings: FedProxSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        losses = frozenset({"loss_supervised", "loss_proximal"})
        self.requirements = group_requirements(settings, losses)
        self._groups = Groups(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase with the proximal term, or none, as a site without labels declines."""
        if task != SUPERVISED or not labelled:
            return []
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(ProximalSupervised(self.settings.proximal_weight), rate)]

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Train the labelled sites in every round."""
        return self._groups.rounds(state, federation, self._groups.supervised_round)
