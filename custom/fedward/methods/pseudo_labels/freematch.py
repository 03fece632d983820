"""FreeMatch: thresholds that follow the network's confidence, over all images and for each class.

Wang et al.: *FreeMatch: self-adaptive thresholding for semi-supervised learning*, ICLR 2023; the
authors' code, microsoft/Semi-supervised-learning. The paper's fairness term, which wants all
classes equally often, is left out: sites lack classes.
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    PseudoLabels,
    Statistics,
    require_rows,
    running_mean,
)
from fedward.methods.pseudo_labels.threshold import pseudo_label

DECAY = 0.99
"""m of the moving averages. Paper: 0.999, over a million steps."""
FLOOR = 0.5
"""Smallest threshold of a class, as a share of the threshold over all images.

Without it, a network that never predicts a class could keep guesses of that class.
"""


@torch.no_grad()
def class_thresholds(confidence: Tensor, mean: Tensor, floor: float = FLOOR) -> Tensor:
    """Return the threshold of each class, which is lower where the network expects fewer images.

    ``τ_c = τ max(p̃_c / max_j p̃_j, floor)``.

    Source: Wang et al., ICLR 2023; the authors' code.

    Args:
        confidence: τ (), moving average of the largest probability of an image.
        mean: p̃ (K,), moving average of the probabilities, not all 0.
        floor: in [0, 1]; 0 as in the paper.

    Returns:
        (K,) in [floor τ, τ]; the commonest class has τ itself. No gradient.

    Raises ConfigError: ``confidence`` is not a single number, ``mean`` not a row of one class or
    more, or the floor lies outside [0, 1].

    Edge cases: NaN: NaN, so that nothing is kept.

    Deviates: the paper has no floor. The threshold of a class that a site lacks would be about 0.
    """
    if confidence.dim() != 0 or mean.dim() != 1 or len(mean) == 0 or not 0 <= floor <= 1:
        raise ConfigError(
            "freematch.class_thresholds",
            "Pass averages over batches.",
            expected="a number, a number for each class, a floor in [0, 1]",
            found=f"{tuple(confidence.shape)}, {tuple(mean.shape)}, {floor}",
        )
    return confidence * (mean / mean.max()).clamp_min(floor)


class FreeMatch(Labeller):
    """Self-adaptive thresholds.

    The averages start again in each round, because the model that the site receives is a new one.
    """

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return averages over no batch: ``confidence`` (), ``mean`` (K,) and ``weight`` ()."""
        zeros = torch.zeros_like(inputs.class_weights)
        zero = zeros.sum()
        return {"confidence": zero, "mean": zeros, "weight": zero}

    @torch.no_grad()
    def label(self, probabilities: Tensor, statistics: Statistics) -> PseudoLabels:
        """Take the batch into the averages, then keep what reaches the threshold of its class."""
        require_rows("freematch.label", probabilities)
        if len(probabilities):
            batch_means = {
                "confidence": probabilities.amax(dim=1).mean(),
                "mean": probabilities.mean(dim=0),
            }
            statistics = running_mean(statistics, batch_means, DECAY)
        thresholds = class_thresholds(statistics["confidence"], statistics["mean"])
        labels, keep = pseudo_label(probabilities, thresholds)
        return PseudoLabels(labels, keep, statistics)
