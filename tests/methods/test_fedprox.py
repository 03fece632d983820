"""FedProx: the proximal term, its objective, and its equality to federated averaging without it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from grouped import Server, assert_close, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import Stepping
from torch import Tensor, nn

from fedward.methods import settings_of
from fedward.methods.fedprox import FedProx, FedProxSettings
from fedward.methods.fixmatch import FixMatchObjective, fixmatch
from fedward.methods.local import Batch, Losses, Objective, RoundInputs
from fedward.methods.proximal import Proximal, proximal
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.supervised import Supervised
from fedward.registry import METHODS
from fedward.storage.model_files import StoredState
from running import run_local
from tiny import tiny

grid = settings(deadline=None, max_examples=50)
CLASSES = 3
INPUTS = RoundInputs(torch.tensor([0.5, 1.0, 2.0]))


def tensors(seed: int, count: int = 3) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(2, i + 1, generator=draw, dtype=torch.float64) for i in range(count)]


# --- the term


def test_proximal_by_hand() -> None:
    """(3, 4) and 12 away: (9 + 16 + 144) / 2."""
    term = proximal(
        [torch.tensor([3.0, 5.0]), torch.tensor([[12.0]])],
        [torch.tensor([0.0, 1.0]), torch.zeros(1, 1)],
    )
    assert term.item() == 84.5


@grid
@given(seed=st.integers(0, 1000), count=st.integers(1, 4), weight=st.floats(0, 10))
def test_the_gradient_is_the_way_back_times_the_weight(
    seed: int, count: int, weight: float
) -> None:
    parameters = [tensor.requires_grad_() for tensor in tensors(seed, count)]
    anchors = [tensor.requires_grad_() for tensor in tensors(seed + 1, count)]
    value = proximal(parameters, anchors)
    plain = (
        sum(float(((w - a) ** 2).sum().detach()) for w, a in zip(parameters, anchors, strict=True))
        / 2
    )
    assert value.item() == pytest.approx(plain, rel=1e-12)
    (weight * value).backward()
    for w, a in zip(parameters, anchors, strict=True):
        torch.testing.assert_close(w.grad, weight * (w - a).detach(), rtol=1e-12, atol=1e-14)
        assert a.grad is None


def test_at_the_anchor_value_and_gradient_are_0() -> None:
    parameters = [tensor.requires_grad_() for tensor in tensors(0)]
    value = proximal(parameters, [tensor.detach().clone() for tensor in parameters])
    assert value.item() == 0
    assert all(not part.any() for part in torch.autograd.grad(value, parameters))


@grid
@given(seed=st.integers(0, 1000), factor=st.floats(0.01, 100))
def test_twice_as_far_is_four_times_as_much(seed: int, factor: float) -> None:
    anchors = tensors(seed)
    ways = tensors(seed + 1)
    near = proximal([a + w for a, w in zip(anchors, ways, strict=True)], anchors)
    far = proximal([a + factor * w for a, w in zip(anchors, ways, strict=True)], anchors)
    assert far.item() == pytest.approx(factor**2 * near.item(), rel=1e-9)


def test_every_parameter_has_its_anchor() -> None:
    with pytest.raises(ValueError, match="zip"):
        proximal(tensors(0, 2), tensors(0, 3))


# --- the objective


def make_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES)
    ).train()


def make_batch() -> Batch:
    draw = torch.Generator().manual_seed(1)
    return Batch(
        torch.rand(6, 3, 2, 2, generator=draw), torch.randint(CLASSES, (6,), generator=draw)
    )


def shift(net: nn.Module) -> None:
    with torch.no_grad():
        for index, parameter in enumerate(net.parameters()):
            parameter.add_(0.1 * (index + 1))


@pytest.mark.parametrize("weight", [0.0, 0.01, 3.0])
def test_the_terms_are_cross_entropy_and_squared_distance(weight: float) -> None:
    net = make_net()
    twin = make_net()
    objective = Proximal(Supervised(), weight)
    phase = Stepping(objective, net, INPUTS)
    shift(net)
    shift(twin)
    losses = phase.losses(make_batch())
    supervised = Supervised().losses(twin, make_batch(), INPUTS).terms["loss_supervised"]
    assert set(losses.terms) == {"loss_supervised", "loss_proximal"}
    assert losses.logs == {}
    assert torch.equal(losses.terms["loss_supervised"], supervised)
    sizes = [parameter.numel() for parameter in net.parameters()]
    expected = weight / 2 * sum(size * (0.1 * (index + 1)) ** 2 for index, size in enumerate(sizes))
    assert losses.terms["loss_proximal"].item() == pytest.approx(expected, rel=1e-5)

    gradients = torch.autograd.grad(
        torch.stack(list(losses.terms.values())).sum(), list(net.parameters())
    )
    alone = torch.autograd.grad(supervised, list(twin.parameters()))
    for index, (a, b) in enumerate(zip(gradients, alone, strict=True)):
        torch.testing.assert_close(a, b + weight * 0.1 * (index + 1), rtol=1e-5, atol=1e-6)


def test_the_anchor_is_where_it_began_not_where_the_net_went() -> None:
    net = make_net()
    objective = Proximal(Supervised(), 1.0)
    phase = Stepping(objective, net, INPUTS)
    values = []
    for _ in range(3):
        values.append(phase.losses(make_batch()).terms["loss_proximal"].item())
        phase.follow()
        shift(net)
    assert values[0] == 0
    assert values[2] == pytest.approx(4 * values[1], rel=1e-4)


def test_buffers_are_not_held_back() -> None:
    net = make_net()
    objective = Proximal(Supervised(), 1.0)
    phase = Stepping(objective, net, INPUTS)
    for buffer in net.buffers():
        buffer.add_(5)
    assert phase.losses(make_batch()).terms["loss_proximal"].item() == 0


def test_the_method_passes_its_weight_on() -> None:
    method = METHODS["fedprox"](settings_of("fedprox", {"proximal_weight": 2.5}))
    assert isinstance(method, FedProx)
    (phase,) = method.phases("supervised", 3, 5)
    net = make_net()
    stepping = Stepping(phase.objective, net, INPUTS)
    shift(net)
    anchors = list(make_net().parameters())
    term = stepping.losses(make_batch()).terms["loss_proximal"]
    torch.testing.assert_close(term, 2.5 * proximal(list(net.parameters()), anchors))
    assert FedProxSettings().proximal_weight == 0.01


# --- the term beside FixMatch


def semi_supervised(labelled: bool = True) -> Batch:
    """Return a batch with unlabelled images, of which some are kept at a threshold of 0.4."""
    draw = torch.Generator().manual_seed(2)
    weak, strong = (torch.rand(6, 3, 2, 2, generator=draw) for _ in range(2))
    known = make_batch() if labelled else Batch()
    return replace(known, weak=weak, strong=strong)


def test_fixmatch_and_its_distance_from_the_start_are_added() -> None:
    net = make_net()
    twin = make_net()
    settings = FixMatchSettings(threshold=0.4, proximal_weight=3.0)
    held = Stepping(fixmatch(settings), net, INPUTS)
    free = Stepping(FixMatchObjective(settings), twin, INPUTS)
    shift(net)
    shift(twin)
    losses = held.losses(semi_supervised())
    alone = free.losses(semi_supervised())
    assert set(losses.terms) == {*alone.terms, "loss_proximal"}
    for name, term in alone.terms.items():
        assert torch.equal(losses.terms[name], term)
    assert torch.equal(losses.logs["kept"], alone.logs["kept"])
    assert 0 < alone.logs["kept"] < 1
    parameters = list(net.parameters())
    gradients = torch.autograd.grad(torch.stack(list(losses.terms.values())).sum(), parameters)
    expected = torch.autograd.grad(
        torch.stack(list(alone.terms.values())).sum(), list(twin.parameters())
    )
    for index, (a, b) in enumerate(zip(gradients, expected, strict=True)):
        torch.testing.assert_close(a, b + 3.0 * 0.1 * (index + 1), rtol=1e-4, atol=1e-5)


class Counting(Objective[int]):
    """An objective that counts its steps, and keeps the number for later phases."""

    def init(self, net: nn.Module, inputs: RoundInputs) -> int:
        return 0

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: int) -> Losses:
        return Losses({"loss": net(batch.labelled).square().mean() * (state + 1)})

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: int) -> int:
        return state + 1

    def remember(self, state: int) -> Mapping[str, Mapping[str, Tensor]]:
        return {"own": {"steps": torch.tensor(state)}}


def test_the_inner_objective_keeps_its_state_and_memory() -> None:
    held = Stepping(Proximal(Counting(), 1.0), make_net(), INPUTS)
    first = held.losses(semi_supervised())
    held.follow()
    second = held.losses(semi_supervised())
    assert second.terms["loss"] == 2 * first.terms["loss"]
    held.follow()
    assert held.memory == {"own": {"steps": torch.tensor(2)}}


def test_where_nothing_is_learned_the_term_alone_takes_no_step() -> None:
    objective = fixmatch(FixMatchSettings(threshold=1.0, proximal_weight=3.0))
    phase = Stepping(objective, make_net(), INPUTS)
    shift(phase.net)
    assert not phase.losses(semi_supervised(labelled=False)).learns
    assert phase.losses(Batch()).terms == {}


@pytest.mark.parametrize("method", ["ssfl", "fedperl"])
def test_only_a_job_with_the_term_reports_it(method: str) -> None:
    """Its weight counts in the rule of a site's policy on what a step may take back."""
    for weight, names in ((0.0, set()), (0.5, {"loss_proximal"})):
        algorithm = METHODS[method](settings_of(method, {"proximal_weight": weight}))
        assert algorithm.requirements.sends.losses & {"loss_proximal"} == names
        assert algorithm.settings.pull == weight
        (phase,) = algorithm.phases("train", 1, 5)
        assert isinstance(phase.objective, Proximal) == bool(weight)


