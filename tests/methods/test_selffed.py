"""Equations of fedward.methods.selffed."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.averages import weighted_average
from fedward.methods.mean_teacher import ema
from fedward.methods.selffed.contrast import enqueue, info_nce
from fedward.methods.selffed.masking import (
    denormalise_units,
    mask_units,
    masked_loss,
    normalise_units,
)
from fedward.methods.selffed.participation import gain_recession_weights

NAN = math.nan
INF = math.inf
grid = settings(deadline=None, max_examples=50)


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=draws(seed), dtype=torch.float64)


# --- mask_units


@pytest.mark.parametrize(
    ("side", "ratio", "hidden"),
    [
        (14, 0.6, 118),  # 117.6, of the paper's 196 units
        (14, 0.3, 59),  # 58.8
        (10, 0.07, 7),  # 0.07 * 100 is 7.000000000000001 in floating point
        (10, 0.9, 90),  # and (1 - 0.9) * 100 is 9.999999999999998
        (3, 0.01, 1),
        (4, 0.0, 0),
        (4, 1.0, 16),
        (1, 0.5, 1),
    ],
)
def test_masks_of_the_papers_size_and_others(side: int, ratio: float, hidden: int) -> None:
    masks = mask_units(5, side, ratio, draws(0))
    assert masks.shape == (5, side, side)
    assert masks.dtype == torch.bool
    assert masks.sum(dim=(1, 2)).tolist() == [hidden] * 5


@grid
@given(
    batch=st.integers(0, 4),
    side=st.integers(1, 16),
    percent=st.integers(0, 100),
    seed=st.integers(0, 10_000),
)
def test_masks_hide_the_exact_share_rounded_up(
    batch: int, side: int, percent: int, seed: int
) -> None:
    masks = mask_units(batch, side, percent / 100, draws(seed))
    assert masks.shape == (batch, side, side)
    expected = math.ceil(Fraction(percent, 100) * side * side)
    assert masks.sum(dim=(1, 2)).tolist() == [expected] * batch


def test_every_set_of_units_is_equally_likely() -> None:
    """2 of 4 units: 6 sets, each expected 1000 times in 6000; 5 standard deviations are 144."""
    masks = mask_units(6000, 2, 0.5, draws(1)).reshape(-1, 4)
    codes = (masks * torch.tensor([1, 2, 4, 8])).sum(dim=1)
    values, counts = codes.unique(return_counts=True)
    assert values.tolist() == [3, 5, 6, 9, 10, 12]
    assert bool(((counts - 1000).abs() < 144).all())


def test_masks_depend_on_the_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = mask_units(3, 8, 0.6, draws(4))
    torch.rand(3)
    assert torch.equal(mask_units(3, 8, 0.6, draws(4)), first)
    torch.set_rng_state(before)
    generator = draws(4)
    assert torch.equal(mask_units(3, 8, 0.6, generator), first)
    assert not torch.equal(mask_units(3, 8, 0.6, generator), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first[0], first[1])


def test_masks_for_a_seed() -> None:
    """Golden: another order of draws would silently change every published run."""
    mask = mask_units(2, 3, 0.5, draws(7)).int().tolist()
    assert mask == [[[1, 1, 0], [0, 1, 0], [0, 1, 1]], [[0, 1, 1], [1, 0, 1], [1, 0, 0]]]


@pytest.mark.parametrize(
    ("batch", "side", "ratio"), [(-1, 2, 0.5), (1, 0, 0.5), (1, 2, -0.1), (1, 2, 1.1), (1, 2, NAN)]
)
def test_impossible_masks_are_refused(batch: int, side: int, ratio: float) -> None:
    with pytest.raises(ConfigError, match="ratio in"):
        mask_units(batch, side, ratio, draws(0))


def test_masks_refuse_another_devices_generator() -> None:
    class Elsewhere:
        device = torch.device("cuda")

    with pytest.raises(ConfigError, match="a generator on cuda"):
        mask_units(1, 2, 0.5, Elsewhere())  # type: ignore[arg-type]


# --- normalise_units


def test_units_are_normalised_by_hand() -> None:
    """(0, 0, 2, 2) has mean 1 and variance 1; the constant unit becomes 0."""
    image = torch.tensor([[[[0.0, 2.0, 5.0, 5.0], [0.0, 2.0, 5.0, 5.0]]]]).repeat(1, 1, 2, 1)
    relative = normalise_units(image, 2)
    one = 1 / math.sqrt(1 + 1e-6)
    assert relative[0, 0, 0].tolist() == pytest.approx([-one, one, 0, 0], rel=1e-6)
    assert relative.dtype == torch.float32


@grid
@given(
    batch=st.integers(0, 3),
    channels=st.integers(1, 3),
    side=st.integers(1, 3),
    height=st.integers(1, 4),
    width=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
def test_normalised_units_equal_a_loop(
    batch: int, channels: int, side: int, height: int, width: int, seed: int
) -> None:
    images = normal(batch, channels, side * height, side * width, seed=seed)
    expected = torch.empty_like(images)
    for image in range(batch):
        for row in range(0, side * height, height):
            for column in range(0, side * width, width):
                rows = slice(row, row + height)
                columns = slice(column, column + width)
                unit = images[image, :, rows, columns]
                values = unit.flatten().tolist()
                mean = math.fsum(values) / len(values)
                variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
                expected[image, :, rows, columns] = (unit - mean) / math.sqrt(variance + 1e-6)
    relative = normalise_units(images, side).double()
    torch.testing.assert_close(relative, expected, rtol=1e-4, atol=1e-4)


def test_normalised_units_forget_brightness_and_contrast() -> None:
    images = normal(2, 3, 8, 8).float()
    brighter = normalise_units(5 * images + 3, 2)
    torch.testing.assert_close(brighter, normalise_units(images, 2), rtol=1e-4, atol=1e-4)


def test_a_broken_pixel_stays_in_its_unit() -> None:
    images = torch.rand(1, 2, 4, 4, generator=draws(0), requires_grad=True)
    relative = normalise_units(images.where(torch.arange(4) > 0, NAN), 2)
    assert relative[..., :2].isnan().all()
    assert relative[..., 2:].isfinite().all()
    assert not relative.requires_grad


@grid
@given(
    batch=st.integers(0, 3),
    channels=st.integers(1, 3),
    side=st.integers(1, 3),
    height=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
def test_denormalised_units_are_the_images_again(
    batch: int, channels: int, side: int, height: int, seed: int
) -> None:
    images = normal(batch, channels, side * height, side * (height + 1), seed=seed).float()
    restored = denormalise_units(normalise_units(images, side), images, side)
    torch.testing.assert_close(restored, images, rtol=1e-4, atol=1e-4)


def test_relative_pixels_by_hand() -> None:
    """One unit has mean 1 and deviation 1; a constant unit is predicted as 0 everywhere."""
    image = torch.tensor([[[[0.0, 2.0, 5.0, 5.0], [0.0, 2.0, 5.0, 5.0]]]]).repeat(1, 1, 2, 1)
    pixels = denormalise_units(torch.full_like(image, 3.0), image, 2)
    assert pixels[0, 0, 0].tolist() == pytest.approx([4, 4, 5.003, 5.003], rel=1e-5)


def test_relative_pixels_of_other_images_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"relative pixels \(1, 3, 4, 4\), found \(2, 3, 4, 4\)"):
        denormalise_units(torch.zeros(2, 3, 4, 4), torch.zeros(1, 3, 4, 4), 2)


# --- masked_loss


def plain_masked_loss(prediction: Tensor, target: Tensor, mask: Tensor) -> float:
    """Return eq. (3) with MAE's mean over a unit: the mean over hidden units of their error."""
    batch, channels, height, width = prediction.shape
    side = mask.shape[1]
    units = []
    for image in range(batch):
        for row in range(side):
            for column in range(side):
                if not mask[image, row, column]:
                    continue
                total = 0.0
                count = 0
                for channel in range(channels):
                    for y in range(row * height // side, (row + 1) * height // side):
                        for x in range(column * width // side, (column + 1) * width // side):
                            place = image, channel, y, x
                            total += (prediction[place].item() - target[place].item()) ** 2
                            count += 1
                units.append(total / count)
    return math.fsum(units) / len(units) if units else 0.0


def test_masked_loss_by_hand() -> None:
    """Of 2x2 units of 1x2 pixels the first and the last are hidden.

    Errors 1, 3 and 0, 2: (1 + 9 + 0 + 4) / 4 = 3.5. The gradient is 2 (x̂ - x) / 4 there: 1/2, 3/2,
    0, -1; 0 elsewhere.
    """
    prediction = torch.tensor([[[[1.0, 3.0, 7.0, 7.0], [9.0, 9.0, 0.0, -2.0]]]], requires_grad=True)
    target = torch.zeros(1, 1, 2, 4, requires_grad=True)
    loss = masked_loss(prediction, target, torch.tensor([[[True, False], [False, True]]]))
    loss.backward()
    assert loss.item() == 3.5
    assert prediction.grad is not None
    assert prediction.grad.tolist() == [[[[0.5, 1.5, 0, 0], [0, 0, 0, -1.0]]]]
    assert target.grad is None


shapes = st.tuples(
    st.integers(0, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)
)


@grid
@given(shape=shapes, seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.3, 0.6, 1.0]))
def test_masked_loss_equals_a_loop(
    shape: tuple[int, int, int, int, int], seed: int, share: float
) -> None:
    batch, channels, side, height, width = shape
    size = (batch, channels, side * height, side * width)
    prediction = normal(*size, seed=seed).float().requires_grad_()
    target = normal(*size, seed=seed + 1).float()
    # The number of hidden units differs between images.
    mask = torch.rand(batch, side, side, generator=draws(seed)) < share
    loss = masked_loss(prediction, target, mask)
    assert loss.shape == ()
    expected = plain_masked_loss(prediction, target, mask)
    assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-7)
    loss.backward()
    pixels = mask[:, None, :, None, :, None]
    pixels = pixels.expand(-1, channels, -1, height, -1, width).reshape(size)
    slope = 2 * (prediction.detach() - target) * pixels / max(int(pixels.sum()), 1)
    assert prediction.grad is not None
    torch.testing.assert_close(prediction.grad, slope, rtol=1e-5, atol=1e-7)


