"""FedIRM: its equations, its objective at a site without labels, and what its server averages."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from grouped import model, moved
from pydantic import ValidationError
from stepping import Stepping
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods import settings_of
from fedward.methods.fedirm.algorithm import FedIRM
from fedward.methods.fedirm.objective import FedIRMObjective, ramp_up
from fedward.methods.fedirm.relations import (
    ROWS,
    MeasuredRelation,
    add_relation,
    class_relations,
    mean_relation,
    relation_loss,
    relation_of,
    uncertainty,
)
from fedward.methods.fedirm.settings import FedIRMSettings
from fedward.methods.local import Batch, Losses, RoundInputs
from fedward.methods.mean_teacher import TEACHER
from fedward.methods.requirements import Feature
from fedward.methods.workflow import ClientUpdate, Federation
from fedward.registry import METHODS

CLASSES = 3
NAN = math.nan


def logits_of(images: int = 7, classes: int = 4, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(images, classes, generator=draw, dtype=torch.float64)


def members_of(labels: list[int], classes: int = 4) -> Tensor:
    """Return (N, K) bool; a label of -1 is of no class."""
    return torch.tensor([[label == c for c in range(classes)] for label in labels])


def relations_by_loops(logits: Tensor, labels: list[int], temperature: float) -> np.ndarray:
    z = logits.numpy()
    classes = z.shape[1]
    matrix = np.zeros((classes, classes))
    for c in range(classes):
        own = [z[i] for i in range(len(labels)) if labels[i] == c]
        if own:
            mean = [sum(row[j] for row in own) / len(own) for j in range(classes)]
            powers = [math.exp(value / temperature) for value in mean]
            matrix[c] = [power / sum(powers) for power in powers]
    return matrix


def loss_by_loops(rows: np.ndarray, target: np.ndarray) -> float:
    divergences = []
    for mine, theirs in zip(rows, target, strict=True):
        if mine.sum() and theirs.sum():
            forth = sum(p * math.log(p / q) for p, q in zip(theirs, mine, strict=True))
            back = sum(q * math.log(q / p) for p, q in zip(theirs, mine, strict=True))
            divergences.append((forth + back) / 2)
    return sum(divergences) / max(1, len(divergences))


# --- relation matrices


def test_a_relation_matrix_by_hand() -> None:
    """Logits (6 log 3, 0) and (2 log 3, 0) have the mean (4 log 3, 0), at T = 2 a ratio of 9."""
    logits = torch.tensor([[6 * math.log(3), 0.0], [2 * math.log(3), 0.0], [5.0, 5.0]]).double()
    rows = class_relations(logits, members_of([0, 0, -1], 2), 2.0)
    assert rows[0].tolist() == pytest.approx([0.9, 0.1], rel=1e-7)
    assert rows[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_relations_and_their_loss_equal_loops(temperature: float) -> None:
    labels = [0, 2, 2, 0, -1, 2, 3]
    logits = logits_of()
    rows = class_relations(logits, members_of(labels), temperature)
    expected = relations_by_loops(logits, labels, temperature)
    np.testing.assert_allclose(rows.numpy(), expected, rtol=1e-12, atol=1e-15)
    target = class_relations(logits_of(seed=1), members_of([0, 1, 1, 2, 2, 2, -1]), temperature)
    loss = relation_loss(rows, target)
    assert loss.item() == pytest.approx(loss_by_loops(expected, target.numpy()), rel=1e-9)
    assert loss.item() > 0
    assert relation_loss(target, rows).item() == pytest.approx(loss.item(), rel=1e-9)
    assert relation_loss(rows, rows).item() == 0


def test_the_gradient_is_that_of_finite_differences_and_of_members_alone() -> None:
    target = class_relations(logits_of(seed=1), members_of([0, 1, 1, 2, 2, 2, -1]), 2.0)
    members = members_of([0, 2, 2, 0, -1, 2, 3])
    logits = logits_of().requires_grad_()

    def loss(z: Tensor) -> Tensor:
        return relation_loss(class_relations(z, members, 2.0), target)

    assert torch.autograd.gradcheck(loss, (logits,), eps=1e-6, atol=1e-8)
    loss(logits).backward()
    assert logits.grad is not None
    moved_rows = logits.grad.abs().sum(dim=1) > 0
    # Image 4 has no class; image 6 is of class 3, which the target does not know.
    assert moved_rows.tolist() == [True, True, True, True, False, True, False]


def test_without_a_common_class_loss_and_gradient_are_zero() -> None:
    logits = logits_of().requires_grad_()
    rows = class_relations(logits, members_of([0] * 7), 2.0)
    loss = relation_loss(rows, torch.zeros(4, 4))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_a_broken_member_is_noticed_and_other_images_have_no_influence() -> None:
    logits = logits_of()
    logits[4] = NAN
    ignored = class_relations(logits, members_of([0, 2, 2, 0, -1, 2, 3]), 2.0)
    assert ignored.isfinite().all()
    broken = class_relations(logits, members_of([0, 2, 2, 0, 1, 2, 3]), 2.0)
    assert relation_loss(broken, torch.full((4, 4), 0.25)).isnan()


@pytest.mark.parametrize(
    ("logits", "members", "temperature"),
    [
        (torch.zeros(2, 3), torch.ones(2, 2, dtype=torch.bool), 2.0),
        (torch.zeros(3), torch.ones(3, dtype=torch.bool), 2.0),
        (torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), 0.0),
        (torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), NAN),
    ],
)
def test_relations_refuse_other_shapes_and_temperatures(
    logits: Tensor, members: Tensor, temperature: float
) -> None:
    with pytest.raises(ConfigError, match=r"fedirm\.class_relations"):
        class_relations(logits, members, temperature)


# --- uncertainty


def test_uncertainty_of_one_pass_by_hand() -> None:
    """(3/4, 1/4) has the entropy log 4 - 3/4 log 3; equal logits have all of log K."""
    classifier = nn.Identity()
    features = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [200.0, 0.0], [NAN, 0.0]])
    found = uncertainty(classifier, features, 0.0, 1, torch.Generator())
    expected = (math.log(4) - 0.75 * math.log(3)) / math.log(2)
    assert found[:3].tolist() == pytest.approx([expected, 1.0, 0.0], abs=1e-6)
    assert found[3].isnan()


def test_uncertainty_equals_a_loop_over_its_passes() -> None:
    classifier = nn.Linear(6, 5)
    draw = torch.Generator().manual_seed(1)
    features = torch.randn(4, 6, generator=draw)
    found = uncertainty(classifier, features, 0.4, 3, torch.Generator().manual_seed(2))
    again = torch.Generator().manual_seed(2)
    weight = classifier.weight.detach().numpy()
    bias = classifier.bias.detach().numpy()
    mean = np.zeros((4, 5))
    for _ in range(3):
        kept = (torch.rand(4, 6, generator=again) >= 0.4).numpy()
        for i in range(4):
            z = weight @ (features[i].numpy() * kept[i] / 0.6) + bias
            mean[i] += np.exp(z) / np.exp(z).sum() / 3
    entropy = -(mean * np.log(mean)).sum(axis=1) / math.log(5)
    np.testing.assert_allclose(found.numpy(), entropy, rtol=1e-5)
    assert not found.requires_grad


@pytest.mark.parametrize("classes", [2, 5, 40])
def test_a_bound_below_one_filters_whatever_the_number_of_classes(classes: int) -> None:
    """The released bound of 2.0 keeps even a uniform answer of five classes."""
    features = torch.zeros(1, classes)
    found = uncertainty(nn.Identity(), features, 0.2, 11, torch.Generator())
    assert found.item() == pytest.approx(1.0)
    assert found.item() > FedIRMSettings().largest_uncertainty
    assert (found.item() * math.log(classes) < 2.0) == (classes <= 7)


# --- ramp_up


def test_ramp_up_by_hand() -> None:
    assert ramp_up(0, 30) == pytest.approx(math.exp(-5))
    assert ramp_up(15, 30) == pytest.approx(math.exp(-1.25))
    assert ramp_up(21, 30) == pytest.approx(0.6376281516)
    assert ramp_up(30, 30) == ramp_up(1000, 30) == ramp_up(0, 0) == 1.0
    with pytest.raises(ConfigError, match=r"fedirm\.ramp_up"):
        ramp_up(-1, 30)


# --- mean_relation


def test_the_mean_is_over_the_sites_that_know_a_class() -> None:
    first = torch.tensor([[0.5, 0.5], [0.2, 0.8]])
    second = torch.tensor([[0.9, 0.1], [0.0, 0.0]])
    torch.testing.assert_close(
        mean_relation([first, second], 1.0), torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    )
    known_to_two = mean_relation([first, second], 2.0)
    torch.testing.assert_close(known_to_two, torch.tensor([[0.7, 0.3], [0.0, 0.0]]))


@pytest.mark.proves(
    "server",
    "learning one hospital's relation of a class, which no other hospital with labels knows",
    "the class has no row in what the sites are sent, as soon as averages need two or more replies",
)
def test_a_row_that_one_site_alone_knows_is_not_sent() -> None:
    row_of_one = torch.tensor([[0.5, 0.5], [0.2, 0.8]])
    others = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    mean = mean_relation([row_of_one, others, others], 2.5)
    assert mean[0].tolist() == [0.5, 0.5]
    assert mean[1].tolist() == [0.0, 0.0]


@pytest.mark.proves(
    "site",
    "moving the mean relation matrix of all sites by numbers that are no probabilities",
    "each row stays a distribution, which the site moves by its share among the sites at most",
)
@pytest.mark.parametrize("hostile", [1e30, -1e30, math.inf, NAN])
def test_no_matrix_moves_a_row_beyond_its_share(hostile: float) -> None:
    honest = torch.tensor([[0.5, 0.5], [0.2, 0.8]])
    forged = torch.tensor([[hostile, 0.0], [0.0, hostile]])
    mean = mean_relation([honest, honest, honest, forged], 1.0)
    torch.testing.assert_close(mean.sum(dim=1), torch.ones(2))
    assert ((mean - honest).abs() <= 0.25 + 1e-6).all()


# --- what a site with labels measures


class Answers(nn.Module):
    """A network whose logits are its images' first pixels plus dropout, and a relation matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(CLASSES, CLASSES)
        nn.init.eye_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)
        add_relation(self)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.dropout(images.flatten(1)[:, :CLASSES]))
        return logits


