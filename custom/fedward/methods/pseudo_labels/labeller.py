"""The interface of all ways to make pseudo-labels, and the equations that they share.

Nothing here waits for the device: no branch and no shape depends on the values of a tensor.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError

Mean: TypeAlias = Literal["kept", "all"]
"""What a loss is averaged over: the images whose pseudo-labels are kept, or all images."""


@dataclass(frozen=True)
class PseudoLabels:
    """The pseudo-labels of one batch; none of its tensors carries a gradient."""

    labels: Tensor
    """(N,) int64, classes in [0, K) where kept; in a multi-label job (N, K) of 0 and 1."""
    keep: Tensor
    """Bool, in the shape of ``labels``: whether the loss sees the label."""
    targets: Tensor | None = None
    """(N, K) probabilities that the loss is taken against; None: against ``labels``."""


class Labeller(Protocol):
    """A way to make pseudo-labels. It holds settings only."""

    def label(self, probabilities: Tensor) -> PseudoLabels:
        """Return the pseudo-labels of a batch.

        Args:
            probabilities: (N, K) of the weak views, by the site's network, or the mean over it and
                its peers.
        """
        ...

    def loss(self, logits_strong: Tensor, pseudo_labels: PseudoLabels, mean: Mean) -> Tensor:
        """Return the loss () of the strong views' logits (N, K) against a batch's pseudo-labels."""
        return pseudo_label_loss(logits_strong, pseudo_labels.labels, pseudo_labels.keep, mean)


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


def require_rows(where: str, values: Tensor) -> None:
    """Raise ConfigError unless ``values`` has a row of one class or more for each image."""
    if values.dim() != 2 or values.shape[1] == 0:
        raise ConfigError(
            where,
            "Pass one row of class scores for each image.",
            expected="a tensor (images, classes), classes >= 1",
            found=f"{tuple(values.shape)}",
        )
