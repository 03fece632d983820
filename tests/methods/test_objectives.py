"""Local objectives: what reaches the network's parameters, and what happens to its buffers."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from stepping import Stepping
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedward.methods import settings_of
from fedward.methods.fedirm.objective import FedIRMObjective
from fedward.methods.fedirm.relations import add_relation, relation_of
from fedward.methods.fedirm.settings import FedIRMSettings
from fedward.methods.fedmatch.decomposition import add_psi
from fedward.methods.fedmatch.objective import FedMatchObjective
from fedward.methods.fedmatch.settings import FedMatchSettings
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import (
    Batch,
    Losses,
    Objective,
    RoundInputs,
    Uses,
    evaluation_mode,
)
from fedward.methods.outputs import SIGMOID, SOFTMAX, Outputs
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.supervised import Supervised
from fedward.registry import METHODS

IMAGES = 6
CLASSES = 3
PEERS = 2
INPUTS = RoundInputs(torch.tensor([0.5, 1.0, 2.0]))


def make_net(dropout: float = 0.0, seed: int = 0) -> nn.Sequential:
    """Return a network whose BatchNorm statistics differ from those of any batch.

    Evaluation and training mode then differ.
    """
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.BatchNorm1d(5),
        nn.Dropout(dropout),
        nn.Linear(5, CLASSES),
    )
    norm = net[2]
    assert isinstance(norm, nn.BatchNorm1d)
    norm.running_mean = torch.randn(5)
    norm.running_var = torch.rand(5) + 0.5
    return net.train()


def make_batch(
    labelled: bool = True, unlabelled: bool = True, peers: int = 0, seed: int = 1
) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    images = [torch.rand(IMAGES, 3, 2, 2, generator=draw) for _ in range(3)]
    labels = torch.randint(CLASSES, (IMAGES,), generator=draw)
    opinions = torch.softmax(2 * torch.randn(PEERS, IMAGES, CLASSES, generator=draw), dim=2)
    return Batch(
        labelled=images[0] if labelled else None,
        labels=labels if labelled else None,
        weak=images[1] if unlabelled else None,
        strong=images[2] if unlabelled else None,
        peers=opinions[:peers] if peers and unlabelled else None,
    )


def fixmatch(**settings: object) -> FixMatchObjective:
    return FixMatchObjective(FixMatchSettings.model_validate({"threshold": 0.4, **settings}))


def fedperl(**settings: object) -> FedPerlObjective:
    return FedPerlObjective(
        FedPerlSettings.model_validate({"threshold": 0.4, "consistency_weight": 0.7, **settings})
    )


def gradients(net: nn.Module, total: Tensor) -> list[Tensor]:
    derivatives = torch.autograd.grad(total, list(net.parameters()), allow_unused=True)
    return [
        torch.zeros_like(parameter) if part is None else part
        for parameter, part in zip(net.parameters(), derivatives, strict=True)
    ]


def evaluate(
    objective: Objective, batch: Batch, dropout: float = 0.0
) -> tuple[Losses, list[Tensor], nn.Module]:
    """Run one step's losses on a fresh net, with the same dropout masks each time."""
    net = make_net(dropout)
    torch.manual_seed(99)
    losses = objective.losses(net, batch, INPUTS)
    return losses, gradients(net, torch.stack(list(losses.terms.values())).sum()), net


def assert_same(actual: list[Tensor], expected: list[Tensor], **tolerance: float) -> None:
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, **tolerance or {"rtol": 0.0, "atol": 0.0})


def buffers(net: nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in net.buffers()]


def untraced(net: nn.Module, images: Tensor) -> Tensor:
    """Return ``net(images)`` of a net whose buffers are copies."""
    result: Tensor = functional_call(
        net, {name: buffer.clone() for name, buffer in net.named_buffers()}, images
    )
    return result


