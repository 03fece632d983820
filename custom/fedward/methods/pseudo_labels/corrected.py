"""SAGE: where a site's net has grown much surer than the model received, the latter's answer counts
instead.

Liu et al.: *Mind the gap: confidence discrepancy can guide federated semi-supervised learning
across pseudo-mismatch*, CVPR 2025; the authors' code, Jay-Codeman/SAGE.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    Mean,
    PseudoLabels,
    Statistics,
    pseudo_label,
    pseudo_label_loss,
    require_rows,
)

HALF = 0.05
"""Gap of confidence at which both answers count a half. Authors' code: the same, as κ = ln 2 /
0.05.
"""


@torch.no_grad()
def corrected_targets(local: Tensor, received: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Mix what the site's net and the model received answer, by how far apart they are in
    confidence.

    ``λ_i = 2^(-|max_c p_ic - max_c g_ic| / 0.05)``,  ``q_i = λ_i e(ŷ_i) + (1 - λ_i) e(ŷ'_i)`` with ŷ of p, ŷ' of g, and
    λ_i = 0 where ``max_c p_ic < τ``;  ``keep_i = [max_c p_ic >= τ or max_c g_ic >= τ]``.
    Source: Liu et al., CVPR 2025, the authors' code.

    Args:
        local: p (N, K) floating point in [0, 1].
        received: g (N, K), likewise.
        threshold: τ in [0, 1].

    Returns:
        q (N, K) in the dtype of ``local``, rows sum to 1; keep (N,) bool. Neither carries a
        gradient.

    Raises ConfigError: shapes that do not belong together, a threshold outside [0, 1].

    Edge cases: equal answers: that class alone, whatever the gap. NaN in p: as not sure. NaN in g:
    not kept unless p is sure, whose answer then counts. N = 0: empty.

    Deviates: the code adds 1e-6 to the gap.
    """
    if local.shape != received.shape:
        expected = f"two times {tuple(local.shape)}"
        found = f"{tuple(received.shape)}"
        raise ConfigError(
            "corrected.targets", expected=expected, found=found, remedy="Predict the same images."
        )
    own, sure = pseudo_label(local, threshold)
    other, also_sure = pseudo_label(received, threshold)
    gap = (local.amax(dim=1) - received.amax(dim=1)).abs()
    share = torch.where(sure, torch.exp2(-gap / HALF).nan_to_num(1.0), 0.0).unsqueeze(1)
    classes = local.shape[1]
    targets = share * F.one_hot(own, classes) + (1 - share) * F.one_hot(other, classes)
    return targets.to(local.dtype), sure | also_sure


def divergence(logits_strong: Tensor, targets: Tensor, keep: Tensor, mean: Mean = "kept") -> Tensor:
    """Return the mean divergence of strong views from soft pseudo-labels.

    ``L_u = (1 / |S|) Σ_{i in S} KL(q_i ‖ softmax z_i)`` with ``S = {i : keep_i}``, and 0 where S is
    empty; with ``mean="all"`` the sum is divided by N.
    Source: Liu et al., CVPR 2025, the authors' code, by N.

    Args:
        logits_strong: z (N, K) floating point.
        targets: q (N, K), rows sum to 1; no gradient goes there.
        keep: (N,) bool.
        mean: as of :func:`~fedward.methods.pseudo_labels.labeller.pseudo_label_loss`.

    Returns:
        Scalar >= 0, differentiable in the logits. The gradient of a row that is not kept is exactly
        0.

    Raises ConfigError: shapes that do not belong together, or ``keep`` is not bool.

    Edge cases: one-hot targets: the cross-entropy against them. softmax equal to q: 0. NaN: as of
    the cross-entropy.
    """
    require_rows("corrected.divergence", logits_strong)
    if (
        targets.shape != logits_strong.shape
        or keep.shape != targets.shape[:1]
        or keep.dtype != torch.bool
    ):
        expected = f"targets {tuple(logits_strong.shape)} and a bool each"
        remedy = "Pass those of these images."
        found = f"{tuple(targets.shape)}, {keep.dtype} {tuple(keep.shape)}"
        raise ConfigError("corrected.divergence", expected=expected, found=found, remedy=remedy)
    drop = ~keep
    answers = F.log_softmax(logits_strong.masked_fill(drop.unsqueeze(1), 0.0), dim=1)
    wanted = targets.detach().masked_fill(drop.unsqueeze(1), 0.0)
    total = (torch.xlogy(wanted, wanted) - wanted * answers).sum()
    return total / (keep.sum().clamp(min=1) if mean == "kept" else max(len(keep), 1))


class Corrected(Labeller):
    """Soft targets between the site's net, with its peers, and the model received, which stays as
    it was.
    """

    received = True

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def label(
        self, probabilities: Tensor, received: Tensor | None, known: Statistics
    ) -> PseudoLabels:
        """Return the mixed targets; the label of an image is the class that has more of its target."""
        if received is None:
            where = "corrected.label"
            remedy = "Compute the received model's answers with the batch."
            raise ConfigError(
                where, expected="answers of the model received", found="none", remedy=remedy
            )
        targets, keep = corrected_targets(probabilities, received, self._threshold)
        return PseudoLabels(targets.argmax(dim=1), keep, targets)

    def loss(self, logits: Tensor, found: PseudoLabels, mean: Mean) -> Tensor:
        """Return the divergence from the targets."""
        if found.targets is None:
            return pseudo_label_loss(logits, found.labels, found.keep, mean)
        return divergence(logits, found.targets, found.keep, mean)
