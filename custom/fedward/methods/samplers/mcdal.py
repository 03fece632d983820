"""MCDAL: images on which two further classifiers of the same features contradict each other and the
main one.

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
from fedward.methods.samplers.pool import Uses


class AuxiliaryHeads(nn.Module):
    """Two linear classifiers beside the main one.

    They start at different random weights, and have to: two equal heads never part, as the gradient
    of their distance is 0. The features are detached: no gradient of the heads reaches the network
    below.

    Shape: (N, D) to two logits (N, K).
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
        first, second: (N, K) logits of the heads.
        labels: (N,) int64 in [0, K).

    Returns:
        Scalar >= 0 with gradient in both; 0 with a gradient of 0 for N = 0; NaN where a logit is.

    Raises ConfigError: shapes that do not belong together.
    """
    _require_alike(
        "mcdal.heads_loss", first, second, labels.unsqueeze(-1).expand(-1, first.shape[-1])
    )
    total = F.cross_entropy(first, labels, reduction="sum") + F.cross_entropy(
        second, labels, reduction="sum"
    )
    return total / max(len(labels), 1)


def discrepancy(first: Tensor, second: Tensor, main: Tensor) -> Tensor:
    """Return how far the heads are from each other and from the main classifier.

    ``d(h_1, h_2) + d(h_1, f) + d(h_2, f)`` with ``d(u, v) = (1 / N K) Σ_n Σ_c |σ(u_n)_c -
    σ(v_n)_c|``, σ the softmax.
    Source: Cho et al., arXiv 2107.11049; train.py of the authors' code. The heads maximise it on
    unlabelled images.

    Args:
        first, second, main: (N, K) logits of the heads and of the main classifier f.

    Returns:
        Scalar in [0, 6 / K], [0, 2] for two classes. The gradient reaches the heads only, never
        ``main``; where two predictions are equal their distance has gradient 0.

    Raises ConfigError: shapes that do not belong together.

    Edge cases: N = 0, or K = 1: 0 with a gradient of 0. NaN: the loss is NaN: a broken net is
    noticed.
    """
    _require_alike("mcdal.discrepancy", first, second, main)
    outputs = torch.stack([first, second, main.detach()]).softmax(dim=2)
    return pairwise_distances(outputs).sum() / max(first.numel(), 1)


def pairwise_distances(p: Tensor) -> Tensor:
    """Return how far three predictions of an image are from each other.

    ``s(x) = ‖p_1 - p_2‖_1 + ‖p_1 - p_3‖_1 + ‖p_2 - p_3‖_1``.
    Source: Cho et al., arXiv 2107.11049; sampling.py of the authors' code, which further subtracts
    the mean over the labelled images: that changes no order.

    Args:
        p: (3, N, K) probabilities.

    Returns:
        (N,) in [0, 6], [0, 4] for two classes, with gradient.
    """
    one, two, three = p.unbind()
    return ((one - two).abs() + (one - three).abs() + (two - three).abs()).sum(dim=1)


class MCDAL(ScoreSampler):
    """Largest discrepancy between the global model's classifier and its two auxiliary heads."""

    name = "mcdal"
    uses = Uses(models=("global",), heads=True)

    def scores(self, probabilities: Tensor) -> Tensor:
        """Return the sum of the three distances."""
        return pairwise_distances(probabilities)


def _require_alike(where: str, *logits: Tensor) -> None:
    shapes = [tuple(each.shape) for each in logits]
    if len(set(shapes)) != 1 or len(shapes[0]) != 2 or not shapes[0][1]:
        expected = "equal shapes (images, classes), a label an image, at least one class"
        found = ", ".join(map(str, shapes))
        raise ConfigError(
            where, expected=expected, found=found, remedy="Pass the outputs of one batch."
        )
