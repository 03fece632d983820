"""Means of sites' models: weighted, with limits on the weight of one site, or robust to outliers.

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
from fedward.model_state import State

_FEWEST_CAPPED = 3
"""Smallest number of sites whose counts are capped: a cap would make any two sites equal."""

_LARGEST_TRIM = 0.5
"""Largest share of the models that is cut off at either end. It leaves the median."""

_ADDED_SHARE = 1e-12
"""Part of a site's share of the images that is added to its weight before weights are capped.

Without it, a site whose weight was rounded to 0 could take over nothing of what another loses."""

_TOLERANCE = 1 + 1e-12
"""Factor that allows for rounding.

With it, a count at its limit is not above the limit, and K equal weights are worth K sites."""


def aggregate(
    states: Sequence[State], weights: Sequence[float], settings: Settings
) -> dict[str, Tensor]:
    """Return the kind of mean that a job's settings ask for.

    If ``robust`` is ``no``, this is :func:`weighted_average`. Otherwise it is :func:`trimmed_mean`
    of the models whose weight is above 0, each of which counts once. Arguments and errors are those
    of these functions.
    """
    if settings.robust == "no":
        return weighted_average(states, weights)
    counted = [state for state, weight in zip(states, weights, strict=True) if weight > 0]
    trim = _LARGEST_TRIM if settings.robust == "median" else settings.trim
    return trimmed_mean(counted, trim)


def capped_counts(counts: Sequence[float], largest_share: float) -> list[float]:
    """Lower counts that are too large a share of all, so that no site decides an average alone.

    ``n_k' = min(n_k, c)`` with the largest c for which no ``n_k'`` is above ``largest_share`` times
    ``Σ_s n_s'``. Sites report their own counts, which nobody else can verify.

    Args:
        counts: one finite number >= 0 for each site, such as its images or steps.
        largest_share: in (0, 1]. With K counts above 0, a value below 1 / K has the effect of
            1 / K.

    Returns:
        New counts in the order of the old. Counts that are not lowered are unchanged to the last
        bit. A site with a larger count than another never gets a smaller new count.

    Raises ConfigError: ``largest_share`` is out of range. Counts are checked where they are used.

    Edge cases: One or two counts above 0 are unchanged, because a cap would make any two sites
    equal. With ``largest_share`` 1/2, one huge count is lowered to the sum of all others.
    """
    if not 0 < largest_share <= 1:
        raise ConfigError(
            "largest_share",
            "Set largest_share to 1 for no cap.",
            expected="above 0, at most 1",
            found=f"{largest_share}",
        )
    descending = sorted((count for count in counts if count > 0), reverse=True)
    if len(descending) < _FEWEST_CAPPED:
        return list(counts)
    share = max(largest_share, 1 / len(descending))
    # If the j largest counts are lowered to c, and R is the sum of the others, then
    # c = s (j c + R) for the share s, and so c = s R / (1 - s j). Find the smallest j for which
    # the next count is no longer above c. That is so for j >= 1/s - 1 at the latest, where the
    # divisor is still above 0.
    for lowered, next_count in enumerate(descending):
        sum_of_others = sum(descending[lowered:])
        divisor = 1 - share * lowered
        if next_count * divisor <= share * sum_of_others * _TOLERANCE:
            # Rounding may put the cap just below the next count, which must not be lowered.
            cap = max(share * sum_of_others / divisor, next_count)
            return [min(count, cap) for count in counts]
    # Only rounding leads here, where the share is one over the number of counts.
    return [min(count, descending[-1]) for count in counts]


def capped_weights(weights: Tensor, sizes: Tensor, largest_share: float) -> Tensor:
    """Lower weights above ``largest_share`` of their sum, so that no mean is one site's model.

    The sum of the weights stays the same. Unlike in :func:`capped_counts`, a site whose weight was
    rounded to 0 takes over its part of what another site loses.

    Args:
        weights: (K,) float64 >= 0, not all 0.
        sizes: (K,) float64 >= 0, not all 0, such as numbers of images.
        largest_share: in (0, 1].

    Returns:
        (K,) float64; ``weights`` itself if none is too large, or if there are one or two sites.
    """
    total = weights.sum()
    if len(weights) < _FEWEST_CAPPED or bool(weights.max() <= largest_share * total):
        return weights
    shares = weights / total + _ADDED_SHARE * sizes / sizes.sum()
    capped = torch.tensor(capped_counts(shares.tolist(), largest_share), dtype=torch.float64)
    return capped * (total / capped.sum())


def effective_number(weights: Sequence[float]) -> float:
    """Return how many equally weighted sites an average is worth: ``(Σ_k w_k)² / Σ_k w_k²``.

    It is K for K equal weights, and about 2 for two equal weights and a third close to 0. If the
    parts of c sites are subtracted from an average with the effective number E, what remains is a
    mixture of the other sites whose effective number is at least ``E - c``. It is exactly that if
    each of the c sites has the weight ``1 / E``.
    Source: Kish, *Survey sampling*, 1965, where it is the effective size of a sample.

    Args:
        weights: one finite number >= 0 for each site.

    Returns:
        A number from 1 to the number of weights above 0; 0 where there are none.
    """
    largest_weight = max(weights, default=0.0)
    if not largest_weight:
        return 0.0
    # Scaled, because squares of large weights would overflow, and those of small ones vanish.
    scaled_weights = [weight / largest_weight for weight in weights]
    return sum(scaled_weights) ** 2 / sum(scaled * scaled for scaled in scaled_weights)


def levelled_weights(weights: Sequence[float], sizes: Sequence[float], least: float) -> list[float]:
    """Move weights towards equal ones until an average is worth ``least`` equally weighted sites.

    ``w_k' = (1 - a) w_k + a W / K`` with ``W = Σ_s w_s``, over the K sites that have a size > 0.
    Here a is the smallest number in [0, 1] for which :func:`effective_number` is at least
    ``least``: ``1 - a = √((1 / least - 1 / K) / (Σ_k (w_k / W)² - 1 / K))``.

    Args:
        weights: one finite number >= 0 for each site, not all 0.
        sizes: one number >= 0 for each site, such as its images. A site of size 0 has the weight 0
            and keeps it.
        least: the effective number that an average must have, >= 1.

    Returns:
        New weights of the same sum, in the order of the old. The order of two sites' weights is
        kept, and the largest share does not grow. Weights that are already worth ``least`` sites
        are unchanged to the last bit.

    Raises ConfigError: fewer than ``least`` sites have a size above 0, so that no weights would
    suffice. The server discards a round with so few replies before it averages.

    Edge cases: With ``least`` = K all weights become equal. A weight of 0 of a site with images is
    raised too. One site with ``least`` = 1 keeps its weight.
    """
    if effective_number(weights) * _TOLERANCE >= least:
        return list(weights)
    sites_with_size = sum(size > 0 for size in sizes)
    if sites_with_size < least:
        raise ConfigError(
            "aggregation.levelled_weights",
            "Average no fewer replies than minimum_replies.",
            expected=f"at least {least:g} sites with images, or steps",
            found=f"{sites_with_size}",
        )
    total = sum(weights)
    equal_share = 1 / sites_with_size
    pairs = list(zip(weights, sizes, strict=True))
    # Above 0, because equal weights are worth K >= least sites and were returned above.
    spread = sum((weight / total - equal_share) ** 2 for weight, size in pairs if size > 0)
    # scale is 1 - a, and shift is a W / K.
    scale = math.sqrt((1 / least - equal_share) / spread)
    shift = (1 - scale) * (total / sites_with_size)
    levelled = []
    for weight, size in pairs:
        if size > 0:
            levelled.append(scale * weight + shift)
        else:
            levelled.append(scale * weight)
    return levelled


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
    where = "aggregation.weighted_average"
    shares = _shares(where, states, weights)
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
    where = "aggregation.trimmed_mean"
    if not states or not 0 <= trim <= _LARGEST_TRIM:
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


def _trimmed_key(where: str, states: Sequence[State], cut: int, key: str) -> Tensor:
    """Return the trimmed mean of one tensor over the states, reading it once from each."""
    tensors = list(_tensors(where, states, key))
    first = tensors[0]
    if not first.is_floating_point():
        return first.clone()
    ordered = torch.stack(tensors).sort(dim=0).values
    return ordered[cut : len(states) - cut].double().mean(dim=0).to(first.dtype)


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


def _tensors(where: str, states: Sequence[State], key: str) -> Iterator[Tensor]:
    """Yield one tensor of each state, and refuse one that is not like the first."""
    first = states[0][key]
    yield first
    for index, state in enumerate(states[1:], 1):
        tensor = state[key]
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise _mismatch(
                where,
                index,
                key,
                expected=f"{first.dtype} of shape {tuple(first.shape)}",
                found=f"{tensor.dtype} of shape {tuple(tensor.shape)}",
            )
        yield tensor


def _shares(where: str, states: Sequence[State], weights: Sequence[float]) -> list[float]:
    """Check the weights and scale them to a sum of 1."""
    remedy = "Average only replies that were accepted, weighted by what they hold."
    if not states or len(states) != len(weights):
        raise ConfigError(
            where,
            remedy,
            expected="one or more states and one weight for each",
            found=f"{len(states)} states and {len(weights)} weights",
        )
    for index, weight in enumerate(weights):
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"{where}, weight {index}", remedy, expected="finite and >= 0", found=f"{weight}"
            )
    total = sum(weights)
    if not 0 < total < math.inf:
        raise ConfigError(where, remedy, expected="a finite sum of weights > 0", found=f"{total}")
    return [weight / total for weight in weights]


def require_keys(where: str, states: Sequence[State]) -> None:
    """Raise ConfigError unless all states have the keys of the first.

    The error begins with ``where``.
    """
    for index, state in enumerate(states):
        differing_keys = set(states[0]).symmetric_difference(state)
        if differing_keys:
            raise _mismatch(
                where,
                index,
                min(differing_keys),
                expected="the keys of state 0",
                found="a missing or an additional key",
            )


def _mismatch(where: str, index: int, key: str, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"{where}, state {index}, key {key!r}",
        "Average states of one architecture only.",
        expected=expected,
        found=found,
    )
