"""What every view accepts."""

from torch import Tensor

from fedward.errors import DataError


def check(images: Tensor) -> None:
    """Raise DataError unless ``images`` is a float (N, C, H, W) with C = 1 or 3 and at least one pixel."""
    shape = tuple(images.shape)
    if len(shape) == 4 and shape[1] in (1, 3) and min(shape[2:]) > 0 and images.is_floating_point():
        return
    raise DataError(
        "views",
        expected="float images (N, C, H, W) in [0, 1] with C = 1 or 3",
        found=f"{images.dtype} of shape {shape}",
        remedy="Convert the pixels first: uint8 (N, H, W, C) / 255, channels moved to dimension 1.",
    )
