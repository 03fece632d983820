"""The restricted softmax of sites that lack classes, and where it never applies."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.fixmatch import FixMatchObjective, FixMatchSettings
from fedward.methods.local import Batch, RoundInputs
from fedward.methods.missing_classes import RESTRICTION, restriction, rule_of
from fedward.methods.settings import MissingClasses, Settings
from fedward.methods.supervised import Supervised

COUNTS = torch.tensor([16, 1, 0, 4])
"""Labels of each class; the site lacks class 2."""
CHOICES = ["as_any", "restricted"]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- values


def test_factors_by_hand() -> None:
    assert restriction(COUNTS).tolist() == [1, 1, 0.5, 1]


# --- identities


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("counts", [[7, 7, 7, 7], [0, 0, 0, 0]])
def test_equal_counts_or_no_labels_change_nothing(
    choice: MissingClasses, counts: list[int]
) -> None:
    logits = normal(5, 4)
    assert torch.equal(rule_of(choice, torch.tensor(counts))(logits), logits)


def test_without_a_missing_class_nothing_is_restricted() -> None:
    logits = normal(5, 4)
    assert torch.equal(rule_of("restricted", torch.tensor([1, 900, 3, 2]))(logits), logits)


# --- gradients


@pytest.mark.parametrize(("choice", "factor"), [("as_any", 1.0), ("restricted", RESTRICTION)])
def test_the_row_of_a_missing_class_moves_by_alpha(choice: MissingClasses, factor: float) -> None:
    """α p_c f for one image of another class, against the equation and finite differences."""
    features = normal(1, 3)
    rows = normal(4, 3, seed=1).requires_grad_()
    label = torch.tensor([1])
    rule = rule_of(choice, COUNTS)

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(rule(features @ rows.T), label)

    (gradient,) = torch.autograd.grad(loss(rows), rows)
    p_missing = torch.softmax(rule(features @ rows.T), dim=1)[0, 2].detach()
    torch.testing.assert_close(gradient[2], factor * p_missing * features[0])
    assert torch.autograd.gradcheck(loss, rows)


@pytest.mark.parametrize("choice", CHOICES)
def test_losses_are_finite_in_bfloat16_and_for_missing_labels(choice: MissingClasses) -> None:
    """A pseudo-label may be of a class of which the site has no label."""
    net = nn.Linear(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(rule_of(choice, COUNTS)(net(torch.rand(2, 3))), torch.tensor([2, 2]))
    loss.backward()
    assert bool(loss.isfinite())
    assert bool(net.weight.grad.isfinite().all())


# --- in the objectives


def batch() -> Batch:
    draw = torch.Generator().manual_seed(1)
    labelled, weak, strong = (torch.rand(6, 5, generator=draw) for _ in range(3))
    return Batch(labelled, torch.tensor([0, 0, 0, 3, 1, 0]), weak, strong)


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4))


@pytest.mark.parametrize("choice", CHOICES)
def test_the_supervised_loss_sees_the_rule(choice: MissingClasses) -> None:
    rule = rule_of(choice, COUNTS)
    images = batch()
    inputs = RoundInputs(torch.tensor([1.0, 2.0, 1.0, 0.5]), seen_by_losses=rule)
    loss = Supervised().losses(net(), images, inputs).terms["loss_supervised"]
    logits = rule(net()(images.labelled))
    expected = F.cross_entropy(logits, images.labels, weight=inputs.class_weights)
    assert torch.equal(loss, expected)
    without_rule = replace(inputs, seen_by_losses=lambda logits: logits)
    plain = Supervised().losses(net(), images, without_rule).terms["loss_supervised"]
    assert torch.equal(loss, plain) == (choice == "as_any")


@pytest.mark.parametrize("choice", CHOICES)
def test_pseudo_labels_come_from_plain_logits(choice: MissingClasses) -> None:
    """The loss against pseudo-labels sees the rule; the labels, and which are kept, do not."""
    rule = rule_of(choice, COUNTS)
    images = batch()
    objective = FixMatchObjective(FixMatchSettings(threshold=0.3, unlabelled_weight=1.0))
    losses = objective.losses(net(), images, RoundInputs(torch.ones(4), seen_by_losses=rule))
    confidence, labels = net()(images.weak).softmax(dim=1).max(dim=1)
    keep = confidence >= 0.3
    assert keep.sum() > 0
    assert losses.logs["kept"] == keep.float().mean()
    expected = F.cross_entropy(rule(net()(images.strong))[keep], labels[keep])
    torch.testing.assert_close(losses.terms["loss_pseudo"], expected)


# --- broken input


@pytest.mark.parametrize("counts", [[[1, 2]], [], [1, -1], [math.nan, 1.0], [math.inf, 1.0]])
@pytest.mark.parametrize("choice", CHOICES)
def test_counts_that_cannot_be_are_refused(choice: MissingClasses, counts: list) -> None:
    with pytest.raises(ConfigError, match="one finite count >= 0 for each class"):
        rule_of(choice, torch.tensor(counts))


def test_unknown_choices_are_refused() -> None:
    assert Settings().missing_classes == "as_any"
    with pytest.raises(ValueError, match="missing_classes"):
        Settings(missing_classes="none")
