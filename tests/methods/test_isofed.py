"""IsoFed: information maximisation, the order of the groups, and that they are never averaged."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from grouped import FOUR, Server, assert_close, assert_same, model, moved, plain_mean, plain_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedward.errors import ConfigError, RunError
from fedward.methods import settings_of
from fedward.methods.groups import GroupedState
from fedward.methods.isofed import InformationMaximisation, information_maximisation
from fedward.methods.local import Batch, Losses, Phase, RoundInputs
from fedward.methods.mean_teacher import MeanTeacher
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import Exchange
from fedward.model_state import State
from fedward.registry import METHODS
from fedward.training.trainer import train

grid = settings(deadline=None, max_examples=50)
SHOT_EPSILON = 1e-5
ENDLESS = 1e30
"""Finite, and nothing a net would be."""

# --- information maximisation


def probabilities(images: int, classes: int, seed: int, spread: float = 2.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.softmax(
        spread * torch.randn(images, classes, generator=draw, dtype=torch.float64), dim=1
    )


def plain_information(p: list[list[float]], epsilon: float = 0.0) -> float:
    """Mean entropy of the images minus the entropy of their mean, in plain Python."""
    images = len(p)
    classes = len(p[0])
    single = [-math.fsum(value * math.log(value + epsilon) for value in row) for row in p]
    mean = [math.fsum(row[c] for row in p) / images for c in range(classes)]
    together = -math.fsum(value * math.log(value + epsilon) for value in mean)
    return math.fsum(single) / images - together


def test_information_by_hand() -> None:
    """Two sure and opposite images: 0 - log 2. One sure, one not: log(2)/2 - H(3/4, 1/4)."""
    loss = information_maximisation(torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64))
    assert loss.item() == pytest.approx(-math.log(2), rel=1e-14)
    loss = information_maximisation(torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64))
    assert loss.item() == pytest.approx(
        0.5 * math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25), rel=1e-14
    )


@grid
@given(images=st.integers(1, 7), classes=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_information_equals_shots_formula(images: int, classes: int, seed: int) -> None:
    """SHOT adds 1e-5 in the logarithm, which changes p log p by 1e-5 at most."""
    p = probabilities(images, classes, seed, spread=1.0)
    assert p.min() > SHOT_EPSILON
    loss = information_maximisation(p)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(plain_information(p.tolist()), rel=1e-12, abs=1e-13)
    assert loss.item() == pytest.approx(
        plain_information(p.tolist(), SHOT_EPSILON), abs=2 * classes * SHOT_EPSILON
    )


@grid
@given(
    images=st.integers(1, 6),
    classes=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 1.0, 10.0, 200.0]),
)
def test_information_lies_between_minus_log_k_and_0(
    images: int, classes: int, seed: int, spread: float
) -> None:
    """It holds for one-hot rows too, since p log max(p, 1e-5) is still convex."""
    loss = information_maximisation(probabilities(images, classes, seed, spread)).item()
    assert -math.log(classes) - 1e-12 <= loss <= 1e-12


@pytest.mark.parametrize("classes", [2, 3, 8])
def test_information_is_smallest_for_sure_and_even_predictions(classes: int) -> None:
    even = torch.eye(classes, dtype=torch.float64).repeat(3, 1)
    assert information_maximisation(even).item() == pytest.approx(-math.log(classes), rel=1e-12)
    collapsed = torch.eye(classes, dtype=torch.float64)[[0] * 5]
    unsure = torch.full((5, classes), 1 / classes, dtype=torch.float64)
    assert (
        information_maximisation(collapsed).item() == information_maximisation(unsure).item() == 0
    )


@grid
@given(seed=st.integers(0, 1000), order=st.permutations(range(4)))
def test_information_ignores_the_order_of_images_and_classes(seed: int, order: list[int]) -> None:
    p = probabilities(4, 4, seed)
    expected = information_maximisation(p)
    torch.testing.assert_close(information_maximisation(p[order]), expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(
        information_maximisation(p[:, order]), expected, rtol=1e-12, atol=1e-14
    )
    torch.testing.assert_close(
        information_maximisation(torch.cat([p, p])), expected, rtol=1e-12, atol=1e-14
    )


@grid
@given(classes=st.integers(1, 6), seed=st.integers(0, 1000), images=st.integers(1, 5))
def test_equal_rows_say_nothing(classes: int, seed: int, images: int) -> None:
    p = probabilities(1, classes, seed).repeat(images, 1).requires_grad_()
    loss = information_maximisation(p)
    (gradient,) = torch.autograd.grad(loss, p)
    tolerance = 0.0 if images == 1 else 1e-14
    assert abs(loss.item()) <= tolerance
    assert gradient.abs().max() <= tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_hot_rows_have_a_finite_gradient(dtype: torch.dtype) -> None:
    logits = torch.tensor(
        [[2000.0, 0.0, 0.0], [0.0, 3000.0, 0.0], [0.0, 0.0, 0.0]], dtype=dtype, requires_grad=True
    )
    p = torch.softmax(logits, dim=1)
    assert (p == 0).any()
    (direct,) = torch.autograd.grad(information_maximisation(p), p, retain_graph=True)
    assert direct.isfinite().all()
    (gradient,) = torch.autograd.grad(information_maximisation(p), logits)
    assert gradient.isfinite().all()
    assert gradient.dtype == dtype


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, 4, generator=draw, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: information_maximisation(torch.softmax(x, dim=1)), logits
    )


def descend(loss: Callable[[Tensor], Tensor], steps: int = 400) -> tuple[Tensor, Tensor]:
    """Follow a loss downhill from a collapsed prediction; return probabilities before and after."""
    draw = torch.Generator().manual_seed(3)
    logits = torch.tensor([4.0, 0.0, 0.0, 0.0], dtype=torch.float64).repeat(12, 1)
    logits = (
        logits + 0.5 * torch.randn(12, 4, generator=draw, dtype=torch.float64)
    ).requires_grad_()
    before = torch.softmax(logits, dim=1).detach()
    assert (before.argmax(dim=1) == 0).all()
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(loss(torch.softmax(logits, dim=1)), logits)
        logits = (logits - 5 * gradient).detach().requires_grad_()
    return before, torch.softmax(logits, dim=1).detach()


def diversity(p: Tensor) -> float:
    mean = p.mean(dim=0)
    return float(-torch.special.xlogy(mean, mean).sum())


def mean_entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum(dim=1).mean()


def test_a_collapsed_prediction_becomes_sure_and_diverse() -> None:
    before, after = descend(information_maximisation)
    assert diversity(after) > diversity(before) + 0.2
    assert mean_entropy(after) < mean_entropy(before)
    assert len(after.argmax(dim=1).unique()) == 4


def test_entropy_alone_collapses() -> None:
    """What the literal reading of eq. (4) would do."""
    before, after = descend(mean_entropy)
    assert diversity(after) < diversity(before) / 2
    assert (after.argmax(dim=1) == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_information_increases_diversity_that_entropy_decreases(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = (
        torch.tensor([3.0, 0.0, 0.0]).double().repeat(8, 1)
        + torch.randn(8, 3, generator=draw).double()
    )
    diversity_after = {}
    for name, loss in (("information", information_maximisation), ("entropy", mean_entropy)):
        leaf = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(torch.softmax(leaf, dim=1)), leaf)
        diversity_after[name] = diversity(torch.softmax(logits - 0.1 * gradient, dim=1))
    before = diversity(torch.softmax(logits, dim=1))
    assert diversity_after["entropy"] < before < diversity_after["information"]


def test_the_mean_over_classes_would_teach_nothing() -> None:
    """Eq. (4) taken literally: with N the number of classes, the first term is constant."""
    logits = torch.randn(
        6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True
    )
    mean = torch.softmax(logits, dim=1).mean(dim=1)
    (literal,) = torch.autograd.grad((mean * mean.log()).mean(), logits, retain_graph=True)
    assert literal.abs().max() < 1e-15
    p = torch.softmax(logits, dim=1)
    marginal = p.mean(dim=0)
    (intended,) = torch.autograd.grad((marginal * marginal.log()).sum(), logits)
    assert intended.abs().max() > 1e-3


def test_nan_is_noticed() -> None:
    assert information_maximisation(torch.tensor([[math.nan, 0.5], [0.5, 0.5]])).isnan()


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0), (2, 2, 2)])
def test_information_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"isofed\.information_maximisation"):
        information_maximisation(torch.ones(shape))


# --- adaptation, the local objective


def test_a_batch_of_one_image_takes_no_step() -> None:
    """Its loss has no gradient, of which Adam with weight decay would make a full step."""
    settings = settings_of(
        "isofed", {"optimizer": "adam", "weight_decay": 5e-4, "round_warm_up": 0.0}
    )
    phase = Phase(InformationMaximisation(), 0.1)
    inputs = RoundInputs(torch.ones(3))
    steps = {}
    for images in (1, 2):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
        before = [parameter.detach().clone() for parameter in net.parameters()]
        batch = Batch(weak=torch.rand(images, 3, 2, 2))
        cpu = torch.device("cpu")
        trained = train(net, [batch], phase, inputs, settings, device=cpu, aborted=lambda: False)
        steps[images] = trained.steps
        unmoved = [torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True)]
        assert all(unmoved) == (images == 1)
    assert steps == {1: 0, 2: 1}


def test_batches_of_one_image_are_refused_where_they_would_adapt_nothing() -> None:
    with pytest.raises(ValueError, match=r"batch=1 leaves nothing.*adapt=false"):
        settings_of("isofed", {"batch": 1})
    assert settings_of("isofed", {"batch": 1, "adapt": False}).batch == 1
    assert settings_of("isofed", {"batch": 2}).batch == 2


def test_adaptation_uses_weak_views_in_training_mode() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).train()
    torch.manual_seed(0)
    twin = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).train()
    weak = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    losses = InformationMaximisation().losses(net, Batch(weak=weak), RoundInputs(torch.ones(3)))
    assert list(losses.terms) == ["loss_information"]
    expected = plain_information(torch.softmax(twin(weak), dim=1).tolist())
    assert losses.terms["loss_information"].item() == pytest.approx(expected, abs=1e-6)
    for a, b in zip(net.buffers(), twin.buffers(), strict=True):
        assert torch.equal(a, b)
    gradients = torch.autograd.grad(losses.terms["loss_information"], list(net.parameters()))
    assert gradients[-1].abs().max() > 0, "the classifier is trained too"


def test_adaptation_sees_all_images_and_no_label() -> None:
    uses = InformationMaximisation.uses
    assert (uses.labelled, uses.unlabelled, uses.second_view) == (False, "all", "none")
    losses = InformationMaximisation().losses(nn.Linear(2, 2), Batch(), RoundInputs(torch.ones(2)))
    assert losses == Losses({})


# --- phases: what a site does for a task


def phases(
    name: str, task: str, round_: int, labelled: int, **options: Any
) -> list[tuple[type, float, tuple[str, ...]]]:
    method = METHODS[name](settings_of(name, {"warm_up": 2, "schedule": "constant", **options}))
    phases_ = method.phases(task, round_, labelled)
    assert all(isinstance(phase, Phase) for phase in phases_)
    return [(type(phase.objective), phase.learning_rate, phase.stream) for phase in phases_]


ADAPT = InformationMaximisation


@pytest.mark.parametrize("round_", [1, 2, 3, 50])
def test_isofed_adapts_at_a_tenth_of_the_rate_after_warm_up(round_: int) -> None:
    """It is the same rate in both groups."""
    supervised = (Supervised, 0.03, ())
    teacher = (MeanTeacher, 0.021, ())
    late = round_ > 2
    first = [(ADAPT, pytest.approx(0.003), ("adaptation",))] * late
    assert phases("isofed", "supervised", round_, 5) == [*first, supervised]
    assert phases("isofed", "unsupervised", round_, 0) == [*first, teacher]


def test_rates_follow_the_settings() -> None:
    options = {"learning_rate": 0.5, "unlabelled_learning_rate": 0.25, "adaptation_rate": 0.5}
    assert [rate for _, rate, _ in phases("isofed", "supervised", 3, 5, **options)] == [0.25, 0.5]
    assert [rate for _, rate, _ in phases("isofed", "unsupervised", 3, 0, **options)] == [
        0.25,
        0.25,
    ]


@pytest.mark.parametrize("round_", [1, 3])
@pytest.mark.parametrize("name", ["mt_wfedavg", "rscfed", "isofed without"])
def test_without_adaptation_a_site_does_what_the_baseline_does(name: str, round_: int) -> None:
    options = {"adapt": False} if name == "isofed without" else {}
    name = name.split(maxsplit=1)[0]
    assert phases(name, "supervised", round_, 5, **options) == [(Supervised, 0.03, ())]
    assert phases(name, "unsupervised", round_, 0, **options) == [(MeanTeacher, 0.021, ())]


@pytest.mark.parametrize("name", ["wfedavg", "fedprox", "mt_wfedavg", "rscfed", "isofed"])
def test_a_site_declines_what_is_not_for_its_group(name: str) -> None:
    for round_ in (1, 3):
        assert phases(name, "supervised", round_, 0) == []
        assert phases(name, "unsupervised", round_, 1) == []


@pytest.mark.parametrize("name", ["wfedavg", "fedprox"])
def test_supervised_methods_skip_a_site_without_labels(name: str) -> None:
    assert phases(name, "unsupervised", 9, 0) == []
    assert len(phases(name, "supervised", 9, 1)) == 1


@pytest.mark.parametrize(
    ("name", "lasting"), [("mt_wfedavg", False), ("isofed", False), ("rscfed", True)]
)
def test_only_rscfeds_teacher_lasts_and_sees_two_weak_views(name: str, lasting: bool) -> None:
    method = METHODS[name](settings_of(name, {}))
    teacher = method.phases("unsupervised", 100, 0)[-1].objective
    assert isinstance(teacher, MeanTeacher)
    assert teacher.lasting is lasting
    assert (teacher.uses.unlabelled, teacher.uses.second_view) == (
        "unlabelled",
        "weak" if lasting else "strong",
    )


def test_every_round_has_a_new_objective() -> None:
    method = METHODS["isofed"](settings_of("isofed", {}))
    first, second = (method.phases("unsupervised", 100, 0)[-1].objective for _ in range(2))
    assert first is not second


# --- the workflow: two sub-steps


def unlabelled_mean(server: Server, round_: int, scale: float = 100.0) -> dict[str, Any]:
    updates = server.trained(round_, 0)
    return plain_mean([update.state for update in updates], plain_weights(updates, scale))


def test_after_the_warm_up_the_groups_are_asked_in_turn() -> None:
    server = Server("isofed", {"rounds": 3, "warm_up": 1}).run()
    assert server.parts() == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]
    for round_ in (2, 3):
        assert server.tasks(round_, 0) == {"site-2": "unsupervised", "site-4": "unsupervised"}
        assert server.tasks(round_, 1) == {"site-1": "supervised", "site-3": "supervised"}
    assert server.state.round == 3


def test_labelled_sites_start_from_the_unlabelled_mean() -> None:
    server = Server("isofed", {"rounds": 3, "warm_up": 1}).run()
    for round_ in (2, 3):
        assert_same(server.of(round_, 0).model, server.after[round_ - 1])
        assert_close(server.of(round_, 1).model, unlabelled_mean(server, round_))
        updates = server.trained(round_, 1)
        assert [update.site for update in updates] == ["site-1", "site-3"]
        assert_close(
            server.after[round_],
            plain_mean([update.state for update in updates], plain_weights(updates, 100.0)),
        )


@pytest.mark.parametrize(
    ("scale", "norm"), [(0.0, "sum"), (10.0, "sum"), (10.0, "flat"), (1e3, "flat")]
)
def test_both_means_follow_the_settings(scale: float, norm: str) -> None:
    server = Server(
        "isofed", {"rounds": 2, "warm_up": 0, "distance_scale": scale, "distance_norm": norm}
    ).run()
    for part, found in ((0, server.of(2, 1).model), (1, server.after[2])):
        updates = server.trained(2, part)
        assert_close(
            found,
            plain_mean([update.state for update in updates], plain_weights(updates, scale, norm)),
        )


def test_one_sites_reply_is_the_start_to_the_last_bit() -> None:
    sites = {"site-1": (30, 0), "site-2": (0, 80)}
    server = Server("isofed", {"rounds": 3, "warm_up": 0}, sites).run()
    for round_ in (1, 2, 3):
        assert_same(
            server.of(round_, 1).model, moved(server.of(round_, 0).model, "site-2", round_, 0)
        )
        assert_same(server.after[round_], moved(server.of(round_, 1).model, "site-1", round_, 1))


def test_the_group_log_has_weights_and_distances_of_both() -> None:
    server = Server("isofed", {"rounds": 2, "warm_up": 1}).run()
    assert [(row["round"], row["part"], row["group"], row["sites"]) for row in server.groups] == [
        (1, 0, "labelled", ["site-1", "site-3"]),
        (2, 0, "unlabelled", ["site-2", "site-4"]),
        (2, 1, "labelled", ["site-1", "site-3"]),
    ]
    for row in server.groups:
        assert row["weights"] == pytest.approx(
            plain_weights(server.trained(row["round"], row["part"]), 100.0)
        )
        assert all(distance > 0 for distance in row["distances"])


# --- isolation: poisoned replies


def labelled_answer(exchange: Exchange, site: str) -> State:
    """The same reply whatever was sent."""
    return moved(model(3.0), site, exchange.round, exchange.part)


def poison(state: State) -> State:
    return {
        key: torch.full_like(value, ENDLESS) if value.is_floating_point() else value
        for key, value in state.items()
    }


def poisoned(name: str, group: str, held: str, at_round: int = 2, **options: Any) -> Server:
    """Run with fixed replies of the group ``held``, and garbage of the other in one round."""

    def answer(exchange: Exchange, site: str) -> State:
        labelled = FOUR[site][0] > 0
        mine = "labelled" if labelled else "unlabelled"
        if mine == group and exchange.round == at_round:
            return poison(exchange.model)
        if mine == held:
            return labelled_answer(exchange, site)
        return moved(exchange.model, site, exchange.round, exchange.part)

    return Server(name, {"rounds": 3, "warm_up": 1, **options}, answer=answer).run()


@pytest.mark.parametrize("scale", [0.0, 100.0, 1e4])
def test_unlabelled_poison_reaches_labelled_sites_as_start_only(scale: float) -> None:
    """With equal labelled replies the models after the round are equal to the last bit."""
    clean = poisoned("isofed", "nobody", "labelled", distance_scale=scale)
    broken = poisoned("isofed", "unlabelled", "labelled", distance_scale=scale)
    assert (broken.of(2, 1).model["w"] > ENDLESS / 2).all()
    assert (clean.of(2, 1).model["w"] < 10).all()
    assert_same(broken.after[2], clean.after[2])
    assert_same(broken.after[3], clean.after[3])


@pytest.mark.parametrize("scale", [0.0, 100.0, 1e4])
def test_labelled_poison_reaches_unlabelled_sites_as_start_only(scale: float) -> None:
    clean = poisoned("isofed", "nobody", "unlabelled", distance_scale=scale)
    broken = poisoned("isofed", "labelled", "unlabelled", distance_scale=scale)
    assert_same(broken.of(2, 1).model, clean.of(2, 1).model)
    assert (broken.of(3, 0).model["w"] > ENDLESS / 2).all()
    assert (clean.of(3, 0).model["w"] < 10).all()
    assert_same(broken.of(3, 1).model, clean.of(3, 1).model)


@pytest.mark.parametrize("name", ["mt_wfedavg", "rscfed"])
def test_the_baselines_are_not_isolated(name: str) -> None:
    """So the test above could fail."""
    options = {"distance_scale": 0.0} | (
        {"unlabelled_distance_scale": 0.0} if name == "rscfed" else {}
    )
    broken = poisoned(name, "unlabelled", "labelled", **options)
    assert (broken.after[2]["w"] > ENDLESS / 100).all()


# --- groups are learned


def test_without_warm_up_all_are_asked_until_groups_are_known() -> None:
    """Site 1 declines the first sub-step, and is asked for the second."""
    server = Server("isofed", {"rounds": 2, "warm_up": 0}).run()
    assert server.tasks(1, 0) == dict.fromkeys(FOUR, "unsupervised")
    assert [update.site for update in server.trained(1, 0)] == ["site-2", "site-4"]
    assert server.tasks(1, 1) == {"site-1": "supervised", "site-3": "supervised"}
    assert server.tasks(2, 0) == {"site-2": "unsupervised", "site-4": "unsupervised"}
    assert server.state.groups == {
        "site-1": "labelled",
        "site-2": "unlabelled",
        "site-3": "labelled",
        "site-4": "unlabelled",
    }


def test_a_site_that_never_answered_is_asked_in_both_halves() -> None:
    server = Server(
        "isofed", {"rounds": 2, "warm_up": 1}, fails=lambda exchange, site: site == "site-3"
    ).run()
    assert "site-3" in server.of(2, 0).tasks
    assert "site-3" in server.of(2, 1).tasks
    assert "site-3" not in server.state.groups


def changing(gains: bool) -> Callable[[Exchange, str], tuple[int, int]]:
    """Site 4 gains labels before round 3, or site 3 loses its own."""

    def images(exchange: Exchange, site: str) -> tuple[int, int]:
        if exchange.round >= 3 and site == ("site-4" if gains else "site-3"):
            return (12, 0) if gains else (0, 20)
        return FOUR[site]

    return images


def test_a_site_that_gains_labels_changes_group_at_once() -> None:
    server = Server("isofed", {"rounds": 4, "warm_up": 1}, images=changing(gains=True)).run()
    assert server.tasks(3, 0) == {"site-2": "unsupervised", "site-4": "unsupervised"}
    assert [update.site for update in server.trained(3, 0)] == ["site-2"]
    assert_same(server.of(3, 1).model, server.trained(3, 0)[0].state)
    assert set(server.tasks(3, 1)) == {"site-1", "site-3", "site-4"}
    assert [update.site for update in server.trained(3, 1)] == ["site-1", "site-3", "site-4"]
    assert set(server.tasks(4, 0)) == {"site-2"}


def test_a_site_that_loses_labels_changes_group_next_round() -> None:
    server = Server("isofed", {"rounds": 4, "warm_up": 1}, images=changing(gains=False)).run()
    assert set(server.tasks(3, 0)) == {"site-2", "site-4"}
    assert set(server.tasks(3, 1)) == {"site-1", "site-3"}
    assert [update.site for update in server.trained(3, 1)] == ["site-1"]
    assert_same(server.after[3], server.trained(3, 1)[0].state)
    assert set(server.tasks(4, 0)) == {"site-2", "site-3", "site-4"}
    assert set(server.tasks(4, 1)) == {"site-1"}


# --- fewer replies than asked for


def is_labelled(site: str) -> bool:
    return FOUR[site][0] > 0


def test_without_unlabelled_replies_the_start_is_global() -> None:
    server = Server(
        "isofed",
        {"rounds": 3},
        fails=lambda exchange, site: exchange.round == 2 and not is_labelled(site),
    ).run()
    assert_same(server.of(2, 1).model, server.after[1])
    assert not any(row["group"] == "unlabelled" and row["round"] == 2 for row in server.groups)
    updates = server.trained(2, 1)
    assert_close(
        server.after[2],
        plain_mean([update.state for update in updates], plain_weights(updates, 100.0)),
    )


def test_without_a_labelled_reply_the_global_model_stays() -> None:
    server = Server(
        "isofed",
        {"rounds": 3},
        fails=lambda exchange, site: exchange.round == 2 and is_labelled(site),
    ).run()
    assert len(server.trained(2, 0)) == 2
    assert (server.of(2, 1).model["w"] != server.after[1]["w"]).any()
    assert_same(server.after[2], server.after[1])
    assert_same(server.of(3, 0).model, server.after[1])


def test_without_any_reply_the_model_stays() -> None:
    server = Server("isofed", {"rounds": 3}, fails=lambda exchange, site: exchange.round == 2).run()
    assert_same(server.of(2, 1).model, server.after[1])
    assert_same(server.after[2], server.after[1])
    assert server.state.round == 3


@pytest.mark.parametrize("warm_up", [0, 1])
def test_without_any_unlabelled_site_the_first_half_is_left_out(warm_up: int) -> None:
    """Without unlabelled sites the run is the supervised method's, but for the adaptation."""
    sites = {"site-1": (30, 0), "site-2": (20, 5)}
    fixed: Mapping[str, Any] = {"rounds": 3, "warm_up": warm_up}
    server = Server(
        "isofed",
        fixed,
        sites,
        answer=lambda exchange, site: moved(exchange.model, site, exchange.round),
    ).run()
    assert server.parts() == (
        [(1, 0), (2, 1), (3, 1)] if warm_up else [(1, 0), (1, 1), (2, 1), (3, 1)]
    )
    supervised = Server(
        "wfedavg",
        fixed,
        sites,
        answer=lambda exchange, site: moved(exchange.model, site, exchange.round),
    ).run()
    for round_ in (1, 2, 3):
        assert_same(server.after[round_], supervised.after[round_])


