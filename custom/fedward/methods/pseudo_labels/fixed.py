"""FixMatch's labeller."""

from torch import Tensor

from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    PseudoLabels,
    Statistics,
    pseudo_label,
)


class Fixed(Labeller):
    """One threshold for all classes and rounds.

    Source: Sohn et al., NeurIPS 2020, eq. (4).
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def label(self, probabilities: Tensor, statistics: Statistics) -> PseudoLabels:
        """Return :func:`pseudo_label` with the threshold."""
        labels, keep = pseudo_label(probabilities, self._threshold)
        return PseudoLabels(labels, keep)