def test_with_everything_hidden_it_is_the_mean_squared_error() -> None:
    prediction = normal(2, 3, 8, 8).float()
    target = normal(2, 3, 8, 8, seed=1).float()
    everything = torch.ones(2, 4, 4, dtype=torch.bool)
    torch.testing.assert_close(
        masked_loss(prediction, target, everything), nn.functional.mse_loss(prediction, target)
    )
    assert masked_loss(target, target, everything).item() == 0


@grid
@given(seed=st.integers(0, 10_000), data=st.data())
def test_masked_loss_invariances(seed: int, data: st.DataObject) -> None:
    prediction = normal(4, 3, 6, 6, seed=seed).float()
    target = normal(4, 3, 6, 6, seed=seed + 1).float()
    mask = mask_units(4, 3, 0.5, draws(seed))
    loss = masked_loss(prediction, target, mask)
    images = torch.tensor(data.draw(st.permutations(range(4))))
    channels = torch.tensor(data.draw(st.permutations(range(3))))
    moved = masked_loss(prediction[images][:, channels], target[images][:, channels], mask[images])
    torch.testing.assert_close(moved, loss)
    pixels = mask.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    assert torch.equal(masked_loss(prediction, target, pixels), loss)
    torch.testing.assert_close(
        masked_loss(prediction + 5, target + 5, mask), loss, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(masked_loss(3 * prediction, 3 * target, mask), 9 * loss)


@pytest.mark.parametrize("batch", [0, 2])
def test_nothing_hidden_is_nothing_to_learn(batch: int) -> None:
    prediction = torch.rand(batch, 3, 4, 4, requires_grad=True)
    nothing_hidden = torch.zeros(batch, 2, 2, dtype=torch.bool)
    loss = masked_loss(prediction, torch.rand(batch, 3, 4, 4), nothing_hidden)
    loss.backward()
    assert loss.item() == 0
    assert prediction.grad is not None
    assert torch.equal(prediction.grad, torch.zeros(batch, 3, 4, 4))


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_broken_pixel_is_noticed_where_it_is_hidden_alone(value: float) -> None:
    mask = torch.tensor([[[True, False], [False, False]]])
    for column, finite in ((0, False), (1, True)):
        prediction = torch.zeros(1, 1, 2, 2)
        prediction[0, 0, 0, column] = value
        loss = masked_loss(prediction.requires_grad_(), torch.ones(1, 1, 2, 2), mask)
        assert bool(loss.isfinite()) is finite
    loss.backward()
    assert prediction.grad is not None
    assert prediction.grad.tolist() == [[[[-2, 0], [0, 0]]]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_masked_loss_is_computed_in_float32(dtype: torch.dtype) -> None:
    """The loss of rounded numbers is exact; with 8 bits its third digit would be wrong."""
    prediction = normal(2, 3, 8, 8).to(dtype).requires_grad_()
    target = normal(2, 3, 8, 8, seed=1).to(dtype)
    mask = mask_units(2, 4, 0.6, draws(0))
    with torch.autocast("cpu", torch.bfloat16):
        loss = masked_loss(prediction, target, mask)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(plain_masked_loss(prediction, target, mask), rel=1e-6)
    loss.backward()
    assert prediction.grad is not None
    assert prediction.grad.dtype == dtype


def test_the_masked_loss_does_not_wait_for_the_device() -> None:
    """A meta tensor has no values: reading one, or a shape that depends on one, would raise."""
    prediction = torch.rand(2, 3, 8, 8, device="meta", requires_grad=True)
    mask = torch.ones(2, 4, 4, dtype=torch.bool, device="meta")
    target = normalise_units(torch.rand(2, 3, 8, 8, device="meta"), 4)
    masked_loss(prediction, target, mask).backward()
    assert prediction.grad is not None


@pytest.mark.parametrize(
    ("prediction", "target", "mask"),
    [
        ((2, 3, 8, 8), (2, 3, 8, 8), (2, 3, 3)),
        ((2, 3, 8, 8), (2, 3, 8, 8), (1, 4, 4)),
        ((2, 3, 8, 8), (2, 3, 8, 8), (2, 4, 2)),
        ((2, 3, 8, 8), (2, 3, 8, 8), (2, 16)),
        ((2, 3, 8, 8), (2, 3, 8, 8), (2, 0, 0)),
        ((2, 3, 8, 8), (2, 3, 8, 8), (2, 16, 16)),
        ((2, 3, 8, 8), (2, 1, 8, 8), (2, 4, 4)),
        ((2, 0, 8, 8), (2, 0, 8, 8), (2, 4, 4)),
        ((3, 8, 8), (3, 8, 8), (3, 4, 4)),
    ],
)
def test_masks_of_other_images_are_refused(
    prediction: tuple[int, ...], target: tuple[int, ...], mask: tuple[int, ...]
) -> None:
    with pytest.raises(ConfigError, match="masked_loss"):
        masked_loss(
            torch.zeros(prediction), torch.zeros(target), torch.ones(mask, dtype=torch.bool)
        )


def test_masks_of_integers_are_refused() -> None:
    image = torch.zeros(1, 1, 2, 2)
    with pytest.raises(ConfigError, match=r"torch\.int64"):
        masked_loss(image, image, torch.ones(1, 2, 2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("shape", "side"), [((1, 3, 8, 8), 3), ((1, 3, 8, 8), 0), ((3, 8, 8), 2), ((), 1)]
)
def test_images_that_cannot_be_cut_into_units_are_refused(
    shape: tuple[int, ...], side: int
) -> None:
    images = torch.zeros(shape)
    with pytest.raises(ConfigError, match=r"selffed\.normalise_units"):
        normalise_units(images, side)
    with pytest.raises(ConfigError, match=r"selffed\.denormalise_units"):
        denormalise_units(images, images, side)


# --- info_nce


def plain_info_nce(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> float:
    """Return eq. (5) by loops, with the positive pair in the denominator, in Python's float64."""

    def cosine(one: list[float], other: list[float]) -> float:
        lengths = math.hypot(*one) * math.hypot(*other)
        return math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths

    total = 0.0
    for q, k in zip(query.tolist(), key.tolist(), strict=True):
        positive = math.exp(cosine(q, k) / temperature)
        negatives = math.fsum(math.exp(cosine(q, other) / temperature) for other in queue.tolist())
        total -= math.log(positive / (positive + negatives))
    return total / len(query)


def test_info_nce_by_hand() -> None:
    """q = (1, 0), k = (2, 0), queue (0, 3), (-1, 0), μ = 1/2: similarities 1, 0, -1.

    The loss is log(1 + e^-2 + e^-4). Of its gradient at q only the part across q is left:
    (1/μ) Σ_j p_j k_j = 2 p_1 (0, 1), p_1 = e^-2 / (1 + e^-2 + e^-4).
    """
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    key = torch.tensor([[2.0, 0.0]])
    queue = torch.tensor([[0.0, 3.0], [-1.0, 0.0]])
    loss = info_nce(query, key, queue, 0.5)
    loss.backward()
    whole = 1 + math.exp(-2) + math.exp(-4)
    assert loss.item() == pytest.approx(math.log(whole), rel=1e-14)
    assert query.grad is not None
    expected = [0, 2 * math.exp(-2) / whole]
    assert query.grad[0].tolist() == pytest.approx(expected, rel=1e-14, abs=1e-15)


sizes = st.tuples(st.integers(1, 5), st.integers(0, 7), st.integers(1, 6), st.integers(0, 10_000))
"""N images, Q keys in the queue, D dimensions, and a seed."""


def views(images: int, older: int, width: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a query, a key and a queue."""
    query = normal(images, width, seed=seed)
    key = normal(images, width, seed=seed + 1)
    queue = normal(older, width, seed=seed + 2)
    return query, key, queue


@grid
@given(size=sizes, temperature=st.sampled_from([0.07, 0.2, 1.0, 10.0]))
def test_info_nce_equals_a_loop(size: tuple[int, int, int, int], temperature: float) -> None:
    query, key, queue = views(*size)
    loss = info_nce(query, key, queue, temperature)
    assert loss.shape == ()
    expected = plain_info_nce(query, key, queue, temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert -1e-12 <= loss.item() <= math.log(size[1] + 1) + 2 / temperature


@grid
@given(size=sizes, seed=st.integers(0, 99))
def test_keys_of_the_image_itself_are_no_negatives(
    size: tuple[int, int, int, int], seed: int
) -> None:
    """The loss is that of each query alone, with a queue that lacks its own keys."""
    query, key, queue = views(*size)
    query.requires_grad_()
    is_own_key = torch.rand(size[0], size[1], generator=draws(seed)) < 0.5
    loss = info_nce(query, key, queue, 0.2, is_own_key)
    alone = [info_nce(query[[n]], key[[n]], queue[~is_own_key[n]], 0.2) for n in range(size[0])]
    torch.testing.assert_close(loss, torch.stack(alone).mean())
    (gradient,) = torch.autograd.grad(loss, query, retain_graph=True)
    (expected,) = torch.autograd.grad(torch.stack(alone).mean(), query)
    torch.testing.assert_close(gradient, expected)


def test_an_image_with_only_its_own_keys_has_no_negatives() -> None:
    query, key, queue = views(3, 4, 5, 0)
    loss = info_nce(query.requires_grad_(), key, queue, 0.2, torch.ones(3, 4, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert query.grad is not None
    assert not query.grad.any()


def test_info_nce_refuses_a_mask_of_another_shape() -> None:
    with pytest.raises(ConfigError, match=r"own \(1, 4\)"):
        info_nce(*views(3, 4, 5, 0), 0.2, torch.ones(1, 4, dtype=torch.bool))


@grid
@given(size=sizes, data=st.data())
def test_info_nce_invariances(size: tuple[int, int, int, int], data: st.DataObject) -> None:
    query, key, queue = views(*size)
    loss = info_nce(query, key, queue, 0.2)
    images, older, axes = (
        torch.tensor(data.draw(st.permutations(range(n))), dtype=torch.int64) for n in size[:3]
    )
    moved = info_nce(query[images][:, axes], key[images][:, axes], queue[older][:, axes], 0.2)
    torch.testing.assert_close(moved, loss)
    lengths = torch.rand(size[0], 1, generator=draws(size[3]), dtype=torch.float64) + 0.1
    torch.testing.assert_close(info_nce(lengths * query, 7 * key, 0.3 * queue, 0.2), loss)
    turn = torch.linalg.qr(normal(size[2], size[2], seed=size[3]))[0]
    torch.testing.assert_close(info_nce(query @ turn, key @ turn, queue @ turn, 0.2), loss)
    alone = [info_nce(query[[n]], key[[n]], queue, 0.2) for n in range(size[0])]
    torch.testing.assert_close(torch.stack(alone).mean(), loss)


def test_negatives_all_alike_are_a_choice_by_chance() -> None:
    query = normal(1, 4)
    loss = info_nce(query, query, query.expand(9, -1), 0.1)
    assert loss.item() == pytest.approx(math.log(10), rel=1e-12)


def test_more_negatives_and_worse_positives_cost_more() -> None:
    query, key, queue = views(4, 9, 5, 3)
    losses = [info_nce(query, key, queue[:older], 0.2).item() for older in range(10)]
    assert losses == sorted(losses)
    with_perfect_positives = info_nce(query, query, queue, 0.2).item()
    with_opposite_positives = info_nce(query, -query, queue, 0.2).item()
    assert with_perfect_positives < losses[-1] < with_opposite_positives


@pytest.mark.parametrize(("images", "older"), [(3, 0), (0, 4), (0, 0)])
def test_nothing_to_tell_apart_is_zero_with_a_gradient_of_zero(images: int, older: int) -> None:
    query = torch.rand(images, 4, requires_grad=True)
    loss = info_nce(query, torch.rand(images, 4), torch.rand(older, 4), 0.1)
    loss.backward()
    assert loss.item() == 0
    assert query.grad is not None
    assert torch.equal(query.grad, torch.zeros(images, 4))


def test_info_nce_gradient_by_finite_differences() -> None:
    query, key, queue = views(3, 5, 4, 1)
    assert torch.autograd.gradcheck(lambda x: info_nce(x, key, queue, 0.5), query.requires_grad_())


def test_info_nce_gradient_reaches_the_query_alone() -> None:
    query, key, queue = (tensor.requires_grad_() for tensor in views(3, 5, 4, 1))
    info_nce(query, key, queue, 0.5).backward()
    assert query.grad is not None
    assert query.grad.abs().sum() > 0
    # The length of a query does not matter.
    along_the_query = (query.grad * query).sum(dim=1)
    assert along_the_query.abs().max() < 1e-12
    assert key.grad is None
    assert queue.grad is None


def test_vectors_of_zeros_are_similar_to_nothing() -> None:
    query = torch.zeros(1, 3, requires_grad=True)
    loss = info_nce(query, torch.ones(1, 3), torch.stack([torch.ones(3), torch.zeros(3)]), 0.1)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(3), rel=1e-6)
    assert query.grad is not None
    assert query.grad.isfinite().all()
    assert query.grad.abs().max() < 100


def test_a_small_temperature_neither_overflows_nor_forgets() -> None:
    query = torch.tensor([[1.0, 0.0]], requires_grad=True)
    queue = torch.tensor([[0.0, 1.0]])
    loss = info_nce(query, torch.tensor([[-1.0, 0.0]]), queue, 1e-5)
    loss.backward()
    assert loss.item() == pytest.approx(1e5, rel=1e-6)
    assert query.grad is not None
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_info_nce_is_not_rounded_by_autocast(dtype: torch.dtype) -> None:
    query, key, queue = (tensor.to(dtype) for tensor in views(4, 64, 32, 2))
    with torch.autocast("cpu", torch.bfloat16):
        loss = info_nce(query, key, queue, 0.07)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(info_nce(query.double(), key, queue, 0.07).item(), rel=1e-5)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_info_nce_notices_a_broken_net(value: float, broken: int) -> None:
    tensors = views(2, 3, 4, 0)
    tensors[broken][1, 2] = value
    assert info_nce(*tensors, 0.1).isnan()


@pytest.mark.parametrize(
    ("query", "key", "queue", "temperature"),
    [
        ((2, 3), (2, 4), (5, 3), 0.1),
        ((2, 3), (3, 3), (5, 3), 0.1),
        ((2, 3), (2, 3), (5, 4), 0.1),
        ((2, 3), (2, 3), (3,), 0.1),
        ((2, 0), (2, 0), (5, 0), 0.1),
        ((3,), (3,), (5, 3), 0.1),
        ((2, 3), (2, 3), (5, 3), 0.0),
        ((2, 3), (2, 3), (5, 3), -1.0),
        ((2, 3), (2, 3), (5, 3), NAN),
        ((2, 3), (2, 3), (5, 3), INF),
    ],
)
def test_info_nce_refuses_shapes_that_do_not_match(
    query: tuple[int, ...], key: tuple[int, ...], queue: tuple[int, ...], temperature: float
) -> None:
    with pytest.raises(ConfigError, match="info_nce"):
        info_nce(torch.ones(query), torch.ones(key), torch.ones(queue), temperature)


# --- enqueue


@grid
@given(batches=st.lists(st.integers(0, 6), max_size=8), size=st.integers(0, 9))
def test_the_queue_holds_the_newest_in_order(batches: list[int], size: int) -> None:
    queue = torch.empty(0, 2)
    number = 0
    everything = list[int]()
    for batch in batches:
        keys = torch.arange(number, number + batch, dtype=torch.float32)[:, None].expand(-1, 2)
        queue = enqueue(queue, keys, size)
        number = number + batch
        everything += range(number - batch, number)
        assert queue[:, 0].tolist() == everything[max(len(everything) - size, 0) :]
    assert queue.shape[1] == 2


def test_a_queue_is_new_shortened_and_without_gradient() -> None:
    queue = torch.ones(4, 2)
    keys = torch.zeros(1, 2, dtype=torch.bfloat16, requires_grad=True)
    longer = enqueue(queue, keys, 5)
    assert longer.dtype == torch.float32
    assert not longer.requires_grad
    longer.fill_(9)
    assert queue.eq(1).all()
    assert enqueue(queue, keys[:0], 3).shape == (3, 2)
    assert enqueue(queue, keys[:0], 4).data_ptr() != queue.data_ptr()


@pytest.mark.parametrize(
    ("queue", "keys", "size"),
    [((2, 3), (2, 4), 5), ((3,), (2, 3), 5), ((2, 3), (3,), 5), ((2, 3), (2, 3), -1)],
)
def test_keys_of_another_width_are_refused(
    queue: tuple[int, ...], keys: tuple[int, ...], size: int
) -> None:
    with pytest.raises(ConfigError, match="enqueue"):
        enqueue(torch.ones(queue), torch.ones(keys), size)


# --- gain_recession_weights


def weights(sizes: list[float], participations: list[float], beta: float) -> list[float]:
    tensor = gain_recession_weights(torch.tensor(sizes), torch.tensor(participations), beta)
    assert tensor.dtype == torch.float64
    return tensor.tolist()


def test_weights_by_hand() -> None:
    """100 · 1, 200 · 1/2, 400 · 1/8 are 100, 100, 50: 2/5, 2/5, 1/5."""
    assert weights([100, 200, 400], [0, 1, 3], 0.5) == [0.4, 0.4, 0.2]
    assert weights([1, 1], [4, 5], 0.5) == pytest.approx([2 / 3, 1 / 3], rel=1e-15)


members = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1, max_size=6
).filter(lambda rows: any(size for size, _ in rows))
betas = st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0])


@grid
@given(rows=members, beta=betas)
def test_weights_equal_exact_fractions(rows: list[tuple[int, int]], beta: float) -> None:
    gains = [size * Fraction(beta) ** times for size, times in rows]
    expected = [float(gain / sum(gains)) for gain in gains]
    computed = weights([size for size, _ in rows], [times for _, times in rows], beta)
    assert computed == pytest.approx(expected, rel=1e-12, abs=1e-300)
    assert math.fsum(computed) == pytest.approx(1, rel=1e-14)


@grid
@given(rows=members, beta=betas, times=st.integers(0, 10_000), data=st.data())
def test_weights_invariances(
    rows: list[tuple[int, int]], beta: float, times: int, data: st.DataObject
) -> None:
    sizes = [row[0] for row in rows]
    participations = [row[1] for row in rows]
    computed = weights(sizes, participations, beta)
    assert weights(sizes, [before + times for before in participations], beta) == computed
    order = data.draw(st.permutations(range(len(rows))))
    moved = weights([sizes[site] for site in order], [participations[site] for site in order], beta)
    assert moved == pytest.approx([computed[site] for site in order], rel=1e-14)
    three_times = weights([3 * size for size in sizes], participations, beta)
    assert three_times == pytest.approx(computed, rel=1e-14)
    for one, other in pairwise(rows):
        if one[0] == other[0] and one[1] < other[1]:
            assert computed[rows.index(one)] >= computed[rows.index(other)]


@grid
@given(rows=members, beta=betas, times=st.integers(0, 10_000))
def test_where_all_take_part_it_is_federated_averaging(
    rows: list[tuple[int, int]], beta: float, times: int
) -> None:
    """The weights are equal to the last bit, whatever β is, and so are those with β = 1."""
    sizes = [row[0] for row in rows]
    by_images = [size / sum(sizes) for size in sizes]
    computed = weights(sizes, [times] * len(sizes), beta)
    assert computed == by_images
    assert weights(sizes, [row[1] for row in rows], 1.0) == by_images
    states = [{"w": normal(5, seed=site)} for site in range(len(sizes))]
    averaged = weighted_average(states, [float(size) for size in sizes])["w"]
    weighted = weighted_average(states, computed)["w"]
    torch.testing.assert_close(weighted, averaged, rtol=1e-14, atol=1e-15)


def test_equal_models_stay_what_they_are() -> None:
    """As printed, eq. (7) would multiply them by 0.9^55 within ten rounds."""
    model = {"w": normal(7)}
    for round_ in range(10):
        shares = weights([10, 20, 5], [round_, round_, round_ // 2], 0.9)
        model = weighted_average([model] * 3, shares)
    torch.testing.assert_close(model["w"], normal(7), rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("sizes", "participations", "beta", "expected"),
    [
        ([5], [10**9], 1e-300, [1]),
        ([0, 5], [0, 7], 0.5, [0, 1]),
        ([0, 1, 3], [0, 10**6, 10**6], 0.1, [0, 0.25, 0.75]),
        ([1, 1], [10**6, 10**6 + 1], 0.25, [0.8, 0.2]),
        ([1, 10**6], [0, 10**7], 0.9, [1, 0]),
    ],
)
def test_weights_at_the_edge(
    sizes: list[float], participations: list[float], beta: float, expected: list[float]
) -> None:
    assert weights(sizes, participations, beta) == expected


@pytest.mark.parametrize(
    ("sizes", "participations", "beta"),
    [
        ([], [], 0.9),
        ([0, 0], [1, 2], 0.9),
        ([1, 2], [1], 0.9),
        ([1, -2], [1, 1], 0.9),
        ([1, 2], [1, -1], 0.9),
        ([1, NAN], [1, 1], 0.9),
        ([1, INF], [1, 1], 0.9),
        ([1, 2], [1, NAN], 0.9),
        ([[1, 2]], [[1, 1]], 0.9),
        ([1, 2], [1, 1], 0.0),
        ([1, 2], [1, 1], 1.1),
        ([1, 2], [1, 1], NAN),
    ],
)
def test_weights_refuse_numbers_out_of_range(
    sizes: list[float], participations: list[float], beta: float
) -> None:
    with pytest.raises(ConfigError, match="gain_recession_weights"):
        gain_recession_weights(torch.tensor(sizes), torch.tensor(participations), beta)


# --- the target network


def test_the_target_keeps_theta_of_itself() -> None:
    """Eq. (4): 0.9 · 1 + 0.1 · 2 = 1.1."""
    target = nn.Linear(1, 1, bias=False)
    online = nn.Linear(1, 1, bias=False)
    nn.init.constant_(target.weight, 1.0)
    nn.init.constant_(online.weight, 2.0)
    ema(target, online, 0.9)
    assert target.weight.item() == pytest.approx(1.1, rel=1e-6)
