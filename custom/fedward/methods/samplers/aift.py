"""AIFT: images whose augmented views are uncertain and contradict each other.

Zhou, Shin, Zhang, Gurudu, Gotway, Liang: *Fine-tuning convolutional neural networks for biomedical
image analysis: actively and incrementally*, CVPR 2017.
"""

import math
from itertools import product

import torch
from pydantic import Field
from torch import Tensor

from fedward.methods.samplers.base import SamplerSettings, ScoreSampler
from fedward.methods.samplers.fedal import mean_over_models
from fedward.methods.samplers.pool import PoolUses

_SMALLEST = 2.0**-52
"""Smallest probability in a logarithm: eps of the authors' demo."""


class AIFTSettings(SamplerSettings):
    """AIFT's settings, with the values of the authors' demo."""

    views: int = Field(8, ge=1, le=64)
    """m: views of each image. The demo has 11 patches; 8 leaves the same share for less work."""
    majority: float = Field(0.25, gt=0.0, le=1.0)
    """α: share of the views that is looked at, those which agree most. Paper: 1/4."""
    entropy_weight: float = Field(1.0, ge=0.0)
    """λ_1: weight of the entropy. Demo: 1."""
    diversity_weight: float = Field(1.0, ge=0.0)
    """λ_2: weight of the diversity. Demo: 1; with 0 the score is the entropy of the majority."""


@torch.no_grad()
def majority(p: Tensor, share: float) -> Tensor:
    """Keep the views that are surest of the class which most views predict.

    ``k* = argmax_c Σ_j p_c^j``; of m views the ⌈α m⌉ with the largest ``p_{k*}^j`` are kept.

    Source: Zhou et al., CVPR 2017, Sec. 3.3.

    Args:
        p: (m, N, K) floating point probabilities, m and K >= 1.
        share: α in (0, 1].

    Returns:
        (⌈α m⌉, N, K), for each image its views by falling p_{k*}, where equal the earlier view.

    Edge cases: classes equally probable: the lowest index. α = 1: all views.

    Deviates: the paper has two classes, and keeps the views above or below 1/2, which is the same
    for K = 2. It rounds α m up, the authors' demo to the nearest number.
    """
    # Less 1e-9, as 0.28 times 25 is a little more than 7 in floating point.
    kept = max(1, math.ceil(share * len(p) - 1e-9))
    dominant = mean_over_models(p).argmax(dim=1)  # k* (N,)
    index = dominant.view(1, -1, 1).expand(len(p), -1, 1)
    confidence = p.gather(2, index).squeeze(2)  # p_{k*}^j (m, N)
    views = confidence.argsort(dim=0, descending=True, stable=True)[:kept]  # (kept, N)
    return p.gather(0, views.unsqueeze(2).expand(-1, -1, p.shape[2]))


@torch.no_grad()
def entropy_and_diversity(p: Tensor, entropy_weight: float, diversity_weight: float) -> Tensor:
    """Return how uncertain the views of an image are, and how far from each other.

    ``Σ_{j,l} R_jl`` with ``R_jj = -λ_1 Σ_c p_c^j log p_c^j`` and
    ``R_jl = λ_2 Σ_c (p_c^j - p_c^l) log(p_c^j / p_c^l)``.

    Source: Zhou et al., CVPR 2017, eq. (3), summed over all entries as in Alg. 1, so that each pair
    counts twice.

    Args:
        p: (m, N, K) floating point probabilities, m and K >= 1.
        entropy_weight: λ_1 >= 0.
        diversity_weight: λ_2 >= 0.

    Returns:
        (N,) float64 >= 0. O(m² N K).

    Edge cases: one view, or equal views: λ_1 times the sum of their entropies. K = 1: 0. A
    probability of 0: counts as 2^-52 in the logarithm, so that the score stays finite.
    """
    p = p.to(torch.float64)
    logarithms = p.clamp_min(_SMALLEST).log()
    total = torch.zeros(p.shape[1], dtype=torch.float64, device=p.device)  # (N,)
    for one, other in product(range(len(p)), repeat=2):
        if one == other:
            total -= entropy_weight * (p[one] * logarithms[one]).sum(dim=1)
        else:
            divergence = (p[one] - p[other]) * (logarithms[one] - logarithms[other])
            total += diversity_weight * divergence.sum(dim=1)
    return total


class AIFT(ScoreSampler):
    """Entropy and diversity of the majority of an image's views, by the site's own model."""

    settings_type = AIFTSettings
    settings: AIFTSettings

    def __init__(self, name: str, settings: AIFTSettings) -> None:
        super().__init__(name, settings)
        self.uses = PoolUses(models=("local",), views=settings.views)

    def scores(self, probabilities: Tensor) -> Tensor:
        """Return the sum of the matrix R of each image's majority."""
        settings = self.settings
        kept = majority(probabilities, settings.majority)
        return entropy_and_diversity(kept, settings.entropy_weight, settings.diversity_weight)