def test_a_site_measures_the_classes_with_enough_images_over_all_batches() -> None:
    draw = torch.Generator().manual_seed(4)
    images = torch.rand(11, 1, 1, CLASSES, generator=draw)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0, 1, 2, 0])
    net = Answers().train()
    batches = [
        Batch(labelled=images[:4], labels=labels[:4]),
        Batch(labelled=images[4:], labels=labels[4:]),
    ]
    MeasuredRelation(2.0).measure(net, batches)
    rows = relation_of(net).rows
    z = images.flatten(1).double()
    expected = relations_by_loops(z, [label if label < 2 else -1 for label in labels.tolist()], 2.0)
    np.testing.assert_allclose(rows.numpy(), expected, rtol=1e-6, atol=1e-7)
    assert net.training
    assert not rows[2].any(), "one image of class 2 is not enough"


def test_a_network_needs_a_linear_classifier() -> None:
    with pytest.raises(ConfigError, match="fedirm, classifier"):
        add_relation(nn.Sequential(nn.Linear(2, 2)))


# --- the objective


def batch_of(images: int = 8, seed: int = 1) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    weak, second = (4 * torch.rand(images, 1, 1, CLASSES, generator=draw) for _ in range(2))
    return Batch(weak=weak, strong=second)


def objective_of(factor: float = 1.0, **options: Any) -> FedIRMObjective:
    defaults = {"largest_uncertainty": 1.0, "threshold": 0.0, "dropout": 0.0, "passes": 1}
    return FedIRMObjective(FedIRMSettings.model_validate({**defaults, **options}), factor)


