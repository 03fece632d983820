"""What a method's local half sees at a site: one batch, the round's fixed inputs, and the losses it returns."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """One step's images, float32 (B, C, H, W) in [0, 1], on the device that trains.

    A site without labelled images has ``labelled = labels = None``; one without unlabelled images, or a method that
    does not want them, has ``weak = strong = None``.
    """

    labelled: Tensor | None = None
    """Weak views of labelled images, alpha(x)."""
    labels: Tensor | None = None
    """(B,) int64."""
    weak: Tensor | None = None
    """Weak views of unlabelled images, alpha(u)."""
    strong: Tensor | None = None
    """Strong views of the same images, A(u)."""
    peers: Tensor | None = None
    """(P, B, K) the peers' probabilities on ``weak``, without gradient; None when the site has no peers."""


@dataclass(frozen=True)
class RoundInputs:
    """What stays fixed during one site's round."""

    class_weights: Tensor
    """(K,) weights of the supervised cross-entropy."""


@dataclass(frozen=True)
class Losses:
    """Named scalars of one step: ``terms`` are summed and minimised, ``notes`` are only logged."""

    terms: dict[str, Tensor]
    notes: dict[str, Tensor] = field(default_factory=dict)


class Objective(Protocol):
    """The local objective of a method."""

    @property
    def wants_unlabelled(self) -> bool:
        """Whether unlabelled images, their two views and the peers are used at all."""

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs) -> Losses:
        """Return the losses of one step; ``net`` is in training mode before and after."""


def probabilities_in_evaluation_mode(net: nn.Module, images: Tensor) -> Tensor:
    """Return softmax(net(images)) of shape (N, K) with BatchNorm and dropout frozen, and leave ``net`` training.

    Gradients flow; buffers do not change. Pseudo labels come from the model as it would answer at the bedside, not
    from one batch's statistics.
    """
    net.eval()
    try:
        return torch.softmax(net(images), dim=1)
    finally:
        net.train()
