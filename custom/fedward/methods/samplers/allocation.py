"""A budget of the whole federation that goes where the uncertainty is."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from fedward.errors import ConfigError, DataError
from fedward.methods.samplers.base import Sampler, ScoreSampler
from fedward.methods.samplers.pool import Pool, checked

SCORE_INTERVALS = 64
"""Equal intervals in which a site counts its scores: all that a site reports of them."""
SMALLEST_GROUP = 5
"""Images that are counted together: no number is about fewer."""


def has_bounded_scores(sampler: Sampler) -> bool:
    """Return whether a sampler's scores can be counted in intervals, equal at all sites."""
    return isinstance(sampler, ScoreSampler) and sampler.score_range(classes=2) is not None


def score_counts(sampler: ScoreSampler, pool: Pool, classes: int) -> list[int]:
    """Return how many images of a pool have a score in each of :data:`SCORE_INTERVALS` equal
    intervals.

    Args:
        sampler: one that :func:`has_bounded_scores`.
        pool: with what the sampler uses; it may be empty.
        classes: K >= 2, which the bounds depend on.

    Returns:
        Counts from the lowest interval to the highest; a score at a bound, or beyond it, lies in
        the outermost.

    Raises:
        ConfigError: the sampler's scores have no bounds.
        DataError: the pool is not what the sampler uses, or holds NaN.
    """
    where = f"sampler {sampler.name}"
    bounds = sampler.score_range(pool.outputs.answers_to_a_question(classes))
    if bounds is None:
        raise ConfigError(
            where, expected="scores with bounds", found="none", remedy="Take fedal or margin."
        )
    if not pool.ids:
        return [0] * SCORE_INTERVALS
    low, high = bounds
    scores = sampler.scores_of(checked(pool, sampler.uses, sampler.name))
    places = ((scores - low) / (high - low) * SCORE_INTERVALS).long().clamp(0, SCORE_INTERVALS - 1)
    counts: list[int] = places.bincount(minlength=SCORE_INTERVALS).tolist()
    return counts


def counts_in_fives(counts: Sequence[int]) -> list[int]:
    """Return counts in which images appear five at a time, so that no number is about fewer.

    ``c_i' = 5 (⌊C_i / 5⌋ - ⌊C_{i+1} / 5⌋)`` with ``C_i = Σ_{j >= i} c_j``: from the highest score
    down, each five images are counted in the interval of the lowest of them.

    Args:
        counts: numbers of images from the lowest interval to the highest.

    Returns:
        Multiples of 5 of the same length, which sum to ``5 ⌊N / 5⌋`` for N images. Above any score
        at most four images fewer are reported than there are, and never more.
    """
    above = [0, *accumulate(reversed(counts))]
    fives = [SMALLEST_GROUP * (number // SMALLEST_GROUP) for number in above]
    return [after - before for before, after in pairwise(fives)][::-1]


def allocate_by_counts(counts: Mapping[str, Sequence[int]], budget: int) -> dict[str, int]:
    """Divide a budget >= 0 as :func:`allocate` does; scores of one interval count as equal.

    ``counts`` are of equal length by site name, from the lowest interval to the highest.
    """
    places = {
        site: torch.arange(len(each)).repeat_interleave(torch.tensor(each))
        for site, each in counts.items()
    }
    return allocate(places, budget)


@torch.no_grad()
def allocate(scores: Mapping[str, Tensor], budget: int) -> dict[str, int]:
    """Divide a budget so that the images with the highest scores of all sites are labelled.

    ``a^m = |{x in D_U^m : x is among the ``budget`` highest scores of all pools}|``.

    Each site then chooses its a^m highest, and all sites together have chosen the highest of all.

    Args:
        scores: finite (N_m,) by site name, comparable between sites: of one sampler, with models
            trained alike.
        budget: at least 0.

    Returns:
        Counts by site, in name order; they sum to min(budget, Σ N_m), and no site is asked for more
        than it has. Where scores tie at the end of the budget, sites get one in turn, by name:
        equal sites differ by at most one. The order of sites or images does not matter. O(n log n)
        for n images.

    Raises:
        ConfigError: a negative budget.
        DataError: scores of a site that are NaN, infinite, or not one-dimensional.

    Edge cases: no site: nothing. budget 0, all pools empty: 0 for every site.
    """
    if budget < 0:
        raise ConfigError(
            "allocate",
            expected="a budget >= 0",
            found=f"{budget}",
            remedy="Give a budget of 0 or more.",
        )
    for site, values in scores.items():
        if values.dim() != 1 or not bool(values.isfinite().all()):
            expected = "one finite score for each image"
            remedy = "Score the pool again with a model that works."
            found = f"{tuple(values.shape)}, {int((~values.isfinite()).sum())} of them not finite"
            raise DataError(f"site {site}, scores", expected=expected, found=found, remedy=remedy)
    pools = {site: scores[site].to("cpu", torch.float64) for site in sorted(scores)}
    budget = min(budget, sum(map(len, pools.values())))
    if not budget:
        return dict.fromkeys(pools, 0)
    last = torch.cat(list(pools.values())).sort(descending=True).values[budget - 1]
    counts = {site: int((values > last).sum()) for site, values in pools.items()}
    ties = {site: int((values == last).sum()) for site, values in pools.items()}
    turns = sorted((turn, site) for site, count in ties.items() for turn in range(count))
    for _, site in turns[: budget - sum(counts.values())]:
        counts[site] += 1
    return counts
