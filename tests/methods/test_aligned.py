"""Equations of fedward.methods.pseudo_labels.aligned."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.aligned import (
    DECAY,
    LARGEST_RATIO,
    Aligned,
    align,
    smoothed_shares,
)
from fedward.methods.pseudo_labels.threshold import pseudo_label

grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 9), st.integers(2, 6), st.integers(0, 10_000))


def random_rows(images: int, classes: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    return logits.softmax(dim=1)


def inputs(counts: list[int]) -> RoundInputs:
    return RoundInputs(torch.ones(len(counts)), class_counts=torch.tensor(counts))


# --- numbers by hand


def test_alignment_by_hand() -> None:
    """(0.6/0.7, 0.3/0.2, 0.1/0.1) by its sum 47/14: the answer moves to class 1."""
    model = torch.tensor([0.7, 0.2, 0.1])
    even = torch.full((3,), 1 / 3)
    aligned = align(torch.tensor([[0.6, 0.3, 0.1]]), even, model)[0]
    assert aligned.tolist() == pytest.approx([12 / 47, 21 / 47, 14 / 47], abs=1e-5)


def test_shares_by_hand() -> None:
    assert smoothed_shares(torch.tensor([6, 1, 0])).tolist() == pytest.approx([0.7, 0.2, 0.1])
    assert smoothed_shares(torch.tensor([0, 0])).tolist() == [0.5, 0.5]


def test_a_ratio_is_bounded() -> None:
    """Class 1 is never answered: 1/2 over 0 is 10, and 1/2 over 1 is 1/2."""
    even = torch.tensor([0.5, 0.5])
    aligned = align(torch.tensor([[0.9, 0.1]]), even, torch.tensor([1.0, 0.0]))
    assert aligned[0].tolist() == pytest.approx([0.45 / 1.45, 1 / 1.45], rel=1e-5)


# --- naive loops


@grid
@given(size=sizes)
def test_alignment_equals_a_loop(size: tuple[int, int, int]) -> None:
    rows = random_rows(*size)
    (target, model) = random_rows(2, size[1], size[2] + 1)
    aligned_rows = align(rows, target, model)
    for row, aligned in zip(rows.tolist(), aligned_rows.tolist(), strict=True):
        ratios = [
            (t + 1e-6) / (m + 1e-6) for t, m in zip(target.tolist(), model.tolist(), strict=True)
        ]
        parts = [
            q * min(max(r, 1 / LARGEST_RATIO), LARGEST_RATIO)
            for q, r in zip(row, ratios, strict=True)
        ]
        assert aligned == pytest.approx([part / sum(parts) for part in parts], rel=1e-9)


@grid
@given(size=sizes, batches=st.integers(1, 4))
def test_a_batch_is_aligned_by_those_before(size: tuple[int, int, int], batches: int) -> None:
    images, classes, seed = size
    counts = list(range(classes))
    labeller = Aligned(0.6)
    statistics = labeller.init(inputs(counts))
    means = [[(c + 1) / (sum(counts) + classes) for c in counts]]
    target = torch.tensor(means[0])
    for batch in range(batches):
        rows = random_rows(images, classes, seed + batch)
        weights = [DECAY**age for age in reversed(range(len(means)))]
        model = (
            torch.tensor(weights, dtype=torch.float64)
            @ torch.tensor(means, dtype=torch.float64)
            / sum(weights)
        )
        pseudo_labels = labeller.label(rows, statistics)
        torch.testing.assert_close(statistics["model"].double(), model, rtol=1e-5, atol=1e-6)
        labels, keep = pseudo_label(align(rows, target, statistics["model"]), 0.6)
        assert torch.equal(pseudo_labels.labels, labels)
        assert torch.equal(pseudo_labels.keep, keep)
        statistics = pseudo_labels.statistics
        means.append(rows.mean(dim=0).tolist())


# --- identities


@grid
@given(size=sizes)
def test_equal_shares_change_nothing(size: tuple[int, int, int]) -> None:
    rows = random_rows(*size)
    target = random_rows(1, size[1], size[2] + 1)[0]
    aligned = align(rows, target, target)
    torch.testing.assert_close(aligned, rows)
    torch.testing.assert_close(aligned.sum(dim=1), torch.ones(size[0], dtype=torch.float64))


def test_average_answers_become_the_target() -> None:
    target = torch.tensor([0.2, 0.5, 0.3])
    model = torch.tensor([0.4, 0.4, 0.2])
    torch.testing.assert_close(
        align(model.repeat(4, 1), target, model), target.repeat(4, 1), rtol=0, atol=1e-5
    )


def test_a_class_of_zero_stays_zero() -> None:
    aligned = align(torch.tensor([[0.0, 1.0]]), torch.tensor([0.9, 0.1]), torch.tensor([0.0, 1.0]))
    assert aligned.tolist() == [[0.0, 1.0]]


def test_a_site_without_labels_is_fixmatch() -> None:
    labeller = Aligned(0.6)
    rows = random_rows(9, 4, 3)
    for counts in (None, torch.zeros(4)):
        statistics = labeller.init(RoundInputs(torch.ones(4), class_counts=counts))
        pseudo_labels = labeller.label(rows, statistics)
        assert statistics == pseudo_labels.statistics == {}
        assert torch.equal(pseudo_labels.keep, pseudo_label(rows, 0.6)[1])


def test_an_empty_batch_changes_no_statistics() -> None:
    labeller = Aligned(0.6)
    statistics = labeller.init(inputs([3, 1]))
    assert labeller.label(torch.empty(0, 2), statistics).statistics == statistics


# --- gradients and broken input


def test_neither_labels_nor_shares_carry_a_gradient() -> None:
    labeller = Aligned(0.6)
    rows = random_rows(5, 3, 1).requires_grad_()
    pseudo_labels = labeller.label(rows, labeller.init(inputs([4, 1, 1])))
    assert not any(tensor.requires_grad for tensor in pseudo_labels.statistics.values())
    assert not align(rows, torch.ones(3) / 3, torch.ones(3) / 3).requires_grad


def test_a_broken_row_is_not_kept() -> None:
    labeller = Aligned(0.0)
    rows = torch.tensor([[math.nan, 0.5], [0.9, 0.1]])
    assert labeller.label(rows, labeller.init(inputs([1, 1]))).keep.tolist() == [False, True]


def test_wrong_shapes_are_refused() -> None:
    for target, model in (
        (torch.ones(2), torch.ones(3)),
        (torch.ones(3), torch.ones(1)),
        (torch.ones(1, 3),) * 2,
    ):
        with pytest.raises(ConfigError, match=r"aligned\.align"):
            align(torch.ones(4, 3), target, model)
    with pytest.raises(ConfigError, match=r"\(images, classes\)"):
        align(torch.ones(3), torch.ones(3), torch.ones(3))
    for counts in (torch.ones(0), torch.ones(1, 2)):
        with pytest.raises(ConfigError, match=r"aligned\.smoothed_shares"):
            smoothed_shares(counts)


def test_no_step_waits_for_the_device() -> None:
    rows = torch.randn(5, 3, device="meta").softmax(dim=1)
    target = torch.ones(3, device="meta")
    statistics = {"target": target, "model": target, "weight": target.sum()}
    assert Aligned(0.6).label(rows, statistics).keep.device == rows.device
