"""The optimiser of one phase of a round."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from fedward.methods.settings import Settings
from fedward.speed.plain_optimizers import without_compiler

_KINDS = {
    "adam": without_compiler(torch.optim.Adam),
    "adamw": without_compiler(torch.optim.AdamW),
    "sgd": without_compiler(torch.optim.SGD),
}


def optimizer_of(net: nn.Module, settings: Settings, learning_rate: float) -> Optimizer:
    """Return a new optimiser for all parameters of a network, of the kind that the settings name.

    AdamW decays only matrices and convolution kernels. The other kinds decay every parameter.
    """
    options: dict[str, Any] = {
        "lr": learning_rate,
        "weight_decay": settings.weight_decay,
        "fused": True,
    }
    if settings.optimizer == "sgd":
        options["momentum"] = settings.momentum
    kind = _KINDS[settings.optimizer]
    if settings.optimizer == "adamw":
        return kind(_grouped_by_decay(net), **options)
    return kind(net.parameters(), **options)


def _grouped_by_decay(net: nn.Module) -> list[dict[str, Any]]:
    """Return two groups of parameters: matrices and kernels, which decay, and all others.

    Layers call their matrix or kernel ``weight``. A ViT's tokens and positions, and Swin's tables
    of relative positions and logit scales, have other names, though they have several dimensions.
    """
    decaying = []
    not_decaying = []
    for name, parameter in net.named_parameters():
        if parameter.dim() > 1 and name.endswith("weight"):
            decaying.append(parameter)
        else:
            not_decaying.append(parameter)
    return [{"params": decaying}, {"params": not_decaying, "weight_decay": 0.0}]
