"""What a classifier's logits mean: one distribution over K classes, or K answers of yes and no."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Outputs(ABC):
    """The meaning of a network's logits. It has no state, so two are compared by identity."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """What :meth:`are_probabilities` expects, in words."""

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probabilities (..., K) that logits (..., K) stand for."""

    @abstractmethod
    def layer(self) -> nn.Module:
        """Return :meth:`probabilities` of logits (N, K) as the last layer of exported networks."""

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
        """Return the supervised loss () of a batch.

        Args:
            logits: (B, K) floating point.
            labels: (B,) int64 in 0..K-1, or (B, K) of 0 and 1.
            class_weights: (K,); only the loss of :class:`Softmax` uses them.
        """

    @abstractmethod
    def are_probabilities(self, values: Tensor, tolerance: float) -> Tensor:
        """Return whether rows (..., K) can be outputs of :meth:`probabilities`, (...) bool.

        A row with NaN cannot. ``tolerance``: how far a sum may be off by rounding.
        """

    @abstractmethod
    def questions(self, probabilities: Tensor) -> Tensor:
        """Return the distributions over answers that probabilities (T, N, K) stand for.

        Returns:
            (T, N, Q, A): Q questions about each image, each with A answers whose probabilities sum
            to 1.
        """


class Softmax(Outputs):
    """An image shows exactly one of K classes."""

    @property
    def rule(self) -> str:
        """The sum of a row."""
        return "probabilities that sum to 1"

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the softmax over the classes."""
        return torch.softmax(logits, dim=-1)

    def layer(self) -> nn.Module:
        """Return the softmax over the classes."""
        return nn.Softmax(dim=1)

    def loss(self, logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
        """Return the cross-entropy, weighted by class."""
        return F.cross_entropy(logits, labels, weight=class_weights)

    def are_probabilities(self, values: Tensor, tolerance: float) -> Tensor:
        """Return whether no value is negative and each row sums to 1."""
        sums_to_one = (values.sum(dim=-1) - 1).abs() <= tolerance
        return sums_to_one & (values >= 0).all(dim=-1)

    def questions(self, probabilities: Tensor) -> Tensor:
        """Return (T, N, 1, K): one question about each image, whose answers are the classes."""
        return probabilities.unsqueeze(2)


class Sigmoid(Outputs):
    """An image shows any number of K classes, each with a probability by itself."""

    @property
    def rule(self) -> str:
        """The range of each value."""
        return "probabilities in [0, 1]"

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the sigmoid of each class by itself."""
        return torch.sigmoid(logits)

    def layer(self) -> nn.Module:
        """Return the sigmoid of each class by itself."""
        return nn.Sigmoid()

    def loss(self, logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
        """Return the binary cross-entropy, the mean over images and classes.

        ``-(1 / B K) Σ_i Σ_c y_ic log σ(z_ic) + (1 - y_ic) log(1 - σ(z_ic))``
        """
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))

    def are_probabilities(self, values: Tensor, tolerance: float) -> Tensor:
        """Return whether all values of a row are in [0, 1]."""
        return ((values >= 0) & (values <= 1)).all(dim=-1)

    def questions(self, probabilities: Tensor) -> Tensor:
        """Return (T, N, K, 2): yes and no to each class of each image."""
        return torch.stack([probabilities, 1 - probabilities], dim=3)


SOFTMAX: Outputs = Softmax()
"""Classes exclude each other."""
SIGMOID: Outputs = Sigmoid()
"""Each class is a question of its own."""
