"""How a model holds two sets of parameters: θ under the network's own names, and ψ beside it.

σ = θ - ψ is not stored. The network's own tensors are thus those of an ordinary model, which can be
evaluated, exported and compared without ψ. Averages are linear, so that the mean of θ less the mean
of ψ is the mean of σ.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError

NAME = "psi"
"""Name of the module that holds ψ."""
SHARE = 1 / 6
"""Share of ψ in a new θ. In the released code ψ begins as 0.2 σ, which is θ / 6 as θ = σ + ψ."""


def add_psi(net: nn.Module) -> None:
    """Add a parameter ψ, ``psi.<name>``, for each of a network's own. Its output does not change.

    Raises ConfigError: the network has a module of this name.

    Deviates: in the released code σ begins as the new network, and ψ is added to it.
    """
    if hasattr(net, NAME):
        raise ConfigError(
            "fedmatch, psi", "Choose another network.", expected="no module psi", found="one"
        )
    root = nn.Module()
    for path, parameter in net.named_parameters():
        *parents, name = path.split(".")
        owner = root
        for parent in parents:
            if parent not in owner._modules:
                owner.add_module(parent, nn.Module())
            owner = owner.get_submodule(parent)
        owner.register_parameter(name, nn.Parameter(SHARE * parameter.detach()))
    net.add_module(NAME, root)


@torch.no_grad()
def set_psi(net: nn.Module, except_for: Collection[str]) -> None:
    """Set ψ to its share of θ, except for the tensors ``psi.<name>`` that are named."""
    theta = theta_of(net)
    for name, psi in psi_of(net).items():
        if f"{NAME}.{name}" not in except_for:
            psi.copy_(SHARE * theta[name])


def psi_of(net: nn.Module) -> dict[str, nn.Parameter]:
    """Return ψ, which :func:`add_psi` added, under the names of the network's own parameters."""
    return dict(net.get_submodule(NAME).named_parameters())


def theta_of(net: nn.Module) -> dict[str, nn.Parameter]:
    """Return θ: the network's own parameters, in the order of :func:`psi_of`."""
    return {name: net.get_parameter(name) for name in psi_of(net)}


def shared_with_psi(theta: Mapping[str, Tensor], psi: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values of θ, with gradients that reach ψ alone.

    ``θ = σ* + ψ``, where * marks what is held fixed.
    Source: Jeong et al., ICLR 2021: unlabelled images train ψ while σ is fixed.

    Args:
        theta: name -> tensor.
        psi: the same names, with tensors of the same shapes.
    """
    # The bracket is exactly 0, so that the values are those of θ bit for bit.
    return {name: theta[name].detach() + (psi[name] - psi[name].detach()) for name in psi}
