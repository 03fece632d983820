"""Equations of fedward.methods.pseudo_labels.freematch, and the moving averages that labellers
share.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.freematch import (
    DECAY,
    FLOOR,
    FreeMatch,
    class_thresholds,
    fairness,
)
from fedward.methods.pseudo_labels.labeller import pseudo_label, running_mean

grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 9), st.integers(2, 6), st.integers(0, 10_000))


def random_batch(images: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return logits, which rows are kept, and two rows of shares, one with a class of 0."""
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    shares = torch.softmax(torch.randn(2, classes, generator=draw, dtype=torch.float64), dim=1)
    histogram = shares[1].clone()
    histogram[-1] = 0
    return logits, torch.rand(images, generator=draw) < 0.6, shares[0], histogram / histogram.sum()


def norm(values: list[float]) -> list[float]:
    return [value / sum(values) if sum(values) else 0.0 for value in values]


def share(mean: list[float], histogram: list[float]) -> list[float]:
    return norm([m / h if h else 0.0 for m, h in zip(mean, histogram, strict=True)])


# --- numbers by hand


def test_thresholds_by_hand() -> None:
    """0.8 times (0.5, 0.3, 0.2) / 0.5, as in the paper; the last is below half of 0.8."""
    mean = torch.tensor([0.5, 0.3, 0.2])
    assert class_thresholds(torch.tensor(0.8), mean, floor=0).tolist() == pytest.approx(
        [0.8, 0.48, 0.32]
    )
    assert class_thresholds(torch.tensor(0.8), mean).tolist() == pytest.approx([0.8, 0.48, 0.4])


def test_a_running_mean_by_hand() -> None:
    """With m = 1/2: 8, then (4 + 8/2)/(1 + 1/2) = 16/3, then (1 + 4/2 + 8/4)/(1 + 1/2 + 1/4) =
    20/7.
    """
    known = {"a": torch.tensor(99.0), "other": torch.tensor(7.0), "weight": torch.tensor(0.0)}
    for value, expected in ((8.0, 8.0), (4.0, 16 / 3), (1.0, 20 / 7)):
        known = running_mean(known, {"a": torch.tensor(value)}, 0.5)
        assert known["a"].item() == pytest.approx(expected)
    assert known["weight"].item() == pytest.approx(1 - 0.5**3)
    assert known["other"].item() == 7


def test_fairness_by_hand() -> None:
    """Answers and probabilities alike: both sides are even, and a sum over K of (1/K) log(1/K) is
    -log K.
    """
    logits = torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    even = torch.tensor([0.5, 0.5])
    keep = torch.tensor([True, True])
    assert fairness(logits, keep, even, even).item() == pytest.approx(-math.log(2))
    # Both kept images are of class 0 with probability 3/4: b = (1, 0), and a = (1/2, 1/2).
    sure = torch.tensor([[math.log(3), 0.0]] * 2)
    assert fairness(sure, keep, even, even).item() == pytest.approx(0.5 * math.log(1e-12), rel=1e-5)


def test_thresholds_of_a_first_batch_by_hand() -> None:
    """Confidences 0.9, 0.7 and 0.6; classes 1.8/3 and 1.2/3: thresholds 2.2/3 and two thirds of it."""
    rows = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    labeller = FreeMatch()
    found = labeller.label(rows, None, labeller.init(RoundInputs(torch.ones(2))))
    confidence = (0.9 + 0.7 + 0.6) / 3
    mean = (1.8 / 3, 1.2 / 3)
    assert found.statistics["confidence"].item() == pytest.approx(confidence)
    assert found.statistics["mean"].tolist() == pytest.approx(mean)
    assert found.statistics["histogram"].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert found.labels.tolist() == [0, 1, 0]
    assert found.keep.tolist() == [True, True, False]


# --- naive loops


@grid
@given(
    values=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20),
    decay=st.sampled_from([0.0, 0.5, 0.99]),
)
def test_a_running_mean_equals_a_loop(values: list[float], decay: float) -> None:
    known = {
        "a": torch.zeros((), dtype=torch.float64),
        "weight": torch.zeros((), dtype=torch.float64),
    }
    for value in values:
        known = running_mean(known, {"a": torch.tensor(value, dtype=torch.float64)}, decay)
    weights = [decay**age for age in reversed(range(len(values)))]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert known["a"].item() == pytest.approx(expected, abs=1e-12)


@grid
@given(size=sizes)
def test_fairness_equals_a_loop(size: tuple[int, int, int]) -> None:
    logits, keep, mean, histogram = random_batch(*size)
    kept = [row.softmax(dim=0).tolist() for row, kept in zip(logits, keep, strict=True) if kept]
    found = fairness(logits, keep, mean, histogram).item()
    if not kept:
        assert found == 0
        return
    probabilities = [sum(row[c] for row in kept) / len(kept) for c in range(size[1])]
    answers = [sum(row.index(max(row)) == c for row in kept) / len(kept) for c in range(size[1])]
    a = share(mean.tolist(), histogram.tolist())
    b = share(probabilities, answers)
    expected = sum(x * math.log(y + 1e-12) for x, y in zip(a, b, strict=True))
    assert found == pytest.approx(expected, rel=1e-9)
    assert found <= 1e-9


