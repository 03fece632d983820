"""FedPerl's measure of how similar models are: the moments of their tensors.

Bdair et al., MELBA 2022, Sec. 2.3.1.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.model_state import State


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

    Raises ConfigError: there is no such tensor.

    Edge cases: one element, or all elements equal: a standard deviation of 0, exactly so for one
    element. NaN or infinity: propagates; :func:`similarity` refuses it.

    Deviates: the paper says per layer; the authors' code, followed here, takes every tensor of the
    state_dict. The code also appends accuracy and loss on a validation set of the server, which are
    left out, because the paper does not mention them.
    """
    moments: list[Tensor] = []
    for name in sorted(state):
        tensor = state[name]
        if tensor.is_floating_point() and tensor.numel():
            deviation, mean = torch.std_mean(tensor.to(torch.float64), correction=0)
            moments += [mean, deviation]
    if not moments:
        raise ConfigError(
            "fedperl.layer_moments",
            "Describe a model's state_dict.",
            expected="a state with floating-point tensors",
            found=f"{len(state)} tensors, none of them",
        )
    return torch.stack(moments)


@torch.no_grad()
def similarity(
    moments: Tensor, scale: Literal["minmax", "none"] = "minmax", rows: Sequence[int] | None = None
) -> Tensor:
    """Return the cosine similarity of models to all models, from their moments.

    ``ω_mk = F̃_m · F̃_k / (‖F̃_m‖ ‖F̃_k‖)``. With "minmax",
    ``F̃_mj = (F_mj - min_k F_kj) / (max_k F_kj - min_k F_kj)``, or 1 for a feature that is equal in
    all models.

    Source: Bdair et al., MELBA 2022, Sec. 2.3.1; the scaling is that of the authors' code.

    Args:
        moments: F (M, 2L) finite, one row of :func:`layer_moments` for each model, M and 2L >= 1.
        scale: "minmax" scales each feature to [0, 1] over the M models; "none" is the paper's text,
            where a few large BatchNorm variances decide and all similarities are close to 1.
        rows: R indices in [0, M) of the models m that are compared with all M; by default all.

    Returns:
        (R, M) float64: these rows of the matrix (M, M), to the last bit. The matrix is exactly
        symmetric and exactly 1 on the diagonal; it lies in [0, 1] with "minmax", else in [-1, 1].
        Equal models are equally similar to any other, to the last bit.

    Raises ConfigError: not two-dimensional, empty, NaN or infinite (the error names the row), or an
    unknown scale.

    Edge cases: M = 1: [[1]]. M = 2: with "minmax" every feature is 0, 1 or constant, which is too
    coarse for a gate. Equal models: 1, also where their rows are all zero. A row that is all zero:
    0 to every row that is not; with "minmax" it is the lowest in every feature.
    """
    features = finite_rows(moments)  # (M, 2L)
    if scale == "minmax":
        low = features.amin(dim=0)
        high = features.amax(dim=0)
        features = torch.where(high > low, (features - low) / (high - low), 1.0)
    elif scale != "none":
        raise ConfigError(
            "fedperl.similarity",
            "Choose one.",
            expected='"minmax" or "none"',
            found=repr(scale),
        )
    norms = features.norm(dim=1, keepdim=True)
    directions = features / norms.where(norms > 0, 1.0)
    compared = torch.arange(len(features)) if rows is None else torch.tensor(rows, dtype=torch.long)
    # Row by row: the blocks of a matrix product may round equal pairs differently, and so break
    # ties by chance.
    cosine: Tensor = directions.new_empty(len(compared), len(features))  # (R, M)
    for row, direction in zip(cosine, directions[compared], strict=True):
        row.copy_((directions * direction).sum(dim=1))
    cosine.clamp_(-1.0, 1.0)
    # Rows of zeros have no direction, but they are equal to each other.
    zero = ~features.any(dim=1)
    cosine.masked_fill_(zero[compared, None] & zero, 1.0)
    cosine[torch.arange(len(compared)), compared] = 1.0
    return cosine


def finite_rows(features: Tensor) -> Tensor:
    """Return features (M, F) as float64; raise ConfigError unless they are finite rows."""
    expected = "finite moments (models, features)"
    remedy = "Stack layer_moments of accepted models, one row for each."
    if features.dim() != 2 or features.numel() == 0:
        raise ConfigError(
            "fedperl.similarity", remedy, expected=expected, found=f"shape {tuple(features.shape)}"
        )
    broken = (~features.isfinite().all(dim=1)).nonzero().flatten().tolist()
    if broken:
        raise ConfigError(
            f"fedperl.similarity, row {broken[0]}",
            remedy,
            expected=expected,
            found="NaN or infinity",
        )
    return features.to(torch.float64)
