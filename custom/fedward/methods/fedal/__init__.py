"""FedAL: which images a site should label next, by the entropy of its own model and the global one
together.

Deng, Yang, Suzuki: *Federated active learning framework for efficient annotation strategy in
skin-lesion classification*, arXiv 2406.11310. At each step of active learning a site scores its
unlabelled images by the entropy of the mean of two predictions, those of its own model φ_m and of
the global model ψ (eq. (3)), and labels the highest (eq. (4)), as many in every step (eq. (1)).
Another of :mod:`fedward.methods.samplers` gives that one's baseline.
"""

from fedward.methods.fedal.algorithm import FedAL, FedALState, divide
from fedward.methods.fedal.queries import ActiveLearning, ActiveSettings
from fedward.methods.samplers.equations import (
    annotation_budget,
    ensemble_entropy,
    mean_over_models,
    select,
)

__all__ = ["ActiveLearning", "ActiveSettings", "FedAL", "FedALState", "divide"]
__all__ += ["annotation_budget", "ensemble_entropy", "mean_over_models", "select"]
