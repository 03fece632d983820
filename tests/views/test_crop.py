"""Random crops: exact pixels against a slow loop, and uniform positions.

Nothing is flipped unless asked for.
"""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Generator, Tensor

from fedward.views.crop import Draw, apply, crop, draw

grid = settings(max_examples=50)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=seeded(9))


def places(height: int, width: int) -> Tensor:
    """Return an image (1, 1, H, W) whose pixels all differ.

    Each has its place as its value, as a share of all places.
    """
    return torch.arange(height * width, dtype=torch.float64).view(1, 1, height, width) / (
        height * width
    )


def reflected(place: int, side: int) -> int:
    """Return the pixel seen at a place: one at a time back from the end that was passed."""
    if place < 0:
        return -place
    return place if place < side else 2 * (side - 1) - place


def slow_crop(image: Tensor, down: int, right: int, mirrored: bool) -> Tensor:
    """Return the crop of one image (C, H, W), pixel by pixel."""
    view = torch.empty_like(image)
    _, height, width = image.shape
    for y in range(height):
        for x in range(width):
            seen = width - 1 - x if mirrored else x
            view[:, y, x] = image[:, reflected(y + down, height), reflected(seen + right, width)]
    return view


def shapes() -> st.SearchStrategy[tuple[int, int, int, int]]:
    return st.tuples(
        st.integers(0, 5), st.sampled_from([1, 3]), st.integers(1, 24), st.integers(1, 24)
    )


@grid
@given(shapes(), st.integers(0, 2**32 - 1), st.booleans())
def test_every_pixel_is_that_of_a_slow_loop(
    shape: tuple[int, int, int, int], seed: int, flip: bool
) -> None:
    images = noise(*shape)
    down, right, mirrored = draw(shape, seeded(seed), flip)
    expected = [
        slow_crop(image, *moves)
        for image, *moves in zip(
            images, down.tolist(), right.tolist(), mirrored.tolist(), strict=True
        )
    ]
    views = crop(images, seeded(seed), flip=flip)
    assert views.shape == shape
    assert all(torch.equal(view, slow) for view, slow in zip(views, expected, strict=True))


def test_all_crops_of_a_row_worked_by_hand() -> None:
    """Seven pixels, so a shift of one at most: the neighbour of the end comes in again."""
    row = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    by_hand = {
        (0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.5),
    }
    images = row.view(1, 1, 1, 7).repeat(100, 1, 1, 1)
    for flip, expected in ((False, by_hand), (True, by_hand | {view[::-1] for view in by_hand})):
        views = crop(images, seeded(0), flip=flip)
        assert {
            tuple(round(pixel, 1) for pixel in view.flatten().tolist()) for view in views
        } == expected


def test_a_positive_shift_moves_the_window_down_and_right() -> None:
    image = noise(1, 3, 14, 21)
    drawn = Draw(torch.tensor([2]), torch.tensor([3]), torch.tensor([False]))
    assert torch.equal(apply(image, drawn)[..., :-2, :-3], image[..., 2:, 3:])


@grid
@given(st.integers(0, 2**32 - 1), st.integers(8, 30), st.integers(8, 30))
def test_upright_views_are_never_flipped(seed: int, height: int, width: int) -> None:
    """Right of the border, neighbours in a view are neighbours in the image, in the same order."""
    views = crop(places(height, width).repeat(32, 1, 1, 1), seeded(seed), flip=False)
    inner = views[..., height // 7 : height - height // 7, width // 7 : width - width // 7]
    assert bool((inner.diff(dim=3) > 0).all())
    assert bool((inner.diff(dim=2) > 0).all())


def test_flips_are_half_of_the_views_and_never_upside_down() -> None:
    views = crop(places(28, 28).repeat(2000, 1, 1, 1), seeded(0), flip=True)[:, 0, 4:-4, 4:-4]
    flipped = views.diff(dim=2) < 0
    assert bool((flipped.all((1, 2)) | ~flipped.any((1, 2))).all())
    assert 900 < flipped.all((1, 2)).sum() < 1100  # 2000 fair coins: 4.5 standard deviations
    assert bool((views.diff(dim=1) > 0).all())


def test_flip_changes_no_shift() -> None:
    images = noise(64, 3, 28, 28)
    upright = crop(images, seeded(3), flip=False)
    either = crop(images, seeded(3), flip=True)
    for one, other in zip(upright, either, strict=True):
        assert torch.equal(one, other) or torch.equal(one.flip(2), other)


@pytest.mark.parametrize("flip", [False, True])
def test_positions_are_uniform(flip: bool) -> None:
    """The centre pixel tells where the window was; 7 by 9 positions of a 21 by 29 picture."""
    height = 21
    width = 29
    count = 20_000
    views = crop(places(height, width).expand(count, 1, height, width), seeded(1), flip=flip)
    seen = (views[:, 0, height // 2, width // 2] * (height * width)).round().long()
    down = seen // width - height // 2
    right = seen % width - width // 2
    cells = torch.bincount((down + 3) * 9 + right + 4, minlength=63)
    assert len(cells) == 63
    assert stats.chisquare(cells.numpy()).pvalue > 0.01


def test_a_view_does_not_depend_on_the_other_images() -> None:
    images = noise(16, 3, 28, 28)
    others = noise(16, 3, 28, 28).flip(0)
    others[5] = images[5]
    assert torch.equal(crop(images, seeded(4), flip=True)[5], crop(others, seeded(4), flip=True)[5])


@pytest.mark.parametrize(
    "other",
    [
        lambda images: images.contiguous(memory_format=torch.channels_last),
        lambda images: images.transpose(2, 3).contiguous().transpose(2, 3),
        lambda images: images.repeat_interleave(2, 3)[..., ::2],
    ],
    ids=["channels last", "transposed", "strided"],
)
def test_the_layout_in_memory_does_not_matter(other: Callable[[Tensor], Tensor]) -> None:
    images = noise(6, 3, 28, 20)
    views = crop(other(images), seeded(5), flip=True)
    assert views.is_contiguous()
    assert torch.equal(views, crop(images, seeded(5), flip=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_pixels_keep_their_type_and_value(dtype: torch.dtype) -> None:
    images = noise(5, 1, 28, 28).to(dtype)
    views = crop(images, seeded(6), flip=True)
    assert views.dtype == dtype
    assert torch.equal(views.double(), crop(images.double(), seeded(6), flip=True))


@pytest.mark.parametrize("flip", [False, True])
def test_an_empty_batch_is_fine(flip: bool) -> None:
    views = crop(torch.empty(0, 3, 28, 28), seeded(0), flip=flip)
    assert views.shape == (0, 3, 28, 28)


@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (1, 6)])
def test_sides_below_seven_stay(shape: tuple[int, int]) -> None:
    images = noise(8, 3, *shape)
    assert torch.equal(crop(images, seeded(0), flip=False), images)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_exactly_the_same_views() -> None:
    images = noise(32, 3, 28, 28)
    on_gpu = crop(images.cuda(), seeded(6), flip=True)
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), crop(images, seeded(6), flip=True))
