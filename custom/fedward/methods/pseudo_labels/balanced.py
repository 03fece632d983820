"""CBAFed: common classes need more confidence, and rare classes are accepted as a second choice.

Li, Li, Wang: *Class balanced adaptive pseudo labeling for federated semi-supervised learning*, CVPR
2023; the authors' code, minglllli/CBAFed. There the server adds up the counts of all sites. Here
each site uses its own counts, so that none leaves it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.labeller import (
    Labeller,
    PseudoLabels,
    Statistics,
    labelled_counts,
    require_rows,
)
from fedward.methods.pseudo_labels.threshold import pseudo_label

HIGHEST = 0.95
"""Largest threshold of a class. Authors' code: 0.9 for skin lesions and SVHN, else 0.95."""
EQUAL_SHARE = 0.1
"""Mean of the shares of :func:`shares_of_ten`."""
RARE = 0.3 * EQUAL_SHARE
"""A class with less than this share is rare, as in the authors' code."""
COUNTS = "pseudo_label_counts"
"""Role in a site's memory: ``{"kept": (K,)}``, pseudo-labels by class of the last round."""


@torch.no_grad()
def shares_of_ten(counts: Tensor) -> Tensor:
    """Return the share of each class, on the scale of ten classes, so that the mean share is 0.1.

    ``π̂_c = (h_c / Σ_j h_j) K / 10``.

    Source: Li et al., CVPR 2023, the authors' code.

    Args:
        counts: h (K,), any real dtype, finite, >= 0, K >= 1.

    Returns:
        (K,) float32; 0.1 each where nothing was counted.

    Raises ConfigError: not one-dimensional, or no class.
    """
    if counts.dim() != 1 or len(counts) == 0:
        raise ConfigError(
            "balanced.shares_of_ten",
            "Count labels by class.",
            expected="a count for each class",
            found=f"{tuple(counts.shape)}",
        )
    even = torch.full_like(counts, 1.0, dtype=torch.float32)
    usable = torch.where(counts.sum() > 0, counts.to(torch.float32), even)
    return usable / usable.sum() * (len(counts) / 10)


@torch.no_grad()
def balanced_thresholds(shares: Tensor, base: float, highest: float = HIGHEST) -> Tensor:
    """Return a threshold for each class, which rises with its share of the site's labels.

    ``T_c = min(π̂_c + T_base - std(π̂), T_cap)``, and at least 0. The deviation is that of a sample.

    Source: Li et al., CVPR 2023, the authors' code.

    Args:
        shares: π̂ (K,) floating point, of :func:`shares_of_ten`.
        base: T_base in [0, 1].
        highest: T_cap in [0, 1].

    Returns:
        (K,) in [0, T_cap], in the dtype of the shares. No gradient.

    Raises ConfigError: not one-dimensional, no class, or a number outside [0, 1].

    Edge cases: one class: its deviation is 0.
    """
    in_range = 0 <= base <= 1 and 0 <= highest <= 1
    if shares.dim() != 1 or len(shares) == 0 or not in_range:
        raise ConfigError(
            "balanced.thresholds",
            "Set the method's threshold.",
            expected="a share for each class, two numbers in [0, 1]",
            found=f"{tuple(shares.shape)}, {base}, {highest}",
        )
    # Of a single class the deviation of a sample would be NaN.
    deviation = shares.std(correction=min(1, len(shares) - 1))
    return (shares + base - deviation).clamp(0.0, highest)


@torch.no_grad()
def rescue(probabilities: Tensor, thresholds: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Keep confident labels, and the second choice of other images if it is a rare class.

    ``keep_i = [q_i,ŷ >= T_ŷ]``. Where that fails, with ŷ₂ the second most probable class, the image
    is kept if ``ŷ₂ in S`` and is labelled ŷ₂.

    Source: Li et al., CVPR 2023, the authors' code.

    Args:
        probabilities: q (N, K) floating point in [0, 1].
        thresholds: T (K,) floating point.
        tail: S (K,) bool, which classes are rare.

    Returns:
        labels (N,) int64 in [0, K), and keep (N,) bool. Neither carries a gradient.

    Raises ConfigError: the shapes do not match, or ``tail`` is not bool.

    Edge cases: no rare class: :func:`~fedward.methods.pseudo_labels.threshold.pseudo_label`. One
    class: there is no second choice. NaN in a row: not kept. Ties: the lower class index is the
    first choice. N = 0: two empty tensors.

    Deviates: the code compares with ``>``.
    """
    labels, keep = pseudo_label(probabilities, thresholds)  # both (N,)
    if tail.shape != thresholds.shape or tail.dtype != torch.bool:
        raise ConfigError(
            "balanced.rescue",
            "Say of each class whether it is rare.",
            expected=f"{len(thresholds)} bools",
            found=f"{tail.dtype} {tuple(tail.shape)}",
        )
    if len(tail) == 1:
        return labels, keep
    without_first_choice = probabilities.scatter(1, labels.unsqueeze(1), -1.0)
    second = without_first_choice.argmax(dim=1)  # (N,)
    rescued = ~keep & tail[second] & probabilities.isfinite().all(dim=1)
    return torch.where(rescued, second, labels), keep | rescued


class Balanced(Labeller):
    """Thresholds by a site's labels and the pseudo-labels of its last round, fixed for a round."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return ``before``, the counts that set this round's thresholds, and ``kept``, its own.

        Both are (K,) float32; ``kept`` is 0 before the first batch.
        """
        counts = labelled_counts(inputs)
        if COUNTS in inputs.memory:
            kept_last_round = inputs.memory[COUNTS]["kept"]
            counts = counts + kept_last_round.to(counts.device)
        return {"before": counts, "kept": torch.zeros_like(counts)}

    @torch.no_grad()
    def label(self, probabilities: Tensor, statistics: Statistics) -> PseudoLabels:
        """Keep confident and rescued labels."""
        require_rows("balanced.label", probabilities)
        shares = shares_of_ten(statistics["before"])
        thresholds = balanced_thresholds(shares, self._threshold)
        labels, keep = rescue(probabilities, thresholds, shares < RARE)
        return PseudoLabels(labels, keep, statistics)

    @torch.no_grad()
    def counted(self, statistics: Statistics, labels: Tensor, keep: Tensor) -> Statistics:
        """Count the labels that the loss has seen."""
        kept = statistics["kept"]
        return {**statistics, "kept": kept.index_add(0, labels, keep.to(kept.dtype))}

    def remember(self, statistics: Statistics) -> Mapping[str, Statistics]:
        """Return the pseudo-labels by class that this round kept."""
        return {COUNTS: {"kept": statistics["kept"]}}
