"""CBAFed: classes that a site has often need more confidence, and rare ones are taken as second
choice.

Li, Li, Wang: *Class balanced adaptive pseudo labeling for federated semi-supervised learning*, CVPR
2023; the authors' code, minglllli/CBAFed. There the server adds the counts of all sites up. Here
each site goes by its own, so that no count leaves it.
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
    pseudo_label,
    require_rows,
)

HIGHEST = 0.95
"""Of all thresholds. Authors' code: 0.9 for skin lesions and SVHN, else 0.95."""
TAIL = 0.3
"""A class with less than this of an equal share is rare. Authors' code: 0.03 with a mean share of
0.1.
"""
COUNTS = "pseudo_label_counts"
"""Role in a site's memory: ``{"kept": (K,)}``, pseudo-labels of each class that its last round
kept.
"""


@torch.no_grad()
def shares_of_ten(counts: Tensor) -> Tensor:
    """Return the share of each class, on the scale of ten classes: their mean is 0.1.

    ``π̂_c = (h_c / Σ_j h_j) K / 10``. Source: Li et al., CVPR 2023, the authors' code.

    Args:
        counts: h (K,), any real dtype, finite, >= 0, K >= 1.

    Returns:
        (K,) float32; 0.1 each where nothing was counted.

    Raises ConfigError: not one-dimensional, no class.
    """
    if counts.dim() != 1 or not len(counts):
        expected = "a count for each class"
        found = f"{tuple(counts.shape)}"
        raise ConfigError(
            "balanced.shares_of_ten",
            expected=expected,
            found=found,
            remedy="Count labels by class.",
        )
    total = counts.sum()
    even = torch.full_like(counts, 1.0, dtype=torch.float32)
    known = torch.where(total > 0, counts.to(torch.float32), even)
    return known / known.sum() * (len(counts) / 10)


@torch.no_grad()
def balanced_thresholds(shares: Tensor, base: float, highest: float = HIGHEST) -> Tensor:
    """Return a threshold for each class: the higher, the more of the site's labels are of it.

    ``T_c = min(π̂_c + T_base - std(π̂), T_cap)``, and no less than 0; the deviation is that of a
    sample.
    Source: Li et al., CVPR 2023, the authors' code.

    Args:
        shares: π̂ (K,) floating point, of :func:`shares_of_ten`.
        base, highest: T_base and T_cap in [0, 1].

    Returns:
        (K,) in [0, T_cap], in the dtype of the shares. No gradient.

    Raises ConfigError: not one-dimensional, no class, or a number outside [0, 1].

    Edge cases: one class: its deviation is 0.
    """
    if shares.dim() != 1 or not len(shares) or not 0 <= base <= 1 or not 0 <= highest <= 1:
        expected = "a share for each class, two numbers in [0, 1]"
        found = f"{tuple(shares.shape)}, {base}, {highest}"
        raise ConfigError(
            "balanced.thresholds",
            expected=expected,
            found=found,
            remedy="Set the method's threshold.",
        )
    deviation = shares.std(correction=min(1, len(shares) - 1))
    return (shares + base - deviation).clamp(0.0, highest)


@torch.no_grad()
def rescue(probabilities: Tensor, thresholds: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Keep what reaches the threshold of its class, and what does not if its second choice is a
    rare class.

    ``keep_i = [q_i,ŷ >= T_ŷ]``; else, with ŷ₂ the second most probable class, ``[ŷ₂ in S]``,
    labelled ŷ₂.
    Source: Li et al., CVPR 2023, the authors' code.

    Args:
        probabilities: (N, K) floating point in [0, 1].
        thresholds: T (K,) floating point.
        tail: S (K,) bool.

    Returns:
        labels (N,) int64 in [0, K), keep (N,) bool. Neither carries a gradient.

    Raises ConfigError: shapes that do not belong together, or ``tail`` is not bool.

    Edge cases: no rare class: :func:`~fedward.methods.pseudo_labels.labeller.pseudo_label`. one
    class: there is no second choice. NaN in a row: not kept. ties: the lower class index is the
    first choice. N = 0: two empty tensors.

    Deviates: the code compares with ``>``.
    """
    labels, keep = pseudo_label(probabilities, thresholds)
    if tail.shape != thresholds.shape or tail.dtype != torch.bool:
        expected = f"{len(thresholds)} bools"
        found = f"{tail.dtype} {tuple(tail.shape)}"
        raise ConfigError(
            "balanced.rescue",
            expected=expected,
            found=found,
            remedy="Say of each class if it is rare.",
        )
    if len(tail) == 1:
        return labels, keep
    others = probabilities.scatter(1, labels.unsqueeze(1), -1.0)
    second = others.argmax(dim=1)
    rescued = ~keep & tail[second] & probabilities.isfinite().all(dim=1)
    return torch.where(rescued, second, labels), keep | rescued


class Balanced(Labeller):
    """Thresholds by the site's own labels and the pseudo-labels of its last round, fixed for a
    round.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def init(self, inputs: RoundInputs) -> Statistics:
        """Return the counts that this round goes by, and those of this round."""
        counts = labelled_counts(inputs)
        remembered = inputs.memory.get(COUNTS, {}).get("kept")
        before = counts if remembered is None else counts + remembered.to(counts.device)
        return {"before": before, "kept": torch.zeros_like(before)}

    @torch.no_grad()
    def label(
        self, probabilities: Tensor, received: Tensor | None, known: Statistics
    ) -> PseudoLabels:
        """Keep sure and rescued labels, and count both."""
        require_rows("balanced.label", probabilities)
        shares = shares_of_ten(known["before"])
        labels, keep = rescue(
            probabilities, balanced_thresholds(shares, self._threshold), shares < TAIL / 10
        )
        kept = known["kept"].index_add(0, labels, keep.to(known["kept"].dtype))
        return PseudoLabels(labels, keep, statistics={**known, "kept": kept})

    def remember(self, known: Statistics) -> Mapping[str, Statistics]:
        """Return the counts of the round."""
        return {COUNTS: {"kept": known["kept"]}}
