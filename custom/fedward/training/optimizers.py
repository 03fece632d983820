"""The optimiser of one round."""

from functools import cache
from inspect import unwrap
from typing import Any

import torch
from torch import nn

from fedward.methods.settings import Settings

_KINDS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def optimizer_of(net: nn.Module, settings: Settings, learning_rate: float) -> torch.optim.Optimizer:
    """Return an optimiser that has seen no step, for all parameters of a network. AdamW decays
    matrices alone.
    """
    options = {"lr": learning_rate, "weight_decay": settings.weight_decay, "fused": True}
    if settings.optimizer == "sgd":
        options["momentum"] = settings.momentum
    parameters = _decayed_apart(net) if settings.optimizer == "adamw" else net.parameters()
    optimizer: torch.optim.Optimizer = _plain(_KINDS[settings.optimizer])(parameters, **options)
    return optimizer


@cache
def _plain(kind: Any) -> Any:
    """Return an optimiser of torch without the marks for its compiler, to set which torch imports
    all of that.

    That takes as long as torch itself, and 85 MB. The numbers are the same.
    """
    methods = {name: unwrap(getattr(kind, name)) for name in ("add_param_group", "zero_grad")}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(unwrap(kind.step))})


def _decayed_apart(net: nn.Module) -> list[dict[str, Any]]:
    """Return two groups of parameters: matrices and kernels, which decay, and biases and scales,
    which do not.
    """
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in net.named_parameters():
        groups[parameter.dim() > 1 and not name.endswith("relative_position_bias_table")].append(
            parameter
        )
    return [{"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0}]
