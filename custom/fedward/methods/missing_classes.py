"""What a loss against labels makes of a site's logits where the site lacks labels of some classes.

Without such a rule each step pushes the missing classes down, at every site that lacks them, and
the average forgets them. Only losses see changed logits: predictions, pseudo-labels and evaluation
never do.
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import LogitRule, unchanged
from fedward.methods.settings import MissingClasses

RESTRICTION = 0.5
"""Alpha of :func:`restriction`. Authors' code: 0.9, 0.5 or 0.1."""


def restriction(counts: Tensor) -> Tensor:
    """Return the factors of the restricted softmax, which slows down what is learned of classes a
    site lacks.

    ``z'_c = α z_c`` where ``n_c = 0``, else ``z_c``: the classifier's row of a missing class gets
    ``α p_c f`` as its gradient. Source: Li and Zhan, *FedRS: federated learning with restricted
    softmax*, KDD 2021.

    Args:
        counts: (K,), labelled images of each class at the site; any real dtype, finite, >= 0.

    Returns:
        (K,) float32: 1 or :data:`RESTRICTION`.

    Deviates: classifiers here have a bias, which is scaled as well; the authors' has none. A
    negative logit rises.
    """
    return torch.where(counts > 0, 1.0, RESTRICTION)


def prior_shift(counts: Tensor) -> Tensor:
    """Return what is added to logits, so that a net need not learn which classes are common at a
    site.

    ``z'_c = z_c + log(n_c / max_j n_j)``: with it softmax is ``n_c e^z_c / Σ_j n_j e^z_j``, the
    balanced softmax.
    Source: Ren et al., *Balanced meta-softmax*, NeurIPS 2020; Menon et al., *Long-tail learning via
    logit adjustment*, ICLR 2021, with τ = 1. For sites that lack classes: Zhang et al., ICML 2022
    (FedLC), whose shift is ``-n_c^(-1/4)``.

    Args:
        counts: (K,), labelled images of each class at the site; any real dtype, finite, >= 0.

    Returns:
        (K,) float32 <= 0; exactly 0 for the commonest class, so that equal counts change nothing.

    Deviates: a class without images counts as one image. It would otherwise leave the softmax, and
    the loss of a pseudo-label of it would be infinite.
    """
    images = counts.to(torch.float32).clamp_min(1.0)
    return images.log() - images.max().log()


def rule_of(choice: MissingClasses, counts: Tensor) -> LogitRule:
    """Return what losses see at a site with so many labels of each class (K,); of a site without
    any, the logits.

    Raises ConfigError: not one-dimensional, no class, a count that is negative or not finite.
    """
    if counts.dim() != 1 or not len(counts) or not bool(((counts >= 0) & counts.isfinite()).all()):
        expected = "one finite count >= 0 for each class"
        remedy = "Count a site's labelled training images by class."
        raise ConfigError(
            "missing_classes.rule_of", expected=expected, found=f"{counts.tolist()}", remedy=remedy
        )
    if choice == "as_any" or not bool((counts > 0).any()):
        return unchanged
    if choice == "restricted":
        factors = restriction(counts)
        return lambda logits: logits * factors
    shift = prior_shift(counts)
    return lambda logits: logits + shift
