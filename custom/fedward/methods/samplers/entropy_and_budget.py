"""FedAL's equations: the score of an image, the choice, and the number of labels of each query.

Deng et al., arXiv 2406.11310.
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from fedward.errors import ConfigError

Id = TypeVar("Id", bound=Hashable)


@torch.no_grad()
def ensemble_entropy(p: Tensor) -> Tensor:
    """Return the entropy of the mean prediction of an ensemble.

    ``H(x) = -Σ_c p̄_c log p̄_c`` with ``p̄_c = (1/T) Σ_t p(y = c | x, φ_t)``, in nats.

    An image scores high where the models are unsure, and where they contradict each other.

    Source: Deng et al., arXiv 2406.11310, eq. (3); there the ensemble is {φ_m, ψ}.

    Args:
        p: (T, N, K) floating point probabilities of T >= 1 models, K >= 1. Rows sum to 1, which is
            not checked.

    Returns:
        H (N,) float64 in [0, log K], without gradient. O(T N K).

    Raises ConfigError: not three-dimensional, no model, or no class.

    Edge cases: N = 0: empty. K = 1: 0. A probability of 0: adds 0. NaN: the row's H is NaN, which
    :func:`select` refuses.
    """
    if p.dim() != 3 or p.shape[0] == 0 or p.shape[2] == 0:
        raise ConfigError(
            "fedal.ensemble_entropy",
            "Stack the models' softmax.",
            expected="probabilities (models, images, classes), models, classes >= 1",
            found=f"{tuple(p.shape)}",
        )
    terms: Tensor = torch.special.entr(mean_over_models(p))  # (N, K)
    return terms.sum(dim=1)


def mean_over_models(p: Tensor) -> Tensor:
    """Return ``(1/T) Σ_t p_t`` (...) in float64 of p (T, ...), T >= 1.

    The models are added one by one: torch's own sum may round equal images differently by their
    position, and so break ties.
    """
    total = torch.zeros(p.shape[1:], dtype=torch.float64, device=p.device)
    for member in p:
        total += member
    return total / len(p)


def annotation_budget(pool: int, initial: int, target_fraction: float, steps: int) -> list[int]:
    """Return how many images a site labels in each query.

    ``a^{m,k} = A_k - A_{k-1}`` with ``A_k = round(k (round(γ N_m) - n_0) / G)``, a half rounded up,
    for k = 1 ... G. In ``round(γ N_m)`` a half goes to the even number, as Python rounds.

    Source: Deng et al., arXiv 2406.11310, eq. (1), with the share γ of Tables 3 and 4.

    Args:
        pool: N_m >= 0, training images of the site, labelled or not.
        initial: n_0 in [0, N_m], how many of them are labelled at the start.
        target_fraction: γ in [0, 1], the share that is labelled at the end.
        steps: G >= 1, queries.

    Returns:
        G numbers >= 0 that sum to ``round(γ N_m) - n_0`` and differ by at most one.

    Raises ConfigError: a number out of range, or more labelled images at the start than at the end.

    Edge cases: the target is reached already: zeros. Fewer images than queries: ones among zeros.
    N_m = 0: zeros.

    Deviates: eq. (1) multiplies γ by the unlabelled images alone and does not round. With the first
    10 % labelled and γ = 0.5 it would end at 55 % of the data, where the tables say 50 %.
    """
    if not 0 <= initial <= pool or steps < 1 or not 0 <= target_fraction <= 1:
        raise ConfigError(
            "fedal.annotation_budget",
            "Fix the schedule of active learning.",
            expected="0 <= initial <= pool, 0 <= target_fraction <= 1, steps >= 1",
            found=(
                f"initial {initial}, pool {pool}, target_fraction {target_fraction}, steps {steps}"
            ),
        )
    target = round(target_fraction * pool)
    if target < initial:
        raise ConfigError(
            "fedal.annotation_budget",
            "Raise target_fraction, or start with fewer labels.",
            expected=(
                f"at most {target} images labelled at the start, {target_fraction:.3g} of {pool}"
            ),
            found=f"{initial}",
        )
    total = target - initial
    # A_k in integers: floor(k total / G + 1/2).
    labelled_after = [(2 * step * total + steps) // (2 * steps) for step in range(steps + 1)]
    return [after - before for before, after in pairwise(labelled_after)]


def select(scores: Tensor, ids: Sequence[Id], budget: int) -> list[Id]:
    """Choose the images with the highest scores.

    ``S_m = argmax_{S ⊆ D_U^m, |S| = a^m} Σ_{x in S} H(x)``.

    Source: Deng et al., arXiv 2406.11310, eq. (4).

    Args:
        scores: (N,) finite.
        ids: N distinct ids of the images of D_U^m, in the order of the scores.
        budget: a^m >= 0.

    Returns:
        min(budget, N) distinct ids by falling score; where equal, in the order given. O(N log N).

    Raises ConfigError: not one score for each id, a negative budget, a repeated id, a score that is
    NaN or infinite.

    Edge cases: N = 0, or budget = 0: nothing. budget >= N: all of them, highest first.

    Deviates: eq. (4) leaves out the sum over S, and calls the pool D_m.
    """
    if scores.dim() != 1 or len(scores) != len(ids) or budget < 0:
        raise ConfigError(
            "fedal.select",
            "Score the images of the pool, each once.",
            expected=f"one score for each of {len(ids)} ids, and a budget >= 0",
            found=f"scores {tuple(scores.shape)}, budget {budget}",
        )
    if len(set(ids)) != len(ids):
        raise ConfigError(
            "fedal.select",
            "Drop the repeated images from the pool.",
            expected="every id once",
            found=f"{len(set(ids))} different ones of {len(ids)}",
        )
    if not bool(scores.isfinite().all()):
        broken = int((~scores.isfinite()).nonzero()[0])
        raise ConfigError(
            "fedal.select",
            "The model is broken: use an earlier one.",
            expected="finite scores",
            found=f"{scores[broken].item()} for {ids[broken]!r}",
        )
    order: list[int] = scores.argsort(descending=True, stable=True)[:budget].tolist()
    return [ids[position] for position in order]
