"""Equations and heads of fedward.methods.samplers.mcdal."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import random_probabilities
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.samplers.mcdal import (
    AuxiliaryHeads,
    discrepancy,
    heads_loss,
    pairwise_distances,
)

NAN = math.nan
LOG3 = math.log(3)
grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(0, 10_000))  # N, K, seed


def random_logits(images: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    first, second, main = 2 * torch.randn(3, images, classes, generator=draw, dtype=torch.float64)
    return first.requires_grad_(), second.requires_grad_(), main.requires_grad_()


# --- pairwise_distances


def test_distances_by_hand() -> None:
    """(1, 0), (0, 1), (1/2, 1/2): 2 + 1 + 1. Three sure classes: 2 + 2 + 2. Agreement: 0."""
    p = torch.tensor(
        [
            [[1.0, 0, 0], [1, 0, 0], [0.2, 0.8, 0]],
            [[0, 1, 0], [0, 1, 0], [0.2, 0.8, 0]],
            3 * [[0.0] * 3],
        ]
    )
    p[2] = torch.tensor([[0.5, 0.5, 0], [0, 0, 1], [0.2, 0.8, 0]])
    assert pairwise_distances(p).tolist() == [4, 6, 0]


@grid
@given(size=sizes, data=st.data())
def test_distances_equal_a_loop(size: tuple[int, int, int], data: st.DataObject) -> None:
    p = random_probabilities(3, *size)
    expected = []
    for one, two, three in zip(*p.tolist(), strict=True):
        pairs = ((one, two), (one, three), (two, three))
        expected.append(sum(abs(a - b) for u, v in pairs for a, b in zip(u, v, strict=True)))
    distances = pairwise_distances(p)
    assert distances.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-14)
    order = data.draw(st.permutations(range(3)))
    torch.testing.assert_close(pairwise_distances(p[order]), distances)
    assert bool((distances <= (4 if size[1] == 2 else 6)).all())


# --- discrepancy


def test_discrepancy_by_hand() -> None:
    """σ(log 3, 0) = (3/4, 1/4) against (1/2, 1/2) twice.

    (1/4 + 1/4) / 2 for each of two pairs, 0 for the third. With p, 1 - p = 3/4, 1/4: both distances
    are (p - (1 - p)) / 2 = p - 1/2, and dp/dz = p (1 - p) = 3/16: the gradient of their sum in h_1
    is (3/8, -3/8). In h_2 only d(h_1, h_2) has one, -q (1 - q) = -1/4; d(h_2, f) is at its kink.
    """
    first = torch.tensor([[LOG3, 0.0]], dtype=torch.float64, requires_grad=True)
    second = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    main = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    loss = discrepancy(first, second, main)
    loss.backward()
    assert loss.item() == pytest.approx(0.5, rel=1e-15)
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad.flatten().tolist() == pytest.approx([3 / 8, -3 / 8], rel=1e-14)
    assert second.grad.flatten().tolist() == pytest.approx([-1 / 4, 1 / 4], rel=1e-14)
    assert main.grad is None


@grid
@given(size=sizes)
def test_discrepancy_equals_a_loop_and_the_mean_score(size: tuple[int, int, int]) -> None:
    logits = [tensor.detach() for tensor in random_logits(*size)]
    probabilities = []
    for tensor in logits:
        flat = []
        for row in tensor.tolist():
            exponentials = [math.exp(value) for value in row]
            flat += [value / sum(exponentials) for value in exponentials]
        probabilities.append(flat)
    total = 0.0
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pairs = zip(probabilities[one], probabilities[other], strict=True)
        differences = [abs(a - b) for a, b in pairs]
        total += math.fsum(differences) / len(differences)
    loss = discrepancy(*logits)
    assert loss.item() == pytest.approx(total, rel=1e-9, abs=1e-14)
    assert 0 <= loss.item() <= 6 / size[1] + 1e-12
    scores = pairwise_distances(torch.stack(logits).softmax(dim=2))
    torch.testing.assert_close(scores.mean() / size[1], loss)


@grid
@given(size=sizes, data=st.data())
def test_discrepancy_invariances(size: tuple[int, int, int], data: st.DataObject) -> None:
    first, second, main = (each.detach() for each in random_logits(*size))
    rows, names = (torch.tensor(data.draw(st.permutations(range(n)))) for n in size[:2])
    loss = discrepancy(first, second, main)
    torch.testing.assert_close(discrepancy(second, first, main), loss)
    torch.testing.assert_close(
        discrepancy(*(each[rows][:, names] for each in (first, second, main))), loss
    )
    torch.testing.assert_close(discrepancy(first + 3, second, main - 1), loss)
    assert discrepancy(first, first, first).item() == 0


@pytest.mark.parametrize("shape", [(0, 4), (3, 1)])
def test_discrepancy_of_nothing_is_zero_with_a_gradient_of_zero(shape: tuple[int, int]) -> None:
    first, second, main = random_logits(*shape, seed=0)
    discrepancy(first, second, main).backward()
    assert first.grad is not None
    assert torch.equal(first.grad, torch.zeros(shape, dtype=torch.float64))


def test_equal_heads_never_part() -> None:
    """Equal predictions have distances with gradient 0, so heads start at different weights."""
    first, second, main = random_logits(4, 3, seed=1)
    same = main.detach().clone().requires_grad_()
    discrepancy(same, same.detach(), main).backward()
    assert same.grad is not None
    assert same.grad.abs().sum() == 0
    heads = AuxiliaryHeads(5, 3)
    assert not torch.equal(heads.first.weight, heads.second.weight)
    assert discrepancy(first, second, main).item() > 0


# --- heads_loss


def test_heads_loss_by_hand() -> None:
    """-log 3/4 and -log 1/2 for class 0; the gradient of each is σ - onehot, over one image."""
    first = torch.tensor([[LOG3, 0.0]], dtype=torch.float64, requires_grad=True)
    second = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    loss = heads_loss(first, second, torch.tensor([0]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(4 / 3) + math.log(2), rel=1e-14)
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad.flatten().tolist() == pytest.approx([-1 / 4, 1 / 4], rel=1e-14)
    assert second.grad.flatten().tolist() == pytest.approx([-1 / 2, 1 / 2], rel=1e-14)


@grid
@given(size=sizes)
def test_heads_loss_is_two_cross_entropies(size: tuple[int, int, int]) -> None:
    first, second, _ = random_logits(*size)
    labels = torch.randint(size[1], (size[0],), generator=torch.Generator().manual_seed(size[2]))
    rows = [
        (row, label)
        for each in (first, second)
        for row, label in zip(each.tolist(), labels.tolist(), strict=True)
    ]
    expected = sum(math.log(sum(map(math.exp, row))) - row[label] for row, label in rows) / size[0]
    assert heads_loss(first, second, labels).item() == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assert heads_loss(second, first, labels).item() == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_heads_loss_of_nothing_is_zero_with_a_gradient_of_zero() -> None:
    first, second, _ = random_logits(0, 3, seed=0)
    loss = heads_loss(first, second, torch.empty(0, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0
    assert first.grad is not None
    assert first.grad.shape == (0, 3)


# --- both together


def test_gradients_by_finite_differences() -> None:
    first, second, main = random_logits(3, 4, seed=5)
    labels = torch.tensor([0, 3, 1])
    assert torch.autograd.gradcheck(lambda a, b: heads_loss(a, b, labels), (first, second))
    assert torch.autograd.gradcheck(lambda a, b: discrepancy(a, b, main), (first, second))


def test_the_heads_learn_alone() -> None:
    """No gradient of either loss reaches the network below or the main classifier."""
    below = nn.Linear(4, 5)
    classifier = nn.Linear(5, 3)
    heads = AuxiliaryHeads(5, 3)
    features = below(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))
    first, second = heads(features)
    assert first.shape == second.shape == (6, 3)
    loss = heads_loss(first, second, torch.tensor([0, 1, 2, 0, 1, 2])) - discrepancy(
        first, second, classifier(features)
    )
    loss.backward()
    assert all(
        parameter.grad is None for parameter in (*below.parameters(), *classifier.parameters())
    )
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0
        for parameter in heads.parameters()
    )
    assert sorted(heads.state_dict()) == [
        "first.bias",
        "first.weight",
        "second.bias",
        "second.weight",
    ]


def test_the_second_update_keeps_labels_and_parts_the_heads() -> None:
    """Labelled images on one axis, unlabelled ones on another that labels say nothing about."""
    labelled = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 1])
    unlabelled = torch.tensor([[0.0, 1.0]])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        heads = AuxiliaryHeads(2, 2)
    main = torch.zeros(1, 2)
    before = discrepancy(*heads(unlabelled), main).item()
    optimizer = torch.optim.SGD(heads.parameters(), lr=0.5)
    for _ in range(100):
        for parting in (0.0, 1.0):
            loss = heads_loss(*heads(labelled), labels) - parting * discrepancy(
                *heads(unlabelled), main
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert discrepancy(*heads(unlabelled), main).item() > max(before, 0.9)
    assert all(F.cross_entropy(head, labels).item() < 0.5 for head in heads(labelled))


def test_a_broken_net_is_noticed() -> None:
    first, second, main = random_logits(2, 3, seed=0)
    with torch.no_grad():
        second[1, 0] = NAN
    assert heads_loss(first, second, torch.tensor([0, 1])).isnan()
    assert discrepancy(first, second, main).isnan()


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (3,), (3, 0)])
def test_outputs_of_other_batches_are_refused(shape: tuple[int, ...]) -> None:
    good = torch.ones(3, 0 if shape == (3, 0) else 4)
    other = torch.ones(shape)
    with pytest.raises(ConfigError, match="equal shapes"):
        discrepancy(good, good, other)
    with pytest.raises(ConfigError, match="equal shapes"):
        heads_loss(good, other, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ConfigError, match="equal shapes"):
        heads_loss(torch.ones(2, 2), torch.ones(2, 2), torch.zeros(3, dtype=torch.int64))
