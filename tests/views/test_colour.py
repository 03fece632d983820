"""Every photometric operation against Pillow, and against numbers worked by hand."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from fedward.views import colour

LEVEL = 1 / 255


def picture(
    channels: int, low: int = 30, high: int = 200, side: int = 40
) -> tuple[Tensor, Image.Image]:
    """Return the same uneven picture as a batch of one and as a Pillow image."""
    noise = np.random.default_rng(channels).integers(
        low, high, (side, side, channels), dtype=np.uint8
    )
    noise[: side // 2] = (
        noise[: side // 2] // 2 + 10
    )  # equalize and contrast need an uneven histogram
    tensor = torch.from_numpy(noise).permute(2, 0, 1)[None].float() / 255
    return tensor, Image.fromarray(noise.squeeze())


def as_tensor(image: Image.Image) -> Tensor:
    array = np.asarray(image, dtype=np.float32) / 255
    return torch.from_numpy(array).reshape(*array.shape[:2], -1).permute(2, 0, 1)[None]


def per_image(*values: float) -> Tensor:
    return torch.tensor(values).view(-1, 1, 1, 1)


ENHANCE = {
    "saturation": (colour.saturation, ImageEnhance.Color),
    "contrast": (colour.contrast, ImageEnhance.Contrast),
    "brightness": (colour.brightness, ImageEnhance.Brightness),
    "sharpness": (colour.sharpness, ImageEnhance.Sharpness),
}


@pytest.mark.parametrize(("factor", "channels"), [(0.1, 3), (1.0, 1), (1.4, 1), (1.9, 3)])
@pytest.mark.parametrize("name", ENHANCE)
def test_enhancements_are_pillows_up_to_its_rounding(
    name: str, factor: float, channels: int
) -> None:
    tensor, image = picture(channels)
    ours, theirs = ENHANCE[name]
    # Pillow rounds the base (grey, mean, smoothed) and the result: at most half a level times |1 -
    # factor|, plus one.
    expected = as_tensor(theirs(image).enhance(factor))
    torch.testing.assert_close(ours(tensor, per_image(factor)), expected, rtol=0, atol=2 * LEVEL)


@pytest.mark.parametrize("channels", [1, 3])
def test_autocontrast_is_pillows(channels: int) -> None:
    tensor, image = picture(channels)
    expected = as_tensor(ImageOps.autocontrast(image))
    torch.testing.assert_close(
        colour.autocontrast(tensor, per_image(0)), expected, rtol=0, atol=1.01 * LEVEL
    )


@pytest.mark.parametrize(("side", "channels"), [(15, 3), (16, 1), (28, 3), (64, 1)])
def test_equalize_is_pillows_exactly(side: int, channels: int) -> None:
    tensor, image = picture(channels, side=side)
    expected = as_tensor(ImageOps.equalize(image))
    torch.testing.assert_close(colour.equalize(tensor, per_image(0)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("threshold", [0, 100, 128, 200, 231, 256])
def test_solarize_is_pillows_exactly(threshold: int) -> None:
    tensor, image = picture(3, low=0, high=256)
    # Half a level below the threshold: on the threshold itself float division would decide.
    value = per_image((threshold - 0.5) / 255)
    torch.testing.assert_close(
        colour.solarize(tensor, value), as_tensor(ImageOps.solarize(image, threshold))
    )


@pytest.mark.parametrize("bits", range(1, 9))
def test_posterize_is_pillows_exactly(bits: int) -> None:
    tensor, image = picture(3, low=0, high=256)
    torch.testing.assert_close(
        colour.posterize(tensor, per_image(bits)), as_tensor(ImageOps.posterize(image, bits))
    )


def test_posterize_rounds_the_number_of_bits() -> None:
    tensor, _ = picture(3)
    torch.testing.assert_close(
        colour.posterize(tensor, per_image(5.4)),
        colour.posterize(tensor, per_image(5)),
        rtol=0,
        atol=0,
    )


def test_numbers_worked_by_hand() -> None:
    """Two grey pixels .2 and .6, mean .4.

    contrast .5: .4 -+ .1; brightness 2: .4 and 1.2 -> 1; solarize at .5: .2 and 1 - .6;
    autocontrast: 0 and 1; posterize to 1 bit: levels 51 and 153, masked with 128: 0 and 128.
    """
    pixels = torch.tensor([0.2, 0.6]).view(1, 1, 1, 2)
    cases = [
        (colour.contrast, 0.5, [0.3, 0.5]),
        (colour.brightness, 2.0, [0.4, 1.0]),
        (colour.solarize, 0.5, [0.2, 0.4]),
        (colour.autocontrast, 0.0, [0.0, 1.0]),
        (colour.posterize, 1.0, [0.0, 128 / 255]),
        (colour.saturation, 0.3, [0.2, 0.6]),
    ]
    for operation, value, expected in cases:
        torch.testing.assert_close(
            operation(pixels, per_image(value)).flatten(), torch.tensor(expected)
        )


def test_saturation_zero_is_the_luminance() -> None:
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    torch.testing.assert_close(
        colour.saturation(red, per_image(0)), torch.full((1, 3, 1, 1), 0.299)
    )


def test_each_image_has_its_own_value() -> None:
    pixels = torch.full((2, 3, 4, 4), 0.4)
    views = colour.brightness(pixels, per_image(0.5, 2.0))
    torch.testing.assert_close(views[:, 0, 0, 0], torch.tensor([0.2, 0.8]))


OPERATIONS = [
    colour.autocontrast,
    colour.equalize,
    colour.solarize,
    colour.posterize,
    colour.saturation,
    colour.contrast,
    colour.brightness,
    colour.sharpness,
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("shape", [(3, 3, 9, 7), (1, 1, 1, 1)])
def test_input_is_left_alone_and_output_stays_in_range(
    operation: object, shape: tuple[int, ...]
) -> None:
    images = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    before = images.clone()
    views = operation(images, torch.ones(len(images), 1, 1, 1))  # type: ignore[operator]
    assert torch.equal(images, before)
    assert views.shape == images.shape
    assert views.dtype == images.dtype
    assert views.data_ptr() != images.data_ptr()
    assert bool(((views >= 0) & (views <= 1)).all())


@pytest.mark.parametrize(
    "operation", [colour.autocontrast, colour.equalize, colour.sharpness, colour.contrast]
)
def test_a_constant_image_stays(operation: object) -> None:
    for level in (0.0, 51 / 255, 1.0):
        images = torch.full((2, 3, 20, 20), level)
        torch.testing.assert_close(operation(images, per_image(1.5, 0.5)), images)  # type: ignore[operator]
