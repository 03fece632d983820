"""Losses and pseudo-labels of images that show several classes, or none."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import Batch, RoundInputs
from fedward.methods.outputs import SIGMOID, SOFTMAX
from fedward.methods.pseudo_labels.per_class import answers, answers_loss
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.supervised import Supervised

LN2 = math.log(2)
LN3 = math.log(3)
NAN = math.nan
INPUTS = RoundInputs(torch.ones(3), outputs=SIGMOID)
grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(0, 10_000))


def random_answers(images: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    labels = torch.randint(2, (images, classes), generator=draw)
    return logits, labels, torch.rand(images, classes, generator=draw) < 0.6


class Linear(nn.Module):
    """Logits of the mean of an image, times a weight for each class."""

    def __init__(self, weights: tuple[float, ...] = (1.0, -2.0, 0.5)) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weights))

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(1, 2, 3)).unsqueeze(1) * self.weight


def batch(seed: int = 1, **changes: Any) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    pictures = {
        name: 4 * torch.rand(5, 1, 4, 4, generator=draw) for name in ("labelled", "weak", "strong")
    }
    return Batch(**{**pictures, "labels": torch.randint(2, (5, 3), generator=draw), **changes})


def test_answers_by_hand() -> None:
    """At 0.75 both 0.75 and 0.25 are confident, 0.5 is yes and is not."""
    labels, keep = answers(torch.tensor([[0.75, 0.25, 0.5], [0.7, 0.1, NAN]]), 0.75)
    assert labels.tolist() == [[1, 0, 1], [1, 0, 0]]
    assert keep.tolist() == [[True, True, False], [False, True, False]]
    assert answers(torch.tensor([[0.5, NAN]]), 0.0)[1].tolist() == [[True, False]]


def test_loss_by_hand() -> None:
    """A logit of 0 costs ln 2; of ln 3 a yes costs ln 4/3 and a no ln 4."""
    logits = torch.tensor([[0.0, LN3], [LN3, 50.0]], dtype=torch.float64)
    labels = torch.tensor([[1, 1], [0, 0]])
    keep = torch.tensor([[True, True], [True, False]])
    total = LN2 + math.log(4 / 3) + math.log(4)
    assert answers_loss(logits, labels, keep).item() == pytest.approx(total / 3)
    assert answers_loss(logits, labels, keep, "all").item() == pytest.approx(total / 4)


@grid
@given(size=sizes, threshold=st.floats(0, 1))
def test_answers_equal_a_loop(size: tuple[int, int, int], threshold: float) -> None:
    probabilities = torch.sigmoid(random_answers(*size)[0])
    labels, keep = answers(probabilities, threshold)
    for row, row_labels, kept in zip(
        probabilities.tolist(), labels.tolist(), keep.tolist(), strict=True
    ):
        assert row_labels == [int(value >= 0.5) for value in row]
        assert kept == [max(value, 1 - value) >= threshold for value in row]


@grid
@given(size=sizes)
def test_loss_and_gradient_equal_a_loop(size: tuple[int, int, int]) -> None:
    logits, labels, keep = random_answers(*size)
    logits.requires_grad_()
    loss = answers_loss(logits, labels, keep)
    loss.backward()
    probabilities = logits.detach().sigmoid()
    terms = []
    for image, class_ in keep.nonzero().tolist():
        yes = probabilities[image, class_].item()
        terms.append(-math.log(yes if labels[image, class_] else 1 - yes))
    assert loss.item() == pytest.approx(sum(terms) / max(len(terms), 1), abs=1e-9)
    expected = torch.where(keep, probabilities - labels, 0.0) / max(int(keep.sum()), 1)
    assert torch.allclose(logits.grad, expected)


def test_answers_that_are_not_kept_have_no_influence() -> None:
    logits = torch.tensor([[NAN, 1.0], [math.inf, 2.0]], requires_grad=True)
    keep = torch.tensor([[False, True], [False, False]])
    loss = answers_loss(logits, torch.ones(2, 2, dtype=torch.long), keep)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert logits.grad[~keep].tolist() == [0.0, 0.0, 0.0]
    assert answers_loss(logits, torch.ones(2, 2), ~keep).isnan(), "a broken net is noticed"
    nothing = torch.zeros(2, 2, requires_grad=True)
    answers_loss(nothing, torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.bool)).backward()
    assert nothing.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    "call",
    [
        lambda: answers(torch.zeros(3), 0.5),
        lambda: answers(torch.zeros(3, 0), 0.5),
        lambda: answers_loss(torch.zeros(3, 2), torch.zeros(3), torch.ones(3, 2, dtype=torch.bool)),
        lambda: answers_loss(torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(3, 2)),
        lambda: answers_loss(torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(2, dtype=torch.bool)),
        lambda: answers_loss(torch.zeros(3, 0), torch.zeros(3, 0), torch.ones(3, 0).bool()),
    ],
)
def test_other_shapes_are_refused(call: Any) -> None:
    with pytest.raises(ConfigError):
        call()


def test_the_supervised_loss_is_binary() -> None:
    given = batch()
    net = Linear()
    loss = Supervised().losses(net, given, INPUTS).terms["loss_supervised"]
    logits = net(given.labelled).flatten().tolist()
    labels = given.labels.flatten().tolist()
    terms = [math.log(1 + math.exp(-z if y else z)) for z, y in zip(logits, labels, strict=True)]
    assert loss.item() == pytest.approx(sum(terms) / len(terms))


def test_fixmatch_learns_confident_answers_of_both_kinds() -> None:
    given = batch(labelled=None, labels=None)
    net = Linear((0.9, -0.9, 0.1))
    objective = FixMatchObjective(FixMatchSettings(threshold=0.858, unlabelled_weight=0.5))
    losses = objective.losses(net, given, INPUTS, objective.init(net, INPUTS))
    labels, keep = answers(net(given.weak).sigmoid(), 0.858)
    pairs = set(zip(labels.flatten().tolist(), keep.flatten().tolist(), strict=True))
    assert pairs == {(0, False), (0, True), (1, False), (1, True)}, "the test shows every case"
    logits = net(given.strong)
    expected = F.binary_cross_entropy_with_logits(logits[keep], labels[keep].float())
    assert losses.terms["loss_pseudo"].item() == pytest.approx(0.5 * expected.item())
    assert losses.logs["kept"].item() == pytest.approx(keep.float().mean().item())


def test_the_smallest_batch_is_one_of_images_however_many_answers_they_have() -> None:
    """At 0.9 a logit beyond ±2.2 is confident: in none of (m, -2m, m/2), in one, two or three."""
    means = torch.tensor([0.5, 0.5, 1.2, 3.0, 5.0])
    given = batch(labelled=None, labels=None, weak=means.reshape(5, 1, 1, 1).expand(-1, 1, 4, 4))
    objective = FixMatchObjective(FixMatchSettings(threshold=0.9))
    for smallest_batch, learns in ((3, True), (4, False)):
        inputs = replace(INPUTS, smallest_batch=smallest_batch)
        losses = objective.losses(Linear(), given, inputs)
        assert bool(losses.learns) is learns
        assert (losses.terms["loss_pseudo"].item() > 0) is learns
        assert losses.logs["kept"].item() == pytest.approx(6 / 15 if learns else 0)


def test_peers_answer_for_each_class() -> None:
    """Where two peers contradict the net, their mean decides; without peers it is FixMatch."""
    draw = torch.Generator().manual_seed(4)
    peers = torch.rand(2, 5, 3, generator=draw)
    choices = {"threshold": 0.6, "unlabelled_weight": 1.0, "consistency_weight": 0.1}
    objective = FedPerlObjective(FedPerlSettings(**choices))
    net = Linear()
    given = batch(labelled=None, labels=None, peers=peers)
    losses = objective.losses(net, given, INPUTS, objective.init(net, INPUTS))
    local = net(given.weak).sigmoid().detach()
    labels, keep = answers((local + peers.sum(dim=0)) / 3, 0.6)
    expected = answers_loss(net(given.strong), labels, keep)
    assert losses.terms["loss_pseudo"].item() == pytest.approx(expected.item())
    assert losses.terms["loss_consistency"].item() == pytest.approx(
        0.1 * (local - peers).square().mean().item()
    )
    alone = batch(labelled=None, labels=None)
    fixmatch = FixMatchObjective(FixMatchSettings(threshold=0.6, unlabelled_weight=1.0))
    of_fedperl = objective.losses(net, alone, INPUTS, {}).terms["loss_pseudo"]
    of_fixmatch = fixmatch.losses(net, alone, INPUTS, {}).terms["loss_pseudo"]
    assert torch.equal(of_fedperl, of_fixmatch)


def test_probabilities_of_several_classes_stand_alone() -> None:
    logits = torch.tensor([[0.0, 0.0, LN3]])
    assert SIGMOID.probabilities(logits).tolist() == [pytest.approx([0.5, 0.5, 0.75])]
    assert SOFTMAX.probabilities(logits).tolist() == [pytest.approx([0.2, 0.2, 0.6])]
