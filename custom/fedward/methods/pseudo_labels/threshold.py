"""The threshold of confidence, from which on FixMatch keeps a pseudo-label."""

from torch import Tensor

from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    PseudoLabels,
    require_rows,
)


def pseudo_label(probabilities: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Label each image with its most probable class, and keep the confident labels.

    ``ŷ_i = argmax_c q_ic``,  ``keep_i = [max_c q_ic >= τ]``.

    Source: Sohn et al., NeurIPS 2020, eq. (4); Bdair et al., MELBA 2022, eq. (2).

    Args:
        probabilities: q (N, K) floating point in [0, 1], K >= 1. Rows sum to 1, which is not
            checked.
        threshold: τ in [0, 1], compared in the dtype of ``probabilities``.

    Returns:
        labels (N,) int64 in [0, K), and keep (N,) bool. Neither carries a gradient.

    Raises ConfigError: ``probabilities`` is not two-dimensional or has no class.

    Edge cases: max q_i = τ: kept. Tied classes: the lowest class index. NaN in a row: not kept,
    whatever τ is, and its label is meaningless. N = 0: two empty tensors.
    """
    require_rows("pseudo_labels.pseudo_label", probabilities)
    confidence, labels = probabilities.max(dim=1)  # both (N,)
    return labels, confidence >= threshold


class Fixed(Labeller):
    """One threshold for all classes and rounds.

    Source: Sohn et al., NeurIPS 2020, eq. (4).
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def label(self, probabilities: Tensor) -> PseudoLabels:
        """Return :func:`pseudo_label` with the threshold."""
        labels, keep = pseudo_label(probabilities, self._threshold)
        return PseudoLabels(labels, keep)
