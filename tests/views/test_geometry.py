"""Resampling against exact turns and shifts, and against scipy for the rest."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from fedward.views.geometry import affine, warp


def matrix(**values: float) -> Tensor:
    names = ("angle", "shear_x", "shear_y", "shift_x", "shift_y")
    return affine(*(torch.tensor([values.get(name, 0.0)]) for name in names))


@pytest.fixture
def images() -> Tensor:
    return torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_no_change_is_the_identity(images: Tensor) -> None:
    for fill in (None, 0.5):
        torch.testing.assert_close(warp(images, matrix(), fill), images)


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_positive_angle_turns_clockwise(images: Tensor, quarters: int) -> None:
    turned = warp(images, matrix(angle=quarters * math.pi / 2), 0.5)
    torch.testing.assert_close(turned, images.rot90(-quarters, (2, 3)), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("axis", "name"), [(3, "shift_x"), (2, "shift_y")])
def test_whole_pixel_shift_brings_in_the_fill(images: Tensor, axis: int, name: str) -> None:
    moved = warp(images, matrix(**{name: 2 / 8}), 0.5)
    kept, new = moved.split([6, 2], dim=axis)
    torch.testing.assert_close(kept, images.split([2, 6], dim=axis)[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(new, torch.full_like(new, 0.5), rtol=0, atol=1e-5)


def test_without_a_fill_the_border_is_mirrored(images: Tensor) -> None:
    moved = warp(images, matrix(shift_x=2 / 8))
    torch.testing.assert_close(moved[..., 6:], images[..., 6:].flip(3), rtol=0, atol=1e-5)


def test_shear_moves_each_row_by_its_height() -> None:
    """Shear 1 on a 4x4 image: rows lie at -1.5, -.5, .5 and 1.5 pixels.

    A 5-row image has whole offsets -2 to 2.
    """
    images = torch.rand(1, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    along_x = warp(images, matrix(shear_x=1.0), 0.0)
    along_y = warp(images, matrix(shear_y=1.0), 0.0)
    for index, offset in enumerate(range(-2, 3)):
        row = torch.zeros(5)
        column = torch.zeros(5)
        for place in range(5):
            if 0 <= place + offset < 5:
                row[place] = images[0, 0, index, place + offset]
                column[place] = images[0, 0, place + offset, index]
        torch.testing.assert_close(along_x[0, 0, index], row, rtol=0, atol=1e-5)
        torch.testing.assert_close(along_y[0, 0, :, index], column, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ((9, 9), {"angle": 0.4}),
        ((8, 12), {"angle": -2.0}),
        ((13, 6), {"shift_x": 0.13, "shift_y": -0.07}),
        ((8, 12), {"angle": 0.3, "shift_x": 0.1}),
    ],
)
def test_interpolation_is_scipys(shape: tuple[int, int], values: dict[str, float]) -> None:
    """Also on images that are not square: a turn is made in pixels, a shift in sides."""
    height, width = shape
    image = torch.rand(1, 1, height, width, generator=torch.Generator().manual_seed(3))
    angle = values.get("angle", 0.0)
    linear = np.array(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    )  # (y, x) order
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    shift = np.array([values.get("shift_y", 0.0) * height, values.get("shift_x", 0.0) * width])
    expected = ndimage.affine_transform(
        image[0, 0].numpy(),
        linear,
        centre - linear @ centre + shift,
        order=1,
        mode="grid-constant",
        cval=0.5,
    )
    ours = warp(image, matrix(**values), 0.5)[0, 0]
    torch.testing.assert_close(ours, torch.from_numpy(expected), rtol=0, atol=1e-4)


def test_a_product_of_matrices_is_one_operation_after_the_other() -> None:
    """A quarter turn, then a shift by a quarter of the side: one resampling equals two."""
    images = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    turn = matrix(angle=math.pi / 2)
    shift = matrix(shift_x=0.25)
    both = warp(warp(images, turn, 0.5), shift, 0.5)
    torch.testing.assert_close(warp(images, turn @ shift, 0.5), both, rtol=0, atol=1e-4)


def test_an_empty_batch_and_a_single_pixel() -> None:
    assert warp(torch.empty(0, 3, 5, 5), matrix()[:0]).shape == (0, 3, 5, 5)
    torch.testing.assert_close(
        warp(torch.full((1, 1, 1, 1), 0.3), matrix()), torch.full((1, 1, 1, 1), 0.3)
    )
