"""What a view is and accepts, and a recipe of two."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedward.errors import DataError

View = Callable[[Tensor, torch.Generator], Tensor]
"""Makes one view of every image from images (N, C, H, W), float in [0, 1], C = 1 or 3, and a CPU
generator.

What comes back is a new tensor of the same shape, range, dtype and device. The same state of the
generator gives the same views on every device. N = 0 is fine. Images of another shape or dtype are
a DataError."""


def check(images: Tensor) -> None:
    """Raise DataError unless ``images`` is a float (N, C, H, W) with C = 1 or 3 and at least one
    pixel.
    """
    shape = tuple(images.shape)
    if (
        len(shape) != 4
        or shape[1] not in (1, 3)
        or not min(shape[2:])
        or not images.is_floating_point()
    ):
        expected = "float images (N, C, H, W) in [0, 1] with C = 1 or 3"
        found = f"{images.dtype} of shape {shape}"
        remedy = (
            "Convert the pixels first: uint8 (N, H, W, C) / 255, channels moved to dimension 1."
        )
        raise DataError("views", expected=expected, found=found, remedy=remedy)


class Views(NamedTuple):
    """The two views that a recipe makes of an image."""

    weak: View
    """Changes little: training images, and those that pseudo-labels are made on."""
    strong: View
    """Changes much: images that are trained towards pseudo-labels."""
