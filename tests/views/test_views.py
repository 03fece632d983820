"""What every view promises: per-image draws, reproducible, in range, nothing else touched."""

import math

import pytest
import torch
from torch import Generator, Tensor

from fedward.errors import DataError
from fedward.views import VIEWS, View, alike, crop, strong, weak
from fedward.views.strong import COLOUR, GEOMETRIC, OPERATIONS, Draw, apply, draw

EVERY_VIEW = pytest.mark.parametrize("view", [view for recipe in VIEWS.values() for view in recipe])
BLENDED = pytest.mark.parametrize("view", [weak, strong])  # crops by whole pixels may well be equal


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def photo(count: int = 1, channels: int = 3, side: int = 32) -> Tensor:
    """Return images with structure at every scale, so that no operation leaves them as they are."""
    noise = torch.rand(count, channels, side, side, generator=seeded(9))
    ramp = torch.linspace(0, 1, side).view(1, 1, 1, side)
    return 0.1 + 0.35 * noise + 0.5 * ramp


@BLENDED
def test_sixteen_equal_images_give_sixteen_views(view: View) -> None:
    views = view(photo().repeat(16, 1, 1, 1), seeded(0))
    assert len(torch.unique(views.flatten(1), dim=0)) == 16


@BLENDED
def test_same_seed_same_views_and_another_seed_others(view: View) -> None:
    images = photo(8)
    first = view(images, seeded(1))
    assert torch.equal(first, view(images, seeded(1)))
    others = view(images, seeded(2))
    assert all(not torch.equal(a, b) for a, b in zip(first, others, strict=True))


@pytest.mark.parametrize("recipe", list(VIEWS))
def test_alike_varies_all_images_by_the_first_ones_draw(recipe: str) -> None:
    view = VIEWS[recipe].weak
    images = photo(1).repeat(5, 1, 1, 1)
    views = alike(view, images, seeded(1))
    assert torch.equal(views, view(images[:1], seeded(1)).expand_as(views))
    assert alike(view, images[:0], seeded(1)).shape == (0, 3, 32, 32)


@EVERY_VIEW
def test_consecutive_views_of_one_generator_differ(view: View) -> None:
    generator = seeded(1)
    images = photo(4)
    assert not torch.equal(view(images, generator), view(images, generator))


@EVERY_VIEW
@pytest.mark.parametrize(
    ("count", "channels", "dtype"),
    [(0, 3, torch.float32), (1, 1, torch.float64), (7, 3, torch.float32)],
)
def test_shape_dtype_range_and_layout(
    view: View, count: int, channels: int, dtype: torch.dtype
) -> None:
    images = photo(count, channels).to(dtype)[:, :, :24]
    before = images.clone()
    views = view(images, seeded(3))
    assert views.shape == images.shape
    assert views.dtype == dtype
    assert views.is_contiguous()
    assert bool(((views >= 0) & (views <= 1)).all())
    assert torch.equal(images, before)
    assert count == 0 or views.data_ptr() != images.data_ptr()


@EVERY_VIEW
def test_extreme_images_stay_in_range(view: View) -> None:
    for level in (0.0, 1.0):
        views = view(torch.full((64, 3, 16, 16), level), seeded(4))
        assert bool(((views >= 0) & (views <= 1)).all())


