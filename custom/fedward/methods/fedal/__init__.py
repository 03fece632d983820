"""FedAL: a site labels the images on which its own model and the global one are least certain.

Deng, Yang, Suzuki: *Federated active learning framework for efficient annotation strategy in
skin-lesion classification*, arXiv 2406.11310. At each query a site scores its unlabelled images by
the entropy of the mean of two predictions, those of its own model φ_m and of the global model ψ
(eq. (3)). It asks for the labels of the highest scores (eq. (4)), equally many in every query
(eq. (1)). Any other sampler of :mod:`fedward.methods.samplers` makes it that sampler's baseline.
"""
