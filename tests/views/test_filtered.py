"""FedAL's weak view: each filter against a slow loop, and how often each is drawn."""

import math

import pytest
import torch
from torch import Generator, Tensor

from fedward.views import VIEWS
from fedward.views.filtered import DEVIATIONS, FILTERS, Draw, apply, blur, draw, filtered, median

PHOTO = torch.rand(3, 2, 7, 9, generator=Generator().manual_seed(1), dtype=torch.float64)


def at(image: Tensor, channel: int, row: int, column: int) -> float:
    """Return a pixel; beyond the border, the nearest one."""
    _, height, width = image.shape
    row = min(max(row, 0), height - 1)
    column = min(max(column, 0), width - 1)
    return float(image[channel, row, column])


def slow(image: Tensor, window: int, kind: str) -> Tensor:
    """Return the blur or the median of one image (C, H, W), pixel by pixel."""
    reach = window // 2
    result = torch.empty_like(image)
    for channel, row, column in torch.cartesian_prod(*map(torch.arange, image.shape)).tolist():
        values = []
        weights = []
        for down in range(-reach, reach + 1):
            for right in range(-reach, reach + 1):
                values.append(at(image, channel, row + down, column + right))
                distance = down**2 + right**2
                weights.append(math.exp(-distance / (2 * DEVIATIONS[window] ** 2)))
        if kind == "median":
            result[channel, row, column] = sorted(values)[len(values) // 2]
        else:
            total = sum(weight * value for weight, value in zip(weights, values, strict=True))
            result[channel, row, column] = total / sum(weights)
    return result


@pytest.mark.parametrize("window", [3, 5])
def test_blur_and_median_are_those_of_a_slow_loop(window: int) -> None:
    expected = torch.stack([slow(image, window, "blur") for image in PHOTO])
    torch.testing.assert_close(blur(PHOTO, window), expected)
    expected = torch.stack([slow(image, window, "median") for image in PHOTO])
    assert torch.equal(median(PHOTO, window), expected)


def test_each_image_gets_the_filter_that_was_drawn_for_it() -> None:
    images = torch.rand(5, 1, 6, 6, generator=Generator().manual_seed(2), dtype=torch.float64)
    noise = torch.randn(5, 1, 6, 6, generator=Generator().manual_seed(3), dtype=torch.float64)
    kinds = [-1, FILTERS.index("blur"), FILTERS.index("noise"), FILTERS.index("median"), -1]
    drawn = Draw(torch.tensor(kinds), torch.tensor([3, 5, 3, 3, 5]), torch.full((5,), 0.04))
    views = apply(images, drawn, noise)
    assert torch.equal(views[[0, 4]], images[[0, 4]])
    assert torch.equal(views[1:2], blur(images[1:2], 5))
    torch.testing.assert_close(views[2], (images[2] + 0.2 * noise[2]).clamp(0, 1))
    assert torch.equal(views[3:4], median(images[3:4], 3))


def test_draws_are_seven_in_ten_and_even_among_filters_and_windows() -> None:
    even = (torch.arange(6000) + 0.5) / 6000
    drawn = draw(even, even, even)
    counts = torch.bincount(drawn.filter + 1, minlength=4)
    assert counts.tolist() == [1800, 1400, 1400, 1400]
    assert torch.bincount(drawn.window, minlength=6).tolist() == [0, 0, 0, 3000, 0, 3000]
    deviations = drawn.variance.sqrt() * 255
    assert deviations.min() == pytest.approx(math.sqrt(5), rel=1e-3)
    assert deviations.max() == pytest.approx(math.sqrt(30), rel=1e-3)


def test_pictures_are_scaled_both_ways() -> None:
    """A disc in the middle keeps its centre under flips and turns, so its area shows the scale."""
    side = 64
    place = torch.arange(side) - (side - 1) / 2
    disc = ((place[:, None] ** 2 + place**2) < 15**2).float()
    views = filtered(disc.expand(300, 1, side, side), Generator().manual_seed(4))
    scale = (views.sum((1, 2, 3)) / disc.sum()).sqrt()
    assert 0.88 < scale.min() < 0.92
    assert 1.08 < scale.max() < 1.12
    assert VIEWS["filtered"].weak is filtered