def net_with(target: Tensor) -> Answers:
    net = Answers()
    net.dropout.p = 0.0
    relation_of(net).rows.copy_(target)
    return net.train()


TARGET = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.0, 0.0, 0.0]])


def test_the_objective_equals_loops() -> None:
    net = net_with(TARGET)
    batch = batch_of()
    options = {"unlabelled_weight": 3.0, "relation_weight": 5.0, "threshold": 0.6}
    phase = Stepping(objective_of(0.5, **options), net, RoundInputs(torch.ones(CLASSES)))
    with torch.no_grad():
        net.classifier.weight.mul_(0.7)
    losses = phase.losses(batch)
    assert batch.weak is not None
    assert batch.strong is not None
    teacher = batch.weak.flatten(1).double().softmax(dim=1).numpy()
    z = 0.7 * batch.strong.flatten(1).double()
    student = z.softmax(dim=1).numpy()
    consistency = sum(((student[i] - teacher[i]) ** 2).sum() for i in range(8)) / 8
    labels = [int(row.argmax()) if row.max() >= 0.6 else -1 for row in student]
    rows = relations_by_loops(z, labels, 2.0)
    relation = loss_by_loops(rows, TARGET.numpy().astype(float))
    assert losses.terms["loss_consistency"].item() == pytest.approx(0.5 * 3 * consistency, rel=1e-5)
    assert losses.terms["loss_relation"].item() == pytest.approx(0.5 * 5 * relation, rel=1e-5)
    assert losses.logs["kept"].item() == pytest.approx(sum(label >= 0 for label in labels) / 8)
    assert 0 < sum(label >= 0 for label in labels) < 8
    assert losses.learns is True


