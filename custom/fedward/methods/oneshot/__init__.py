"""A classifier's head in one round and in closed form, from sums over a frozen encoder's features.

Guan et al.: *Capture global feature statistics for one-shot federated learning* (FedCGS), AAAI
2025, arXiv 2503.06962. The sums are in :mod:`~fedward.methods.oneshot.moments`, the head in
:mod:`~fedward.methods.oneshot.discriminant`.
"""
