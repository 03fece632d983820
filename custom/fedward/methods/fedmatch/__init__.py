"""FedMatch: two sets of parameters, one learned with labels and one without, and helpers.

Jeong, Yoon, Yang, Hwang: *Federated semi-supervised learning with inter-client consistency &
disjoint learning*, ICLR 2021, with labels at the clients. A model is the sum θ = σ + ψ. Labels
train σ alone, and unlabelled images ψ alone. Every few rounds each site is sent its helpers, the
models of those sites that answer most like its own to one fixed image. Its predictions are kept
close to theirs, and they vote on its pseudo-labels.

The baseline of this name in FedPerl's paper has neither the two sets of parameters nor votes.
"""
