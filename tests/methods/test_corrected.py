"""Equations of fedward.methods.pseudo_labels.corrected."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.pseudo_labels.corrected import Corrected, corrected_targets, divergence
from fedward.methods.pseudo_labels.labeller import pseudo_label, pseudo_label_loss

grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 9), st.integers(2, 6), st.integers(0, 10_000))


def random_rows(images: int, classes: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.softmax(
        3 * torch.randn(images, classes, generator=draw, dtype=torch.float64), dim=1
    )


def random_batch(images: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    return logits, random_rows(images, classes, seed + 1), torch.rand(images, generator=draw) < 0.6


# --- numbers by hand


def test_targets_by_hand() -> None:
    """Gaps of 0, 1/20 and 1/10: all, a half and a quarter of the target are the net's own answer."""
    local = torch.tensor(
        [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.5, 0.5]], dtype=torch.float64
    )
    received = torch.tensor(
        [[0.1, 0.9], [0.15, 0.85], [0.2, 0.8], [0.1, 0.9], [0.4, 0.6]], dtype=torch.float64
    )
    targets, keep = corrected_targets(local, received, 0.85)
    expected = torch.tensor(
        [[1.0, 0.0], [0.5, 0.5], [0.25, 0.75], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64
    )
    torch.testing.assert_close(targets, expected)
    assert keep.tolist() == [True, True, True, True, False]


def test_divergence_by_hand() -> None:
    """Even targets against 3/4 and 1/4: (log 2/3 + log 2) / 2 = log(4/3) / 2; the second row is not
    kept.
    """
    logits = torch.tensor([[math.log(3), 0.0], [5.0, 0.0]], dtype=torch.float64)
    targets = torch.full((2, 2), 0.5, dtype=torch.float64)
    keep = torch.tensor([True, False])
    assert divergence(logits, targets, keep).item() == pytest.approx(math.log(4 / 3) / 2)
    assert divergence(logits, targets, keep, "all").item() == pytest.approx(math.log(4 / 3) / 4)


# --- naive loops


@grid
@given(size=sizes, threshold=st.floats(0, 1))
def test_targets_equal_a_loop(size: tuple[int, int, int], threshold: float) -> None:
    local = random_rows(*size)
    received = random_rows(size[0], size[1], size[2] + 1)
    targets, keep = corrected_targets(local, received, threshold)
    for p, g, q, kept in zip(
        local.tolist(), received.tolist(), targets.tolist(), keep.tolist(), strict=True
    ):
        share = math.exp(-math.log(2) / 0.05 * abs(max(p) - max(g))) if max(p) >= threshold else 0.0
        expected = [0.0] * size[1]
        expected[p.index(max(p))] += share
        expected[g.index(max(g))] += 1 - share
        assert q == pytest.approx(expected, abs=1e-12)
        assert kept == (max(p) >= threshold or max(g) >= threshold)


@grid
@given(size=sizes)
def test_divergence_equals_a_loop(size: tuple[int, int, int]) -> None:
    logits, targets, keep = random_batch(*size)
    terms = []
    for row, target, kept in zip(
        logits.softmax(dim=1).tolist(), targets.tolist(), keep.tolist(), strict=True
    ):
        if kept:
            terms.append(sum(q * math.log(q / p) for q, p in zip(target, row, strict=True)))
    expected = sum(terms) / len(terms) if terms else 0.0
    assert divergence(logits, targets, keep).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


# --- identities


@grid
@given(size=sizes)
def test_equal_answers_are_one_hot_whatever_the_gap(size: tuple[int, int, int]) -> None:
    local = random_rows(*size)
    received = torch.lerp(local, torch.full_like(local, 1 / size[1]), 0.5)
    targets, _ = corrected_targets(local, received, 0.0)
    torch.testing.assert_close(targets, F.one_hot(local.argmax(dim=1), size[1]).to(targets.dtype))


@grid
@given(size=sizes, threshold=st.floats(0, 1))
def test_the_same_model_twice_is_fixmatch(size: tuple[int, int, int], threshold: float) -> None:
    """In labels, in what is kept, and in the loss."""
    local = random_rows(*size)
    logits = random_batch(*size)[0]
    labeller = Corrected(threshold)
    (labels, keep) = pseudo_label(local, threshold)
    found = labeller.label(local, local, {})
    assert torch.equal(found.labels, labels)
    assert torch.equal(found.keep, keep)
    for mean in ("kept", "all"):
        torch.testing.assert_close(
            labeller.loss(logits, found, mean), pseudo_label_loss(logits, labels, keep, mean)
        )


def test_reaching_the_target_costs_nothing() -> None:
    logits = random_batch(5, 4, 2)[0]
    assert divergence(
        logits, logits.softmax(dim=1), torch.ones(5, dtype=torch.bool)
    ).item() == pytest.approx(0)


# --- gradients


def test_divergence_by_finite_differences() -> None:
    logits, targets, keep = random_batch(6, 4, 11)
    assert 0 < keep.sum() < 6
    assert torch.autograd.gradcheck(lambda z: divergence(z, targets, keep), logits.requires_grad_())
    targets.requires_grad_()
    divergence(logits, targets, keep).backward()
    assert targets.grad is None
    assert logits.grad is not None
    torch.testing.assert_close(
        logits.grad[keep], ((logits.softmax(dim=1) - targets) / keep.sum())[keep].detach()
    )
    assert logits.grad[~keep].abs().sum() == 0


@pytest.mark.parametrize("images", [0, 3])
@pytest.mark.parametrize("mean", ["kept", "all"])
def test_nothing_kept_is_zero_with_a_gradient_of_zero(images: int, mean: str) -> None:
    logits = torch.randn(images, 4, requires_grad=True)
    loss = divergence(
        logits, torch.full((images, 4), 0.25), torch.zeros(images, dtype=torch.bool), mean
    )
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros(images, 4))


