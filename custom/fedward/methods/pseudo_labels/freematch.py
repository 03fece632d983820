"""FreeMatch: thresholds that follow how sure a net is, of all images and of each class.

Wang et al.: *FreeMatch: self-adaptive thresholding for semi-supervised learning*, ICLR 2023; the
authors' code, microsoft/Semi-supervised-learning.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    Mean,
    PseudoLabels,
    Statistics,
    pseudo_label,
    require_rows,
    running_mean,
)

DECAY = 0.99
"""m of the moving averages. Paper: 0.999 of a million steps."""
FLOOR = 0.5
"""Smallest threshold of a class, as a share of that of all: a net that never answers a class has no
right to guess.
"""
_SMALLEST = 1e-12
"""Authors' code: what is added before a logarithm."""


@torch.no_grad()
def class_thresholds(confidence: Tensor, mean: Tensor, floor: float = FLOOR) -> Tensor:
    """Return the threshold of each class: lower where the net expects fewer images.

    ``τ_c = τ max(p̃_c / max_j p̃_j, floor)``. Source: Wang et al., ICLR 2023; the authors' code.

    Args:
        confidence: τ (), moving average of the largest probability of an image.
        mean: p̃ (K,), moving average of the probabilities, not all 0.
        floor: in [0, 1]; 0 as in the paper.

    Returns:
        (K,) in [floor τ, τ]; the commonest class has τ itself. No gradient.

    Raises ConfigError: not one number and a row of one class or more, or a floor outside [0, 1].

    Edge cases: NaN: NaN, so that nothing is kept.

    Deviates: the paper has no floor. A class that a site lacks would have a threshold of about 0
    there.
    """
    if confidence.dim() or mean.dim() != 1 or not len(mean) or not 0 <= floor <= 1:
        expected = "a number, a number for each class, a floor in [0, 1]"
        remedy = "Pass averages over batches."
        found = f"{tuple(confidence.shape)}, {tuple(mean.shape)}, {floor}"
        raise ConfigError(
            "freematch.class_thresholds", expected=expected, found=found, remedy=remedy
        )
    return confidence * (mean / mean.max()).clamp_min(floor)


def fairness(logits_strong: Tensor, keep: Tensor, mean: Tensor, histogram: Tensor) -> Tensor:
    """Return the term that makes a net's answers on kept images as evenly spread as its answers on
    all.

    ``L_f = Σ_c a_c log b_c`` with ``a = norm(p̃ / h̃)`` and ``b = norm(p̄ / h̄)``; p̄ and h̄ are
    the mean probability and the histogram of answers on the strong views of kept images, and a
    class without answers counts 0.
    Source: Wang et al., ICLR 2023; the sign is that of the authors' code.

    Args:
        logits_strong: (N, K) floating point.
        keep: (N,) bool.
        mean, histogram: p̃ and h̃ (K,), moving averages over all images, sums of 1.

    Returns:
        Scalar <= 0, float32 or the dtype of the logits if that is larger. The gradient goes through
        p̄ alone.

    Raises ConfigError: shapes that do not belong together, or ``keep`` is not bool.

    Edge cases: nothing kept, N = 0: 0 with a gradient of 0. a row that is not kept: no influence.
    NaN in a kept row: NaN.
    """
    require_rows("freematch.fairness", logits_strong)
    classes = logits_strong.shape[1:]
    of_images = keep.shape == logits_strong.shape[:1] and keep.dtype == torch.bool
    if not of_images or not mean.shape == histogram.shape == classes:
        expected = f"{len(logits_strong)} bools, two rows of {classes[0]}"
        remedy = "Pass what belongs to these logits."
        found = f"{keep.dtype} {tuple(keep.shape)}, {tuple(mean.shape)}, {tuple(histogram.shape)}"
        raise ConfigError("freematch.fairness", expected=expected, found=found, remedy=remedy)
    drop = ~keep
    images = keep.sum().clamp(min=1)
    wide = torch.promote_types(logits_strong.dtype, torch.float32)
    rows = torch.softmax(logits_strong.masked_fill(drop.unsqueeze(1), 0.0).to(wide), dim=1)
    answers = (
        F.one_hot(rows.argmax(dim=1), *classes)
        .to(wide)
        .masked_fill(drop.unsqueeze(1), 0.0)
        .sum(dim=0)
        / images
    )
    kept = _relative(rows.masked_fill(drop.unsqueeze(1), 0.0).sum(dim=0) / images, answers)
    term = (_relative(mean, histogram).detach() * (kept + _SMALLEST).log()).sum()
    return torch.where(keep.any(), term, term * 0.0)


def _relative(mean: Tensor, histogram: Tensor) -> Tensor:
    """Return ``norm(mean / histogram)``, 0 where the histogram is."""
    empty = histogram == 0
    share = (mean / histogram.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)
    return share / share.sum().clamp_min(_SMALLEST)


class FreeMatch(Labeller):
    """Self-adaptive thresholds. The averages begin anew in each round, as the model received is
    another one.
    """

    def __init__(self, fairness_weight: float = 0.0) -> None:
        self._fairness = fairness_weight

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return averages of nothing."""
        zeros = torch.zeros_like(inputs.class_weights)
        return {"confidence": zeros.sum(), "mean": zeros, "histogram": zeros, "weight": zeros.sum()}

    @torch.no_grad()
    def label(
        self, probabilities: Tensor, received: Tensor | None, known: Statistics
    ) -> PseudoLabels:
        """Take the batch into the averages, then keep what reaches the threshold of its class."""
        require_rows("freematch.label", probabilities)
        if len(probabilities):
            confidence, labels = probabilities.max(dim=1)
            answers = F.one_hot(labels, probabilities.shape[1]).to(probabilities.dtype)
            new = {"confidence": confidence, "mean": probabilities, "histogram": answers}
            known = running_mean(
                known, {name: rows.mean(dim=0) for name, rows in new.items()}, DECAY
            )
        thresholds = class_thresholds(known["confidence"], known["mean"])
        return PseudoLabels(*pseudo_label(probabilities, thresholds), statistics=known)

    def loss(self, logits: Tensor, found: PseudoLabels, mean: Mean) -> Tensor:
        """Return the cross-entropy, with the fairness term where that has a weight."""
        loss = super().loss(logits, found, mean)
        if self._fairness:
            known = found.statistics
            loss = loss + self._fairness * fairness(
                logits, found.keep, known["mean"], known["histogram"]
            )
        return loss
