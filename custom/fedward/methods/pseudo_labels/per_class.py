"""FixMatch for images that may show several classes or none: each class is a yes-or-no question.

Rizve, Duarte, Rawat, Shah: *In defense of pseudo-labeling*, ICLR 2021 (UPS), keep the confident
positive and the confident negative predictions of a multi-label network, each class by itself, and
train on them by binary cross-entropy.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    Mean,
    PseudoLabels,
    mean_of_kept,
    require_rows,
)


def answers(probabilities: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Answer for each image whether it shows each class, and keep the confident answers.

    ``ŷ_ic = [q_ic >= 1/2]``,  ``keep_ic = [max(q_ic, 1 - q_ic) >= τ]``.

    Source: Rizve et al., ICLR 2021, eq. (3), with τ_p = τ and τ_n = 1 - τ, and without their
    measure of uncertainty.

    Args:
        probabilities: q (N, K) floating point in [0, 1], K >= 1.
        threshold: τ in [0, 1]; up to 1/2 all answers are kept.

    Returns:
        labels (N, K) int64 of 0 and 1, and keep (N, K) bool. Neither carries a gradient.

    Raises ConfigError: not two-dimensional, or no class.

    Edge cases: q = 1/2: the answer is 1. max(q, 1 - q) = τ: kept. NaN: not kept, whatever τ is.
    N = 0: two empty tensors.
    """
    require_rows("pseudo_labels.answers", probabilities)
    confidence = torch.maximum(probabilities, 1 - probabilities)
    return (probabilities >= 0.5).long(), confidence >= threshold


def answers_loss(
    logits_strong: Tensor, labels: Tensor, keep: Tensor, mean: Mean = "kept"
) -> Tensor:
    """Return the mean binary cross-entropy of the strong views against the kept answers.

    ``L_u = -(1 / |S|) Σ_{(i, c) in S} ŷ_ic log σ(z_ic) + (1 - ŷ_ic) log(1 - σ(z_ic))`` with
    ``S = {(i, c) : keep_ic}``, and 0 where S is empty. With ``mean="all"`` the sum is divided by
    N K.

    Source: Rizve et al., ICLR 2021, eq. (5), with one mean over the batch in place of one for each
    image.

    Args:
        logits_strong: z (N, K) floating point, K >= 1.
        labels: (N, K) int64 of 0 and 1.
        keep: (N, K) bool.
        mean: over the kept answers, or over all answers.

    Returns:
        Scalar >= 0 in the dtype of the logits, differentiable in them. The gradient of an answer
        that is not kept is exactly 0.

    Raises ConfigError: the shapes do not match, or ``keep`` is not bool.

    Edge cases: nothing kept, or N = 0: 0 with a gradient of 0. NaN or infinity that is not kept: no
    influence on value or gradient. NaN that is kept: the loss is NaN, because a broken network must
    be noticed.
    """
    require_rows("pseudo_labels.answers_loss", logits_strong)
    shape = logits_strong.shape
    if labels.shape != shape or keep.shape != shape or keep.dtype != torch.bool:
        raise ConfigError(
            "pseudo_labels.answers_loss",
            "Pass what answers returned for these images.",
            expected=f"labels and bools {tuple(shape)}",
            found=f"labels {tuple(labels.shape)}, {keep.dtype} {tuple(keep.shape)}",
        )
    # Masked before the loss as well: 0 times the gradient of a NaN is still NaN.
    logits = logits_strong.masked_fill(~keep, 0.0)
    losses = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
    return mean_of_kept(losses, keep, mean)


class PerClass(Labeller):
    """One threshold for all classes, and for both answers to each."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def label(self, probabilities: Tensor) -> PseudoLabels:
        """Return :func:`answers` with the threshold."""
        labels, keep = answers(probabilities, self._threshold)
        return PseudoLabels(labels, keep)

    def loss(self, logits_strong: Tensor, pseudo_labels: PseudoLabels, mean: Mean) -> Tensor:
        """Return :func:`answers_loss`."""
        return answers_loss(logits_strong, pseudo_labels.labels, pseudo_labels.keep, mean)
