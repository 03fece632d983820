"""Distribution alignment: answers are weighted so that their mean is what the site's labels let
expect.

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
    pseudo_label,
    require_rows,
    running_mean,
)

DECAY = 0.99
"""m of the moving average of answers. Paper: the mean of the last 128 batches."""
LARGEST_RATIO = 10.0
"""Of a class's share among labels to that among answers, and of the inverse: few labels are no
exact prior.
"""
_EPSILON = 1e-6
"""Authors' code: what is added to both shares."""


@torch.no_grad()
def smoothed_shares(counts: Tensor) -> Tensor:
    """Return the shares of classes that so many labels let expect, ``(n_c + 1) / (n + K)``.

    Source: Laplace's rule of succession, as no class that a job names is impossible.

    Args:
        counts: (K,), labelled images of each class; any real dtype, finite, >= 0, K >= 1.

    Returns:
        (K,) float32 in (0, 1), a sum of 1; equal shares without labels.

    Raises ConfigError: not one-dimensional, no class.
    """
    if counts.dim() != 1 or not len(counts):
        expected = "a count for each class"
        found = f"{tuple(counts.shape)}"
        raise ConfigError(
            "aligned.smoothed_shares",
            expected=expected,
            found=found,
            remedy="Count labels by class.",
        )
    more = counts.to(torch.float32) + 1
    return more / more.sum()


@torch.no_grad()
def align(probabilities: Tensor, target: Tensor, model: Tensor) -> Tensor:
    """Weight each class by how much rarer it is among answers than it ought to be.

    ``q̃ = norm(q ⊙ r)``, ``r_c = (p_target,c + ε) / (p_model,c + ε)`` in [1/10, 10].
    Source: Berthelot et al., ICLR 2020, Sec. 3.1; the authors' code (ε).

    Args:
        probabilities: q (N, K) floating point in [0, 1], rows sum to a positive number. target,
        model: (K,) floating point, shares of the classes that are expected, and among answers so
        far.

    Returns:
        (N, K), rows sum to 1. No gradient.

    Raises ConfigError: shapes that do not belong together.

    Edge cases: equal shares: q up to rounding. a class of 0 in q: stays 0. NaN: its row is NaN. N =
    0: empty.

    Deviates: the ratio is bounded. With few labels or answers a share is far from exact.
    """
    require_rows("aligned.align", probabilities)
    if not target.shape == model.shape == probabilities.shape[1:]:
        expected = f"two rows of {probabilities.shape[1]}"
        found = f"{tuple(target.shape)}, {tuple(model.shape)}"
        raise ConfigError(
            "aligned.align", expected=expected, found=found, remedy="Pass a share for each class."
        )
    ratio = ((target + _EPSILON) / (model + _EPSILON)).clamp(1 / LARGEST_RATIO, LARGEST_RATIO)
    weighted = probabilities * ratio
    return weighted / weighted.sum(dim=1, keepdim=True)


class Aligned(Labeller):
    """FixMatch on aligned answers. A site without labels, which expects nothing, is FixMatch.

    The shares among answers are a moving average over the round's batches whose first value is the
    target, and which a batch joins after it has been labelled: a round begins with FixMatch.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return the target, also as the first share among answers; nothing without labels."""
        counts = labelled_counts(inputs)
        if not bool(counts.any()):
            return {}
        target = smoothed_shares(counts)
        return {"target": target, "model": target, "weight": torch.full_like(target[0], 1 - DECAY)}

    @torch.no_grad()
    def label(
        self, probabilities: Tensor, received: Tensor | None, known: Statistics
    ) -> PseudoLabels:
        """Align by the batches before this one, then keep what reaches the threshold."""
        if not known or not len(probabilities):
            return PseudoLabels(*pseudo_label(probabilities, self._threshold), statistics=known)
        aligned = align(probabilities, known["target"], known["model"])
        known = running_mean(known, {"model": probabilities.mean(dim=0)}, DECAY)
        return PseudoLabels(*pseudo_label(aligned, self._threshold), statistics=known)
