"""The server's step: the mean of the sites' models as it is, or a step towards it with momentum or
Adam.

Hsu, Qi, Brown: *Measuring the effects of non-identical data distribution for federated visual
classification*, 2019 (FedAvgM). Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan:
*Adaptive federated optimization*, ICLR 2021, Algorithm 2 (FedAdam).
"""

from collections.abc import Collection

import torch
from torch import Tensor

from fedward.methods.algorithm import ServerState
from fedward.methods.settings import Settings
from fedward.methods.workflow import State

SECOND_BETA = 0.99
"""How much of the second moment Adam keeps; Reddi et al., Sec. 5."""
TAU = 1e-3
"""Adam's degree of adaptivity, added to the root of the second moment, which begins at its square;
Reddi et al.
"""


@torch.no_grad()
def advance(
    state: ServerState, mean: State, settings: Settings, parameters: Collection[str]
) -> None:
    """Put the next global model, and the optimiser's moments, into the server's state.

    With ``Δ = mean - model``, the round's pseudo-gradient, with η the learning rate and β the
    momentum:

    - average: ``w <- w + η Δ``, for η = 1 the mean itself
    - momentum: ``m <- β m + Δ``, ``w <- w + η m``, from m = 0
    - adam: ``m <- β m + (1 - β) Δ``, ``v <- 0.99 v + 0.01 Δ²``, ``w <- w + η m / (√v + τ)``, from m
      = 0 and v = τ²

    Sources: Hsu et al., 2019, Sec. 4.3; Reddi et al., ICLR 2021, Algorithm 2, which corrects no
    bias. Only the mean is looked at: it may come out of secure aggregation, or be a robust one.

    Args:
        state: the server's; ``model`` and ``optimizer`` are replaced, nothing in them is changed.
        mean: of the sites' models, with the keys, shapes and dtypes of ``state.model``; that very
            object where no site has trained.
        settings: the job's.
        parameters: names of the tensors that step. All others, such as BatchNorm's statistics, are
            those of the mean.

    Edge cases: mean is the model: nothing moves, and momentum does not carry on. equal to it in
    value: momentum does.
    """
    if settings.takes_mean or mean is state.model:
        state.model = mean
        return
    model = dict[str, Tensor]()
    moments = dict[str, Tensor]()
    for key in mean:
        before = state.model[key]
        after = mean[key]
        if key not in parameters:
            model[key] = after
            continue
        step = after.double() - before.double()
        if settings.server_optimizer != "average":
            step, smoothed = _smoothed(step, key, state.optimizer, settings)
            moments |= {name: moment.to(before.dtype) for name, moment in smoothed.items()}
        model[key] = (before.double() + settings.server_learning_rate * step).to(before.dtype)
    state.model = model
    state.optimizer = moments


def _smoothed(
    change: Tensor, key: str, moments: State, settings: Settings
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return a tensor's step and its moments in float64, from its pseudo-gradient and the moments
    before, if any.
    """
    beta = settings.server_momentum
    first = f"first/{key}"
    second = f"second/{key}"
    kept = beta * moments[first].double() if first in moments else torch.zeros_like(change)
    if settings.server_optimizer == "momentum":
        return kept + change, {first: kept + change}
    mean = kept + (1 - beta) * change
    square = moments[second].double() if second in moments else torch.full_like(change, TAU**2)
    square = SECOND_BETA * square + (1 - SECOND_BETA) * change.square()
    return mean / (square.sqrt() + TAU), {first: mean, second: square}
