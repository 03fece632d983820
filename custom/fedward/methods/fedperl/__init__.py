"""FedPerl: sites that resemble each other teach each other.

Bdair, Navab, Albarqouni: *Semi-supervised federated peer learning for skin lesion classification*,
MELBA 2022. The server describes each site's last model by the moments of its tensors (Sec. 2.3.1).
With answers to one image of noise instead, this is FedMatch as that paper compares it. Every site
gets the models most similar to its own, averaged into one anonymous peer (Alg. 1, eq. (6)). It
labels its unlabelled images together with them (eq. (5), (7)) while staying close to their
predictions (eq. (8)). Policies may drop a peer again (Sec. 2.3.5).
"""
