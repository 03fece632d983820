"""The interface of all ways to make pseudo-labels, and the equations that they share.

Nothing here waits for the device: no branch and no shape depends on the values of a tensor.
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
"""What a labeller has counted or averaged over the batches of a phase so far, by name.

The tensors carry no gradient and lie on the device that trains.
"""
Mean: TypeAlias = Literal["kept", "all"]
"""What a loss is averaged over: the images whose pseudo-labels are kept, or all images."""


@dataclass(frozen=True)
class PseudoLabels:
    """The pseudo-labels of one batch; none of its tensors carries a gradient."""

    labels: Tensor
    """(N,) int64, classes in [0, K) where kept; in a multi-label job (N, K) of 0 and 1."""
    keep: Tensor
    """Bool, in the shape of ``labels``: whether the loss sees the label."""
    statistics: Statistics = field(default_factory=dict)
    """The statistics after this batch, under the names that :meth:`Labeller.init` gave."""
    targets: Tensor | None = None
    """(N, K) probabilities that the loss is taken against; None: against ``labels``."""


class Labeller(Protocol):
    """A way to make pseudo-labels.

    A labeller holds settings only. Its statistics are handed from batch to batch by the caller.
    """

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return the statistics before the first batch of a phase; by default there are none."""
        return {}

    def label(self, probabilities: Tensor, statistics: Statistics) -> PseudoLabels:
        """Return the pseudo-labels of a batch.

        Args:
            probabilities: (N, K) of the weak views, by the site's network, or the mean over it and
                its peers.
            statistics: those after the batches before this one.
        """
        ...

    def counted(self, statistics: Statistics, labels: Tensor, keep: Tensor) -> Statistics:
        """Return the statistics after the loss has seen a batch; by default they stay.

        Args:
            statistics: those of the batch's :class:`PseudoLabels`.
            labels: its labels.
            keep: which of them the loss has seen: those that were kept, or none where a site
                without labels kept too few.
        """
        return statistics

    def loss(self, logits_strong: Tensor, pseudo_labels: PseudoLabels, mean: Mean) -> Tensor:
        """Return the loss () of the strong views' logits (N, K) against a batch's pseudo-labels."""
        return pseudo_label_loss(logits_strong, pseudo_labels.labels, pseudo_labels.keep, mean)

    def remember(self, statistics: Statistics) -> Mapping[str, Statistics]:
        """Return what the site keeps for its next round, by role; by default nothing."""
        return {}


def pseudo_label_loss(
    logits_strong: Tensor, labels: Tensor, keep: Tensor, mean: Mean = "kept"
) -> Tensor:
    """Return the mean cross-entropy of the strong views against the kept pseudo-labels.

    ``L_u = (1 / |S|) Σ_{i in S} H(ŷ_i, softmax f(𝒜(u_i)))`` with ``S = {i : keep_i}``, and 0 where
    S is empty. With ``mean="all"`` the sum is divided by N.

    Source: Sohn et al., NeurIPS 2020, eq. (4), divides by N; Bdair et al., MELBA 2022, eq. (2), and
    its code divide by |S|.

    Args:
        logits_strong: (N, K) floating point, K >= 1.
        labels: (N,) int64, in [0, K) where kept, arbitrary elsewhere.
        keep: (N,) bool.
        mean: ``kept``: over the kept images, so that a single one counts as much as many; ``all``:
            over all images.

    Returns:
        Scalar >= 0 in the dtype of the logits, differentiable in them. The gradient of a row that
        is not kept is exactly 0.

    Raises ConfigError: the shapes do not match, or ``keep`` is not bool.

    Edge cases: nothing kept, or N = 0: 0 with a gradient of 0, neither None nor NaN. NaN or
    infinity in a row that is not kept: no influence on value or gradient. NaN in a kept row: the
    loss is NaN, because a broken network must be noticed.
    """
    require_rows("pseudo_labels.pseudo_label_loss", logits_strong)
    images = logits_strong.shape[:1]
    if labels.shape != images or keep.shape != images or keep.dtype != torch.bool:
        raise ConfigError(
            "pseudo_labels.pseudo_label_loss",
            "Pass what pseudo_label returned for these images.",
            expected=f"{len(logits_strong)} labels and as many bools",
            found=f"labels {tuple(labels.shape)}, {keep.dtype} {tuple(keep.shape)}",
        )
    drop = ~keep
    # Rows are masked before the cross-entropy as well: 0 times the gradient of a NaN is still NaN.
    logits = logits_strong.masked_fill(drop.unsqueeze(1), 0.0)
    losses = F.cross_entropy(logits, labels.masked_fill(drop, 0), reduction="none")  # (N,)
    return mean_of_kept(losses, keep, mean)


def mean_of_kept(losses: Tensor, keep: Tensor, mean: Mean) -> Tensor:
    """Return the sum of the kept losses divided by the number of those kept, or of all losses.

    Args:
        losses: any shape, floating point.
        keep: bool of the same shape.
        mean: which number divides the sum. A number of 0 counts as 1.

    Returns:
        Scalar, differentiable in the kept losses; 0 where nothing is kept.
    """
    total = losses.masked_fill(~keep, 0.0).sum()
    if mean == "kept":
        return total / keep.sum().clamp(min=1)
    return total / max(keep.numel(), 1)


def running_mean(statistics: Statistics, values: Statistics, decay: float) -> dict[str, Tensor]:
    """Return moving averages that begin with their first value, with one more value taken in.

    ``W_t = m W_(t-1) + (1 - m)``, ``a_t = a_(t-1) + (x_t - a_(t-1)) (1 - m) / W_t``: a mean of all
    values so far, in which each value counts m times its successor. With ``W_0 = 0`` it is the
    bias-corrected average of Adam (Kingma and Ba, ICLR 2015, Sec. 3). A round of a few steps thus
    has a mean of its own, while an average that began with a guess would still be near the guess.

    Args:
        statistics: the averages so far, and ``weight``, W in [0, 1), (). Further entries are passed
            through unchanged.
        values: one value for some of the averages, in their shapes, without gradient.
        decay: m in [0, 1).

    Returns:
        All of ``statistics``, with the weight and the averages named in ``values`` updated.

    Edge cases: W = 0: the value itself. NaN: stays from then on.
    """
    weight = decay * statistics["weight"] + (1 - decay)
    share = torch.full_like(weight, 1 - decay) / weight
    updated = dict(statistics)
    for name, value in values.items():
        average = statistics[name]
        updated[name] = average + (value - average) * share
    updated["weight"] = weight
    return updated


def labelled_counts(inputs: RoundInputs) -> Tensor:
    """Return how many labelled images of each class the site has, (K,) float32."""
    if inputs.class_counts is None:
        return torch.zeros_like(inputs.class_weights)
    return inputs.class_counts.to(torch.float32)


def require_rows(where: str, values: Tensor) -> None:
    """Raise ConfigError unless ``values`` has a row of one class or more for each image."""
    if values.dim() != 2 or values.shape[1] == 0:
        raise ConfigError(
            where,
            "Pass one row of class scores for each image.",
            expected="a tensor (images, classes), classes >= 1",
            found=f"{tuple(values.shape)}",
        )


def require_threshold(where: str, threshold: float) -> None:
    """Raise ConfigError unless ``threshold`` lies in [0, 1]."""
    if not 0 <= threshold <= 1:
        raise ConfigError(
            where,
            "Set the confidence threshold τ of the method.",
            expected="a threshold in [0, 1]",
            found=f"{threshold}",
        )
