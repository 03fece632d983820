"""FEAL: images that the global model does not know and both models doubt, thinned where many are
alike.

Chen, Ma, Cui, Xia: *Think twice before selection: federated evidential active learning for medical
image analysis with domain shifts*, CVPR 2024, arXiv 2312.02567. Logits are evidence for classes, so
that a model answers with a Dirichlet distribution. :mod:`fedward.methods.evidential` is the loss by
which models learn it.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from fedward.methods.samplers.base import Sampler, SamplerSettings
from fedward.methods.samplers.pool import Pool, Uses

_ROWS_AT_ONCE = 256
"""Rows of the largest matrix of cosines; its columns are the pool."""
_COSINE_STEPS = 2**20
"""Cosines are compared in such steps of 1, so that equal images are equally near whatever rounding
does.
"""


class FEALSettings(SamplerSettings):
    """FEAL's choices, those of the authors' code."""

    neighbours: int = Field(5, ge=1, le=100)
    """n: so many images alike make a region dense. Authors' code: 5."""
    similarity: float = Field(0.85, ge=-1.0, lt=1.0)
    """Cosine above which images are alike. Authors' code: 0.85."""


def concentration(logits: Tensor) -> Tensor:
    """Return the Dirichlet distribution that logits stand for: ``α = max(z, 0) + 1`` of the same
    shape, with gradient.

    Source: Chen et al., CVPR 2024; authors' code. Strength ``S = Σ_c α_c``, mean probabilities ``α
    / S``.
    """
    return logits.relu() + 1


@torch.no_grad()
def expected_entropy(alpha: Tensor) -> Tensor:
    """Return the mean entropy of the class probabilities that a Dirichlet distribution allows, in
    nats.

    ``U_ale = Σ_c (α_c / S) (ψ(S + 1) - ψ(α_c + 1))``, the aleatoric uncertainty.
    Source: Chen et al., CVPR 2024; authors' code.

    Args:
        alpha: α (N, K) > 0, K >= 1.

    Returns:
        (N,) float64 in [0, log K]. O(N K).

    Edge cases: K = 1: 0. N = 0: empty. NaN stays NaN.
    """
    alpha = alpha.to(torch.float64)
    strength = alpha.sum(dim=1, keepdim=True)
    return (alpha / strength * (torch.digamma(strength + 1) - torch.digamma(alpha + 1))).sum(dim=1)


@torch.no_grad()
def differential_entropy(alpha: Tensor) -> Tensor:
    """Return the entropy of a Dirichlet distribution itself: the higher, the less evidence there is
    for any class.

    ``U_epi = Σ_c lnΓ(α_c) - lnΓ(S) + (S - K) ψ(S) - Σ_c (α_c - 1) ψ(α_c)``, the epistemic
    uncertainty.
    Source: Chen et al., CVPR 2024; authors' code.

    Args:
        alpha: α (N, K) > 0, K >= 1.

    Returns:
        (N,) float64, at most -lnΓ(K), which α = 1 reaches. O(N K).

    Edge cases: K = 1: 0. N = 0: empty. NaN stays NaN.
    """
    alpha = alpha.to(torch.float64)
    strength = alpha.sum(dim=1)
    classes = alpha.shape[1]
    normaliser = torch.lgamma(alpha).sum(dim=1) - torch.lgamma(strength)
    terms = ((alpha - 1) * torch.digamma(alpha)).sum(dim=1)
    return normaliser + (strength - classes) * torch.digamma(strength) - terms


