"""A classifier's head in one round and in closed form, from sums over a frozen encoder's features.

Guan et al.: *Capture global feature statistics for one-shot federated learning* (FedCGS), AAAI
2025, arXiv 2503.06962. The sums are in :mod:`~fedward.methods.oneshot.moments`, the head in
:mod:`~fedward.methods.oneshot.discriminant`.
"""

from fedward.methods.oneshot.algorithm import OneShot, OneShotSettings
from fedward.methods.oneshot.discriminant import chosen_shrinkage, discriminant
from fedward.methods.oneshot.moments import Moments, add_moments

__all__ = [
    "Moments",
    "OneShot",
    "OneShotSettings",
    "add_moments",
    "chosen_shrinkage",
    "discriminant",
]