def test_only_the_student_gets_a_gradient() -> None:
    net = net_with(TARGET)
    phase = Stepping(objective_of(), net, RoundInputs(torch.ones(CLASSES)))
    torch.stack(list(phase.losses(batch_of()).terms.values())).sum().backward()
    assert net.classifier.weight.grad is not None
    assert net.classifier.weight.grad.abs().sum() > 0
    assert relation_of(net).rows.grad is None
    assert not any(tensor.requires_grad for tensor in phase.memory[TEACHER].values())


def test_uncertain_images_and_too_few_of_them_do_not_match() -> None:
    batch = batch_of()
    inputs = RoundInputs(torch.ones(CLASSES))
    certain = Stepping(objective_of(largest_uncertainty=0.0), net_with(TARGET), inputs)
    losses = certain.losses(batch)
    assert losses.logs["kept"].item() == 0
    assert losses.terms["loss_relation"].item() == 0
    assert losses.terms["loss_consistency"].item() >= 0
    few = RoundInputs(torch.ones(CLASSES), smallest_batch=9)
    too_few = Stepping(objective_of(), net_with(TARGET), few).losses(batch)
    assert too_few.logs["kept"].item() == 0
    assert too_few.terms["loss_relation"].item() == 0


@pytest.mark.proves(
    "server",
    "a mean relation matrix whose rows are no distributions, so that its loss outweighs all others",
    "each row counts as the distribution that it is a multiple of, or as none",
)
def test_rows_that_are_no_distributions_weigh_no_more() -> None:
    hostile = TARGET * torch.tensor([[1e30], [-1.0], [NAN]])
    honest = TARGET * torch.tensor([[1.0], [0.0], [0.0]])
    inputs = RoundInputs(torch.ones(CLASSES))
    found, expected = (
        Stepping(objective_of(), net_with(rows), inputs).losses(batch_of()).terms["loss_relation"]
        for rows in (hostile, honest)
    )
    assert expected.item() > 0
    torch.testing.assert_close(found, expected)


@pytest.mark.proves(
    "server",
    "a mean relation matrix that knows only a class of which a site's batch has one image",
    "no step follows that image alone: images of classes with a row must fill the smallest batch",
)
def test_images_of_unknown_classes_do_not_fill_the_smallest_batch() -> None:
    batch = batch_of()
    assert batch.strong is not None
    labels = batch.strong.flatten(1).argmax(dim=1)
    images = int((labels == 1).sum())
    assert 0 < images < len(labels)
    only_class_1 = TARGET * torch.tensor([[0.0], [1.0], [0.0]])
    for smallest_batch, learns in ((images, True), (images + 1, False)):
        inputs = RoundInputs(torch.ones(CLASSES), smallest_batch=smallest_batch)
        losses = Stepping(objective_of(), net_with(only_class_1), inputs).losses(batch)
        assert (losses.terms["loss_relation"].item() > 0) == learns


def test_without_a_mean_matrix_it_is_the_mean_teacher_of_the_site() -> None:
    phase = Stepping(objective_of(), net_with(torch.zeros(3, 3)), RoundInputs(torch.ones(CLASSES)))
    with torch.no_grad():
        phase.net.classifier.weight.mul_(0.7)  # type: ignore[union-attr, operator]
    losses = phase.losses(batch_of())
    assert losses.terms["loss_relation"].item() == 0
    assert losses.terms["loss_consistency"].item() > 0
    assert phase.losses(Batch()) == Losses({})
    assert (
        not objective_of(unlabelled_weight=0.0, relation_weight=0.0)
        .losses(phase.net, batch_of(), phase.inputs, phase.state)
        .learns
    )


@pytest.mark.proves(
    "lead",
    "a fedirm job that keeps a site busy with passes of one batch, or divides by almost 0",
    "refused as a setting",
)
@pytest.mark.parametrize("wrong", [{"passes": 1001}, {"relation_temperature": 1e-3}])
def test_settings_that_no_run_survives_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        FedIRMSettings.model_validate(wrong)
    sharpest = torch.tensor([[60.0, -60.0], [0.0, 0.0]], requires_grad=True)
    smallest = FedIRMSettings.model_fields["relation_temperature"].metadata[0].ge
    rows = class_relations(sharpest, torch.eye(2).bool(), smallest)
    relation_loss(rows, torch.tensor([[0.0, 1.0], [0.5, 0.5]])).backward()
    assert sharpest.grad is not None
    assert sharpest.grad.isfinite().all()


