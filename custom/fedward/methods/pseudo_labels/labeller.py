"""What makes pseudo-labels of probabilities, and the equations that all ways of doing so share.

Nothing here waits for the device: no branch and no shape depends on a tensor's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs

Statistics: TypeAlias = Mapping[str, Tensor]
"""What a labeller knows of the batches of a phase so far, by name; without gradient, on the device
that trains.
"""
Mean: TypeAlias = Literal["kept", "all"]
"""What a loss is a mean over."""


@dataclass(frozen=True)
class PseudoLabels:
    """What a labeller makes of one batch; nothing of it carries a gradient."""

    labels: Tensor
    """(N,) int64 in [0, K) where kept; in a multi-label job (N, K) of 0 and 1."""
    keep: Tensor
    """Bool, of the same shape."""
    targets: Tensor | None = None
    """(N, K) probabilities, where the loss is not against ``labels``."""
    statistics: Statistics = field(default_factory=dict)
    """Those after this batch, of the names that :meth:`Labeller.init` gave."""


class Labeller(Protocol):
    """A way to make pseudo-labels. It holds settings only; its statistics are handed on from batch
    to batch.
    """

    received: bool = False
    """Whether it asks the model that the site received, too."""

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return the statistics before the first batch of a phase; here none."""
        return {}

    def label(
        self, probabilities: Tensor, received: Tensor | None, known: Statistics
    ) -> PseudoLabels:
        """Return the pseudo-labels of a batch.

        Args:
            probabilities: (N, K) of the weak views, by the site's net, or the mean over it and its
                peers.
            received: (N, K) by the model that the site received, for a labeller that wants it.
            known: statistics of the batches before.
        """
        ...

    def loss(self, logits: Tensor, found: PseudoLabels, mean: Mean) -> Tensor:
        """Return the loss () of the strong views' logits (N, K) against what :meth:`label` has
        ``found``.
        """
        return pseudo_label_loss(logits, found.labels, found.keep, mean)

    def remember(self, known: Statistics) -> Mapping[str, Statistics]:
        """Return what the site keeps for its next round, by role; here nothing."""
        return {}


def pseudo_label(probabilities: Tensor, threshold: float | Tensor) -> tuple[Tensor, Tensor]:
    """Label each image with its most probable class, and keep the confident ones.

    ``ŷ_i = argmax_c q_ic``,  ``keep_i = [max_c q_ic >= τ]``; with thresholds of classes, that of ŷ_i in place of τ.
    Source: Sohn et al., NeurIPS 2020, eq. (4); Bdair et al., MELBA 2022, eq. (2).

    Args:
        probabilities: (N, K) floating point in [0, 1], rows sum to 1 (not checked), K >= 1.
        threshold: τ in [0, 1], compared in the dtype of ``probabilities``; or τ_c, (K,) floating
            point, any values.

    Returns:
        labels (N,) int64 in [0, K), keep (N,) bool. Neither carries a gradient.

    Raises ConfigError: not two-dimensional, no class, a threshold outside [0, 1], or not one for
    each class.

    Edge cases: max q_i = τ: kept. tied classes: the lowest class index. NaN in a row: not kept,
    whatever τ; its label means nothing. N = 0: two empty tensors.
    """
    where = "pseudo_labels.pseudo_label"
    remedy = "Set the confidence threshold τ of the method."
    require_rows(where, probabilities)
    confidence, labels = probabilities.max(dim=1)
    if isinstance(threshold, Tensor):
        if threshold.shape != probabilities.shape[1:]:
            expected = f"a threshold for each of {probabilities.shape[1]} classes"
            found = f"{tuple(threshold.shape)}"
            raise ConfigError(
                where,
                expected=expected,
                found=found,
                remedy="Pass one number or one for each class.",
            )
        return labels, confidence >= threshold[labels]
    if not 0 <= threshold <= 1:
        raise ConfigError(
            where, expected="a threshold in [0, 1]", found=f"{threshold}", remedy=remedy
        )
    return labels, confidence >= threshold


