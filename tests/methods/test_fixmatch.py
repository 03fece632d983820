"""Equations of fedward.methods.fixmatch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.pseudo_labels.labeller import pseudo_label_loss
from fedward.methods.pseudo_labels.threshold import pseudo_label

LN2 = math.log(2)
NAN = math.nan
INF = math.inf
grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(0, 10_000))


def random_probabilities(images: int, classes: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.softmax(
        2 * torch.randn(images, classes, generator=draw, dtype=torch.float64), dim=1
    )


def random_batch(images: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    labels = torch.randint(classes, (images,), generator=draw)
    return logits, labels, torch.rand(images, generator=draw) < 0.6


# --- (1) worked by hand


def test_labels_by_hand() -> None:
    """Row 2 reaches 0.75 exactly, which is enough; row 1's best class has 0.5."""
    probabilities = torch.tensor([[0.125, 0.875, 0.0], [0.5, 0.25, 0.25], [0.25, 0.0, 0.75]])
    labels, keep = pseudo_label(probabilities, 0.75)
    assert labels.tolist() == [1, 0, 2]
    assert keep.tolist() == [True, False, True]
    assert labels.dtype == torch.int64
    assert keep.dtype == torch.bool


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_threshold_is_compared_in_the_dtype_of_its_input(dtype: torch.dtype) -> None:
    """0.95 is no binary fraction: a row that holds it in its own dtype reaches it.

    The number below does not.
    """
    at = torch.tensor(0.95, dtype=dtype)
    below = torch.nextafter(at, torch.zeros_like(at))
    rows = torch.stack([torch.stack([at, 1 - at]), torch.stack([below, 1 - below])])
    assert pseudo_label(rows, 0.95)[1].tolist() == [True, False]


def test_loss_by_hand() -> None:
    """H = ln 2 for logits (0, 0); softmax(ln 3, 0) = (3/4, 1/4), so label 1 costs ln 4.

    The mean is 3/2 ln 2.
    """
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [9.0, -9.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    for keep, expected in [
        ([True, True, False], 1.5 * LN2),
        ([True, False, False], LN2),
        ([False, True, False], 2 * LN2),
    ]:
        loss = pseudo_label_loss(logits, labels, torch.tensor(keep))
        assert loss.item() == pytest.approx(expected)


# --- (2) naive loops


@grid
@given(size=sizes, threshold=st.floats(0, 1))
def test_labels_equal_a_loop(size: tuple[int, int, int], threshold: float) -> None:
    probabilities = random_probabilities(*size)
    labels, keep = pseudo_label(probabilities, threshold)
    for row, label, kept in zip(
        probabilities.tolist(), labels.tolist(), keep.tolist(), strict=True
    ):
        assert label == row.index(max(row))
        assert kept == (max(row) >= threshold)


@grid
@given(size=sizes)
def test_loss_equals_a_loop(size: tuple[int, int, int]) -> None:
    logits, labels, keep = random_batch(*size)
    terms = []
    for row, label, kept in zip(logits.tolist(), labels.tolist(), keep.tolist(), strict=True):
        if kept:
            terms.append(math.log(sum(math.exp(value) for value in row)) - row[label])
    expected = sum(terms) / len(terms) if terms else 0.0
    loss = pseudo_label_loss(logits, labels, keep)
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-14)


# --- (3) degenerate identities


@grid
@given(size=sizes)
def test_loss_is_the_cross_entropy_of_the_kept_rows(size: tuple[int, int, int]) -> None:
    logits, labels, keep = random_batch(*size)
    everything = pseudo_label_loss(logits, labels, torch.ones_like(keep))
    torch.testing.assert_close(everything, F.cross_entropy(logits, labels))
    if keep.any():
        some = pseudo_label_loss(logits, labels, keep)
        torch.testing.assert_close(some, F.cross_entropy(logits[keep], labels[keep]))


