"""FedMatch: votes, divergences, the two sets of parameters, and who helps whom."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from stepping import Stepping
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods import settings_of
from fedward.methods.anonymous_peers import anonymise
from fedward.methods.fedmatch.algorithm import FedMatch, FedMatchState
from fedward.methods.fedmatch.decomposition import add_psi, psi_of, shared_with_psi, theta_of
from fedward.methods.fedmatch.helpers import HelperModel
from fedward.methods.fedmatch.objective import (
    FedMatchObjective,
    agreement,
    disjoint_penalty,
    inter_client_consistency,
)
from fedward.methods.fedmatch.settings import FedMatchSettings
from fedward.methods.local import Batch, RoundInputs
from fedward.methods.requirements import Feature
from fedward.methods.workflow import ClientUpdate, Federation
from fedward.model_state import State
from fedward.registry import METHODS

CLASSES = 3
IMAGES = 6


def probabilities(*shape: int, seed: int = 0, spread: float = 1.5) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(*shape, generator=draw, dtype=torch.float64)
    return torch.softmax(logits, dim=-1)


# --- agreement


def test_votes_by_hand() -> None:
    local = torch.tensor([[0.6, 0.4, 0.0], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    first = torch.tensor([[0.1, 0.9, 0.0], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
    second = torch.tensor([[0.2, 0.8, 0.0], [0.2, 0.6, 0.2], [0.9, 0.1, 0.0]])
    # Outvoted two to one; all differ, and class 2 has the mean 0.4; two agree with each other.
    assert agreement(local, torch.stack([first, second])).tolist() == [1, 2, 2]
    assert agreement(local, torch.empty(0, 3, 3)).tolist() == [0, 0, 2]


@pytest.mark.parametrize("helpers", [0, 1, 2, 3])
def test_votes_equal_a_loop(helpers: int) -> None:
    local = probabilities(20, 4)
    others = probabilities(helpers, 20, 4, seed=1)
    expected = []
    for i in range(20):
        votes = [0.0] * 4
        for model in [local, *others]:
            votes[int(model[i].argmax())] += 1
            for c in range(4):
                votes[c] += float(model[i, c]) / (2 * (helpers + 1))
        expected.append(votes.index(max(votes)))
    assert agreement(local, others).tolist() == expected


def test_votes_need_the_same_images() -> None:
    with pytest.raises(ConfigError, match=r"fedmatch\.agreement"):
        agreement(probabilities(4, 3), probabilities(2, 5, 3))


# --- inter-client consistency


def test_the_divergence_equals_a_loop_and_its_gradient_finite_differences() -> None:
    helpers = probabilities(2, IMAGES, CLASSES, seed=1)
    helpers[0, 0] = torch.tensor([0.0, 1.0, 0.0])
    keep = torch.tensor([True, True, False, True, False, True])
    draw = torch.Generator().manual_seed(2)
    logits = torch.randn(IMAGES, CLASSES, generator=draw, dtype=torch.float64).requires_grad_()
    local = logits.detach().softmax(dim=1).numpy()
    total = 0.0
    for i in (0, 1, 3, 5):
        for p in helpers[:, i].numpy():
            for c in range(CLASSES):
                if p[c]:
                    total += p[c] * math.log(p[c] / local[i, c]) / 2 / 4
    loss = inter_client_consistency(logits, helpers, keep)
    assert loss.item() == pytest.approx(total, rel=1e-12)
    assert torch.autograd.gradcheck(
        lambda z: inter_client_consistency(z, helpers, keep), (logits,), eps=1e-6, atol=1e-8
    )
    loss.backward()
    assert logits.grad is not None
    assert (logits.grad.abs().sum(dim=1) > 0).tolist() == keep.tolist()
    nobody = inter_client_consistency(logits, helpers, torch.zeros(IMAGES, dtype=torch.bool))
    assert nobody.item() == 0


def test_helpers_equal_to_the_site_have_no_divergence() -> None:
    local = probabilities(IMAGES, CLASSES)
    keep = torch.ones(IMAGES, dtype=torch.bool)
    same = inter_client_consistency(local.log(), local.unsqueeze(0), keep)
    assert same.item() == pytest.approx(0, abs=1e-12)


# --- the two sets


def test_penalties_by_hand_and_their_gradients() -> None:
    """θ = (3, -1), ψ = (1, -2): σ = (2, 1); sum of |ψ| is 3, ‖σ - ψ‖² is 1 + 9."""
    theta = torch.tensor([3.0, -1.0], requires_grad=True)
    psi = torch.tensor([1.0, -2.0], requires_grad=True)
    sparse, close = disjoint_penalty(theta, psi, 0.5, 0.1)
    assert sparse.item() == pytest.approx(1.5)
    assert close.item() == pytest.approx(1.0)
    (sparse + close).backward()
    assert theta.grad is None
    # 0.5 sign(ψ) - 2 · 0.1 (σ - ψ)
    assert psi.grad is not None
    assert psi.grad.tolist() == pytest.approx([0.5 - 0.2, -0.5 - 0.6])


class Small(nn.Module):
    """A network of two layers, with a parameter at its top."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.scale = nn.Parameter(torch.ones(()))
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh())
        self.classifier = nn.Linear(5, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.scale * self.features(images))
        return logits


