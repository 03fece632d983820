"""UDA: the sharpened prediction on a weak view is the target of a strong view.

Xie, Dai, Hovy, Luong, Le: *Unsupervised data augmentation for consistency training*, NeurIPS 2020,
Sec. 2.2 (the loss) and 2.4 (confidence-based masking and sharpening).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.mean_teacher import sharpen
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    Mean,
    PseudoLabels,
    mean_of_kept,
    require_rows,
)
from fedward.methods.pseudo_labels.threshold import pseudo_label


def soft_label_loss(
    logits_strong: Tensor, targets: Tensor, keep: Tensor, mean: Mean = "kept"
) -> Tensor:
    """Return the mean divergence of the strong views' predictions from their soft targets.

    ``L_u = (1 / |S|) Σ_{i in S} KL(q̃_i ‖ p_i)`` with ``p_i = softmax f(𝒜(u_i))``,
    ``KL(q ‖ p) = Σ_c q_c log (q_c / p_c)`` and ``S = {i : keep_i}``; 0 where S is empty. With
    ``mean="all"`` the sum is divided by N. Its gradient is that of the cross-entropy against q̃,
    ``p_i - q̃_i`` for each kept image.

    Source: Xie et al., NeurIPS 2020, eq. (1); the authors' code divides by N.

    Args:
        logits_strong: (N, K) floating point, K >= 1.
        targets: q̃ (N, K) in [0, 1], rows that sum to 1 where kept, arbitrary elsewhere.
        keep: (N,) bool.
        mean: ``kept``: over the kept images; ``all``: over all images.

    Returns:
        Scalar >= 0 in the dtype of the logits, differentiable in them alone. The gradient of a row
        that is not kept is exactly 0.

    Raises ConfigError: the shapes do not match, or ``keep`` is not bool.

    Edge cases: a target of one class: the cross-entropy against it. A probability of 0 in a target
    adds 0. Nothing kept, or N = 0: 0 with a gradient of 0. NaN or infinity in a row that is not
    kept: no influence. NaN in a kept row: the loss is NaN, because a broken network must be
    noticed.
    """
    require_rows("soft.soft_label_loss", logits_strong)
    images = logits_strong.shape[:1]
    if targets.shape != logits_strong.shape or keep.shape != images or keep.dtype != torch.bool:
        raise ConfigError(
            "soft.soft_label_loss",
            "Pass what Soft.label returned for these images.",
            expected=f"targets {tuple(logits_strong.shape)} and {len(logits_strong)} bools",
            found=f"targets {tuple(targets.shape)}, {keep.dtype} {tuple(keep.shape)}",
        )
    drop = ~keep.unsqueeze(1)
    # Rows are masked before the divergence as well: 0 times the gradient of a NaN is still NaN.
    log_p = F.log_softmax(logits_strong.masked_fill(drop, 0.0), dim=1)  # (N, K)
    q = targets.detach().masked_fill(drop, 0.0)
    losses = F.kl_div(log_p, q, reduction="none").sum(dim=1)  # (N,)
    return mean_of_kept(losses, keep, mean)


class Soft(Labeller):
    """Keeps what FixMatch keeps, with the sharpened probabilities as the label.

    ``keep_i = [max_c q_ic >= τ]`` of the probabilities before they are sharpened, and
    ``q̃_i = sharpen(q_i, T)``.

    Deviates: the authors' code compares with >, takes the probabilities in training mode, and may
    anneal the supervised loss (training signal annealing).

    Args:
        threshold: τ in [0, 1].
        temperature: T > 0; 1 leaves the probabilities as they are.
    """

    def __init__(self, threshold: float, temperature: float) -> None:
        self._threshold = threshold
        self._temperature = temperature

    @torch.no_grad()
    def label(self, probabilities: Tensor) -> PseudoLabels:
        """Return the most probable classes, and the sharpened probabilities as targets."""
        labels, keep = pseudo_label(probabilities, self._threshold)
        return PseudoLabels(labels, keep, targets=sharpen(probabilities, self._temperature))

    def loss(self, logits_strong: Tensor, pseudo_labels: PseudoLabels, mean: Mean) -> Tensor:
        """Return :func:`soft_label_loss` of the targets."""
        targets = pseudo_labels.targets
        assert targets is not None, "labels of another labeller"
        return soft_label_loss(logits_strong, targets, pseudo_labels.keep, mean)
