"""The recipes of views, by what may happen to a picture without changing its label."""

import math

import torch
from torch import Tensor

from fedward.views.crop import crop
from fedward.views.strong import strong
from fedward.views.types import Views
from fedward.views.weak import weak

OPS = 2
TURN = math.radians(30)  # RandAugment's own, of Cubuk et al., where FedPerl turns all the way round


def _cropped(flip: bool) -> Views:
    """Return a crop, and RandAugment on top of another such crop, as in FixMatch."""

    def light(images: Tensor, generator: torch.Generator) -> Tensor:
        return crop(images, generator, flip=flip)

    def heavy(images: Tensor, generator: torch.Generator) -> Tensor:
        return strong(light(images, generator), generator, OPS, TURN)

    return Views(light, heavy)


ROTATION_INVARIANT = Views(weak, strong)
"""The default: pictures without an up or a left (dermoscopy, pathology). They are flipped both ways
and turned all the way round."""
MIRRORED = _cropped(flip=True)
"""Left and right are alike, but crops are to be cheap and turns small (blood cells, BloodMNIST)."""
UPRIGHT = _cropped(flip=False)
"""Left and right mean something (chest X-ray, CT: the side of the heart or the liver). Nothing is
flipped.

In this one and the one before, a strong view's rotation turns by at most 30 degrees; one image in
169 draws it twice.
"""