# --- the whole method


def test_sites_are_weighed_by_their_images() -> None:
    server = Server("fedprox", {"rounds": 2}).run()
    assert [row["weights"] for row in server.groups] == [pytest.approx([0.6, 0.4])] * 2


def test_a_robust_mean_is_that_of_its_sites() -> None:
    sites = {"site-1": (30, 0), "site-2": (20, 0), "site-3": (60, 0)}
    server = Server("fedprox", {"rounds": 1, "robust": "median"}, sites).run()
    states = [update.state for update in server.trained(1)]
    medians = {key: torch.stack([state[key] for state in states]).median(dim=0) for key in "wb"}
    assert_close(server.after[1], {key: median.values for key, median in medians.items()})


@pytest.mark.usefixtures("without_report")
def test_without_its_term_it_is_fedavg_to_the_last_bit(tmp_path) -> None:
    sites = ["site-1", "site-9"]
    runs = {
        name: run_local(
            tiny(name.split()[0], options={"rounds": 2, "batch": 4, **options}),
            tmp_path / name,
            sites=sites,
        )
        for name, options in {
            "wfedavg": {"distance_scale": 0.0},
            "fedprox": {"proximal_weight": 0.0},
            "fedprox held": {"proximal_weight": 1.0},
        }.items()
    }
    states = {name: StoredState(folder / "model.safetensors") for name, folder in runs.items()}
    assert_same(states["fedprox"], states["wfedavg"])
    assert any(
        not torch.equal(states["fedprox held"][key], states["wfedavg"][key])
        for key in states["wfedavg"]
    )
