"""Samplers by margin, and by the disagreement of models (BALD)."""

import torch
from torch import Tensor

from fedward.methods.samplers.base import ScoreSampler
from fedward.methods.samplers.fedal import ensemble_entropy, mean_over_models
from fedward.methods.samplers.pool import PoolUses


@torch.no_grad()
def margin(p: Tensor) -> Tensor:
    """Return how close the two most probable classes are.

    ``s(x) = p_(2)(x) - p_(1)(x)``, the second largest probability minus the largest.

    Source: Scheffer, Decomain, Wrobel: *Active hidden Markov models for information extraction*,
    IDA 2001.

    Args:
        p: (T, N, K) probabilities of T >= 1 models, which are averaged; K >= 1.

    Returns:
        (N,) float64 in [-1, 0]; 0 where two classes are equally probable. O(N K log K).

    Edge cases: K = 1: the score is -p_(1). N = 0: empty. NaN stays NaN.
    """
    largest = mean_over_models(p).topk(min(2, p.shape[2]), dim=1).values  # (N, 2), or (N, 1)
    second = largest[:, 1:].sum(dim=1)  # 0 where there is one class
    return second - largest[:, 0]


@torch.no_grad()
def bald(p: Tensor) -> Tensor:
    """Return how much the label of an image says about which model is right.

    ``I(y; φ | x) = H(p̄) - (1/T) Σ_t H(p_t)``, the Jensen-Shannon divergence of the T predictions,
    in nats.

    Source: Houlsby, Huszár, Ghahramani, Lengyel: *Bayesian active learning for classification and
    preference learning*, arXiv 1112.5745, eq. (2).

    Args:
        p: (T, N, K) probabilities of T >= 1 models, K >= 1.

    Returns:
        (N,) float64 in [0, min(log T, log K)]; 0 where the models agree. O(T N K).

    Edge cases: T = 1 or K = 1: 0. N = 0: empty. NaN stays NaN.
    """
    entropies = torch.stack([ensemble_entropy(member.unsqueeze(0)) for member in p])  # (T, N)
    information = ensemble_entropy(p) - mean_over_models(entropies)
    # Rounding may leave -1e-17.
    return information.clamp_min(0.0)


class Margin(ScoreSampler):
    """Smallest margin of the site's own model."""

    uses = PoolUses(models=("local",))

    def scores(self, probabilities: Tensor) -> Tensor:
        """Return the negative margin."""
        return margin(probabilities)


class BALD(ScoreSampler):
    """Disagreement of the site's own model and the global one, without the doubt that they share.

    Deviates: usually the committee is one network with dropout left on (Gal, Islam, Ghahramani,
    ICML 2017). The networks of this package have no dropout, so all its members would agree. A
    federation has two models at hand.
    """

    uses = PoolUses(models=("local", "global"))

    def scores(self, probabilities: Tensor) -> Tensor:
        """Return the mutual information."""
        return bald(probabilities)
