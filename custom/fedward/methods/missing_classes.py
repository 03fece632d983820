"""How a loss against labels treats a site's logits where the site lacks labels of some classes.

Without such a rule each step pushes the missing classes down, at every site that lacks them, and
the average forgets them. Only losses see changed logits; predictions, pseudo-labels and evaluation
never do.
"""

import torch
from torch import Tensor

from fedward.methods.class_weights import require_counts
from fedward.methods.local import LogitRule, unchanged
from fedward.methods.settings import MissingClasses

RESTRICTION = 0.5
"""α of :func:`restriction`. Authors' code: 0.9, 0.5 or 0.1."""


def restriction(counts: Tensor) -> Tensor:
    """Return the factors of the restricted softmax, by which a site learns less of missing classes.

    ``z'_c = α z_c`` where ``n_c = 0``, else ``z_c``: the classifier's row of a missing class gets
    ``α p_c f`` as its gradient, f being the features.

    Source: Li and Zhan, *FedRS: federated learning with restricted softmax*, KDD 2021.

    Args:
        counts: n (K,), labelled images of each class at the site; any real dtype, finite, >= 0.

    Returns:
        (K,) float32: 1 or :data:`RESTRICTION`.

    Deviates: classifiers here have a bias, which is scaled as well; the authors' has none. A
    negative logit of a missing class rises.
    """
    return torch.where(counts > 0, 1.0, RESTRICTION)


def rule_of(choice: MissingClasses, counts: Tensor) -> LogitRule:
    """Return the rule for the logits that losses see at a site.

    Args:
        choice: the job's setting.
        counts: (K,), labelled images of each class at the site; any real dtype, finite, >= 0.

    Returns:
        A function of logits (N, K). It leaves them unchanged at a site without labels.

    Raises ConfigError: ``counts`` not one-dimensional or empty, or a count that is negative or not
    finite.
    """
    require_counts(counts)
    if choice == "as_any" or not bool((counts > 0).any()):
        return unchanged
    factors = restriction(counts)
    return lambda logits: logits * factors