@EVERY_VIEW
def test_the_global_generator_is_not_used(view: View) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    view(photo(4), seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


@EVERY_VIEW
def test_other_tensors_are_refused(view: View) -> None:
    floats = [torch.zeros(shape) for shape in ((3, 8, 8), (2, 4, 8, 8), (2, 8, 8, 3), (2, 3, 0, 8))]
    for images in (*floats, torch.zeros(2, 3, 8, 8, dtype=torch.uint8)):
        with pytest.raises(DataError, match="views"):
            view(images, seeded(0))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@EVERY_VIEW
def test_a_gpu_gives_the_same_views(view: View) -> None:
    images = photo(32)
    on_gpu = view(images.cuda(), seeded(6)).cpu()
    # A pixel on the edge of a histogram level or threshold may fall to the other side.
    assert ((on_gpu - view(images, seeded(6))).abs() > 1e-3).float().mean() < 1e-3


def test_weak_keeps_a_constant_image() -> None:
    images = torch.full((16, 3, 20, 20), 0.3)
    torch.testing.assert_close(weak(images, seeded(0)), images)


def test_weak_flips_half_of_the_images_each_way() -> None:
    """A ramp keeps its direction under small turns and shifts, so its slope shows the flip."""
    ramp = torch.linspace(0, 1, 32).expand(400, 1, 32, 32)
    for images, axis in ((ramp, 3), (ramp.transpose(2, 3), 2)):
        views = weak(images, seeded(0))
        start, end = views.split(16, dim=axis)
        flipped = (end.mean((1, 2, 3)) < start.mean((1, 2, 3))).float().mean()
        assert 0.4 < flipped < 0.6  # 400 fair coins: 4 standard deviations


def test_weak_moves_a_blob_by_at_most_its_range() -> None:
    """A centred blob stays under turns and flips; shifts are 6 % of 50 pixels each way.

    After a turn it is at most 3 * sqrt(2) pixels away.
    """
    place = torch.arange(50) - 24.5
    blob = torch.exp(-(place[:, None] ** 2 + place**2) / 8).expand(200, 1, 50, 50)
    views = weak(blob, seeded(0))[:, 0]
    centre = torch.stack([views.sum(1) @ place, views.sum(2) @ place]) / views.sum((1, 2))
    assert 3.5 < centre.norm(dim=0).max() < 3 * 2**0.5 + 0.01
    assert bool((centre.amin(1) < -2.5).all())
    assert bool((centre.amax(1) > 2.5).all())


def test_strong_without_operations_is_the_image() -> None:
    images = photo(3)
    assert torch.equal(strong(images, seeded(0), ops=0), images)


def test_draws_cover_every_operation_and_the_whole_range() -> None:
    drawn = draw(2000, 6, seeded(0))
    counts = torch.bincount(drawn.operation.flatten(), minlength=len(OPERATIONS))
    assert len(counts) == 13
    # 12000 draws: 923 each expected, standard deviation 29.
    assert counts.min() > 790
    assert counts.max() < 1060
    assert drawn.strength.min() < -0.99
    assert drawn.strength.max() > 0.99
    assert drawn.strength.abs().max() <= 1
    assert abs(drawn.strength.mean().item()) < 0.03


def single(name: str, strength: float) -> Draw:
    return Draw(torch.tensor([[OPERATIONS.index(name)]]), torch.tensor([[strength]]))


def test_every_operation_changes_the_image() -> None:
    image = photo()
    # 0.9: a whole turn, strength 1, is the image again.
    same = [
        name
        for name in OPERATIONS
        if torch.allclose(apply(image, single(name, 0.9)), image, atol=1e-3)
    ]
    assert not same


@pytest.mark.parametrize(
    "name",
    [*GEOMETRIC, "posterize", "solarize", "saturation", "contrast", "brightness", "sharpness"],
)
def test_strength_zero_is_the_identity(name: str) -> None:
    image = (photo() * 255).round() / 255
    torch.testing.assert_close(apply(image, single(name, 0.0)), image)


@pytest.mark.parametrize(
    ("name", "strength", "value"),
    [
        ("saturation", 1.0, 1.9),
        ("saturation", -1.0, 0.1),
        ("contrast", -1.0, 0.5),
        ("brightness", 1.0, 1.3),
        ("sharpness", -0.5, 0.55),
        ("posterize", 1.0, 4.0),
        ("posterize", -1.0, 4.0),
        ("solarize", -1.0, 231 / 255),
    ],
)
def test_ranges_are_those_of_the_paper(name: str, strength: float, value: float) -> None:
    image = photo().clamp(0, 1)
    expected = COLOUR[name].apply(image, torch.tensor(value).view(1, 1, 1, 1))
    torch.testing.assert_close(apply(image, single(name, strength)), expected)


def test_geometric_ranges_are_those_of_the_paper() -> None:
    image = photo(side=20)
    torch.testing.assert_close(
        apply(image, single("rotate", 0.25)), image.rot90(-1, (2, 3)), rtol=0, atol=1e-4
    )
    moved = apply(image, single("translate_x", 1.0))  # 0.2 of 20 pixels
    torch.testing.assert_close(moved[..., :16], image[..., 4:], rtol=0, atol=1e-4)
    moved = apply(image, single("translate_y", -1.0))
    torch.testing.assert_close(moved[..., 4:, :], image[..., :16, :], rtol=0, atol=1e-4)


def test_turn_is_the_largest_rotation() -> None:
    image = photo(side=20)
    turned = apply(image, single("rotate", 1.0), turn=math.pi / 2)
    torch.testing.assert_close(turned, image.rot90(-1, (2, 3)), rtol=0, atol=1e-4)


def test_turn_scales_rotations_and_nothing_else() -> None:
    images = photo(64)
    drawn = draw(64, 2, seeded(0))
    rotated = (drawn.operation == OPERATIONS.index("rotate")).any(1)
    small = apply(images, drawn, turn=0.5)
    whole = apply(images, drawn)
    same = (small == whole).flatten(1).all(1)
    assert 0 < rotated.sum() < 64
    assert torch.equal(same, ~rotated)


def test_a_turn_of_nothing_leaves_the_picture_upright() -> None:
    image = photo()
    torch.testing.assert_close(apply(image, single("rotate", 0.9), turn=0.0), image)


def test_without_a_turn_strong_turns_all_the_way_round() -> None:
    images = photo(32)
    assert torch.equal(strong(images, seeded(0)), strong(images, seeded(0), 6, 2 * math.pi))
    assert not torch.equal(strong(images, seeded(0)), strong(images, seeded(0), turn=1.0))


def test_recipes_are_what_they_are_called() -> None:
    assert list(VIEWS) == ["rotation_invariant", "mirrored", "upright", "filtered"]
    assert VIEWS["rotation_invariant"] == (weak, strong)
    images = photo(32)
    for name, flip in (("mirrored", True), ("upright", False)):
        assert torch.equal(VIEWS[name].weak(images, seeded(1)), crop(images, seeded(1), flip=flip))
        generator = seeded(2)
        expected = strong(
            crop(images, generator, flip=flip), generator, ops=2, turn=math.radians(30)
        )
        assert torch.equal(VIEWS[name].strong(images, seeded(2)), expected)


def test_upright_views_keep_left_and_right() -> None:
    """A mark at the left stays there in every weak view, also after a strong view's turn."""
    image = torch.full((1, 1, 28, 28), 0.5)
    image[..., 13:15, 4:7] = 1.0
    views = VIEWS["upright"].weak(image.repeat(400, 1, 1, 1), seeded(0))
    operation = torch.full((400, 1), OPERATIONS.index("rotate"))
    turned = [
        apply(views, Draw(operation, torch.full((400, 1), way)), turn=math.radians(30))
        for way in (-1.0, 1.0)
    ]
    for marked in (views, *turned):
        left, right = marked.split(14, dim=3)
        assert bool((left.amax((1, 2, 3)) > 0.9).all())
        assert bool((right.amax((1, 2, 3)) < 0.6).all())


def test_operations_act_in_their_drawn_order() -> None:
    """Solarize and brightness give another picture in the other order."""
    image = photo().clamp(0, 1)
    names = ["brightness", "solarize"]
    strengths = [1.0, 1.0]
    drawn = Draw(
        torch.tensor([[OPERATIONS.index(name) for name in names]]), torch.tensor([strengths])
    )
    expected = apply(apply(image, single("brightness", 1.0)), single("solarize", 1.0))
    torch.testing.assert_close(apply(image, drawn), expected)
    swapped = Draw(drawn.operation.flip(1), drawn.strength.flip(1))
    assert not torch.allclose(apply(image, swapped), expected, atol=1e-3)


def test_geometry_comes_first_and_in_its_drawn_order() -> None:
    image = photo(side=20)
    names = ["rotate", "contrast", "translate_x"]
    drawn = Draw(
        torch.tensor([[OPERATIONS.index(name) for name in names]]), torch.tensor([[0.25, 1.0, 1.0]])
    )
    expected = image
    for name, strength in (("rotate", 0.25), ("translate_x", 1.0), ("contrast", 1.0)):
        expected = apply(expected, single(name, strength))
    torch.testing.assert_close(apply(image, drawn), expected, rtol=0, atol=1e-4)


def test_a_view_depends_on_its_own_draw_only() -> None:
    """Each image alone, and the batch in another order, give what the batch gives."""
    images = photo(24)
    drawn = draw(24, 6, seeded(8))
    views = apply(images, drawn)
    alone = [
        apply(images[i : i + 1], Draw(drawn.operation[i : i + 1], drawn.strength[i : i + 1]))
        for i in range(24)
    ]
    close = (torch.cat(alone) - views).abs() < 1e-5
    # Sums over another batch layout may differ in the last bit, which a histogram level can
    # magnify.
    assert close.float().mean() > 0.999
    order = torch.randperm(24, generator=seeded(1))
    permuted = apply(images[order], Draw(drawn.operation[order], drawn.strength[order]))
    assert ((permuted - views[order]).abs() < 1e-5).float().mean() > 0.999
