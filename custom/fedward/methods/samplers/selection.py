"""Which images a sampler takes by their scores."""

from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor

from fedward.errors import ConfigError

Id = TypeVar("Id")


def select(scores: Tensor, ids: Sequence[Id], budget: int) -> list[Id]:
    """Choose the images with the highest scores.

    ``S_m = argmax_{S ⊆ D_U^m, |S| = a^m} Σ_{x in S} H(x)``.

    Source: Deng et al., arXiv 2406.11310, eq. (4).

    Args:
        scores: (N,) finite.
        ids: N distinct ids of the images of D_U^m, in the order of the scores.
        budget: a^m >= 0, which :meth:`~fedward.methods.samplers.base.Sampler.choose` checks, as it
            does the ids.

    Returns:
        min(budget, N) distinct ids by falling score; where equal, in the order given. O(N log N).

    Raises ConfigError: not one score for each id, or a score that is NaN or infinite.

    Edge cases: N = 0, or budget = 0: nothing. budget >= N: all of them, highest first.

    Deviates: eq. (4) leaves out the sum over S, and calls the pool D_m.
    """
    if scores.shape != (len(ids),):
        raise ConfigError(
            "selection.select",
            "Score the images of the pool, each once.",
            expected=f"one score for each of {len(ids)} ids",
            found=f"scores {tuple(scores.shape)}",
        )
    if not bool(scores.isfinite().all()):
        broken = int((~scores.isfinite()).nonzero()[0])
        raise ConfigError(
            "selection.select",
            "The model is broken: use an earlier one.",
            expected="finite scores",
            found=f"{scores[broken].item()} for {ids[broken]!r}",
        )
    order: list[int] = scores.argsort(descending=True, stable=True)[:budget].tolist()
    return [ids[position] for position in order]
