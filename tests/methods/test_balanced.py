"""Equations of fedward.methods.pseudo_labels.balanced."""

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.local import RoundInputs
from fedward.methods.pseudo_labels.balanced import (
    COUNTS,
    HIGHEST,
    RARE,
    Balanced,
    balanced_thresholds,
    rescue,
    shares_of_ten,
)
from fedward.methods.pseudo_labels.threshold import pseudo_label

grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 9), st.integers(2, 6), st.integers(0, 10_000))
COUNTED = torch.tensor([50, 30, 15, 5])


def random_rows(images: int, classes: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    return logits.softmax(dim=1)


# --- numbers by hand


def test_thresholds_by_hand() -> None:
    """Shares (0.5, 0.3, 0.15, 0.05) of 4/10; their deviation is the root of 0.0184 / 3."""
    shares = shares_of_ten(COUNTED)
    assert shares.tolist() == pytest.approx([0.20, 0.12, 0.06, 0.02])
    thresholds = balanced_thresholds(shares, 0.84, highest=0.9)
    deviation = math.sqrt(0.0184 / 3)
    assert thresholds.tolist() == pytest.approx(
        [0.9, *(share + 0.84 - deviation for share in (0.12, 0.06, 0.02))]
    )
    assert thresholds.tolist() == pytest.approx([0.9, 0.88168, 0.82168, 0.78168], abs=1e-5)
    assert (shares < RARE).tolist() == [False, False, False, True]


def test_rescue_by_hand() -> None:
    """Two rows are unsure; the second choice of the first is rare. The third row is sure."""
    thresholds = torch.tensor([0.9, 0.88, 0.82, 0.78])
    tail = torch.tensor([False, False, False, True])
    rows = torch.tensor([[0.6, 0.1, 0.05, 0.25], [0.6, 0.25, 0.1, 0.05], [0.03, 0.95, 0.0, 0.02]])
    labels, keep = rescue(rows, thresholds, tail)
    assert keep.tolist() == [True, False, True]
    assert labels.tolist() == [3, 0, 1]


# --- naive loops


@grid
@given(counts=st.lists(st.integers(0, 100), min_size=2, max_size=6), base=st.floats(0, 1))
def test_thresholds_equal_a_loop(counts: list[int], base: float) -> None:
    total = sum(counts)
    shares = [count / total * len(counts) / 10 if total else 0.1 for count in counts]
    expected = [min(max(share + base - statistics.stdev(shares), 0), HIGHEST) for share in shares]
    thresholds = balanced_thresholds(shares_of_ten(torch.tensor(counts)), base)
    assert thresholds.tolist() == pytest.approx(expected, abs=1e-6)


@grid
@given(size=sizes, tail=st.lists(st.booleans(), min_size=6, max_size=6))
def test_rescue_equals_a_loop(size: tuple[int, int, int], tail: list[bool]) -> None:
    rows = random_rows(*size)
    thresholds = random_rows(1, size[1], size[2] + 1)[0]
    labels, keep = rescue(rows, thresholds, torch.tensor(tail[: size[1]]))
    for row, label, kept in zip(rows.tolist(), labels.tolist(), keep.tolist(), strict=True):
        second, first = sorted(range(size[1]), key=lambda c, row=row: row[c])[-2:]
        is_confident = bool(row[first] >= thresholds[first])
        is_rescued = not is_confident and tail[second]
        assert label == (second if is_rescued else first)
        assert kept == (is_confident or is_rescued)


@grid
@given(size=sizes, batches=st.integers(1, 3))
def test_counts_are_of_labels_kept_in_a_round(size: tuple[int, int, int], batches: int) -> None:
    """They do not change the thresholds of their own round, and start at 0 in each round."""
    images, classes, seed = size
    inputs = RoundInputs(torch.ones(classes), class_counts=torch.arange(classes))
    labeller = Balanced(0.5)
    kept = [0] * classes
    statistics = labeller.init(inputs)
    shares = shares_of_ten(torch.arange(classes))
    for batch in range(batches):
        rows = random_rows(images, classes, seed + batch)
        pseudo_labels = labeller.label(rows, statistics)
        labels, keep = rescue(rows, balanced_thresholds(shares, 0.5), shares < RARE)
        assert torch.equal(pseudo_labels.labels, labels)
        assert torch.equal(pseudo_labels.keep, keep)
        for label in labels[keep].tolist():
            kept[label] += 1
        statistics = labeller.counted(pseudo_labels.statistics, labels, keep)
    memory = labeller.remember(statistics)
    assert memory[COUNTS]["kept"].tolist() == kept
    later = labeller.init(
        RoundInputs(torch.ones(classes), memory=memory, class_counts=torch.arange(classes))
    )
    assert later["before"].tolist() == [n + k for n, k in enumerate(kept)]
    assert not later["kept"].any()


# --- identities


def test_equal_counts_give_one_threshold() -> None:
    """0.84 and the mean share; nothing is rare."""
    for counts in (torch.tensor([7, 7, 7]), torch.zeros(3)):
        shares = shares_of_ten(counts)
        assert balanced_thresholds(shares, 0.84, highest=1.0).tolist() == pytest.approx([0.94] * 3)
        assert not (shares < RARE).any()


@grid
@given(size=sizes)
def test_without_rare_classes_nothing_is_rescued(size: tuple[int, int, int]) -> None:
    rows = random_rows(*size)
    thresholds = random_rows(1, size[1], size[2] + 1)[0]
    labels_and_keep = rescue(rows, thresholds, torch.zeros(size[1], dtype=torch.bool))
    expected = pseudo_label(rows, thresholds)
    assert all(torch.equal(a, b) for a, b in zip(labels_and_keep, expected, strict=True))


def test_one_class_has_no_second() -> None:
    assert balanced_thresholds(shares_of_ten(torch.tensor([5])), 0.6).tolist() == pytest.approx(
        [0.7]
    )
    labels, keep = rescue(torch.tensor([[0.5]]), torch.tensor([0.7]), torch.tensor([True]))
    assert labels.tolist() == [0]
    assert keep.tolist() == [False]


# --- gradients and broken input


def test_labels_carry_no_gradient() -> None:
    rows = random_rows(4, 3, 0).requires_grad_()
    pseudo_labels = Balanced(0.5).label(rows, {"before": torch.ones(3), "kept": torch.zeros(3)})
    assert not any(
        tensor.requires_grad
        for tensor in (pseudo_labels.labels, pseudo_labels.keep, *pseudo_labels.statistics.values())
    )


def test_a_broken_row_is_neither_kept_nor_rescued() -> None:
    rows = torch.tensor([[math.nan] * 3, [0.5, math.nan, 0.1], [0.5, 0.3, 0.2]])
    labels, keep = rescue(rows, torch.full((3,), 0.9), torch.ones(3, dtype=torch.bool))
    assert keep.tolist() == [False, False, True]
    assert ((labels >= 0) & (labels < 3)).all()
    counted = Balanced(0.5).counted({"kept": torch.zeros(3)}, labels, keep)
    assert counted["kept"].tolist() == [0, 1, 0]


def test_no_images() -> None:
    labels, keep = rescue(torch.empty(0, 3), torch.ones(3), torch.ones(3, dtype=torch.bool))
    assert labels.shape == keep.shape == (0,)


def test_shapes_and_numbers_that_do_not_match_are_refused() -> None:
    for tail in (torch.ones(2, dtype=torch.bool), torch.ones(3)):
        with pytest.raises(ConfigError, match=r"balanced\.rescue"):
            rescue(torch.ones(2, 3), torch.ones(3), tail)
    wrong = [
        (torch.ones(0), 0.5),
        (torch.ones(2, 2), 0.5),
        (torch.ones(2), 1.1),
        (torch.ones(2), math.nan),
    ]
    for shares, base in wrong:
        with pytest.raises(ConfigError, match=r"balanced\.thresholds"):
            balanced_thresholds(shares, base)
    with pytest.raises(ConfigError, match=r"balanced\.shares_of_ten"):
        shares_of_ten(torch.ones(2, 2))


def test_no_step_waits_for_the_device() -> None:
    rows = torch.randn(5, 3, device="meta").softmax(dim=1)
    counts = torch.ones(3, device="meta")
    assert Balanced(0.5).label(rows, {"before": counts, "kept": counts}).keep.device == rows.device