def test_threshold_zero_keeps_all_and_one_keeps_certainty() -> None:
    rows = torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]])
    assert pseudo_label(rows, 0)[1].tolist() == [True, True, True]
    assert pseudo_label(rows, 1)[1].tolist() == [False, False, True]


def test_one_class_costs_nothing() -> None:
    logits = torch.tensor([[3.0], [-1.0]])
    assert pseudo_label_loss(logits, torch.tensor([0, 0]), torch.tensor([True, True])).item() == 0
    assert pseudo_label(torch.ones(2, 1), 1)[0].tolist() == [0, 0]


def test_ties_go_to_the_lowest_class() -> None:
    assert pseudo_label(torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]), 0.5)[0].tolist() == [1, 0]


@grid
@given(size=sizes)
def test_a_mean_over_all_is_that_over_the_kept_by_their_share(size: tuple[int, int, int]) -> None:
    logits, labels, keep = random_batch(*size)
    over_all = pseudo_label_loss(logits, labels, keep, "all")
    over_kept = pseudo_label_loss(logits, labels, keep, "kept")
    torch.testing.assert_close(over_all, over_kept * keep.to(logits.dtype).mean())
    kept_losses = F.cross_entropy(logits[keep], labels[keep], reduction="none")
    assert over_all.item() == pytest.approx(kept_losses.sum().item() / len(keep))


# --- (4) invariances


@grid
@given(size=sizes, data=st.data())
def test_order_of_images_and_names_of_classes_do_not_matter(
    size: tuple[int, int, int], data: st.DataObject
) -> None:
    logits, labels, keep = random_batch(*size)
    rows = torch.tensor(data.draw(st.permutations(range(size[0]))))
    names = torch.tensor(data.draw(st.permutations(range(size[1]))))
    loss = pseudo_label_loss(logits, labels, keep)
    torch.testing.assert_close(pseudo_label_loss(logits[rows], labels[rows], keep[rows]), loss)
    renamed = pseudo_label_loss(logits[:, names], names.argsort()[labels], keep)
    torch.testing.assert_close(renamed, loss)
    probabilities = logits.softmax(dim=1)
    before = pseudo_label(probabilities, 0.6)
    after = pseudo_label(probabilities[rows][:, names], 0.6)
    assert torch.equal(names[after[0]], before[0][rows])
    assert torch.equal(after[1], before[1][rows])


@grid
@given(size=sizes, labels=st.integers(-100, 100))
def test_rows_that_are_not_kept_have_no_influence(size: tuple[int, int, int], labels: int) -> None:
    logits, pseudo, keep = random_batch(*size)
    loss = pseudo_label_loss(logits, pseudo, keep)
    other = torch.where(keep.unsqueeze(1), logits, 1e6)
    assert torch.equal(pseudo_label_loss(other, torch.where(keep, pseudo, labels), keep), loss)


# --- (5) gradients


@grid
@given(size=sizes)
def test_gradient_is_softmax_minus_one_hot_on_kept_rows_alone(size: tuple[int, int, int]) -> None:
    logits, labels, keep = random_batch(*size)
    logits.requires_grad_()
    pseudo_label_loss(logits, labels, keep).backward()
    expected = (logits.detach().softmax(dim=1) - F.one_hot(labels, size[1])) / keep.sum()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[keep], expected[keep])
    assert logits.grad[~keep].abs().sum().item() == 0


def test_gradient_by_finite_differences() -> None:
    logits, labels, keep = random_batch(6, 4, 11)
    assert keep.any()
    assert not keep.all()
    assert torch.autograd.gradcheck(
        lambda x: pseudo_label_loss(x, labels, keep), logits.requires_grad_()
    )


def test_labels_carry_no_gradient() -> None:
    probabilities = random_probabilities(4, 3, 0).requires_grad_()
    labels, keep = pseudo_label(probabilities, 0.5)
    assert not labels.requires_grad
    assert not keep.requires_grad