def test_some_failures_leave_the_mean_of_the_others() -> None:
    sites = {**FOUR, "site-5": (0, 40), "site-6": (25, 0)}
    server = Server(
        "isofed",
        {"rounds": 2},
        sites,
        fails=lambda exchange, site: exchange.round == 2 and site in ("site-4", "site-1"),
    ).run()
    assert [update.site for update in server.trained(2, 0)] == ["site-2", "site-5"]
    assert_close(server.of(2, 1).model, unlabelled_mean(server, 2))
    assert [update.site for update in server.trained(2, 1)] == ["site-3", "site-6"]
    updates = server.trained(2, 1)
    assert_close(
        server.after[2],
        plain_mean([update.state for update in updates], plain_weights(updates, 100.0)),
    )


@pytest.mark.parametrize("warm_up", [0, 2])
def test_a_federation_without_labels_ends_and_names_its_sites(warm_up: int) -> None:
    with pytest.raises(RunError, match=r"sites site-1, site-2: .*no site has labels"):
        Server("isofed", {"warm_up": warm_up}, {"site-1": (0, 10), "site-2": (0, 20)}).run()


def test_it_ends_when_the_last_labels_are_lost() -> None:
    def images(exchange: Exchange, site: str) -> tuple[int, int]:
        return (0, 9) if exchange.round == 3 else FOUR[site]

    server = Server("isofed", {"rounds": 5}, images=images)
    with pytest.raises(
        RunError, match=r"round 3, sites site-1, site-2, site-3, site-4: .*no site has labels"
    ):
        server.run()
    assert server.state.round == 2


