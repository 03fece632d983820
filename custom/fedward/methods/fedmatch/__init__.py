"""FedMatch: two sets of parameters, one learned with labels and one without, and helpers.

Jeong, Yoon, Yang, Hwang: *Federated semi-supervised learning with inter-client consistency &
disjoint learning*, ICLR 2021, with labels at the clients. A model is the sum θ = σ + ψ. Labels
train σ alone, unlabelled images ψ alone. Now and then each site is sent its helpers, the
sites whose models answer most alike to one fixed image. It stays close to their predictions, and
they vote on its pseudo-labels.

What FedPerl's paper compares with under this name has neither σ and ψ nor votes.
"""

from fedward.methods.fedmatch.algorithm import FedMatch, FedMatchState
from fedward.methods.fedmatch.decomposition import add_psi, shared_with_psi
from fedward.methods.fedmatch.helpers import HelperModel
from fedward.methods.fedmatch.objective import (
    FedMatchObjective,
    agreement,
    disjoint_penalty,
    inter_client_consistency,
)
from fedward.methods.fedmatch.settings import FedMatchSettings

__all__ = [
    "FedMatch",
    "FedMatchObjective",
    "FedMatchSettings",
    "FedMatchState",
    "HelperModel",
    "add_psi",
    "agreement",
    "disjoint_penalty",
    "inter_client_consistency",
    "shared_with_psi",
]