class Pixels(nn.Module):
    """A network of two classes whose logits are its images' two pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(2, 2)
        nn.init.eye_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(images.flatten(1))
        return logits


def with_relation(net: nn.Module) -> None:
    add_relation(net)
    relation_of(net).rows.fill_(0.5)


# --- values


def test_supervised_loss_is_the_weighted_cross_entropy() -> None:
    """Sum of w_y * -log p_y over the batch, divided by the sum of w_y."""
    batch = make_batch()
    losses, _, _ = evaluate(Supervised(), batch)
    log_p = torch.log_softmax(make_net()(batch.labelled), dim=1)
    weights = INPUTS.class_weights[batch.labels]
    by_hand = -(weights * log_p[torch.arange(IMAGES), batch.labels]).sum() / weights.sum()
    assert list(losses.terms) == ["loss_supervised"]
    assert losses.logs == {}
    torch.testing.assert_close(losses.terms["loss_supervised"], by_hand)


@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_fedperl_terms_equal_the_equations_written_plainly(combine: str) -> None:
    batch = make_batch(peers=PEERS)
    threshold = 0.5
    beta = 0.5
    gamma = 0.7
    settings = {
        "threshold": threshold,
        "unlabelled_weight": beta,
        "consistency_weight": gamma,
        "combine": combine,
    }
    losses, _, _ = evaluate(fedperl(**settings), batch)

    net = make_net()
    supervised = F.cross_entropy(net(batch.labelled), batch.labels, weight=INPUTS.class_weights)
    logits = untraced(net, batch.strong)
    local = torch.softmax(net.eval()(batch.weak), dim=1).detach()
    kept = []
    for image in range(IMAGES):
        scores = local[image] + sum(batch.peers[peer, image] for peer in range(PEERS))
        confidence = scores.max() if combine == "sum" else scores.max() / (PEERS + 1)
        if confidence >= threshold:
            kept.append(F.cross_entropy(logits[image : image + 1], scores.argmax()[None]))
    distances = [F.mse_loss(batch.peers[peer], local) for peer in range(PEERS)]

    assert 0 < len(kept) < IMAGES or combine == "sum"
    assert losses.logs["kept"].item() == pytest.approx(len(kept) / IMAGES)
    torch.testing.assert_close(losses.terms["loss_supervised"], supervised)
    torch.testing.assert_close(losses.terms["loss_pseudo"], beta * sum(kept) / len(kept))
    torch.testing.assert_close(losses.terms["loss_consistency"], gamma * sum(distances) / PEERS)


def test_the_printed_sum_keeps_what_the_mean_does_not() -> None:
    """With two peers the largest of three sums is at least 1, so τ = 0.6 keeps everything."""
    batch = make_batch(peers=PEERS)
    by_sum, _, _ = evaluate(fedperl(threshold=0.6, combine="sum"), batch)
    by_mean, _, _ = evaluate(fedperl(threshold=0.6, combine="mean"), batch)
    assert by_sum.logs["kept"] == 1
    assert by_mean.logs["kept"] < 1


def test_one_view_alone_makes_no_pseudo_label() -> None:
    """Of FixMatch, which then is supervised; without labels it has nothing to learn."""
    for labelled, expected in ((True, ["loss_supervised"]), (False, [])):
        batch = make_batch(labelled=labelled)
        for name in ("weak", "strong"):
            losses = fixmatch().losses(make_net(), replace(batch, **{name: None}), INPUTS)
            assert list(losses.terms) == expected
            assert losses.learns == labelled


@pytest.mark.parametrize("make", [fixmatch, fedperl])
def test_a_mean_over_all_images_weighs_few_labels_less(make) -> None:
    batch = make_batch()
    over_kept, _, _ = evaluate(make(pseudo_label_mean="kept", threshold=0.7), batch)
    over_all, _, _ = evaluate(make(pseudo_label_mean="all", threshold=0.7), batch)
    share = over_kept.logs["kept"]
    assert 0 < share < 1
    expected = share * over_kept.terms["loss_pseudo"]
    torch.testing.assert_close(over_all.terms["loss_pseudo"], expected)
    with pytest.raises(ValueError, match="pseudo_label_mean"):
        make(pseudo_label_mean="some")


# --- degenerate identities


@pytest.mark.parametrize("make", [fixmatch, fedperl])
def test_beta_zero_gives_supervised_gradients(make) -> None:
    batch = make_batch()
    losses, without_pseudo_labels, _ = evaluate(make(unlabelled_weight=0.0), batch, dropout=0.3)
    expected, baseline, _ = evaluate(Supervised(), batch, dropout=0.3)
    assert losses.terms["loss_pseudo"].item() == 0.0
    torch.testing.assert_close(
        losses.terms["loss_supervised"], expected.terms["loss_supervised"], rtol=0, atol=0
    )
    assert_same(without_pseudo_labels, baseline)


def test_beta_and_gamma_zero_give_supervised_gradients() -> None:
    _, without_both, _ = evaluate(
        fedperl(unlabelled_weight=0.0, consistency_weight=0.0), make_batch(peers=PEERS), dropout=0.3
    )
    _, baseline, _ = evaluate(Supervised(), make_batch(), dropout=0.3)
    assert_same(without_both, baseline)


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_without_peers_fedperl_is_fixmatch_exactly(labelled: bool, combine: str) -> None:
    batch = make_batch(labelled=labelled)
    theirs, baseline, baseline_net = evaluate(fixmatch(), batch, dropout=0.3)
    ours, fedperl_gradients, net = evaluate(fedperl(combine=combine), batch, dropout=0.3)
    assert list(ours.terms) == list(theirs.terms)
    assert list(ours.logs) == list(theirs.logs)
    for name, value in {**theirs.terms, **theirs.logs}.items():
        assert torch.equal({**ours.terms, **ours.logs}[name], value), name
    assert_same(fedperl_gradients, baseline)
    assert_same(buffers(net), buffers(baseline_net))


def test_fixmatch_does_not_look_at_peers() -> None:
    _, with_peers, _ = evaluate(fixmatch(), make_batch(peers=PEERS))
    _, baseline, _ = evaluate(fixmatch(), make_batch())
    assert_same(with_peers, baseline)


# --- gradients: where there is one, and where none


def test_consistency_has_its_plain_derivative() -> None:
    """It is taken with the statistics of the forward pass.

    Autograd reads BatchNorm's running statistics when it goes back.
    """
    batch = make_batch(peers=PEERS)
    net = make_net()
    computed = gradients(net, fedperl().losses(net, batch, INPUTS).terms["loss_consistency"])
    twin = make_net()
    twin(batch.labelled)
    local = torch.softmax(twin.eval()(batch.weak), dim=1)
    expected = gradients(
        twin, 0.7 * torch.stack([F.mse_loss(local, peer) for peer in batch.peers]).mean()
    )
    assert max(part.abs().max() for part in computed) > 1e-4
    assert_same(computed, expected, rtol=1e-5, atol=1e-8)


def test_peers_get_no_gradient() -> None:
    batch = make_batch(peers=PEERS)
    batch.peers.requires_grad_()
    net = make_net()
    losses = fedperl().losses(net, batch, INPUTS)
    torch.stack(list(losses.terms.values())).sum().backward()
    assert batch.peers.grad is None
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_pseudo_labels_carry_no_gradient() -> None:
    """The pseudo-label loss is that of labels given from outside: the weak view trains nothing."""
    batch = make_batch(labelled=False)
    batch.weak.requires_grad_()
    net = make_net()
    fixmatch(threshold=0.0).losses(net, batch, INPUTS).terms["loss_pseudo"].backward()
    assert batch.weak.grad is None
    twin = make_net()
    logits = untraced(twin, batch.strong)
    labels = twin.eval()(batch.weak).argmax(dim=1)
    expected = gradients(twin, 0.5 * F.cross_entropy(logits, labels))
    assert_same([parameter.grad for parameter in net.parameters()], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("objective", "extend", "outputs", "kept"),
    [
        (fixmatch(threshold=0.95), None, SOFTMAX, 1 / 2),
        (fixmatch(threshold=0.95), None, SIGMOID, 1 / 4),
        (FedMatchObjective(FedMatchSettings(threshold=0.95)), add_psi, SOFTMAX, 1 / 2),
        (
            FedIRMObjective(FedIRMSettings(threshold=0.95, largest_uncertainty=1.0), factor=1.0),
            with_relation,
            SOFTMAX,
            1 / 2,
        ),
    ],
    ids=["one label", "several labels", "fedmatch", "fedirm"],
)
def test_autocast_rounds_no_confidence_up_to_the_threshold(
    objective: Objective[Any],
    extend: Callable[[nn.Module], None] | None,
    outputs: Outputs,
    kept: float,
) -> None:
    """bfloat16 holds the logits exactly, whose probabilities are 0.9489 and 0.9504.

    It would round the first of them and the threshold, 0.95, to the same number.
    """
    net = Pixels()
    if extend is not None:
        extend(net)
    images = torch.tensor([[187 / 64, 0.0], [189 / 64, 0.0]]).reshape(2, 2, 1, 1)
    inputs = RoundInputs(torch.ones(2), outputs=outputs)
    with torch.autocast("cpu", torch.bfloat16):
        assert net(images).dtype == torch.bfloat16
        losses = Stepping(objective, net, inputs).losses(Batch(weak=images, strong=images))
    assert losses.logs["kept"].item() == kept


def test_nothing_kept_trains_nothing_by_pseudo_labels() -> None:
    losses, computed, _ = evaluate(fixmatch(threshold=1.0), make_batch(labelled=False))
    assert losses.logs["kept"].item() == 0.0
    assert losses.terms["loss_pseudo"].item() == 0.0
    assert all(torch.equal(part, torch.zeros_like(part)) for part in computed)


# --- BatchNorm and dropout


def test_a_pass_in_evaluation_mode_leaves_no_trace() -> None:
    net = make_net(dropout=0.5)
    weak = make_batch().weak
    before = buffers(net)
    chance = torch.get_rng_state()
    with evaluation_mode(net):
        first, second = (torch.softmax(net(weak), dim=1) for _ in range(2))
    assert torch.equal(first, second), "dropout was on"
    assert torch.equal(torch.get_rng_state(), chance)
    assert_same(buffers(net), before)
    assert first.requires_grad
    assert all(module.training for module in net.modules())
    torch.testing.assert_close(first.sum(dim=1), torch.ones(IMAGES))


def test_a_net_that_fails_is_left_training() -> None:
    net = make_net()
    with pytest.raises(RuntimeError), evaluation_mode(net):
        net(torch.rand(2, 1, 1, 1))
    assert all(module.training for module in net.modules())


@pytest.mark.parametrize("objective", [fixmatch(), fedperl(), fedperl(consistency_weight=0.0)])
@pytest.mark.parametrize("peers", [0, PEERS])
def test_teaching_changes_no_buffer(objective: FixMatchObjective, peers: int) -> None:
    net = make_net(dropout=0.5)
    batch = make_batch(peers=peers)
    before = buffers(net)
    unlabelled = replace(batch, labelled=None, labels=None)
    objective.losses(net, unlabelled, INPUTS, {})
    assert_same(buffers(net), before)
    assert all(module.training for module in net.modules())


@pytest.mark.parametrize("peers", [0, PEERS])
@pytest.mark.parametrize("statistics", ["weak_views", "all_views"])
def test_only_training_passes_move_the_statistics(peers: int, statistics: str) -> None:
    """Labelled views update them once, strong views only if all are to, weak views never."""
    batch = make_batch(peers=peers)
    _, _, net = evaluate(fedperl(batch_statistics=statistics), batch)
    twin = make_net()
    twin(batch.labelled)
    if statistics == "all_views":
        twin(batch.strong)
    assert_same(buffers(net), buffers(twin))
    assert any(
        not torch.equal(a, b) for a, b in zip(buffers(net), buffers(make_net()), strict=True)
    )
    assert all(module.training for module in net.modules())


@pytest.mark.parametrize("peers", [0, PEERS])
def test_batch_statistics_for_labels_is_one_more_training_pass(peers: int) -> None:
    batch = make_batch(peers=peers)
    objective = fedperl(batch_statistics_for_labels=True, threshold=0.0)
    losses, _, net = evaluate(objective, batch)
    twin = make_net()
    twin(batch.labelled)
    logits = untraced(twin, batch.strong)
    local = torch.softmax(twin(batch.weak), dim=1).detach()
    assert_same(buffers(net), buffers(twin))
    scores = local if not peers else local + batch.peers.sum(dim=0)
    torch.testing.assert_close(
        losses.terms["loss_pseudo"], 0.5 * F.cross_entropy(logits, scores.argmax(dim=1))
    )


# --- parts that are absent


@pytest.mark.parametrize("objective", [fixmatch(), fedperl()])
def test_a_batch_without_labels_has_no_supervised_term(objective: Objective) -> None:
    losses, computed, _ = evaluate(objective, make_batch(labelled=False))
    assert list(losses.terms) == ["loss_pseudo"]
    assert any(part.abs().sum() > 0 for part in computed)


@pytest.mark.parametrize("objective", [fixmatch(), fedperl(), Supervised()])
def test_a_batch_without_unlabelled_images_is_supervised(objective: Objective) -> None:
    losses, computed, net = evaluate(objective, make_batch(unlabelled=False))
    _, baseline, baseline_net = evaluate(Supervised(), make_batch())
    assert list(losses.terms) == ["loss_supervised"]
    assert losses.logs == {}
    assert_same(computed, baseline)
    assert_same(buffers(net), buffers(baseline_net))


def test_supervised_training_of_nothing_has_no_term() -> None:
    assert Supervised().losses(make_net(), make_batch(labelled=False), INPUTS) == Losses({})


def test_only_semi_supervised_objectives_need_unlabelled_views() -> None:
    assert Supervised().uses == Uses(labelled=True, unlabelled="none", second_view="none")
    for objective in (fixmatch(), fedperl()):
        assert objective.uses == Uses(labelled=True, unlabelled="unlabelled", second_view="strong")


@pytest.mark.parametrize("objective", [fixmatch(), fedperl(), Supervised()])
def test_objectives_without_memory_leave_net_and_memory_alone(objective: Objective) -> None:
    """Neither the beginning of a phase nor the end of a step is anything to them."""
    net = make_net()
    inputs = RoundInputs(INPUTS.class_weights, steps_before=7)
    phase = Stepping(objective, net, inputs)
    phase.follow()
    twin = make_net()
    assert_same(list(net.parameters()), list(twin.parameters()))
    assert_same(buffers(net), buffers(twin))
    assert all(module.training for module in net.modules())
    assert inputs.memory == phase.memory == {}


@pytest.mark.parametrize(
    ("method", "kind"),
    [("fedavg", Supervised), ("ssfl", FixMatchObjective), ("fedperl", FedPerlObjective)],
)
def test_a_round_of_these_methods_is_one_phase(method: str, kind: type[Objective]) -> None:
    """For sites with labels and without; a phase never gets the objective of another."""
    algorithm = METHODS[method](
        settings_of(method, {"learning_rate": 0.003, "schedule": "constant"})
    )
    phases = [
        phase
        for labelled in (0, 5)
        for round_ in (1, 9)
        for phase in algorithm.phases("train", round_, labelled)
    ]
    assert len(phases) == 4
    assert len({id(phase.objective) for phase in phases}) == 4
    for phase in phases:
        assert type(phase.objective) is kind
        assert (phase.learning_rate, phase.stream) == (0.003, ())


# --- hidden labels


@pytest.mark.parametrize("objective", [fixmatch(), fedperl()])
def test_hidden_labels_have_no_way_in(objective: Objective) -> None:
    """A batch has one place for labels, and the unlabelled terms do not read it."""
    views = {"weak", "strong", "peers", "which"}
    assert {field.name for field in fields(Batch)} == {"labelled", "labels", *views}
    batch = make_batch(peers=PEERS)
    other = Batch(
        batch.labelled, (batch.labels + 1) % CLASSES, batch.weak, batch.strong, batch.peers
    )
    first, second = (evaluate(objective, each)[0] for each in (batch, other))
    assert first.terms["loss_supervised"] != second.terms["loss_supervised"]
    for name in set(first.terms) - {"loss_supervised"}:
        assert torch.equal(first.terms[name], second.terms[name]), name
