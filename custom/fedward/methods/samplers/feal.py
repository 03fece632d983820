"""FEAL: images that the global model does not know and both models doubt, few of any one kind.

Chen, Ma, Cui, Xia: *Think twice before selection: federated evidential active learning for medical
image analysis with domain shifts*, CVPR 2024, arXiv 2312.02567. Logits are evidence for classes, so
that a model answers with a Dirichlet distribution. The authors train models by a loss that teaches
them how much evidence there is; here cross-entropy trains them.
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
"""Cosines are compared as multiples of 2^-20, so that equal images are equally near in spite of
rounding."""


class FEALSettings(SamplerSettings):
    """FEAL's settings, with the values of the authors' code."""

    neighbours: int = Field(5, ge=1, le=100)
    """n: images alike that make a region dense. Authors' code: 5."""
    similarity: float = Field(0.85, ge=-1.0, lt=1.0)
    """Cosine above which images are alike. Authors' code: 0.85."""


def concentration(logits: Tensor) -> Tensor:
    """Return the Dirichlet distribution that logits stand for, ``α = max(z, 0) + 1``.

    It has the shape of the logits, and a gradient. Its strength is ``S = Σ_c α_c``, its mean
    probabilities are ``α / S``.

    Source: Chen et al., CVPR 2024; authors' code.
    """
    return logits.relu() + 1


@torch.no_grad()
def expected_entropy(alpha: Tensor) -> Tensor:
    """Return the mean entropy of the class probabilities of Dirichlet distributions, in nats.

    ``U_ale = Σ_c (α_c / S) (ψ(S + 1) - ψ(α_c + 1))``, the aleatoric uncertainty, with ψ the digamma
    function.

    Source: Chen et al., CVPR 2024; authors' code.

    Args:
        alpha: α (N, K) > 0, K >= 1.

    Returns:
        (N,) float64 in [0, log K]. O(N K).

    Edge cases: K = 1: 0. N = 0: empty. NaN stays NaN.
    """
    alpha = alpha.to(torch.float64)
    strength = alpha.sum(dim=1, keepdim=True)  # (N, 1)
    surprise = torch.digamma(strength + 1) - torch.digamma(alpha + 1)  # (N, K)
    return (alpha / strength * surprise).sum(dim=1)


@torch.no_grad()
def differential_entropy(alpha: Tensor) -> Tensor:
    """Return the entropy of Dirichlet distributions themselves, which falls with their evidence.

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
    classes = alpha.shape[1]
    strength = alpha.sum(dim=1)  # (N,)
    log_normaliser = torch.lgamma(alpha).sum(dim=1) - torch.lgamma(strength)  # (N,)
    terms = ((alpha - 1) * torch.digamma(alpha)).sum(dim=1)  # (N,)
    return log_normaliser + (strength - classes) * torch.digamma(strength) - terms


@torch.no_grad()
def calibrated_uncertainty(local_alpha: Tensor, global_alpha: Tensor) -> Tensor:
    """Return how much both models doubt an image, times how little the global one knows it.

    ``U = Ũ_epi(g) (U_ale(g) + U_ale(l))`` with Ũ_epi scaled to [0, 1] over the N images.

    Source: Chen et al., CVPR 2024; the scale is that of the authors' code.

    Args:
        local_alpha: α (N, K) of the site's own model l, K >= 1.
        global_alpha: α (N, K) of the global model g.

    Returns:
        (N,) float64 in [0, 2 log K]; 0 for the image that the global model knows best. A score
        depends on all N images, so those of different pools cannot be compared.

    Edge cases: one image, or images equally known: the scaled Ũ_epi is 1. N = 0: empty.
    """
    doubt = expected_entropy(global_alpha) + expected_entropy(local_alpha)
    if len(doubt) == 0:
        return doubt
    unknown = differential_entropy(global_alpha)
    lowest = unknown.min()
    span = unknown.max() - lowest
    return (unknown - lowest) / span * doubt if bool(span > 0) else doubt


@torch.no_grad()
def relaxed(
    order: Tensor, features: Tensor, budget: int, neighbours: int, similarity: float
) -> list[int]:
    """Choose in the order given, but only one image of a dense region.

    N_i are the n nearest other images of image i whose cosine is above the threshold. Image i is
    taken unless N_i has n images and one of them is taken already.

    Source: Chen et al., CVPR 2024; authors' code.

    Args:
        order: (N,) int64, positions from the most wanted to the least.
        features: (N, D) finite float32.
        budget: at least 0.
        neighbours: n >= 1.
        similarity: the threshold.

    Returns:
        min(budget, N) distinct positions: those taken, in order, and where they are too few the
        images left out, in the same order. Where equally near, the lowest position is nearer.
        O(M N D) for the M images looked at, in blocks of 256 rows, so O(N) memory besides the
        features.

    Edge cases: n >= N: the first of the order. A feature vector of 0: no image is alike.

    Deviates: the authors' code fills up by position, and takes the first of the sorted neighbours
    for the image itself, which among equal images may be another.
    """
    directions = F.normalize(features, dim=1)
    chosen: list[int] = []
    left_out: list[int] = []
    taken: set[int] = set()
    for block in order.split(_ROWS_AT_ONCE):
        if len(chosen) >= budget:
            break
        neighbours_of_block = _similar_images(directions, block, neighbours, similarity)
        for position, nearest in zip(block.tolist(), neighbours_of_block, strict=True):
            is_dense = len(nearest) == neighbours
            if is_dense and not taken.isdisjoint(nearest):
                left_out.append(position)
            else:
                chosen.append(position)
                taken.add(position)
    return [*chosen, *left_out][:budget]


def _similar_images(
    directions: Tensor, rows: Tensor, neighbours: int, similarity: float
) -> list[list[int]]:
    """Return N_i of :func:`relaxed` for each of the rows, features of length 1 given."""
    images = len(directions)
    cosines = directions[rows] @ directions.T  # (rows, N)
    # Below any cosine, because an image is not its own neighbour.
    cosines[torch.arange(len(rows)), rows] = -2.0
    steps = (cosines * _COSINE_STEPS).round_().long()
    # One integer that rises with the cosine and, where cosines are equal, falls with the position.
    rank = steps * images - torch.arange(images)
    nearest = rank.topk(min(neighbours, images), dim=1).indices  # (rows, n)
    is_alike = steps.gather(1, nearest) > similarity * _COSINE_STEPS
    return [positions[alike].tolist() for positions, alike in zip(nearest, is_alike, strict=True)]


class FEAL(Sampler):
    """Calibrated uncertainty of both models, relaxed by features of the site's own model.

    It works with models that learned by cross-entropy, too: their logits then count as evidence,
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
        local_alpha, global_alpha = concentration(pool.logits)
        scores = calibrated_uncertainty(local_alpha, global_alpha)
        order = scores.argsort(descending=True, stable=True)
        settings = self.settings
        positions = relaxed(order, pool.features, budget, settings.neighbours, settings.similarity)
        return [pool.ids[position] for position in positions]
