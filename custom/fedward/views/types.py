"""What a view is and accepts, and a recipe of two."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedward.errors import DataError

View = Callable[[Tensor, torch.Generator], Tensor]
"""Makes one view of every image.

It takes images (N, C, H, W), float in [0, 1], C = 1 or 3, N >= 0, and a generator on the CPU. It
returns a new tensor of the same shape, range, dtype and device. The same state of the generator
gives the same views on every device. For images of another shape or dtype it raises a DataError.
"""


def check(images: Tensor) -> None:
    """Raise DataError unless ``images`` are float (N, C, H, W) with C = 1 or 3, H and W above 0."""
    shape = tuple(images.shape)
    has_shape = len(shape) == 4 and shape[1] in (1, 3) and min(shape[2:]) > 0
    if not has_shape or not images.is_floating_point():
        raise DataError(
            "views",
            "Convert the pixels first: uint8 (N, H, W, C) / 255, channels moved to dimension 1.",
            expected="float images (N, C, H, W) in [0, 1] with C = 1 or 3",
            found=f"{images.dtype} of shape {shape}",
        )


class Views(NamedTuple):
    """The two views that a recipe makes of an image."""

    weak: View
    """Changes little: for labelled images, and for images from which pseudo-labels are made."""
    strong: View
    """Changes much: for images that are trained towards pseudo-labels."""
