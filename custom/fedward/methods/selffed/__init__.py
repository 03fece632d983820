"""SelfFed: sites first learn to fill in hidden parts of their images, then train on their labels.

Khowaja, Dev, Anwar, Linguraru: *SelfFed: self-supervised federated learning for data heterogeneity
and label scarcity in IoMT*, arXiv 2307.01514. Phase 1 pre-trains a masked autoencoder at the sites
without labels (Sec. III-C, :mod:`~fedward.methods.selffed.masking`). Phase 2 fine-tunes its encoder
with labels at the sites, while the server contrasts two views of images of its own (Sec. III-D,
:mod:`~fedward.methods.selffed.contrast`), and lowers a site's weight the more often it has taken
part (Sec. III-E). Eq. (4) is :func:`fedward.methods.mean_teacher.ema`.
"""
