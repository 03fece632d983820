"""FedPerl's measure of how alike models are: the moments of their tensors (Bdair et al., MELBA
2022, Sec. 2.3.1).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.workflow import State


@torch.no_grad()
def layer_moments(state: State) -> Tensor:
    """Describe a model by the mean and the standard deviation of each of its tensors.

    ``F = (μ_1, σ_1, ..., μ_L, σ_L)``.
    Source: Bdair et al., MELBA 2022, Sec. 2.3.1.

    Args:
        state: a state_dict with at least one floating-point tensor that is not empty; each tensor
            is read once.

    Returns:
        (2L,) float64: mean and biased standard deviation (divided by the number of elements) of the
        L floating-point tensors, by sorted name. BatchNorm statistics and the classifier count;
        integer and empty tensors are left out.

    Raises ConfigError: nothing to describe.

    Edge cases: one element, constant: standard deviation exactly 0 for one element. NaN, infinity:
    propagate; :func:`similarity` refuses them.

    Deviates: the paper says per layer; the authors' code, followed here, takes every tensor of the
    state_dict. What it also appends, accuracy and loss on a validation set of the server, is left
    out: the paper does not mention it.
    """
    moments: list[Tensor] = []
    for key in sorted(state):
        tensor = state[key]
        if tensor.is_floating_point() and tensor.numel():
            deviation, mean = torch.std_mean(tensor.to(torch.float64), correction=0)
            moments += [mean, deviation]
    if not moments:
        where = "fedperl.layer_moments"
        found = f"{len(state)} tensors, none of them"
        remedy = "Describe a model's state_dict."
        raise ConfigError(
            where, expected="a state with floating-point tensors", found=found, remedy=remedy
        )
    return torch.stack(moments)


@torch.no_grad()
def similarity(
    moments: Tensor, scale: Literal["minmax", "none"] = "minmax", rows: Sequence[int] | None = None
) -> Tensor:
    """Return the cosine similarity of models to all models, from their moments.

    ``ω_mk = F̃_m · F̃_k / (‖F̃_m‖ ‖F̃_k‖)``; with "minmax", ``F̃_mj = (F_mj - min_k F_kj) / (max_k
    F_kj - min_k F_kj)``, or 1 for a feature that is equal in all models.
    Source: Bdair et al., MELBA 2022, Sec. 2.3.1; the scaling is that of the authors' code.

    Args:
        moments: (M, 2L) finite, one row of :func:`layer_moments` for each model, M and 2L >= 1.
        scale: "minmax" scales each feature to [0, 1] over the M models; "none" is the paper's text,
            where a few large BatchNorm variances decide and all similarities are close to 1.
        rows: R indices in [0, M) of the models m that are compared with all M; by default all.

    Returns:
        (R, M) float64: those rows of the matrix (M, M), to the last bit. That is exactly symmetric,
        exactly 1 on the diagonal, in [0, 1] with "minmax", else in [-1, 1]. Equal models are
        equally similar to any other, to the last bit.

    Raises ConfigError: not two-dimensional, empty, NaN or infinite (the error names the row), or an
    unknown scale.

    Edge cases: M = 1: [[1]]. M = 2: with "minmax" every feature is 0 or 1 or constant: too coarse
    for a gate. equal
    models: 1, also where their rows are all zero. a row that is all zero: 0 to every row that is
    not; with "minmax" it is the lowest in every feature.
    """
    features = _finite_rows(moments)
    if scale == "minmax":
        low = features.amin(dim=0)
        high = features.amax(dim=0)
        features = torch.where(high > low, (features - low) / (high - low), 1.0)
    elif scale != "none":
        raise ConfigError(
            "fedperl.similarity",
            expected='"minmax" or "none"',
            found=repr(scale),
            remedy="Choose one.",
        )
    norms = features.norm(dim=1, keepdim=True)
    directions = features / norms.where(norms > 0, 1.0)
    # Row by row: the blocks of a matrix product may round equal pairs differently, and so break
    # ties by chance.
    compared = torch.arange(len(features)) if rows is None else torch.tensor(rows, dtype=torch.long)
    cosine: Tensor = directions.new_empty(len(compared), len(features))
    for row, direction in zip(cosine, directions[compared], strict=True):
        row.copy_((directions * direction).sum(dim=1))
    zero = ~features.any(dim=1)  # without a direction, but equal to each other
    cosine.clamp_(-1.0, 1.0).masked_fill_(zero[compared, None] & zero, 1.0)
    cosine[torch.arange(len(compared)), compared] = 1.0
    return cosine


def _finite_rows(moments: Tensor) -> Tensor:
    """Check the moments and return them as float64."""
    if moments.dim() != 2 or not moments.numel():
        where = "fedperl.similarity"
        found = f"shape {tuple(moments.shape)}"
    elif broken := (~moments.isfinite().all(dim=1)).nonzero().flatten().tolist():
        where = f"fedperl.similarity, row {broken[0]}"
        found = "NaN or infinity"
    else:
        return moments.to(torch.float64)
    remedy = "Stack layer_moments of accepted models, one row for each."
    raise ConfigError(
        where, expected="finite moments (models, features)", found=found, remedy=remedy
    )
