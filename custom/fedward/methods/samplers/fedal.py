"""FedAL's sampler: the entropy of the ensemble of a site's own model and the global one.

Deng et al., arXiv 2406.11310.
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.samplers.base import ScoreSampler
from fedward.methods.samplers.pool import PoolUses


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


class EnsembleEntropy(ScoreSampler):
    """Entropy of the mean of the site's own model and the global one.

    Deng et al., arXiv 2406.11310, eq. (3)-(4).
    """

    uses = PoolUses(models=("local", "global"))

    def scores(self, probabilities: Tensor) -> Tensor:
        """Return the ensemble's entropy."""
        return ensemble_entropy(probabilities)


class LocalEntropy(EnsembleEntropy):
    """Entropy of the site's own model alone (ibid., Fig. 3)."""

    uses = PoolUses(models=("local",))


class GlobalEntropy(EnsembleEntropy):
    """Entropy of the global model alone (ibid., Fig. 3)."""

    uses = PoolUses(models=("global",))