@grid
@given(size=sizes, batches=st.integers(1, 4))
def test_labels_equal_a_loop(size: tuple[int, int, int], batches: int) -> None:
    images, classes, seed = size
    labeller = FreeMatch()
    known = labeller.init(RoundInputs(torch.ones(classes, dtype=torch.float64)))
    seen = []
    for batch in range(batches):
        rows = random_batch(images, classes, seed + batch)[0].softmax(dim=1)
        seen.append(rows.tolist())
        found = labeller.label(rows, None, known)
        known = found.statistics
    weights = norm([DECAY**age for age in reversed(range(batches))])
    tau = sum(w * sum(map(max, rows)) / images for w, rows in zip(weights, seen, strict=True))
    each = torch.tensor(seen, dtype=torch.float64).mean(dim=1)
    mean = (torch.tensor(weights, dtype=torch.float64) @ each).tolist()
    for row, label, keep in zip(seen[-1], found.labels.tolist(), found.keep.tolist(), strict=True):
        assert label == row.index(max(row))
        threshold = tau * max(mean[label] / max(mean), FLOOR)
        if abs(max(row) - threshold) > 1e-9:
            assert keep == (max(row) > threshold)
    for name in ("mean", "histogram"):
        assert known[name].sum().item() == pytest.approx(1)


# --- identities


@grid
@given(size=sizes, confidence=st.floats(0, 1))
def test_the_commonest_class_has_the_threshold_of_all(
    size: tuple[int, int, int], confidence: float
) -> None:
    mean = random_batch(*size)[2]
    found = class_thresholds(torch.tensor(confidence, dtype=torch.float64), mean)
    assert found.max().item() == pytest.approx(confidence)
    assert found.min().item() >= FLOOR * confidence - 1e-12
    assert torch.equal(found.argmax(), mean.argmax()) or confidence < 1e-300


def test_equal_thresholds_are_fixmatchs() -> None:
    rows = random_batch(9, 4, 3)[0].softmax(dim=1)
    one = pseudo_label(rows, 0.6)
    each = pseudo_label(rows, torch.full((4,), 0.6, dtype=torch.float64))
    assert all(torch.equal(a, b) for a, b in zip(one, each, strict=True))


def test_an_empty_batch_tells_nothing() -> None:
    labeller = FreeMatch()
    known = labeller.label(
        torch.tensor([[0.9, 0.1]]), None, labeller.init(RoundInputs(torch.ones(2)))
    ).statistics
    found = labeller.label(torch.empty(0, 2), None, known)
    assert found.statistics == known
    assert found.labels.shape == found.keep.shape == (0,)


# --- gradients


def test_fairness_by_finite_differences() -> None:
    logits, keep, mean, histogram = random_batch(8, 3, 5)
    assert 1 < keep.sum() < 8
    assert torch.autograd.gradcheck(
        lambda z: fairness(z, keep, mean, histogram), logits.requires_grad_()
    )
    mean.requires_grad_()
    fairness(logits, keep, mean, histogram).backward()
    assert mean.grad is None
    assert logits.grad is not None
    assert logits.grad[~keep].abs().sum() == 0 < logits.grad[keep].abs().sum()


def test_statistics_carry_no_gradient() -> None:
    rows = random_batch(5, 3, 1)[0].softmax(dim=1).requires_grad_()
    labeller = FreeMatch()
    found = labeller.label(rows, None, labeller.init(RoundInputs(torch.ones(3))))
    assert not any(tensor.requires_grad for tensor in found.statistics.values())


@pytest.mark.parametrize("images", [0, 3])
def test_fairness_of_nothing_is_zero(images: int) -> None:
    logits = torch.randn(images, 4, requires_grad=True)
    keep = torch.zeros(images, dtype=torch.bool)
    term = fairness(logits, keep, torch.full((4,), 0.25), torch.full((4,), 0.25))
    term.backward()
    assert term.item() == 0
    assert torch.equal(logits.grad, torch.zeros(images, 4))


# --- broken input


def test_a_broken_row_counts_only_if_kept() -> None:
    logits = torch.tensor([[math.nan, 0.0], [1.0, 0.0]])
    even = torch.tensor([0.5, 0.5])
    assert fairness(logits, torch.tensor([False, True]), even, even).isfinite()
    assert fairness(logits, torch.tensor([True, True]), even, even).isnan()


def test_nothing_is_kept_after_a_broken_batch() -> None:
    labeller = FreeMatch()
    known = labeller.init(RoundInputs(torch.ones(2)))
    for rows in (torch.tensor([[math.nan, math.nan]]), torch.tensor([[0.9, 0.1]])):
        found = labeller.label(rows, None, known)
        known = found.statistics
        assert not found.keep.any()


def test_what_is_no_average_is_refused() -> None:
    for confidence, mean, floor in (
        (torch.ones(1), torch.ones(2), 0.5),
        (torch.tensor(1.0), torch.ones(0), 0.5),
        (torch.tensor(1.0), torch.ones(2), 1.5),
    ):
        with pytest.raises(ConfigError, match=r"freematch\.class_thresholds"):
            class_thresholds(confidence, mean, floor)
    with pytest.raises(ConfigError, match=r"freematch\.fairness"):
        fairness(torch.ones(2, 3), torch.ones(2), torch.ones(3), torch.ones(3))
    with pytest.raises(ConfigError, match="for each of 3 classes"):
        pseudo_label(torch.ones(2, 3), torch.ones(2))


def test_nothing_waits_for_the_device() -> None:
    rows = torch.randn(5, 3, device="meta").softmax(dim=1)
    labeller = FreeMatch(0.01)
    found = labeller.label(rows, None, labeller.init(RoundInputs(torch.ones(3, device="meta"))))
    logits = torch.randn(5, 3, device="meta", requires_grad=True)
    labeller.loss(logits, found, "kept").backward()
    assert logits.grad is not None
