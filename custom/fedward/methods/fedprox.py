"""FedProx: supervised sites that do not stray far from the model they received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated optimization in heterogeneous networks*, MLSys 2020.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from fedward.methods.fedavg import Supervised
from fedward.methods.local import Batch, Losses, RoundInputs
from fedward.methods.wfedavg import WFedAvg, WFedAvgSettings


def proximal(parameters: list[Tensor], anchors: list[Tensor]) -> Tensor:
    """Return half the squared distance of a net from the model it started from.

    ``½ ‖w - w_0‖²``, whose gradient is ``w - w_0``.

    Source: Li et al., MLSys 2020, eq. (2).

    Args:
        parameters: w, one or more tensors.
        anchors: w_0, tensors of the same shapes; they get no gradient.

    Returns:
        Scalar >= 0.

    Deviates from common code, which takes the norm of each tensor, or forgets the square: the gradient is then of
    constant length, however near the net is.
    """
    squares = [(w - anchor.detach()).square().sum() for w, anchor in zip(parameters, anchors, strict=True)]
    return 0.5 * torch.stack(squares).sum()


class FedProxSettings(WFedAvgSettings):
    """FedProx's choices; sites are weighed by their images, as in federated averaging."""

    proximal_weight: float = Field(0.01, ge=0.0)
    """mu. Paper: the best of 0.001, 0.01, 0.1 and 1."""
    distance_scale: float = Field(0.0, ge=0.0)


class ProximalSupervised(Supervised):
    """Cross-entropy and the proximal term."""

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._anchors: list[Tensor] = []

    def begin(self, net: nn.Module, inputs: RoundInputs) -> None:
        """Remember the model received."""
        self._anchors = [parameter.detach().clone() for parameter in net.parameters()]

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs) -> Losses:
        """Return both terms (Li et al., eq. (2))."""
        supervised = super().losses(net, batch, inputs)
        term = self._weight * proximal(list(net.parameters()), self._anchors)
        return Losses({**supervised.terms, "loss_proximal": term})


class FedProx(WFedAvg):
    """Federated averaging with a proximal term; fewer replies than asked for: as WFedAvg."""

    settings_type = FedProxSettings
    settings: FedProxSettings

    def objective(self) -> ProximalSupervised:
        """Return the local objective."""
        return ProximalSupervised(self.settings.proximal_weight)
