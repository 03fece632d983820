"""FixMatch: a confident prediction on a weak view becomes the label of a strong view.

Sohn, Berthelot, Li, Zhang, Carlini, Cubuk, Kurakin, Zhang, Raffel: *FixMatch: simplifying semi-supervised learning
with consistency and confidence*, NeurIPS 2020, eq. (4), by default averaged over the kept images as in FedPerl
(Bdair, Navab, Albarqouni, MELBA 2022, eq. (2)).

Nothing here waits for the device: no branch and no shape depends on a tensor's values.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.fedavg import Supervised
from fedward.methods.local import (
    Batch,
    Losses,
    RoundInputs,
    Stateless,
    Uses,
    in_one_pass,
    probabilities_in_evaluation_mode,
    strong_pass,
)
from fedward.methods.settings import Settings, Share


def pseudo_label(probabilities: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Label each image with its most probable class, and keep the confident ones.

    ``ŷ_i = argmax_c q_ic``,  ``keep_i = [max_c q_ic >= τ]``.
    Source: Sohn et al., NeurIPS 2020, eq. (4); Bdair et al., MELBA 2022, eq. (2).

    Args:
        probabilities: (N, K) floating point in [0, 1], rows sum to 1 (not checked), K >= 1.
        threshold: τ in [0, 1], compared in the dtype of ``probabilities``.

    Returns:
        labels (N,) int64 in [0, K), keep (N,) bool. Neither carries a gradient.

    Raises ConfigError: not two-dimensional, no class, a threshold outside [0, 1].

    Edge cases: max q_i = τ: kept. tied classes: the lowest class index. NaN in a row: not kept, whatever τ; its label
    means nothing. N = 0: two empty tensors.
    """
    where, remedy = "fixmatch.pseudo_label", "Set the confidence threshold τ of the method."
    _require_rows(where, probabilities)
    if not 0 <= threshold <= 1:
        raise ConfigError(where, expected="a threshold in [0, 1]", found=f"{threshold}", remedy=remedy)
    confidence, labels = probabilities.max(dim=1)
    return labels, confidence >= threshold


def pseudo_label_loss(
    logits_strong: Tensor, labels: Tensor, keep: Tensor, mean: Literal["kept", "all"] = "kept"
) -> Tensor:
    """Return the mean cross-entropy of the strong views against the kept pseudo-labels.

    ``L_u = (1 / |S|) Σ_{i in S} H(ŷ_i, softmax f(𝒜(u_i)))`` with ``S = {i : keep_i}``, and 0 where S is empty; with
    ``mean="all"`` the sum is divided by N.
    Source: Sohn et al., NeurIPS 2020, eq. (4), by N; Bdair et al., MELBA 2022, eq. (2), and its code, by |S|.

    Args:
        logits_strong: (N, K) floating point, logits of the strong views; K >= 1.
        labels: (N,) int64, in [0, K) where kept, anything elsewhere.
        keep: (N,) bool.
        mean: over the kept images, so that one alone counts as much as many, or over all.

    Returns:
        Scalar >= 0 in the dtype of the logits, differentiable in them. The gradient of a row that is not kept is
        exactly 0.

    Raises ConfigError: shapes that do not belong together, or ``keep`` is not bool.

    Edge cases: nothing kept, or N = 0: 0 with a gradient of 0 (neither None nor NaN). NaN, infinity, row not kept: no
    influence on value or gradient. NaN in a kept row: the loss is NaN: a broken net must be noticed.
    """
    where = "fixmatch.pseudo_label_loss"
    _require_rows(where, logits_strong)
    if not labels.shape == keep.shape == logits_strong.shape[:1] or keep.dtype != torch.bool:
        expected, remedy = f"{len(logits_strong)} labels and as many bools", "Pass what pseudo_label returned for them."
        found = f"labels {tuple(labels.shape)}, {keep.dtype} {tuple(keep.shape)}"
        raise ConfigError(where, expected=expected, found=found, remedy=remedy)
    drop = ~keep
    # Masked before the cross-entropy as well: 0 times the gradient of a NaN would still be NaN.
    logits = logits_strong.masked_fill(drop.unsqueeze(1), 0.0)
    losses = F.cross_entropy(logits, labels.masked_fill(drop, 0), reduction="none")
    total = losses.masked_fill(drop, 0.0).sum()
    return total / (keep.sum().clamp(min=1) if mean == "kept" else max(len(keep), 1))


class FixMatchSettings(Settings):
    """FixMatch with FedPerl's values."""

    threshold: Share = 0.6
    """tau: smallest confidence of a pseudo-label. Paper: 0.6 in a federation, 0.9 at a single site."""
    unlabelled_weight: float = Field(0.5, ge=0.0)
    """beta: weight of the pseudo-label loss; 0 is supervised training. Paper: 0.5."""
    pseudo_label_mean: Literal["kept", "all"] = "kept"
    """What the pseudo-label loss is a mean over: the images whose labels are kept, as in FedPerl's code, so that a
    single one has all the weight; or all, as in FixMatch."""


class FixMatchObjective(Stateless):
    """L_sup + beta L_u, on labelled images, unlabelled images, or both."""

    uses = Uses(unlabelled="unlabelled", second_view="strong")

    def __init__(self, settings: FixMatchSettings) -> None:
        self.settings = settings

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None) -> Losses:
        """Return the terms of Bdair et al., MELBA 2022, eq. (2); ``kept`` is the share of pseudo-labels used."""
        follows = self.follows(batch.peers)
        net = in_one_pass(net, batch.labelled, batch.strong, batch.weak if follows else None)
        supervised = Supervised().losses(net, batch, inputs).terms
        if batch.weak is None or batch.strong is None:
            return Losses(supervised, learns=bool(supervised))
        # Strong views first: the gradient of BatchNorm in evaluation mode reads the running statistics when it is
        # taken, so no training pass may move them after the weak views.
        logits, weight = strong_pass(net, batch.strong, self.settings), self.settings.unlabelled_weight
        labels, keep, teaching = self.teach(net, batch.weak, batch.peers)
        pseudo = pseudo_label_loss(inputs.seen_by_losses(logits), labels, keep, self.settings.pseudo_label_mean)
        terms = {**supervised, "loss_pseudo": weight * pseudo, **teaching}
        learns = bool(supervised) or follows or (weight > 0 and keep.any())
        return Losses(terms, {"kept": keep.float().mean()}, learns, {"labels": labels, "keep": keep})

    def follows(self, peers: Tensor | None) -> bool:
        """Return whether the net learns from its weak views, too; here they only make labels."""
        return False

    def teach(self, net: nn.Module, weak: Tensor, peers: Tensor | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return pseudo-labels (B,), which to keep (B,), and further loss terms; here the net teaches itself."""
        with torch.no_grad():
            local = probabilities_in_evaluation_mode(net, weak)
        return *pseudo_label(local, self.settings.threshold), {}


def _require_rows(where: str, values: Tensor) -> None:
    if values.dim() != 2 or values.shape[1] == 0:
        expected, remedy = "a tensor (images, classes), classes >= 1", "Pass one row of class scores for each image."
        raise ConfigError(where, expected=expected, found=f"{tuple(values.shape)}", remedy=remedy)
