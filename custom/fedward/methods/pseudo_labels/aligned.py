"""Distribution alignment: predictions are reweighted until their mean agrees with a site's labels.

Berthelot et al.: *ReMixMatch: semi-supervised learning with distribution alignment and augmentation
anchoring*, ICLR 2020, Sec. 3.1; with FixMatch's threshold and hard labels as in
microsoft/Semi-supervised-learning.
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    PseudoLabels,
    Statistics,
    labelled_counts,
    require_rows,
    running_mean,
)
from fedward.methods.pseudo_labels.threshold import pseudo_label

DECAY = 0.99
"""m of the moving average of predictions. Paper: the mean of the last 128 batches."""
LARGEST_RATIO = 10.0
"""Largest ratio of a class's share among the labels to its share among the predictions.

The smallest is its inverse. A few labels do not give an exact prior.
"""
_EPSILON = 1e-6
"""Added to both shares, as in the authors' code."""


@torch.no_grad()
def smoothed_shares(counts: Tensor) -> Tensor:
    """Return the shares of the classes that counts of labels suggest, ``(n_c + 1) / (n + K)``.

    Source: Laplace's rule of succession, because no class that a job names is impossible.

    Args:
        counts: n (K,), labelled images of each class; any real dtype, finite, >= 0, K >= 1.

    Returns:
        (K,) float32 in (0, 1) with a sum of 1; equal shares if there are no labels.

    Raises ConfigError: not one-dimensional, or no class.
    """
    if counts.dim() != 1 or len(counts) == 0:
        raise ConfigError(
            "aligned.smoothed_shares",
            "Count labels by class.",
            expected="a count for each class",
            found=f"{tuple(counts.shape)}",
        )
    smoothed = counts.to(torch.float32) + 1
    return smoothed / smoothed.sum()


@torch.no_grad()
def align(probabilities: Tensor, target: Tensor, model: Tensor) -> Tensor:
    """Raise the classes that are predicted too rarely, and lower those predicted too often.

    ``q̃ = norm(q ⊙ r)``, ``r_c = (p_target,c + ε) / (p_model,c + ε)``, clamped to [1/10, 10].

    Source: Berthelot et al., ICLR 2020, Sec. 3.1; the authors' code for ε.

    Args:
        probabilities: q (N, K) floating point in [0, 1], each row with a positive sum.
        target: p_target (K,) floating point, expected shares of the classes.
        model: p_model (K,) floating point, shares of the classes among the predictions so far.

    Returns:
        (N, K), each row with a sum of 1. No gradient.

    Raises ConfigError: the shapes do not match.

    Edge cases: equal shares: q up to rounding. A class of 0 in q: stays 0. NaN: its row is NaN.
    N = 0: empty.

    Deviates: the ratio is bounded. With few labels or predictions, a share is far from exact.
    """
    require_rows("aligned.align", probabilities)
    classes = probabilities.shape[1:]
    if target.shape != classes or model.shape != classes:
        raise ConfigError(
            "aligned.align",
            "Pass a share for each class.",
            expected=f"two rows of {probabilities.shape[1]}",
            found=f"{tuple(target.shape)}, {tuple(model.shape)}",
        )
    ratio = (target + _EPSILON) / (model + _EPSILON)  # (K,)
    weighted = probabilities * ratio.clamp(1 / LARGEST_RATIO, LARGEST_RATIO)
    return weighted / weighted.sum(dim=1, keepdim=True)


class Aligned(Labeller):
    """FixMatch on aligned predictions; at a site without labels, plain FixMatch.

    The shares among the predictions are a moving average over the batches of the round. Its first
    value is the target, and each batch joins it after it has been labelled, so that a round begins
    as FixMatch.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return the target, also as the first share among predictions; nothing without labels."""
        counts = labelled_counts(inputs)
        if not bool(counts.any()):
            return {}
        target = smoothed_shares(counts)
        # The target weighs as much as one batch in the moving average.
        weight = torch.full_like(target[0], 1 - DECAY)
        return {"target": target, "model": target, "weight": weight}

    @torch.no_grad()
    def label(self, probabilities: Tensor, statistics: Statistics) -> PseudoLabels:
        """Align by the batches before this one, then keep what reaches the threshold."""
        if statistics and len(probabilities):
            aligned = align(probabilities, statistics["target"], statistics["model"])
            batch_mean = {"model": probabilities.mean(dim=0)}
            statistics = running_mean(statistics, batch_mean, DECAY)
        else:
            aligned = probabilities
        labels, keep = pseudo_label(aligned, self._threshold)
        return PseudoLabels(labels, keep, statistics)
