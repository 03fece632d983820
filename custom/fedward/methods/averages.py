"""Averages of models: weighted, moving over rounds, or trimmed so that outliers cannot move them.

A model is a state_dict. All functions go through it tensor by tensor, and compute in float64.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.model_checks import require_keys, require_like, require_weights
from fedward.model_state import State

LARGEST_TRIM = 0.5
"""Largest share of the models that is cut off at either end. It leaves the median."""


@torch.no_grad()
def weighted_average(states: Sequence[State], weights: Sequence[float]) -> dict[str, Tensor]:
    """Average models tensor by tensor.

    ``w = Σ_k (n_k / n) w_k`` with ``n = Σ_k n_k``.
    Source: McMahan et al., AISTATS 2017, Algorithm 1.

    Every tensor is read exactly once, key by key and within a key state by state, and summed in
    float64. Memory holds the result and two tensors of one key, however many states there are.

    Args:
        states: one or more state_dicts on one device with equal keys, shapes and dtypes, in any key
            order.
        weights: one finite number >= 0 for each state, such as the number of images it was trained
            on; their sum is > 0.

    Returns:
        A new dict in the key order and the dtypes of the first state, sharing no memory with it.
        Floating-point tensors are means, BatchNorm statistics included; all others are those of the
        first state.

    Raises ConfigError: no state; weights that are not one for each state; a weight that is negative
    or not finite (the error names its index); a sum of weights that is 0 or overflows; keys, shapes
    or dtypes that differ from those of the first state (the error names state and key).

    Edge cases: One state, or equal float32 states, are returned exactly, whatever the weights. A
    state of weight 0 is checked but contributes nothing, not even its NaN; if it is the first, the
    integer tensors are still its own. NaN and infinity propagate to the elements that they are in,
    because replies are checked when they arrive.

    Deviates: common implementations average ``num_batches_tracked`` as a float and truncate it on
    loading. A count of batches has no meaningful average, and only BatchNorm without momentum reads
    it.
    """
    where = "weighted_average"
    require_weights(where, states, weights)
    total = sum(weights)
    shares = [weight / total for weight in weights]
    require_keys(where, states)
    return {key: _average_key(where, states, shares, key) for key in states[0]}


def moving_average(average: State, model: State, decay: float, rounds: int) -> dict[str, Tensor]:
    """Return the exponential moving average of a run's models after one more round.

    ``a_t = a_{t-1} + (1 - d) / (1 - d^t) (w_t - a_{t-1})``, which is
    ``(1 - d) Σ_i d^(t-i) w_i / (1 - d^t)``, i = 1..t. It is bias-corrected as Adam's moments are
    (Kingma and Ba, *Adam*, ICLR 2015, Sec. 3): ``a_1 = w_1``, and the model before training is in
    no average.

    Args:
        average: a_{t-1}; empty before the first round.
        model: w_t, with the same keys, shapes and dtypes.
        decay: d in [0, 1); with 0 the average is the model itself.
        rounds: t, at least 1.

    Returns:
        a_t, which shares no memory with the arguments. BatchNorm's statistics are averaged too;
        tensors that are not floating point are the model's.

    Raises ConfigError: as :func:`weighted_average`.
    """
    if not average:
        # The average of one model is a copy of it.
        return weighted_average([model], [1])
    share = (1 - decay) / (1 - decay**rounds)
    return weighted_average([model, average], [share, 1 - share])


@torch.no_grad()
def trimmed_mean(states: Sequence[State], trim: float) -> dict[str, Tensor]:
    """Average models coordinate by coordinate, without the smallest and the largest values of each.

    ``w_j = mean of w_kj over k, without the c smallest and the c largest``, with
    ``c = min(⌈β K⌉, ⌊(K - 1) / 2⌋)``. With β = 1/2 that is the median; of an even number it is the
    mean of the middle two. As long as at most c of the K models are hostile, every coordinate lies
    between the smallest and the largest value of the honest models.
    Source: Yin et al., ICML 2018, Definitions 1 and 2.

    Models are read key by key as in :func:`weighted_average`, but all models' tensors of one key
    are in memory together.

    Args:
        states: K >= 1 state_dicts on one device with equal keys, shapes and dtypes.
        trim: β in [0, 1/2], the share of models that is cut off at either end.

    Returns:
        A new dict in the key order and dtypes of the first state; tensors that are not floating
        point are its own. The mean is computed in float64.

    Raises ConfigError: no state, ``trim`` out of range, or keys, shapes or dtypes that differ.

    Edge cases: Of one or two models, or with β = 0, it is the plain mean; of three models with
    β > 0, the median. Equal states are returned exactly. Infinity is cut off like any other
    outlier. NaN counts as the largest value; replies are checked on arrival.

    Deviates: the paper cuts off ``β K``, which need not be whole. It is rounded up here, so that
    the mean of a few models is protected too.
    """
    where = "trimmed_mean"
    if not states or not 0 <= trim <= LARGEST_TRIM:
        raise ConfigError(
            where,
            "Average accepted replies; 0.5 is the median.",
            expected="one or more states, and a trim from 0 to 0.5",
            found=f"{len(states)} states, trim {trim}",
        )
    require_keys(where, states)
    # Rounded first, because 0.2 · 5 in floating point may be a little above 1.
    wanted_cut = math.ceil(round(trim * len(states), 9))
    # At least one value must remain.
    cut = min(wanted_cut, (len(states) - 1) // 2)
    return {key: _trimmed_key(where, states, cut, key) for key in states[0]}


def _average_key(where: str, states: Sequence[State], shares: Sequence[float], key: str) -> Tensor:
    """Return the weighted mean of one tensor over the states, reading it once from each."""
    tensors = _tensors(where, states, key)
    first = next(tensors)
    total = torch.zeros_like(first, dtype=torch.float64)
    for share, tensor in zip(shares, chain([first], tensors), strict=True):
        # Skipped rather than added with a factor of 0, because 0 · NaN is NaN.
        if share > 0:
            total.add_(tensor, alpha=share)
    if not first.is_floating_point():
        return first.clone()
    return total.to(first.dtype)


def _trimmed_key(where: str, states: Sequence[State], cut: int, key: str) -> Tensor:
    """Return the trimmed mean of one tensor over the states, reading it once from each."""
    tensors = list(_tensors(where, states, key))
    first = tensors[0]
    if not first.is_floating_point():
        return first.clone()
    ordered = torch.stack(tensors).sort(dim=0).values
    return ordered[cut : len(states) - cut].double().mean(dim=0).to(first.dtype)


def _tensors(where: str, states: Sequence[State], key: str) -> Iterator[Tensor]:
    """Yield one tensor of each state, and refuse one that is not like the first."""
    first = states[0][key]
    yield first
    for index, state in enumerate(states[1:], 1):
        tensor = state[key]
        require_like(where, first, tensor, index, key)
        yield tensor