def decomposed(seed: int = 0) -> Small:
    net = Small(seed)
    add_psi(net)
    return net


def test_psi_has_a_share_of_each_parameter_and_changes_no_output() -> None:
    plain = Small()
    net = decomposed()
    images = torch.rand(2, 3, 2, 2)
    assert torch.equal(plain(images), net(images))
    assert set(psi_of(net)) == {name for name, _ in plain.named_parameters()}
    for name, psi in psi_of(net).items():
        sigma = theta_of(net)[name] - psi
        torch.testing.assert_close(psi, 0.2 * sigma)
    assert "psi.features.1.weight" in net.state_dict()
    with pytest.raises(ConfigError, match="fedmatch, psi"):
        add_psi(net)


def test_shared_values_are_those_of_theta_with_gradients_to_psi_alone() -> None:
    net = decomposed()
    theta = theta_of(net)
    psi = psi_of(net)
    shared = shared_with_psi(theta, psi)
    for name, tensor in shared.items():
        assert torch.equal(tensor, theta[name]), name
    torch.stack([tensor.square().sum() for tensor in shared.values()]).sum().backward()
    for name, parameter in psi.items():
        torch.testing.assert_close(parameter.grad, 2 * theta[name].detach())
        assert theta[name].grad is None


# --- the objective


def batch_of(labelled: bool = True, peers: int = 2, seed: int = 1) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    images, weak, strong = (torch.rand(IMAGES, 3, 2, 2, generator=draw) for _ in range(3))
    return Batch(
        labelled=images if labelled else None,
        labels=torch.tensor([0, 1, 2, 0, 1, 2]) if labelled else None,
        weak=weak,
        strong=strong,
        peers=probabilities(peers, IMAGES, CLASSES, seed=3).float() if peers else None,
    )


def objective_of(**options: Any) -> FedMatchObjective:
    defaults = {
        "threshold": 0.4,
        "unlabelled_weight": 0.7,
        "consistency_weight": 0.3,
        "l1_weight": 0.01,
        "l2_weight": 0.02,
    }
    return FedMatchObjective(FedMatchSettings.model_validate({**defaults, **options}))


def inputs(smallest_batch: int = 1) -> RoundInputs:
    return RoundInputs(torch.ones(CLASSES), smallest_batch=smallest_batch)


