"""The server's step: the mean of the sites' models as it is, or a step towards it with momentum.

Hsu, Qi, Brown: *Measuring the effects of non-identical data distribution for federated visual
classification*, 2019 (FedAvgM).
"""

from collections.abc import Collection

import torch
from torch import Tensor

from fedward.methods.algorithm import ServerState
from fedward.methods.settings import Settings
from fedward.model_state import State


@torch.no_grad()
def advance(
    state: ServerState, mean: State, settings: Settings, parameters: Collection[str]
) -> None:
    """Put the next global model, and the momentum of its parameters, into the server's state.

    With ``Δ = mean - model``, the round's pseudo-gradient, and β the momentum:

    - average: ``w <- w + Δ``, which is the mean itself
    - momentum: ``m <- β m + Δ``, ``w <- w + m``, from m = 0

    Source: Hsu et al., 2019, Sec. 4.3, with a server learning rate of 1. Only the mean is looked
    at: it may come out of secure aggregation, or be a robust one.

    Args:
        state: the server's; ``model`` and ``optimizer`` are replaced, nothing in them is changed.
        mean: of the sites' models, with the keys, shapes and dtypes of ``state.model``. Where no
            site has trained it is ``state.model``, the very object.
        settings: the job's.
        parameters: names of the tensors that step. All other tensors, such as BatchNorm's
            statistics, become those of the mean.

    Edge cases: mean is the model: nothing moves, and the momentum waits. mean equal to the model in
    value: the momentum carries on.
    """
    if settings.takes_mean or mean is state.model:
        state.model = mean
        return
    beta = settings.server_momentum
    model: dict[str, Tensor] = {}
    moments: dict[str, Tensor] = {}
    for name, mean_tensor in mean.items():
        if name not in parameters:
            model[name] = mean_tensor
            continue
        before = state.model[name]
        moment = mean_tensor.double() - before.double()
        last_moment = state.optimizer.get(f"first/{name}")
        if last_moment is not None:
            moment = beta * last_moment.double() + moment
        model[name] = (before.double() + moment).to(before.dtype)
        moments[f"first/{name}"] = moment.to(before.dtype)
    state.model = model
    state.optimizer = moments