@pytest.mark.parametrize("images", [0, 3])
@pytest.mark.parametrize("mean", ["kept", "all"])
def test_nothing_kept_is_zero_with_a_gradient_of_zero(images: int, mean: str) -> None:
    logits = torch.randn(images, 4, requires_grad=True)
    labels = torch.zeros(images, dtype=torch.int64)
    keep = torch.zeros(images, dtype=torch.bool)
    loss = pseudo_label_loss(logits, labels, keep, mean)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros(images, 4))


# --- (6) NaN, infinity, empty


@pytest.mark.parametrize(
    "poison", [[NAN, NAN, NAN], [INF, 0, 0], [-INF, -INF, -INF], [0, INF, NAN]]
)
@pytest.mark.parametrize("keep", [[True, False, True], [False, False, False]])
def test_a_broken_row_that_is_not_kept_does_not_poison(
    poison: list[float], keep: list[bool]
) -> None:
    logits = torch.tensor([[1.0, 0.0, 0.0], poison, [0.0, 2.0, 0.0]], requires_grad=True)
    clean = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]], requires_grad=True)
    labels = torch.tensor([0, 1, 0])
    mask = torch.tensor(keep)
    losses = [pseudo_label_loss(x, labels, mask) for x in (logits, clean)]
    for loss in losses:
        loss.backward()
    assert torch.equal(losses[0], losses[1])
    assert logits.grad is not None
    assert clean.grad is not None
    assert torch.equal(logits.grad, clean.grad)


def test_a_broken_row_that_is_kept_is_noticed() -> None:
    logits = torch.tensor([[1.0, 0.0], [NAN, 0.0]])
    assert pseudo_label_loss(logits, torch.tensor([0, 0]), torch.tensor([True, True])).isnan()


@pytest.mark.parametrize("threshold", [0, 0.5])
def test_nan_is_never_confident(threshold: float) -> None:
    labels, keep = pseudo_label(torch.tensor([[NAN, NAN], [0.9, NAN], [0.1, 0.9]]), threshold)
    assert keep.tolist() == [False, False, True]
    assert labels[2].item() == 1
    assert ((labels >= 0) & (labels < 2)).all()


def test_no_images() -> None:
    labels, keep = pseudo_label(torch.empty(0, 4), 0.5)
    assert labels.shape == keep.shape == (0,)
    assert labels.dtype == torch.int64
    assert keep.dtype == torch.bool


@pytest.mark.parametrize("shape", [(3,), (3, 0), (2, 3, 4)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"\(images, classes\)"):
        pseudo_label(torch.ones(shape), 0.5)
    with pytest.raises(ConfigError, match=r"\(images, classes\)"):
        pseudo_label_loss(
            torch.ones(shape), torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)
        )


@pytest.mark.parametrize(
    ("labels", "keep"),
    [
        (torch.zeros(1, dtype=torch.int64), torch.ones(3, dtype=torch.bool)),
        (torch.zeros(3, dtype=torch.int64), torch.ones(1, dtype=torch.bool)),
        (torch.zeros(3, dtype=torch.int64), torch.ones(3, 1, dtype=torch.bool)),
        (torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64)),
        (torch.zeros(3, dtype=torch.int64), torch.ones(3)),
        (torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)),
    ],
)
def test_labels_of_other_images_are_refused(labels: Tensor, keep: Tensor) -> None:
    with pytest.raises(ConfigError, match="3 labels and as many bools"):
        pseudo_label_loss(torch.ones(3, 2), labels, keep)


def test_no_step_waits_for_the_device() -> None:
    """A meta tensor has no values: reading one, or a shape that depends on one, would raise."""
    logits = torch.randn(5, 3, device="meta", requires_grad=True)
    labels, keep = pseudo_label(logits.softmax(dim=1), 0.6)
    pseudo_label_loss(logits, labels, keep).backward()
    assert logits.grad is not None
    assert labels.device == keep.device == logits.device
