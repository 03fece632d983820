"""The recipes of views, by what may happen to a picture without changing its label."""

import math

import torch
from torch import Tensor

from fedward.views.crop import crop
from fedward.views.filtered import filtered
from fedward.views.strong import strong
from fedward.views.types import Views
from fedward.views.weak import weak

OPS = 2
"""Operations of a strong view, as in RandAugment."""
TURN = math.radians(30)
"""Largest rotation of one operation, as in RandAugment. FedPerl's is a full turn."""


def _cropped(flip: bool) -> Views:
    """Return the views of FixMatch: a crop, and RandAugment after another crop."""

    def cropped(images: Tensor, generator: torch.Generator) -> Tensor:
        return crop(images, generator, flip=flip)

    def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
        return strong(cropped(images, generator), generator, OPS, TURN)

    return Views(cropped, augmented)


ROTATION_INVARIANT = Views(weak, strong)
"""The default, for pictures that look alike from all sides (dermoscopy, pathology).

They are flipped both ways and turned all the way round.
"""
MIRRORED = _cropped(flip=True)
"""For pictures whose left and right are alike (blood cells), with cheap crops, small rotations."""
UPRIGHT = _cropped(flip=False)
"""For pictures in which left and right differ: chest X-ray, CT.

They show on which side the heart or the liver is. Nothing is flipped. Here and in ``MIRRORED``,
a strong view's rotation is at most 30 degrees. One image in 169 draws a rotation twice.
"""
FILTERED = Views(filtered, strong)
"""As ``ROTATION_INVARIANT``, with FedAL's weak view: also scaled, blurred, noisy or smoothed."""