def test_only_a_share_of_the_sites_takes_part_if_asked_so() -> None:
    sites = {f"site-{i}": (10 * (i % 2), 10 * (1 - i % 2)) for i in range(1, 9)}
    server = Server("isofed", {"rounds": 12, "warm_up": 1, "participants": 2}, sites).run()
    counts = [len(exchange.tasks) for exchange in server.exchanges]
    assert set(counts) == {2}
    drawn = {tuple(exchange.tasks) for exchange in server.exchanges if exchange.part == 1}
    assert len(drawn) > 2


# --- the warm-up


def asks_of(server: Server, rounds: int) -> list[tuple[Any, ...]]:
    return [
        (
            exchange.round,
            exchange.part,
            {site: (task.name, dict(task.models)) for site, task in exchange.tasks.items()},
            exchange.decisions,
        )
        for exchange in server.exchanges
        if exchange.round <= rounds
    ]


@pytest.mark.parametrize("participants", [None, 2])
@pytest.mark.parametrize("silent", [None, "site-1", "site-2"])
def test_the_warm_up_is_the_same_for_all_methods(
    silent: str | None, participants: int | None
) -> None:
    """Same asks, and for the same replies the same models to the last bit."""
    servers = {
        name: Server(
            name,
            {"rounds": 4, "warm_up": 3, "participants": participants},
            fails=lambda exchange, site: site == silent and exchange.round < 3,
        ).run()
        for name in ("wfedavg", "mt_wfedavg", "isofed", "rscfed")
    }
    first = servers["wfedavg"]
    assert [part for _, part in first.parts()] == [0] * 4
    assert set(first.of(1).tasks) == set(FOUR) or participants
    assert participants or set(first.of(3).tasks) == {
        site for site in FOUR if FOUR[site][0] or site == silent
    }, "known to be unlabelled, or not known yet"
    for name, server in servers.items():
        assert asks_of(server, 3) == asks_of(first, 3), name
        for exchange, theirs in zip(server.exchanges[:3], first.exchanges[:3], strict=True):
            assert_same(exchange.model, theirs.model)
        assert_same(server.after[3], first.after[3])
        assert all(update.labelled for round_ in (1, 2, 3) for update in server.trained(round_))
    assert set(servers["isofed"].of(4).tasks) != set(first.of(3).tasks)


def test_a_run_continues_with_the_groups_it_had_learned() -> None:
    """The state after a round is all a resumed run has."""
    whole = Server("isofed", {"rounds": 4, "warm_up": 1}).run()
    begun = Server("isofed", {"rounds": 2, "warm_up": 1}).run()
    resumed = Server("isofed", {"rounds": 4, "warm_up": 1})
    assert isinstance(begun.state, GroupedState)
    resumed.state = GroupedState(begun.state.round, begun.state.model, dict(begun.state.groups))
    resumed.run()
    assert resumed.parts() == whole.parts()[3:]
    assert_same(resumed.state.model, whole.state.model)


def test_the_methods_are_registered() -> None:
    names = ("wfedavg", "fedprox", "mt_wfedavg", "rscfed", "isofed")
    assert all(METHODS[name].state_type is GroupedState for name in names)