@torch.no_grad()
def calibrated_uncertainty(local: Tensor, glob: Tensor) -> Tensor:
    """Return how much both models doubt an image, times how little the global one knows it.

    ``U = Ũ_epi(g) (U_ale(g) + U_ale(l))``, Ũ_epi scaled to [0, 1] over the N images.
    Source: Chen et al., CVPR 2024; authors' code, which has the scale.

    Args:
        local, glob: α (N, K) of the site's own model and of the global one, K >= 1.

    Returns:
        (N,) float64 in [0, 2 log K]; 0 for the image that the global model knows best. Scores hang
        on the N images
        together: those of different pools cannot be compared.

    Edge cases: one image, or images equally known: the scale is 1. N = 0: empty.
    """
    doubt = expected_entropy(glob) + expected_entropy(local)
    if not len(doubt):
        return doubt
    unknown = differential_entropy(glob)
    span = unknown.max() - unknown.min()
    return (unknown - unknown.min()) / span * doubt if bool(span > 0) else doubt


@torch.no_grad()
def relaxed(
    order: Tensor, features: Tensor, budget: int, neighbours: int, similarity: float
) -> list[int]:
    """Choose in the order given, but one image of a dense region only.

    Of image i, N_i are its n nearest other images whose cosine is above the threshold. It is taken
    unless N_i has n images and one of them is taken already. Source: Chen et al., CVPR 2024;
    authors' code.

    Args:
        order: (N,) int64, positions from the most wanted to the least.
        features: (N, D) finite float32.
        budget: at least 0.
        neighbours, similarity: n >= 1 and the threshold.

    Returns:
        min(budget, N) distinct positions: those taken, in order, and where they are too few the
        images left out, in the same order. Where equally near, the lowest position is nearer. O(M N
        D) for the M images looked at, in blocks of 256 rows, so O(N) memory beside the features.

    Edge cases: n >= N: the first of the order. a feature vector of 0: no image is alike.

    Deviates: the authors' code fills up by position, and takes the first of the sorted neighbours
    for the image itself, which among equal images may be another.
    """
    units = F.normalize(features, dim=1)
    chosen = list[int]()
    left_out = list[int]()
    taken = set[int]()
    for block in order.split(_ROWS_AT_ONCE):
        if len(chosen) >= budget:
            break
        for position, near in zip(
            block.tolist(), _alike(units, block, neighbours, similarity), strict=True
        ):
            dense = len(near) == neighbours
            if dense and not taken.isdisjoint(near):
                left_out.append(position)
            else:
                chosen.append(position)
                taken.add(position)
    return [*chosen, *left_out][:budget]


def _alike(units: Tensor, rows: Tensor, neighbours: int, similarity: float) -> list[list[int]]:
    """Return for each of the rows the positions of at most so many nearest others that are alike."""
    cosines = units[rows] @ units.T
    cosines[
        torch.arange(len(rows)), rows
    ] = -2.0  # below any cosine: an image is not its own neighbour
    steps = (cosines * _COSINE_STEPS).round_().long()
    ranked = (
        (steps * len(units) - torch.arange(len(units)))
        .topk(min(neighbours, len(units)), dim=1)
        .indices
    )
    alike = steps.gather(1, ranked) > similarity * _COSINE_STEPS
    return [row[near].tolist() for row, near in zip(ranked, alike, strict=True)]


class FEAL(Sampler):
    """Calibrated uncertainty of both models, relaxed by what the site's own model feeds its
    classifier.

    Works with models that learned by cross-entropy, too: their logits then stand for evidence,
    though nothing taught them how much of it there is.

    Deviates: the authors compare features of EfficientNet's last block, pooled to 3 by 3; here they
    are those before the classifier, which every network has.
    """

    name = "feal"
    settings_type = FEALSettings
    settings: FEALSettings
    uses = Uses(models=("local", "global"), outputs="logits", features="local", labelled=False)

    def pick(self, pool: Pool, budget: int, generator: torch.Generator) -> list[str]:
        """Choose by falling score, relaxed."""
        local, glob = concentration(pool.logits)
        order = calibrated_uncertainty(local, glob).argsort(descending=True, stable=True)
        choice = self.settings
        positions = relaxed(order, pool.features, budget, choice.neighbours, choice.similarity)
        return [pool.ids[position] for position in positions]
