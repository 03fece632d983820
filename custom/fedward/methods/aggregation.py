"""How sites' models become one: a weighted mean, limits to what a site counts for, and means that
outliers cannot move.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks
from decentralized data*, AISTATS 2017. Yin, Chen, Ramchandran, Bartlett: *Byzantine-robust
distributed learning: towards optimal statistical rates*, ICML 2018.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.settings import Settings
from fedward.methods.workflow import State

_FEWEST_CAPPED = 3
"""Smallest number of sites for which counts are capped: two would always count the same."""

_MOST_TRIMMED = 0.5
"""Largest share that is cut off at either end: that of the median."""

_LEAST = 1e-12
"""Part of its share of the images for which a site counts at least, where another's weight is
lowered.
"""

_EXACT = 1 + 1e-12
"""Room for rounding: a count exactly at its limit is not above it, and K equal weights are worth K
sites.
"""


def aggregate(
    states: Sequence[State], weights: Sequence[float], settings: Settings
) -> dict[str, Tensor]:
    """Return the mean of models that a job's settings ask for.

    Without ``robust`` it is :func:`weighted_average`. With it, :func:`trimmed_mean` of the models
    whose weight is above 0, each of which counts once. Arguments and errors are those of these
    functions.
    """
    if settings.robust == "no":
        return weighted_average(states, weights)
    counted = [state for state, weight in zip(states, weights, strict=True) if weight > 0]
    return trimmed_mean(counted, 0.5 if settings.robust == "median" else settings.trim)


def capped_counts(counts: Sequence[float], largest: float) -> list[float]:
    """Lower counts that are too large a share of all: what a site says of itself must not decide an
    average alone.

    ``n_k' = min(n_k, c)``, the largest c for which no ``n_k'`` is above ``largest`` times ``Σ_s
    n_s'``.

    Args:
        counts: one finite number >= 0 for each site, such as its images or steps.
        largest: in (0, 1]; where it is less than one over the number of counts above 0, it counts
            as that.

    Returns:
        New counts in the order of the old. Those that are not lowered are unchanged to the last
        bit, and so are all where none is too large. A site with more never gets less.

    Raises ConfigError: ``largest`` out of range. Counts are checked where they are used.

    Edge cases: one or two counts above 0: unchanged: of two sites each would count as much,
    whatever they hold. one huge, largest = 1/2: as much as all others together.
    """
    if not 0 < largest <= 1:
        remedy = "Set largest_share to 1 for no cap."
        raise ConfigError(
            "largest_share", expected="above 0, at most 1", found=f"{largest}", remedy=remedy
        )
    some = sorted((count for count in counts if count > 0), reverse=True)
    if len(some) < _FEWEST_CAPPED:
        return list(counts)
    share = max(largest, 1 / len(some))
    # The largest first: c is s R / (1 - s j) where j counts are lowered and R is the sum of the
    # others.
    for lowered, count in enumerate(some):
        rest = sum(some[lowered:])
        left = 1 - share * lowered
        if count * left <= share * rest * _EXACT:
            most = max(share * rest / left, count)
            return [min(number, most) for number in counts]
    return [min(number, some[-1]) for number in counts]  # rounding: share is one over their number


def capped_weights(weights: Tensor, sizes: Tensor, largest: float) -> Tensor:
    """Lower weights that are above ``largest`` times their sum, which stays: no mean is one site's
    model.

    As :func:`capped_counts`, but a site whose weight was rounded to 0 gets its part of what another
    loses, too.

    Args:
        weights: (K,) float64 >= 0, not all 0.
        sizes: (K,) float64 >= 0, not all 0, such as numbers of images.
        largest: in (0, 1].

    Returns:
        (K,) float64; ``weights`` itself where none is too large, and of one or two sites.
    """
    total = weights.sum()
    if len(weights) < _FEWEST_CAPPED or bool(weights.max() <= largest * total):
        return weights
    shares = weights / total + _LEAST * sizes / sizes.sum()
    capped = torch.tensor(capped_counts(shares.tolist(), largest), dtype=torch.float64)
    return capped * (total / capped.sum())


def effective_number(weights: Sequence[float]) -> float:
    """Return how many equally weighted sites an average is worth: ``(Σ_k w_k)² / Σ_k w_k²``.

    It is K for K equal weights, and 2 for two equal ones beside a third next to 0. Whoever
    subtracts the parts of c sites from an average with the effective number E is left with a
    mixture of the others whose effective number is at least ``E - c``. It is exactly that if each
    of the c sites has the weight ``1 / E``.
    Source: Kish, *Survey sampling*, 1965, where it is the effective size of a sample.

    Args:
        weights: one finite number >= 0 for each site.

    Returns:
        A number from 1 to that of weights above 0; 0 where there are none.
    """
    largest = max(weights, default=0.0)
    if not largest:
        return 0.0
    shares = [
        weight / largest for weight in weights
    ]  # squares of large counts would overflow, of small ones vanish
    return sum(shares) ** 2 / sum(share * share for share in shares)


def levelled_weights(weights: Sequence[float], sizes: Sequence[float], least: float) -> list[float]:
    """Move weights towards equal ones, as little as needed, until an average is worth ``least``
    sites.

    ``w_k' = (1 - a) w_k + a W / K`` with ``W = Σ_s w_s``, over the K sites of a size above 0. a is
    the smallest number in [0, 1] for which :func:`effective_number` is ``least``: ``1 - a = √((1 /
    least - 1 / K) / (Σ_k (w_k / W)² - 1 / K))``.

    Args:
        weights: one finite number >= 0 for each site, not all 0.
        sizes: one number >= 0 for each site, such as its images. A site of size 0 has the weight 0,
            and keeps it.
        least: the effective number that an average must have, >= 1.

    Returns:
        New weights of the same sum, in the order of the old: a site with more never gets less, and
        the largest share does not grow. Weights that are worth ``least`` sites already are
        unchanged to the last bit.

    Raises ConfigError: fewer than ``least`` sites have a size above 0, so that no weights would do.
    The server discards a round with so few replies before it averages.

    Edge cases: ``least`` = K: equal weights. a weight of 0 at a site with images: raised. one site,
    ``least`` = 1: unchanged.
    """
    if effective_number(weights) * _EXACT >= least:
        return list(weights)
    counted = [size > 0 for size in sizes]
    sites = sum(counted)
    total = sum(weights)
    if sites < least:
        expected = f"at least {least:g} sites with images, or steps"
        found = f"{sites}"
        remedy = "Average no fewer replies than minimum_replies."
        raise ConfigError(
            "aggregation.levelled_weights", expected=expected, found=found, remedy=remedy
        )
    equal = total / sites
    spread = sum(
        (weight / total - 1 / sites) ** 2
        for weight, counts in zip(weights, counted, strict=True)
        if counts
    )
    kept = math.sqrt((1 / least - 1 / sites) / spread)
    given = (1 - kept) * equal
    return [
        kept * weight + (given if counts else 0.0)
        for weight, counts in zip(weights, counted, strict=True)
    ]


@torch.no_grad()
def weighted_average(states: Sequence[State], weights: Sequence[float]) -> dict[str, Tensor]:
    """Average models tensor by tensor.

    ``w = Σ_k (n_k / n) w_k`` with ``n = Σ_k n_k``.
    Source: McMahan et al., AISTATS 2017, Algorithm 1.

    Every tensor is read exactly once, key by key and within a key state by state, and summed in
    float64: memory holds the result and two tensors of one key however many states there are.

    Args:
        states: one or more state_dicts on one device with equal keys, shapes and dtypes, in any key
            order.
        weights: one finite number >= 0 a state, such as its number of images; their sum is > 0.

    Returns:
        A new dict in the key order and the dtypes of the first state, sharing no memory with it.
        Floating-point tensors are means, BatchNorm statistics included; all others are those of the
        first state.

    Raises ConfigError: no state; not one weight a state; a weight that is negative or not finite
    (the error names its index); a sum of weights that is 0 or overflows; keys, shapes or dtypes
    that differ from those of the first state (the error names state and key).

    Edge cases: one state, or equal float32 states, whatever the weights: returned exactly. weight
    0: the state is checked, but contributes nothing, not even its NaN; if it comes first, integer
    tensors are still its own. NaN,
    infinity: propagate to the elements they are in: replies are checked when they arrive.

    Deviates: common implementations average ``num_batches_tracked`` as a float and truncate it on
    loading; a count of batches has no meaningful average, and only BatchNorm without momentum reads
    it.
    """
    where = "aggregation.weighted_average"
    shares = _shares(where, states, weights)
    require_keys(where, states)
    return {key: _average_key(where, states, shares, key) for key in states[0]}


def moving_average(average: State, model: State, decay: float, rounds: int) -> dict[str, Tensor]:
    """Return the average of a run's models after one more round, in which old ones fade.

    ``a_t = a_{t-1} + (1 - d) / (1 - d^t) (w_t - a_{t-1})``, which is ``(1 - d) Σ_i d^(t-i) w_i / (1
    - d^t)``, i = 1..t: bias-corrected as Adam's moments (Kingma and Ba, *Adam*, ICLR 2015, Sec. 3),
    so that ``a_1 = w_1`` and the model before training is in none.

    Args:
        average: a_{t-1}; empty before the first round.
        model: w_t, with the same keys, shapes and dtypes.
        decay: d in [0, 1); 0: the model itself.
        rounds: t, at least 1.

    Returns:
        a_t, sharing no memory with the others. BatchNorm's statistics are averaged too; what is not
        floating point is the model's.

    Raises ConfigError: as :func:`weighted_average`.
    """
    if not average:
        return weighted_average([model], [1])
    share = (1 - decay) / (1 - decay**rounds)
    return weighted_average([model, average], [share, 1 - share])


@torch.no_grad()
def trimmed_mean(states: Sequence[State], trim: float) -> dict[str, Tensor]:
    """Average models coordinate by coordinate, without the smallest and the largest values of each.

    ``w_j = mean of w_kj over k, without the c smallest and the c largest``, ``c = min(⌈β K⌉, ⌊(K -
    1) / 2⌋)``. With β = 1/2 that is the median; of an even number the mean of the middle two.
    Source: Yin et al., ICML 2018, Definitions 1 and 2. As long as at most c of the K models are
    hostile, every coordinate lies between the smallest and the largest value of an honest one.

    Reads key by key as :func:`weighted_average`, but holds all models' tensors of one key.

    Args:
        states: K >= 1 state_dicts on one device with equal keys, shapes and dtypes.
        trim: β in [0, 1/2], the share of models that is cut off at either end.

    Returns:
        A new dict in the key order and dtypes of the first state; tensors that are not floating
        point are its own. The mean is computed in float64.

    Raises ConfigError: no state, ``trim`` out of range, or keys, shapes or dtypes that differ.

    Edge cases: one or two, or β = 0: the plain mean. three, β > 0: the median. equal states:
    returned exactly.
    infinity: cut off as any other outlier. NaN: counts as the largest value; replies are checked on
    arrival.

    Deviates: the paper cuts off ``β K``, which need not be whole. It is rounded up, so that few
    models are protected.
    """
    where = "aggregation.trimmed_mean"
    if not states or not 0 <= trim <= _MOST_TRIMMED:
        expected = "one or more states, and a trim from 0 to 0.5"
        found = f"{len(states)} states, trim {trim}"
        raise ConfigError(
            where,
            expected=expected,
            found=found,
            remedy="Average accepted replies; 0.5 is the median.",
        )
    require_keys(where, states)
    cut = min(math.ceil(round(trim * len(states), 9)), (len(states) - 1) // 2)
    return {key: _trimmed_key(where, states, cut, key) for key in states[0]}


def _trimmed_key(where: str, states: Sequence[State], cut: int, key: str) -> Tensor:
    tensors = _tensors(where, states, key)
    first = next(tensors)
    if not first.is_floating_point():
        return first.clone()
    values = torch.stack([first, *tensors]).sort(dim=0).values[cut : len(states) - cut]
    return values.double().mean(dim=0).to(first.dtype)


def _average_key(where: str, states: Sequence[State], shares: Sequence[float], key: str) -> Tensor:
    """Average one tensor over the states, reading it once from each."""
    tensors = _tensors(where, states, key)
    first = next(tensors)
    total = torch.zeros_like(first, dtype=torch.float64)
    for share, tensor in zip(shares, chain([first], tensors), strict=True):
        if share > 0:  # 0 · NaN would be NaN
            total.add_(tensor, alpha=share)  # computed in float64
    return total.to(first.dtype) if first.is_floating_point() else first.clone()


def _tensors(where: str, states: Sequence[State], key: str) -> Iterator[Tensor]:
    """Yield one tensor of each state, and refuse one that is not like the first."""
    yield (first := states[0][key])
    for index, state in enumerate(states[1:], 1):
        tensor = state[key]
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            expected, found = (
                f"{each.dtype} of shape {tuple(each.shape)}" for each in (first, tensor)
            )
            raise _mismatch(where, index, key, expected, found)
        yield tensor


def _shares(where: str, states: Sequence[State], weights: Sequence[float]) -> list[float]:
    """Check the weights and scale them to a sum of 1."""
    remedy = "Average only replies that were accepted, weighted by what they hold."
    if not states or len(states) != len(weights):
        found = f"{len(states)} states and {len(weights)} weights"
        raise ConfigError(
            where, expected="one or more states and one weight for each", found=found, remedy=remedy
        )
    for index, weight in enumerate(weights):
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"{where}, weight {index}",
                expected="finite and >= 0",
                found=f"{weight}",
                remedy=remedy,
            )
    total = sum(weights)
    if not 0 < total < math.inf:
        raise ConfigError(
            where, expected="a finite sum of weights > 0", found=f"{total}", remedy=remedy
        )
    return [weight / total for weight in weights]


def require_keys(where: str, states: Sequence[State]) -> None:
    """Raise ConfigError, which begins with ``where``, unless all states have the keys of the first."""
    for index, state in enumerate(states):
        different = set(states[0]).symmetric_difference(state)
        if different:
            raise _mismatch(
                where,
                index,
                min(different),
                "the keys of state 0",
                "a missing or an additional key",
            )


def _mismatch(where: str, index: int, key: str, expected: str, found: str) -> ConfigError:
    where = f"{where}, state {index}, key {key!r}"
    return ConfigError(
        where, expected=expected, found=found, remedy="Average states of one architecture only."
    )