# --- the algorithm


def test_a_site_with_labels_trains_and_then_measures_without_a_rate() -> None:
    method = FedIRM(FedIRMSettings(warm_up=1, ramp_up=4))
    training, measuring = method.phases("supervised", 3, 10)
    assert isinstance(measuring.objective, MeasuredRelation)
    assert measuring.learning_rate == 0
    assert training.learning_rate > 0
    (without_labels,) = method.phases("unsupervised", 3, 0)
    assert isinstance(without_labels.objective, FedIRMObjective)
    assert without_labels.objective._factor == ramp_up(2, 4)
    assert not method.phases("unsupervised", 3, 10)
    assert not method.phases("supervised", 3, 0)


def test_what_it_declares() -> None:
    requirements = FedIRM(FedIRMSettings()).requirements
    assert requirements.sends.class_totals
    assert requirements.tensors.distributions == (ROWS,)
    assert requirements.tensors.withheld("unsupervised") == ("relation.",)
    assert requirements.tensors.withheld("supervised") == ()
    for feature in (
        Feature.SECURE_AGGREGATION,
        Feature.SEVERAL_PROCESSES,
        Feature.SEVERAL_LABELS,
    ):
        assert requirements.reason_against(feature), feature
    assert not requirements.reason_against(Feature.ROBUST_MEAN)


def test_models_are_averaged_over_all_sites_and_matrices_over_those_with_labels() -> None:
    options = {"rounds": 2, "warm_up": 0, "largest_share": 1.0}
    method = METHODS["fedirm"](settings_of("fedirm", options))
    records: list[dict[str, Any]] = []

    def record(log: str, row: dict[str, Any]) -> None:
        if log == "relations":
            records.append(row)

    federation = Federation(["a", "b", "c"], 0, {}, record=record)
    start = {**model(0.0), ROWS: torch.zeros(2, 2)}
    state = method.start(start)
    state.groups = {"a": "labelled", "b": "labelled", "c": "unlabelled"}
    rows = {
        "a": torch.tensor([[0.5, 0.5], [0.0, 0.0]]),
        "b": torch.tensor([[0.7, 0.3], [0.0, 0.0]]),
        "c": torch.zeros(2, 2),
    }
    rounds = method.rounds(state, federation)
    exchange = next(rounds)
    tasks = {site: task.name for site, task in exchange.tasks.items()}
    assert tasks == {"a": "supervised", "b": "supervised", "c": "unsupervised"}
    replies = []
    for site, images in (("a", (10, 0)), ("b", (10, 0)), ("c", (0, 20))):
        trained = {**moved(model(0.0), site), ROWS: rows[site]}
        replies.append(ClientUpdate(site, trained, *images, steps=3))
    rounds.send(replies)
    torch.testing.assert_close(state.model[ROWS], torch.tensor([[0.6, 0.4], [0.0, 0.0]]))
    expected = sum(
        weight * reply.state["w"] for weight, reply in zip((0.25, 0.25, 0.5), replies, strict=True)
    )
    torch.testing.assert_close(state.model["w"], expected)
    assert records == [{"round": 1, "part": 0, "sites": ["a", "b"], "known": [0]}]


def test_distances_of_models_leave_the_matrices_out() -> None:
    """Two sites with one network and other matrices are 0 apart, and count by their images."""
    options = {"rounds": 1, "warm_up": 0, "largest_share": 1.0, "distance_scale": 100.0}
    method = METHODS["fedirm"](settings_of("fedirm", options))
    records: list[dict[str, Any]] = []
    federation = Federation(["a", "b"], 0, {}, record=lambda log, row: records.append(row))
    rounds = method.rounds(method.start({**model(0.0), ROWS: torch.zeros(2, 2)}), federation)
    next(rounds)
    replies = []
    for site, images, row in (("a", 10, [0.9, 0.1]), ("b", 30, [0.2, 0.8])):
        trained = {**model(1.0), ROWS: torch.tensor([row, [0.0, 0.0]])}
        replies.append(ClientUpdate(site, trained, images, 0, steps=3))
    with pytest.raises(StopIteration):
        rounds.send(replies)
    (average, _) = records
    assert average["distances"] == [0.0, 0.0]
    assert average["weights"] == pytest.approx([0.25, 0.75])
