"""SelfFed: sites first learn to fill in hidden parts of their images, then train on their labels.

Khowaja, Dev, Anwar, Linguraru: *SelfFed: self-supervised federated learning for data heterogeneity
and label scarcity in IoMT*, arXiv 2307.01514. Phase 1 pre-trains a masked autoencoder at the sites
without labels (Sec. III-C, :mod:`~fedward.methods.selffed.masking`). Phase 2 fine-tunes its encoder
with labels at the sites, while the server contrasts two views of images of its own (Sec. III-D,
:mod:`~fedward.methods.selffed.contrast`), and lowers a site's weight the more often it has taken
part (Sec. III-E). Eq. (4) is :func:`fedward.methods.mean_teacher.ema`.
"""

from fedward.methods.mean_teacher import ema
from fedward.methods.selffed.algorithm import SelfFed, SelfFedState
from fedward.methods.selffed.contrast import enqueue, info_nce
from fedward.methods.selffed.masking import (
    denormalise_units,
    mask_units,
    masked_loss,
    normalise_units,
)
from fedward.methods.selffed.participation import gain_recession_weights
from fedward.methods.selffed.settings import SelfFedSettings

__all__ = [
    "SelfFed",
    "SelfFedSettings",
    "SelfFedState",
    "denormalise_units",
    "ema",
    "enqueue",
    "gain_recession_weights",
    "info_nce",
    "mask_units",
    "masked_loss",
    "normalise_units",
]
