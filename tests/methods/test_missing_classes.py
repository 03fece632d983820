"""Restricted and balanced softmax of sites that lack classes, and where they never are."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.fixmatch import FixMatchObjective, FixMatchSettings
from fedward.methods.local import Batch, RoundInputs
from fedward.methods.missing_classes import RESTRICTION, prior_shift, restriction, rule_of
from fedward.methods.settings import Settings
from fedward.methods.supervised import Supervised

COUNTS = torch.tensor([16, 1, 0, 4])
CHOICES = ["as_any", "restricted", "logit_adjustment"]
grid = settings(deadline=None, max_examples=50)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- values


def test_factors_and_shifts_by_hand() -> None:
    assert restriction(COUNTS).tolist() == [1, 1, 0.5, 1]
    assert prior_shift(COUNTS).tolist() == pytest.approx(
        [0, -math.log(16), -math.log(16), -math.log(4)]
    )


@grid
@given(counts=st.lists(st.integers(1, 1000), min_size=2, max_size=6), seed=st.integers(0, 1000))
def test_the_shifted_softmax_is_the_balanced_one(counts: list[int], seed: int) -> None:
    """n_c e^z_c / sum over j of n_j e^z_j, written as a loop."""
    logits = normal(3, len(counts), seed=seed)
    found = torch.softmax(rule_of("logit_adjustment", torch.tensor(counts))(logits), dim=1)
    for row, z in zip(found, logits, strict=True):
        parts = [count * math.exp(value) for count, value in zip(counts, z, strict=True)]
        assert row.tolist() == pytest.approx([part / sum(parts) for part in parts], rel=1e-5)


# --- identities


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("counts", [[7, 7, 7, 7], [0, 0, 0, 0]])
def test_equal_counts_or_no_labels_change_nothing(choice: str, counts: list[int]) -> None:
    logits = normal(5, 4)
    assert torch.equal(rule_of(choice, torch.tensor(counts))(logits), logits)


def test_a_restriction_is_none_where_no_class_is_missing() -> None:
    logits = normal(5, 4)
    assert torch.equal(rule_of("restricted", torch.tensor([1, 900, 3, 2]))(logits), logits)


@grid
@given(counts=st.lists(st.integers(1, 1000), min_size=2, max_size=6), factor=st.integers(2, 50))
def test_shifts_depend_on_shares_alone(counts: list[int], factor: int) -> None:
    tensor = torch.tensor(counts)
    torch.testing.assert_close(
        prior_shift(tensor * factor), prior_shift(tensor), rtol=1e-5, atol=1e-6
    )


# --- gradients


@pytest.mark.parametrize(("choice", "factor"), [("as_any", 1.0), ("restricted", RESTRICTION)])
def test_the_row_of_a_missing_class_moves_by_alpha(choice: str, factor: float) -> None:
    """alpha p_c f for one image of another class, against the equation and finite differences."""
    f = normal(1, 3)
    rows = normal(4, 3, seed=1).requires_grad_()
    label = torch.tensor([1])
    rule = rule_of(choice, COUNTS)

    def loss(weights: Tensor) -> Tensor:
        return F.cross_entropy(rule(f @ weights.T), label)

    (gradient,) = torch.autograd.grad(loss(rows), rows)
    p = torch.softmax(rule(f @ rows.T), dim=1)[0, 2]
    torch.testing.assert_close(gradient[2], factor * p.detach() * f[0])
    assert torch.autograd.gradcheck(loss, rows)


def test_a_missing_class_is_pushed_down_less_by_its_shift() -> None:
    """Its share of the softmax, and so its gradient, is that of a class with one image."""
    logits = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    found = {}
    for choice in ("as_any", "logit_adjustment"):
        (gradient,) = torch.autograd.grad(
            F.cross_entropy(rule_of(choice, COUNTS)(logits), torch.tensor([0])), logits
        )
        found[choice] = gradient[0].tolist()
    assert found["as_any"] == pytest.approx([-0.75, 0.25, 0.25, 0.25])
    assert found["logit_adjustment"] == pytest.approx([-6 / 22, 1 / 22, 1 / 22, 4 / 22])


@pytest.mark.parametrize("choice", CHOICES)
def test_losses_are_finite_in_bfloat16_and_for_missing_labels(choice: str) -> None:
    """A pseudo-label may be of a class that the site has no label of."""
    net = nn.Linear(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(rule_of(choice, COUNTS)(net(torch.rand(2, 3))), torch.tensor([2, 2]))
    loss.backward()
    assert bool(loss.isfinite())
    assert bool(net.weight.grad.isfinite().all())


# --- in the objectives


def batch() -> Batch:
    draw = torch.Generator().manual_seed(1)
    views = [torch.rand(6, 5, generator=draw) for _ in range(3)]
    return Batch(views[0], torch.tensor([0, 0, 0, 3, 1, 0]), views[1], views[2])


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4))


@pytest.mark.parametrize("choice", CHOICES)
def test_the_supervised_loss_sees_the_rule(choice: str) -> None:
    rule = rule_of(choice, COUNTS)
    images = batch()
    inputs = RoundInputs(torch.tensor([1.0, 2.0, 1.0, 0.5]), seen_by_losses=rule)
    found = Supervised().losses(net(), images, inputs).terms["loss_supervised"]
    expected = F.cross_entropy(
        rule(net()(images.labelled)), images.labels, weight=inputs.class_weights
    )
    assert torch.equal(found, expected)
    plain = Supervised().losses(
        net(), images, replace(inputs, seen_by_losses=lambda logits: logits)
    )
    assert torch.equal(found, plain.terms["loss_supervised"]) == (choice == "as_any")


@pytest.mark.parametrize("choice", CHOICES)
def test_pseudo_labels_come_from_plain_logits(choice: str) -> None:
    """The loss against them sees the rule; which they are, and which are kept, does not depend on
    it.
    """
    rule = rule_of(choice, COUNTS)
    images = batch()
    objective = FixMatchObjective(FixMatchSettings(threshold=0.3, unlabelled_weight=1.0))
    found = objective.losses(net(), images, RoundInputs(torch.ones(4), seen_by_losses=rule))
    probabilities = net()(images.weak).softmax(dim=1)
    confidence, labels = probabilities.max(dim=1)
    keep = confidence >= 0.3
    assert keep.sum() > 0
    assert found.logs["kept"] == keep.float().mean()
    expected = F.cross_entropy(rule(net()(images.strong))[keep], labels[keep])
    torch.testing.assert_close(found.terms["loss_pseudo"], expected)


# --- broken input


@pytest.mark.parametrize("counts", [[[1, 2]], [], [1, -1], [math.nan, 1.0], [math.inf, 1.0]])
@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_no_count_is_refused(choice: str, counts: list) -> None:
    with pytest.raises(ConfigError, match="missing_classes"):
        rule_of(choice, torch.tensor(counts))


def test_unknown_choices_are_refused() -> None:
    assert Settings().missing_classes == "as_any"
    with pytest.raises(ValueError, match="missing_classes"):
        Settings(missing_classes="none")
