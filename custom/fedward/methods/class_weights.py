"""Whether the classes of a supervised loss have weights, and which, by their labels at a site.

Eigen and Fergus: *Predicting depth, surface normals and semantic labels with a common multi-scale
convolutional architecture*, ICCV 2015.
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.settings import ClassWeighting

ABSENT_CLASS_WEIGHT = 100.0
"""Weight of a class of which a site has no labelled image."""
LARGEST_RATIO = 50.0
"""Largest ratio of two classes' weights, absent classes apart.

It keeps a single rare image from being nearly all of its batch's loss, and so of a site's update.
"""


def chosen_class_weights(choice: ClassWeighting, counts: Tensor) -> Tensor:
    """Return the weights of the classes in a site's supervised loss.

    Args:
        choice: the job's setting.
        counts: (K,), as for :func:`class_weights`.

    Returns:
        (K,) float32 on the device of ``counts``: all 1 for ``none``.
    """
    if choice == "none":
        return torch.ones(len(counts), device=counts.device)
    return class_weights(counts)


def class_weights(counts: Tensor) -> Tensor:
    """Return median-frequency weights, with which rare classes count as much as common ones.

    ``w_c = median{n_j : n_j > 0} / max(n_c, max_j n_j / 50)``, and 100 where ``n_c = 0``.
    Source: Eigen and Fergus, ICCV 2015, Sec. 6.3.2; per site as in Bdair et al., MELBA 2022
    (authors' code).

    Args:
        counts: (K,), labelled training images of each class at one site; any real dtype, finite, >=
            0, K >= 1.

    Returns:
        (K,) float32 on the device of ``counts``, all > 0. The median of an even number of classes
        is the mean of the middle two.

    Raises ConfigError: not one-dimensional, no class, a count that is negative or not finite.

    Edge cases: equal counts: all 1. absent class: 100; a loss on that site's own labels never uses
    it.

    Deviates: the equation divides by ``n_c`` itself, which would give one image among 5000 of
    another class 99.7 % of the loss of a batch of 16; here it is 77 % at most.
    """
    _require_counts(counts)
    frequency = counts.to(torch.float32)
    present = frequency > 0
    weights = torch.full_like(frequency, ABSENT_CLASS_WEIGHT)
    if bool(present.any()):
        # torch.median would return the lower of the two middle values.
        median = frequency[present].quantile(0.5)
        fewest = float(frequency.max()) / LARGEST_RATIO
        weights[present] = median / frequency[present].clamp_min(fewest)
    return weights


def _require_counts(counts: Tensor) -> None:
    """Raise ConfigError unless ``counts`` (K,) is one finite count >= 0 for each class, K >= 1."""
    one_for_each = counts.dim() == 1 and len(counts) > 0
    if not one_for_each or not bool(((counts >= 0) & counts.isfinite()).all()):
        raise ConfigError(
            "counts of labelled images by class",
            "Count a site's labelled training images by class.",
            expected="one finite count >= 0 for each class",
            found=f"{counts.tolist()}",
        )