def test_targets_carry_no_gradient() -> None:
    local, received = (random_rows(3, 4, seed).requires_grad_() for seed in (0, 1))
    assert not corrected_targets(local, received, 0.5)[0].requires_grad


# --- broken input


def test_a_broken_model_leaves_the_answer_to_the_other() -> None:
    sure = [0.9, 0.1]
    unsure = [0.4, 0.6]
    broken = [math.nan, math.nan]
    local = torch.tensor([broken, broken, sure, unsure])
    received = torch.tensor([sure, unsure, broken, broken])
    targets, keep = corrected_targets(local, received, 0.8)
    assert keep.tolist() == [True, False, True, False]
    assert targets[0].tolist() == targets[2].tolist() == [1, 0]
    assert targets.isfinite().all()


def test_a_broken_row_counts_only_if_kept() -> None:
    logits = torch.tensor([[math.nan, 0.0], [1.0, 0.0]])
    targets = torch.full((2, 2), 0.5)
    assert divergence(logits, targets, torch.tensor([False, True])).isfinite()
    assert divergence(logits, targets, torch.tensor([True, True])).isnan()


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"corrected\.targets"):
        corrected_targets(torch.ones(2, 3), torch.ones(2, 2), 0.5)
    with pytest.raises(ConfigError, match=r"threshold in \[0, 1\]"):
        corrected_targets(torch.ones(2, 3), torch.ones(2, 3), 1.5)
    for targets, keep in ((torch.ones(2, 2), torch.ones(2) > 0), (torch.ones(2, 3), torch.ones(2))):
        with pytest.raises(ConfigError, match=r"corrected\.divergence"):
            divergence(torch.ones(2, 3), targets, keep)
    with pytest.raises(ConfigError, match=r"corrected\.label"):
        Corrected(0.5).label(torch.ones(2, 3), None, {})


def test_nothing_waits_for_the_device() -> None:
    local, logits = (torch.randn(5, 3, device="meta") for _ in range(2))
    labeller = Corrected(0.6)
    found = labeller.label(local.softmax(dim=1), local.softmax(dim=1), {})
    labeller.loss(logits.requires_grad_(), found, "kept").backward()
    assert logits.grad is not None
