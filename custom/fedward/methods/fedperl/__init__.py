"""FedPerl: sites that resemble each other teach each other.

Bdair, Navab, Albarqouni: *Semi-supervised federated peer learning for skin lesion classification*,
MELBA 2022. The server describes each site's last model by the moments of its tensors (Sec. 2.3.1).
With answers to one image of noise instead, this is FedMatch as that paper compares it. Every site
gets the models most similar to its own, averaged into one anonymous peer (Alg. 1, eq. (6)). It
labels its unlabelled images together with them (eq. (5), (7)) while staying close to their
predictions (eq. (8)). Policies may drop a peer again (Sec. 2.3.5).
"""

from fedward.methods.anonymous_peers import anonymise
from fedward.methods.fedperl.algorithm import FedPerl, FedPerlState
from fedward.methods.fedperl.descriptions import nearness, probe_image, row_moments
from fedward.methods.fedperl.peer_policies import (
    gated_similarity_policy,
    gated_validation_policy,
    validation_policy,
)
from fedward.methods.fedperl.peers import random_peers, top_peers
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective, consistency, pseudo_label
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fedperl.similarity import layer_moments, similarity

__all__ = [
    "FedPerl",
    "FedPerlObjective",
    "FedPerlSettings",
    "FedPerlState",
    "anonymise",
    "consistency",
    "gated_similarity_policy",
    "gated_validation_policy",
    "layer_moments",
    "nearness",
    "probe_image",
    "pseudo_label",
    "random_peers",
    "row_moments",
    "similarity",
    "top_peers",
    "validation_policy",
]