def pseudo_label_loss(
    logits_strong: Tensor, labels: Tensor, keep: Tensor, mean: Literal["kept", "all"] = "kept"
) -> Tensor:
    """Return the mean cross-entropy of the strong views against the kept pseudo-labels.

    ``L_u = (1 / |S|) Σ_{i in S} H(ŷ_i, softmax f(𝒜(u_i)))`` with ``S = {i : keep_i}``, and 0 where
    S is empty; with ``mean="all"`` the sum is divided by N.
    Source: Sohn et al., NeurIPS 2020, eq. (4), by N; Bdair et al., MELBA 2022, eq. (2), and its
    code, by |S|.

    Args:
        logits_strong: (N, K) floating point, logits of the strong views; K >= 1.
        labels: (N,) int64, in [0, K) where kept, anything elsewhere.
        keep: (N,) bool.
        mean: over the kept images, so that one alone counts as much as many, or over all.

    Returns:
        Scalar >= 0 in the dtype of the logits, differentiable in them. The gradient of a row that
        is not kept is exactly 0.

    Raises ConfigError: shapes that do not belong together, or ``keep`` is not bool.

    Edge cases: nothing kept, or N = 0: 0 with a gradient of 0 (neither None nor NaN). NaN,
    infinity, row not kept: no influence on value or gradient. NaN in a kept row: the loss is NaN: a
    broken net must be noticed.
    """
    where = "pseudo_labels.pseudo_label_loss"
    require_rows(where, logits_strong)
    if not labels.shape == keep.shape == logits_strong.shape[:1] or keep.dtype != torch.bool:
        expected = f"{len(logits_strong)} labels and as many bools"
        remedy = "Pass what pseudo_label returned for them."
        found = f"labels {tuple(labels.shape)}, {keep.dtype} {tuple(keep.shape)}"
        raise ConfigError(where, expected=expected, found=found, remedy=remedy)
    drop = ~keep
    # Masked before the cross-entropy as well: 0 times the gradient of a NaN would still be NaN.
    logits = logits_strong.masked_fill(drop.unsqueeze(1), 0.0)
    losses = F.cross_entropy(logits, labels.masked_fill(drop, 0), reduction="none")
    total = losses.masked_fill(drop, 0.0).sum()
    return total / (keep.sum().clamp(min=1) if mean == "kept" else max(len(keep), 1))


def running_mean(known: Statistics, new: Statistics, decay: float) -> dict[str, Tensor]:
    """Return moving averages that begin with their first value, with one more value taken in.

    ``W_t = m W_(t-1) + (1 - m)``, ``a_t = a_(t-1) + (x_t - a_(t-1)) (1 - m) / W_t``: a mean of all
    values so far, each counting m times the one behind it. With ``W_0 = 0`` it is Adam's (Kingma
    and Ba, ICLR 2015, Sec. 3): a round of a few steps has a mean of its own, while an average that
    began with a guess would still be near it.

    Args:
        known: the averages so far, and ``weight``, W in [0, 1), (); further entries are kept as
            they are.
        new: a value for some of the averages, of the same shape, without gradient.
        decay: m in [0, 1).

    Returns:
        All of ``known``, with these averages and the weight moved on.

    Edge cases: W = 0: the value itself. NaN: stays from then on.
    """
    weight = decay * known["weight"] + (1 - decay)
    share = torch.full_like(weight, 1 - decay) / weight
    moved = {name: known[name] + (value - known[name]) * share for name, value in new.items()}
    return {**known, **moved, "weight": weight}


def labelled_counts(inputs: RoundInputs) -> Tensor:
    """Return how many labelled images of each class the site has, (K,) float32."""
    counts = inputs.class_counts
    return torch.zeros_like(inputs.class_weights) if counts is None else counts.to(torch.float32)


class Fixed(Labeller):
    """FixMatch: one threshold for all classes and rounds."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def label(
        self, probabilities: Tensor, received: Tensor | None, known: Statistics
    ) -> PseudoLabels:
        """Return :func:`pseudo_label`."""
        return PseudoLabels(*pseudo_label(probabilities, self._threshold))


def require_rows(where: str, values: Tensor) -> None:
    """Raise ConfigError unless ``values`` has a row of one class or more for each image."""
    if values.dim() != 2 or values.shape[1] == 0:
        expected = "a tensor (images, classes), classes >= 1"
        remedy = "Pass one row of class scores for each image."
        raise ConfigError(where, expected=expected, found=f"{tuple(values.shape)}", remedy=remedy)