def test_the_losses_equal_loops() -> None:
    net = decomposed()
    with torch.no_grad():
        net.classifier.weight.mul_(6)
    batch = batch_of()
    assert batch.labelled is not None
    assert batch.labels is not None
    assert batch.weak is not None
    assert batch.strong is not None
    assert batch.peers is not None
    with torch.no_grad():
        labelled = net(batch.labelled).log_softmax(dim=1).double().numpy()
        weak = net(batch.weak).softmax(dim=1).double().numpy()
        strong = net(batch.strong).log_softmax(dim=1).double().numpy()
    threshold = float(np.sort(weak.max(axis=1))[2:4].mean())
    kept = [i for i in range(IMAGES) if weak[i].max() >= threshold]
    assert len(kept) == 3
    losses = Stepping(objective_of(threshold=threshold), net, inputs()).losses(batch)
    votes = agreement(torch.tensor(weak), batch.peers.double()).tolist()
    supervised = -sum(labelled[i, label] for i, label in enumerate(batch.labels.tolist())) / IMAGES
    pseudo = -sum(strong[i, votes[i]] for i in kept) / len(kept)
    divergence = 0.0
    for i in kept:
        for helper in batch.peers[:, i].double().numpy():
            divergence += float((helper * np.log(helper / weak[i])).sum()) / 2 / len(kept)
    disjoint = 0.0
    for name, psi in psi_of(net).items():
        p = psi.detach().double().numpy()
        sigma = theta_of(net)[name].detach().double().numpy() - p
        disjoint += 0.01 * np.abs(p).sum() + 0.02 * ((sigma - p) ** 2).sum()
    terms = {name: term.item() for name, term in losses.terms.items()}
    assert terms == {
        "loss_supervised": pytest.approx(supervised, rel=1e-5),
        "loss_pseudo": pytest.approx(0.7 * pseudo, rel=1e-5),
        "loss_consistency": pytest.approx(0.3 * divergence, rel=1e-4),
        "loss_disjoint": pytest.approx(disjoint, rel=1e-5),
    }
    assert losses.logs["kept"].item() == pytest.approx(len(kept) / IMAGES)


