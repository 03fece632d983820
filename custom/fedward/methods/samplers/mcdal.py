"""MCDAL: images on which two auxiliary classifiers of the same features contradict each other.

Cho, Kim, Jung, Kweon: *MCDAL: maximum classifier discrepancy for active learning*, arXiv
2107.11049. The two heads learn the labels like the main classifier, but are pushed apart where
there are none (:func:`discrepancy`): what they still agree on is far from every boundary. In a
federation (Ahn et al., arXiv 2202.00195) the heads are part of the exchanged model, and the global
one chooses. :mod:`fedward.methods.auxiliary` trains them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.samplers.base import ScoreSampler
from fedward.methods.samplers.pool import PoolUses


class AuxiliaryHeads(nn.Module):
    """Two linear classifiers beside the main one; features (N, D) to two logits (N, K).

    They start at different random weights, and have to: two equal heads never part, as the gradient
    of their distance is 0. The features are detached, so that no gradient of the heads reaches the
    network below.
    """

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, classes)
        self.second = nn.Linear(features, classes)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of both heads."""
        features = features.detach()
        return self.first(features), self.second(features)


def heads_loss(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of both heads.

    ``L_h = CE(h_1, y) + CE(h_2, y)``, each the mean over images.

    Source: Cho et al., arXiv 2107.11049; train.py of the authors' code.

    Args:
        first: (N, K) logits of h_1.
        second: (N, K) logits of h_2.
        labels: y (N,) int64 in [0, K).

    Returns:
        Scalar >= 0 with gradient in both; 0 with a gradient of 0 for N = 0; NaN where a logit is
        NaN.

    Raises ConfigError: the shapes do not match.
    """
    label_of_each_logit = labels.unsqueeze(-1).expand(-1, first.shape[-1])  # (N, K)
    _require_same_shape("mcdal.heads_loss", first, second, label_of_each_logit)
    # Sums, because the mean over no image would be NaN.
    loss_of_first = F.cross_entropy(first, labels, reduction="sum")
    loss_of_second = F.cross_entropy(second, labels, reduction="sum")
    return (loss_of_first + loss_of_second) / max(len(labels), 1)


def discrepancy(first: Tensor, second: Tensor, main: Tensor) -> Tensor:
    """Return how far the heads are from each other and from the main classifier.

    ``d(h_1, h_2) + d(h_1, f) + d(h_2, f)`` with
    ``d(u, v) = (1 / N K) Σ_n Σ_c |σ(u_n)_c - σ(v_n)_c|``, σ the softmax.

    Source: Cho et al., arXiv 2107.11049; train.py of the authors' code. The heads maximise it on
    unlabelled images.

    Args:
        first: (N, K) logits of h_1.
        second: (N, K) logits of h_2.
        main: (N, K) logits of the main classifier f.

    Returns:
        Scalar in [0, 6 / K], [0, 2] for two classes. The gradient reaches the heads only, never
        ``main``; where two predictions are equal their distance has gradient 0.

    Raises ConfigError: the shapes do not match.

    Edge cases: N = 0, or K = 1: 0 with a gradient of 0. NaN: the loss is NaN, because a broken
    network must be noticed.
    """
    _require_same_shape("mcdal.discrepancy", first, second, main)
    probabilities = torch.stack([first, second, main.detach()]).softmax(dim=2)  # (3, N, K)
    return pairwise_distances(probabilities).sum() / max(first.numel(), 1)


def pairwise_distances(p: Tensor) -> Tensor:
    """Return how far three predictions of an image are from each other.

    ``s(x) = ‖p_1 - p_2‖_1 + ‖p_1 - p_3‖_1 + ‖p_2 - p_3‖_1``.

    Source: Cho et al., arXiv 2107.11049; sampling.py of the authors' code, which also subtracts the
    mean over the labelled images: that changes no order.

    Args:
        p: (3, N, K) probabilities.

    Returns:
        (N,) in [0, 6], [0, 4] for two classes, with gradient.
    """
    one, two, three = p.unbind()
    return ((one - two).abs() + (one - three).abs() + (two - three).abs()).sum(dim=1)


class MCDAL(ScoreSampler):
    """Largest discrepancy between the global model's classifier and its two auxiliary heads."""

    uses = PoolUses(models=("global",), heads=True)

    def scores(self, probabilities: Tensor) -> Tensor:
        """Return the sum of the three distances."""
        return pairwise_distances(probabilities)


def _require_same_shape(where: str, *tensors: Tensor) -> None:
    """Raise ConfigError unless all tensors are (N, K) with K >= 1."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if len(set(shapes)) != 1 or len(shapes[0]) != 2 or shapes[0][1] == 0:
        raise ConfigError(
            where,
            "Pass the outputs of one batch.",
            expected="equal shapes (images, classes), a label an image, at least one class",
            found=", ".join(map(str, shapes)),
        )
