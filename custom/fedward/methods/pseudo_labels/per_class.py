"""FixMatch where an image may show several classes, or none: each class is a question of its own
with two answers.

Rizve, Duarte, Rawat, Shah: *In defense of pseudo-labeling*, ICLR 2021 (UPS), keep confident
positive and confident negative answers of a multi-label net, each class by itself, and learn them
by binary cross-entropy.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    Mean,
    PseudoLabels,
    Statistics,
    require_rows,
)


def answers(probabilities: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Say of each image and class whether it is shown, and keep the confident answers.

    ``ŷ_ic = [q_ic >= 1/2]``,  ``keep_ic = [max(q_ic, 1 - q_ic) >= τ]``.
    Source: Rizve et al., ICLR 2021, eq. (3), with τ_p = τ and τ_n = 1 - τ, and without their
    measure of uncertainty.

    Args:
        probabilities: q (N, K) floating point in [0, 1], K >= 1.
        threshold: τ in [0, 1]; up to 1/2 all are kept.

    Returns:
        labels (N, K) int64 of 0 and 1, keep (N, K) bool. Neither carries a gradient.

    Raises ConfigError: not two-dimensional, no class, or a threshold outside [0, 1].

    Edge cases: q = 1/2: 1. max(q, 1 - q) = τ: kept. NaN: not kept, whatever τ. N = 0: two empty
    tensors.
    """
    where = "pseudo_labels.answers"
    require_rows(where, probabilities)
    if not 0 <= threshold <= 1:
        remedy = "Set the confidence threshold τ of the method."
        raise ConfigError(
            where, expected="a threshold in [0, 1]", found=f"{threshold}", remedy=remedy
        )
    confidence = torch.maximum(probabilities, 1 - probabilities)
    return (probabilities >= 0.5).long(), confidence >= threshold


def answers_loss(
    logits_strong: Tensor, labels: Tensor, keep: Tensor, mean: Mean = "kept"
) -> Tensor:
    """Return the mean binary cross-entropy of the strong views against the kept answers.

    ``L_u = -(1 / |S|) Σ_{(i, c) in S} ŷ_ic log σ(z_ic) + (1 - ŷ_ic) log(1 - σ(z_ic))`` with ``S =
    {(i, c) : keep_ic}``, and 0 where S is empty; with ``mean="all"`` the sum is divided by N K.
    Source: Rizve et al., ICLR 2021, eq. (5), with one mean over the batch in place of one for each
    image.

    Args:
        logits_strong: z (N, K) floating point, of the strong views; K >= 1.
        labels: (N, K) int64 of 0 and 1.
        keep: (N, K) bool.
        mean: over the kept answers, or over all.

    Returns:
        Scalar >= 0 in the dtype of the logits, differentiable in them. The gradient of what is not
        kept is exactly 0.

    Raises ConfigError: shapes that do not belong together, or ``keep`` is not bool.

    Edge cases: nothing kept, or N = 0: 0 with a gradient of 0. NaN, infinity, not kept: no
    influence on value or gradient. NaN, kept: the loss is NaN: a broken net must be noticed.
    """
    where = "pseudo_labels.answers_loss"
    require_rows(where, logits_strong)
    if not labels.shape == keep.shape == logits_strong.shape or keep.dtype != torch.bool:
        expected = f"labels and bools {tuple(logits_strong.shape)}"
        remedy = "Pass what answers returned for them."
        found = f"labels {tuple(labels.shape)}, {keep.dtype} {tuple(keep.shape)}"
        raise ConfigError(where, expected=expected, found=found, remedy=remedy)
    logits = logits_strong.masked_fill(~keep, 0.0)
    losses = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
    total = losses.masked_fill(~keep, 0.0).sum()
    return total / (keep.sum().clamp(min=1) if mean == "kept" else max(keep.numel(), 1))


class PerClass(Labeller):
    """One threshold for all classes, for both answers to each."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def label(
        self, probabilities: Tensor, received: Tensor | None, known: Statistics
    ) -> PseudoLabels:
        """Return :func:`answers`."""
        return PseudoLabels(*answers(probabilities, self._threshold))

    def loss(self, logits: Tensor, found: PseudoLabels, mean: Mean) -> Tensor:
        """Return :func:`answers_loss`."""
        return answers_loss(logits, found.labels, found.keep, mean)