def test_labels_move_sigma_alone_and_unlabelled_images_psi_alone() -> None:
    """One step of SGD: σ moves by the gradient of L_s, ψ by that of L_u, and θ by both."""
    net = decomposed()
    rate = 0.1
    phase = Stepping(objective_of(threshold=0.0), net, inputs())
    losses = phase.losses(batch_of())
    names = list(psi_of(net))
    theta = [parameter.detach().clone() for parameter in theta_of(net).values()]
    psi = [parameter.detach().clone() for parameter in psi_of(net).values()]
    terms = dict(losses.terms)
    of_labels = torch.autograd.grad(
        terms.pop("loss_supervised"), list(theta_of(net).values()), retain_graph=True
    )
    of_images = torch.autograd.grad(
        torch.stack(list(terms.values())).sum(), list(psi_of(net).values()), retain_graph=True
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    torch.stack(list(losses.terms.values())).sum().backward()
    optimizer.step()
    phase.follow()
    for k, name in enumerate(names):
        new_theta = theta_of(net)[name].detach()
        new_psi = psi_of(net)[name].detach()
        torch.testing.assert_close(new_psi, psi[k] - rate * of_images[k])
        torch.testing.assert_close(
            new_theta - new_psi, theta[k] - psi[k] - rate * of_labels[k], rtol=1e-4, atol=1e-6
        )
        assert of_images[k].abs().max() > 0
        assert torch.equal(phase.state[k], new_psi)


def test_the_gradient_of_psi_is_that_of_finite_differences() -> None:
    net = decomposed().double()
    batch = batch_of(labelled=False)
    assert batch.weak is not None
    assert batch.strong is not None
    assert batch.peers is not None
    weak = batch.weak.double()
    strong = batch.strong.double()
    peers = batch.peers.double()
    # All images are kept, and votes are those before the step.
    theta = {name: value.detach() for name, value in theta_of(net).items()}
    name = "features.1.weight"
    psi = {key: value.detach().clone() for key, value in psi_of(net).items()}
    sigma = {key: theta[key] - psi[key] for key in psi}
    keep = torch.ones(IMAGES, dtype=torch.bool)
    with torch.no_grad():
        labels = agreement(net(weak).softmax(dim=1), peers)

    def loss(moved: Tensor) -> Tensor:
        values = {key: sigma[key] + psi[key] for key in psi} | {name: sigma[name] + moved}
        weak_logits = torch.func.functional_call(net, values, (weak,))
        strong_logits = torch.func.functional_call(net, values, (strong,))
        pseudo = nn.functional.cross_entropy(strong_logits, labels)
        divergence = inter_client_consistency(weak_logits, peers, keep)
        distance = (sigma[name] - moved).square().sum()
        return 0.7 * pseudo + 0.3 * divergence + 0.01 * moved.abs().sum() + 0.02 * distance

    step = 1e-6
    numeric = torch.zeros_like(psi[name])
    for place in range(psi[name].numel()):
        change = torch.zeros(psi[name].numel(), dtype=torch.float64)
        change[place] = step
        change = change.reshape(psi[name].shape)
        numeric.view(-1)[place] = (loss(psi[name] + change) - loss(psi[name] - change)) / 2 / step
    losses = Stepping(objective_of(threshold=0.0), net, inputs()).losses(
        Batch(weak=weak, strong=strong, peers=peers)
    )
    torch.stack(list(losses.terms.values())).sum().backward()
    torch.testing.assert_close(psi_of(net)[name].grad, numeric, rtol=1e-4, atol=1e-6)
    assert theta_of(net)[name].grad is None


def test_a_site_without_labels_trains_psi_alone() -> None:
    net = decomposed()
    before = {name: (theta_of(net)[name] - psi).detach() for name, psi in psi_of(net).items()}
    phase = Stepping(objective_of(threshold=0.0), net, inputs())
    losses = phase.losses(batch_of(labelled=False))
    assert set(losses.terms) == {"loss_pseudo", "loss_consistency", "loss_disjoint"}
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    torch.stack(list(losses.terms.values())).sum().backward()
    optimizer.step()
    phase.follow()
    for name, psi in psi_of(net).items():
        torch.testing.assert_close((theta_of(net)[name] - psi).detach(), before[name])


def test_too_few_confident_images_take_no_step_without_labels() -> None:
    phase = Stepping(objective_of(threshold=0.0), decomposed(), inputs(smallest_batch=7))
    assert not phase.losses(batch_of(labelled=False)).learns
    with_labels = phase.losses(batch_of())
    assert with_labels.learns
    nobody = Stepping(objective_of(threshold=1.0), decomposed(), inputs()).losses(batch_of())
    assert nobody.terms["loss_pseudo"].item() == 0
    assert nobody.terms["loss_consistency"].item() == 0
    assert nobody.learns


def test_without_a_loss_of_images_a_site_without_labels_takes_no_step() -> None:
    """Its ψ would only be drawn to σ, however many images are confident."""
    neither = {"unlabelled_weight": 0.0, "consistency_weight": 0.0}
    learns = []
    for weights, peers in (
        (neither, 2),
        ({"unlabelled_weight": 0.0}, 0),
        ({"unlabelled_weight": 0.0}, 2),
        ({"consistency_weight": 0.0}, 2),
    ):
        phase = Stepping(objective_of(threshold=0.0, **weights), decomposed(), inputs())
        learns.append(bool(phase.losses(batch_of(labelled=False, peers=peers)).learns))
        assert phase.losses(batch_of(peers=peers)).learns, "labels still train σ"
    assert learns == [False, False, True, True]


@pytest.mark.parametrize("statistics", ["weak_views", "all_views"])
def test_weak_views_are_predicted_with_running_statistics(statistics: str) -> None:
    """These are as labelled views left them, and strong views where all views are to move them.

    The gradient, too, is that of these statistics.
    """
    net = Small()
    net.features = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Tanh())
    twin = copy.deepcopy(net)
    add_psi(net)
    batch = batch_of()
    assert batch.labelled is not None
    assert batch.weak is not None
    assert batch.strong is not None
    assert batch.peers is not None
    objective = objective_of(threshold=0.0, batch_statistics=statistics)
    consistency = Stepping(objective, net, inputs()).losses(batch).terms["loss_consistency"]
    twin(batch.labelled)
    if statistics == "all_views":
        twin(batch.strong)
    all_kept = torch.ones(IMAGES, dtype=torch.bool)
    divergence = inter_client_consistency(twin.eval()(batch.weak), batch.peers, all_kept)
    torch.testing.assert_close(consistency, 0.3 * divergence)
    of_psi = torch.autograd.grad(consistency, list(psi_of(net).values()))
    expected = torch.autograd.grad(0.3 * divergence, list(twin.parameters()))
    for found, wanted in zip(of_psi, expected, strict=True):
        torch.testing.assert_close(found, wanted)
    for found, wanted in zip(net.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.proves(
    "lead",
    "a fedmatch job whose threshold leaves a site one confident image in a step, beside labels",
    "the image moves nothing: ψ travels apart from what labels train, and so has its own "
    "minimum_batch",
)
def test_too_few_confident_images_do_not_show_in_psi_beside_labels() -> None:
    few = Stepping(objective_of(threshold=0.0), decomposed(), inputs(smallest_batch=IMAGES + 1))
    losses = few.losses(batch_of())
    assert losses.logs["kept"].item() == 0
    hidden = ["loss_pseudo", "loss_consistency"]
    torch.stack([losses.terms[name] for name in hidden]).sum().backward()
    assert not any(psi.grad.any() for psi in psi_of(few.net).values() if psi.grad is not None)
    enough = Stepping(objective_of(threshold=0.0), decomposed(), inputs(smallest_batch=IMAGES))
    assert enough.losses(batch_of()).terms["loss_pseudo"].item() > 0


def test_without_helpers_a_site_votes_alone_and_diverges_from_nobody() -> None:
    losses = Stepping(objective_of(), decomposed(), inputs()).losses(batch_of(peers=0))
    assert "loss_consistency" not in losses.terms
    only_labels = batch_of()
    without = Batch(labelled=only_labels.labelled, labels=only_labels.labels)
    assert set(Stepping(objective_of(), decomposed(), inputs()).losses(without).terms) == {
        "loss_supervised"
    }


# --- helpers


def state_of(value: float) -> dict[str, Tensor]:
    return {
        "w": torch.tensor([value, 1.0]),
        "batches": torch.tensor(3),
        "statistics": torch.tensor([value]),
        "psi.w": torch.tensor([value / 10, 0.5]),
    }


def test_a_helper_is_the_global_sigma_and_its_own_psi() -> None:
    """σ_G = (4 - 0.4, 1 - 0.5); of two helpers the mean ψ."""
    one = HelperModel(state_of(4.0), state_of(1.0))
    torch.testing.assert_close(one["w"], torch.tensor([3.7, 1.0]))
    torch.testing.assert_close(one["psi.w"], torch.tensor([0.1, 0.5]))
    assert one["statistics"].item() == 4.0
    assert one["batches"].item() == 3
    both = HelperModel(state_of(4.0), anonymise([state_of(1.0), state_of(3.0)]))
    torch.testing.assert_close(both["w"], torch.tensor([3.8, 1.0]))
    assert list(both) == list(state_of(0.0))
    assert len(both) == 4


class Answering:
    """A network at the server that answers with a model's first parameter."""

    image_shape = (3, 2, 2)
    class_rows = frozenset[str]()

    def logits(self, model: State, images: Tensor) -> Tensor:
        assert images.shape == (1, 3, 2, 2)
        return model["w"].unsqueeze(0)


def run_rounds(
    options: dict[str, Any],
    rounds: int = 3,
    labels_only: tuple[str, ...] = (),
    idle: tuple[str, ...] = (),
) -> list[Any]:
    """Run sites a, b, c, d, whose models answer 0, 1, 3 and 7; return the exchanges.

    Sites in ``labels_only`` have no unlabelled images, and those in ``idle`` take no step.
    """
    defaults = {"rounds": rounds, "helper_every": 2, "participants": None}
    method = METHODS["fedmatch"](settings_of("fedmatch", {**defaults, **options}))
    values = {"a": 0.0, "b": 1.0, "c": 3.0, "d": 7.0}
    models = {site: state_of(value) for site, value in values.items()}
    federation = Federation(sorted(values), 0, models, network=Answering())
    state = method.start(state_of(4.0))
    assert isinstance(state, FedMatchState)
    workflow = method.rounds(state, federation)
    exchanges = []
    exchange = next(workflow, None)
    while exchange is not None:
        exchanges.append(exchange)
        replies = []
        for site, model in models.items():
            unlabelled = 0 if site in labels_only else 8
            steps = 0 if site in idle else 2
            replies.append(ClientUpdate(site, model, 8, unlabelled, steps))
        try:
            exchange = workflow.send(replies)
        except StopIteration:
            exchange = None
    return exchanges


def test_the_nearest_by_answers_help_in_every_second_round() -> None:
    first, second, third = run_rounds({})
    assert not first.decisions
    assert not third.decisions
    assert all(not task.models for task in (*first.tasks.values(), *third.tasks.values()))
    chosen = second.decisions["peers"]["chosen"]
    assert chosen == {"a": ["b", "c"], "b": ["a", "c"], "c": ["b", "a"], "d": ["c", "b"]}
    sent = second.tasks["d"].models
    assert list(sent) == ["peer0", "peer1"]
    torch.testing.assert_close(sent["peer0"]["psi.w"], torch.tensor([0.3, 0.5]))
    torch.testing.assert_close(sent["peer1"]["psi.w"], torch.tensor([0.1, 0.5]))


def test_anonymous_helpers_are_one_mean_and_never_a_single_site() -> None:
    _, second = run_rounds({"anonymise": True}, rounds=2)
    (helper,) = second.tasks["d"].models.values()
    torch.testing.assert_close(helper["psi.w"], torch.tensor([0.2, 0.5]))
    with pytest.raises(ValueError, match="helpers=1 with anonymise=true"):
        settings_of("fedmatch", {"anonymise": True, "helpers": 1})
    method = FedMatch(FedMatchSettings(anonymise=True))
    state = FedMatchState(1, {}, ["a", "b"], {"answers": torch.tensor([[0.0], [1.0]])})
    helpers, _ = method.choose_helpers(["a", "b"], 10, state)
    assert helpers == {"a": [], "b": []}, "of two sites each would get the other's own"


@pytest.mark.proves(
    "site",
    "reading another hospital's ψ from an anonymous mean, whose other half is a site that has no "
    "unlabelled images and so left ψ as all know it",
    "such a site helps nobody, and is sent no helper",
)
def test_a_site_that_cannot_train_psi_is_no_helper() -> None:
    _, second = run_rounds({"anonymise": True}, 2, labels_only=("c",))
    chosen = second.decisions["peers"]["chosen"]
    assert chosen == {"a": ["b", "d"], "b": ["a", "d"], "c": [], "d": ["b", "a"]}
    _, second = run_rounds({"anonymise": True}, 2, labels_only=("b", "c"))
    assert not any(task.models for task in second.tasks.values())


def test_a_site_that_has_taken_no_step_is_no_helper() -> None:
    """As one that was asked to evaluate alone: its ψ is the one that all know."""
    _, second = run_rounds({}, 2, idle=("c",))
    chosen = second.decisions["peers"]["chosen"]
    assert chosen == {"a": ["b", "d"], "b": ["a", "d"], "c": [], "d": ["b", "a"]}


def test_sites_count_by_their_steps() -> None:
    assert FedMatch(FedMatchSettings()).weight("train", 8, 90, 5) == 5


def test_what_it_declares() -> None:
    lone = FedMatch(FedMatchSettings()).requirements
    assert lone.server.peers == 2
    assert lone.server.lone_peers == "anonymise = false"
    anonymous = FedMatch(FedMatchSettings(anonymise=True)).requirements
    assert anonymous.server.peers == 1
    assert not anonymous.server.lone_peers
    none = FedMatch(FedMatchSettings(helpers=0)).requirements
    assert (none.server.peers, none.server.lone_peers) == (0, "")
    some_parameters = (Feature.TRAIN_HEAD, Feature.TRAIN_LAST_BLOCKS, Feature.TRAIN_ADAPTERS)
    for feature in (Feature.SECURE_AGGREGATION, Feature.SEVERAL_PROCESSES, *some_parameters):
        assert lone.reason_against(feature), feature
    settings = FedMatchSettings(l2_weight=0.3)
    assert settings.pull == pytest.approx(0.6)
    assert settings.loss_weights["l2_weight"] == 0.3
