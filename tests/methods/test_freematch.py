"""FreeMatch's thresholds, and the moving averages that labellers share."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.freematch import DECAY, FLOOR, FreeMatch, class_thresholds
from fedward.methods.pseudo_labels.labeller import running_mean
from fedward.methods.pseudo_labels.threshold import pseudo_label

grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 9), st.integers(2, 6), st.integers(0, 10_000))
"""Images, classes and a seed."""


def random_probabilities(images: int, classes: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    return logits.softmax(dim=1)


# --- numbers by hand


def test_class_thresholds_by_hand() -> None:
    """0.8 times (0.5, 0.3, 0.2) / 0.5, as in the paper; the last is below half of 0.8."""
    confidence = torch.tensor(0.8)
    mean = torch.tensor([0.5, 0.3, 0.2])
    without_floor = class_thresholds(confidence, mean, floor=0)
    assert without_floor.tolist() == pytest.approx([0.8, 0.48, 0.32])
    assert class_thresholds(confidence, mean).tolist() == pytest.approx([0.8, 0.48, 0.4])


def test_a_running_mean_by_hand() -> None:
    """With m = 1/2: 8; (4 + 8/2)/(1 + 1/2) = 16/3; (1 + 4/2 + 8/4)/(1 + 1/2 + 1/4) = 20/7."""
    statistics = {"a": torch.tensor(99.0), "other": torch.tensor(7.0), "weight": torch.tensor(0.0)}
    for value, expected in [(8.0, 8.0), (4.0, 16 / 3), (1.0, 20 / 7)]:
        statistics = running_mean(statistics, {"a": torch.tensor(value)}, 0.5)
        assert statistics["a"].item() == pytest.approx(expected)
    assert statistics["weight"].item() == pytest.approx(1 - 0.5**3)
    assert statistics["other"].item() == 7


def test_thresholds_of_a_first_batch_by_hand() -> None:
    """Confidences 0.9, 0.7 and 0.6, classes 1.8/3 and 1.2/3: thresholds 2.2/3 and 2/3 of that."""
    probabilities = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    labeller = FreeMatch()
    batch = labeller.label(probabilities, labeller.init(RoundInputs(torch.ones(2))))
    assert batch.statistics["confidence"].item() == pytest.approx((0.9 + 0.7 + 0.6) / 3)
    assert batch.statistics["mean"].tolist() == pytest.approx([1.8 / 3, 1.2 / 3])
    assert batch.labels.tolist() == [0, 1, 0]
    assert batch.keep.tolist() == [True, True, False]


# --- naive loops


@grid
@given(
    values=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20),
    decay=st.sampled_from([0.0, 0.5, 0.99]),
)
def test_a_running_mean_equals_a_loop(values: list[float], decay: float) -> None:
    zero = torch.zeros((), dtype=torch.float64)
    statistics = {"a": zero, "weight": zero}
    for value in values:
        new = {"a": torch.tensor(value, dtype=torch.float64)}
        statistics = running_mean(statistics, new, decay)
    weights = [decay**age for age in reversed(range(len(values)))]
    weighted_sum = sum(weight * value for weight, value in zip(weights, values, strict=True))
    assert statistics["a"].item() == pytest.approx(weighted_sum / sum(weights), abs=1e-12)


@grid
@given(size=sizes, batches=st.integers(1, 4))
def test_pseudo_labels_equal_a_loop(size: tuple[int, int, int], batches: int) -> None:
    images, classes, seed = size
    labeller = FreeMatch()
    statistics = labeller.init(RoundInputs(torch.ones(classes, dtype=torch.float64)))
    seen = []
    for batch in range(batches):
        probabilities = random_probabilities(images, classes, seed + batch)
        seen.append(probabilities)
        pseudo_labels = labeller.label(probabilities, statistics)
        statistics = pseudo_labels.statistics

    total_weight = 0.0
    tau = 0.0
    mean = torch.zeros(classes, dtype=torch.float64)
    for age, probabilities in enumerate(reversed(seen)):
        weight = DECAY**age
        total_weight += weight
        tau += weight * sum(max(row) for row in probabilities.tolist()) / images
        mean += weight * probabilities.mean(dim=0)
    tau /= total_weight
    mean /= total_weight

    labels = pseudo_labels.labels.tolist()
    kept = pseudo_labels.keep.tolist()
    for row, label, keep in zip(seen[-1].tolist(), labels, kept, strict=True):
        assert label == row.index(max(row))
        threshold = tau * max(float(mean[label] / mean.max()), FLOOR)
        if abs(max(row) - threshold) > 1e-9:
            assert keep == (max(row) > threshold)
    assert statistics["mean"].sum().item() == pytest.approx(1)


# --- identities


@grid
@given(size=sizes, confidence=st.floats(0, 1))
def test_the_commonest_class_has_the_threshold_of_all(
    size: tuple[int, int, int], confidence: float
) -> None:
    mean = random_probabilities(*size)[0]
    thresholds = class_thresholds(torch.tensor(confidence, dtype=torch.float64), mean)
    assert thresholds.max().item() == pytest.approx(confidence)
    assert thresholds.min().item() >= FLOOR * confidence - 1e-12
    assert torch.equal(thresholds.argmax(), mean.argmax()) or confidence < 1e-300


def test_equal_thresholds_of_all_classes_are_fixmatchs() -> None:
    probabilities = random_probabilities(9, 4, 3)
    labels, keep = pseudo_label(probabilities, 0.6)
    thresholds = torch.full((4,), 0.6, dtype=torch.float64)
    labels_by_class, keep_by_class = pseudo_label(probabilities, thresholds)
    assert torch.equal(labels, labels_by_class)
    assert torch.equal(keep, keep_by_class)


def test_an_empty_batch_changes_no_statistics() -> None:
    labeller = FreeMatch()
    start = labeller.init(RoundInputs(torch.ones(2)))
    statistics = labeller.label(torch.tensor([[0.9, 0.1]]), start).statistics
    empty = labeller.label(torch.empty(0, 2), statistics)
    assert empty.statistics == statistics
    assert empty.labels.shape == (0,)
    assert empty.keep.shape == (0,)


# --- gradients


def test_statistics_carry_no_gradient() -> None:
    probabilities = random_probabilities(5, 3, 1).requires_grad_()
    labeller = FreeMatch()
    batch = labeller.label(probabilities, labeller.init(RoundInputs(torch.ones(3))))
    assert not any(tensor.requires_grad for tensor in batch.statistics.values())


# --- broken input


def test_nothing_is_kept_after_a_broken_batch() -> None:
    labeller = FreeMatch()
    statistics = labeller.init(RoundInputs(torch.ones(2)))
    for probabilities in (torch.tensor([[math.nan, math.nan]]), torch.tensor([[0.9, 0.1]])):
        batch = labeller.label(probabilities, statistics)
        statistics = batch.statistics
        assert not batch.keep.any()


@pytest.mark.parametrize(
    ("confidence", "mean", "floor"),
    [
        (torch.ones(1), torch.ones(2), 0.5),
        (torch.tensor(1.0), torch.ones(0), 0.5),
        (torch.tensor(1.0), torch.ones(2), 1.5),
    ],
)
def test_wrong_averages_or_floors_are_refused(
    confidence: Tensor, mean: Tensor, floor: float
) -> None:
    with pytest.raises(ConfigError, match=r"freematch\.class_thresholds"):
        class_thresholds(confidence, mean, floor)


def test_thresholds_of_other_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="for each of 3 classes"):
        pseudo_label(torch.ones(2, 3), torch.ones(2))


def test_no_step_waits_for_the_device() -> None:
    """A meta tensor has no values, so anything that reads one fails."""
    probabilities = torch.randn(5, 3, device="meta").softmax(dim=1)
    labeller = FreeMatch()
    inputs = RoundInputs(torch.ones(3, device="meta"))
    batch = labeller.label(probabilities, labeller.init(inputs))
    logits = torch.randn(5, 3, device="meta", requires_grad=True)
    labeller.loss(logits, batch, "kept").backward()
    assert logits.grad is not None
