"""Evidential learning: a loss that makes logits evidence, so that a model knows what it does not.

Chen, Ma, Cui, Xia: *Think twice before selection: federated evidential active learning for medical
image analysis with domain shifts*, CVPR 2024, arXiv 2312.02567, as implemented in the authors'
code. The Dirichlet distribution of logits z is ``α = max(z, 0) + 1``
(:func:`fedward.methods.samplers.feal.concentration`), its strength ``S = Σ_c α_c``.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.local import Batch, Losses, RoundInputs, Stateless
from fedward.methods.samplers.feal import concentration

REGULARISATION = 0.01
"""Weight of divergence and correction. Authors' code: 0.01."""
ANNEALING_ROUNDS = 10
"""Rounds until the divergence has its full weight. Authors' code: 10."""


def annealing(round_: int) -> float:
    """Return λ_t = min(1, t / 10), the weight of the divergence in a round from 1, t = round - 1.

    Deviates: the authors count the rounds since the last query, because their model then starts
    again. Here it goes on.
    """
    return min(1.0, (round_ - 1) / ANNEALING_ROUNDS)


def expected_cross_entropy(alpha: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """Return the mean cross-entropy over the class probabilities of Dirichlet distributions.

    ``L_fit = (1/N) Σ_n (2 - π_y) (ψ(S_n) - ψ(α_ny))`` with π_y the share of class y among the
    site's labels, and ψ the digamma function.

    Args:
        alpha: α (N, K) floating point > 0.
        labels: y (N,) int64 in [0, K).
        shares: π (K,) in [0, 1]. The rarer a class, the more its images count, at most twice.

    Returns:
        Scalar >= 0 with gradient; 0 with a gradient of 0 for N = 0 or K = 1.
    """
    alpha_of_label = alpha.gather(1, labels.unsqueeze(1)).squeeze(1)  # (N,)
    surprise = torch.digamma(alpha.sum(dim=1)) - torch.digamma(alpha_of_label)  # (N,)
    return ((2 - shares[labels]) * surprise).sum() / max(len(labels), 1)


def divergence_from_uniform(alpha: Tensor, labels: Tensor) -> Tensor:
    """Return how much evidence there is for wrong classes.

    ``L_kl = (1/N) Σ_n KL(Dir(α̂_n) ‖ Dir(1))`` with α̂ equal to α, but 1 in place of α_y;
    ``KL = lnΓ(Ŝ) - Σ_c lnΓ(α̂_c) - lnΓ(K) + Σ_c (α̂_c - 1)(ψ(α̂_c) - ψ(Ŝ))``.

    Args:
        alpha: α (N, K) floating point >= 1.
        labels: y (N,) int64 in [0, K).

    Returns:
        Scalar >= 0, up to rounding, with gradient, but none for α_y; 0 without evidence for wrong
        classes, or for N = 0.
    """
    classes = alpha.shape[1]
    is_label = F.one_hot(labels, classes).bool()  # (N, K)
    wrong = alpha.masked_fill(is_label, 1.0)  # α̂ (N, K)
    strength = wrong.sum(dim=1, keepdim=True)  # Ŝ (N, 1)
    log_normalisers = torch.lgamma(strength).squeeze(1) - torch.lgamma(wrong).sum(dim=1)
    log_normalisers = log_normalisers - math.lgamma(classes)  # (N,)
    terms = ((wrong - 1) * (torch.digamma(wrong) - torch.digamma(strength))).sum(dim=1)
    return (log_normalisers + terms).sum() / max(len(labels), 1)


def evidence_correction(logits: Tensor, labels: Tensor) -> Tensor:
    """Return a term that raises the right class's logit, most where a model has no evidence.

    ``L_cor = -(1/N) Σ_n (K / S_n) z_ny``, S without gradient. The logit itself is used: below 0 it
    is no evidence, and no other term has a gradient there.

    Args:
        logits: z (N, K) floating point.
        labels: y (N,) int64 in [0, K).

    Returns:
        Scalar with the gradient ``-(K / S_n) / N`` for z_ny and none for other logits; 0 for N = 0.
    """
    strength = concentration(logits.detach()).sum(dim=1)  # (N,)
    logit_of_label = logits.gather(1, labels.unsqueeze(1)).squeeze(1)  # (N,)
    return -(logits.shape[1] / strength * logit_of_label).sum() / max(len(labels), 1)


def evidential_loss(logits: Tensor, labels: Tensor, shares: Tensor, weight: float) -> Tensor:
    """Return ``L_fit + 0.01 (λ L_kl + L_cor)``.

    Source: Chen et al., CVPR 2024, as implemented in the authors' code.

    Args:
        logits: z (N, K) floating point, computed in float32 at least.
        labels: y (N,) int64 in [0, K).
        shares: π (K,) of the site's labels.
        weight: λ in [0, 1], of :func:`annealing`.

    Returns:
        Scalar with gradient, which may be below 0; NaN where a logit is NaN, because a broken
        network must be noticed.

    Raises ConfigError: the shapes do not match.
    """
    if logits.dim() != 2 or labels.shape != logits.shape[:1] or shares.shape != logits.shape[1:]:
        raise ConfigError(
            "evidential_loss",
            "Pass the outputs of one batch.",
            expected="logits (images, classes), a label an image, a share a class",
            found=f"{tuple(logits.shape)}, {tuple(labels.shape)}, {tuple(shares.shape)}",
        )
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    alpha = concentration(logits)
    fit = expected_cross_entropy(alpha, labels, shares)
    divergence = divergence_from_uniform(alpha, labels)
    return fit + REGULARISATION * (weight * divergence + evidence_correction(logits, labels))


class Evidential(Stateless):
    """The evidential loss on the labelled images, in place of cross-entropy.

    Args:
        weight: λ of the round, of :func:`annealing`.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return :func:`evidential_loss`; nothing without labels."""
        counts = inputs.class_counts
        if batch.labelled is None or batch.labels is None or counts is None:
            return Losses({})
        shares = counts / counts.sum()
        loss = evidential_loss(net(batch.labelled), batch.labels, shares, self._weight)
        return Losses({"loss_supervised": loss})
