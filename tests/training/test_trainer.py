"""The trainer against a loop written plainly, and the steps it must not take.

In float64: Adam makes a whole step of the rounding of a gradient near 0, and a pseudo label may hang on it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedward.errors import RunError
from fedward.methods.fedavg import Supervised
from fedward.methods.fedperl import FedPerlObjective, FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective, FixMatchSettings
from fedward.methods.local import Batch, Losses, Objective, RoundInputs
from fedward.methods.settings import Settings
from fedward.training.batches import Pixels, round_batches
from fedward.training.trainer import Trained, train
from tiny import batch_norm_net

CLASSES, STEPS = 8, 4
CPU = torch.device("cpu")
INPUTS = RoundInputs(torch.linspace(0.5, 2.0, CLASSES, dtype=torch.float64))
SHARED = {"images_per_round": 8 * STEPS, "batch": 8, "learning_rate": 1e-3}
FIXMATCH = FixMatchSettings(**SHARED, threshold=0.13)
FEDPERL = FedPerlSettings(**SHARED, threshold=0.13, consistency_weight=1.0)
PLAIN = Settings(**SHARED)
METHODS: list[tuple[Objective, Settings]] = [
    (Supervised(), PLAIN),
    (FixMatchObjective(FIXMATCH), FIXMATCH),
    (FedPerlObjective(FEDPERL), FEDPERL),
]


def pictures(count: int, seed: int = 0) -> Pixels:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, 16, 16), generator=draw, dtype=torch.uint8)
    return Pixels(pixels, torch.randint(CLASSES, (count,), generator=draw))


def make_net() -> nn.Module:
    return batch_norm_net(5, CLASSES).double()


def make_batches(objective: Objective, settings: Settings, labelled: int = 20, unlabelled: int = 30) -> list[Batch]:
    peers = [batch_norm_net(seed, CLASSES).eval() for seed in (1, 2)]
    hidden = pictures(unlabelled, 1) if objective.wants_unlabelled else None
    batches = round_batches(pictures(labelled), hidden, peers, settings, (3, "site-1", 1))
    return [_double(batch) for batch in batches]


def _double(batch: Batch) -> Batch:
    images = {name: getattr(batch, name) for name in ("labelled", "weak", "strong", "peers")}
    return replace(batch, **{name: part.double() for name, part in images.items() if part is not None})


def run(
    net: nn.Module,
    batches: list[Batch],
    objective: Objective,
    settings: Settings,
    aborted: Callable[[], bool] = lambda: False,
) -> Trained:
    return train(net, batches, objective, INPUTS, settings, device=CPU, aborted=aborted)


def copy(net: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in net.state_dict().items()}


def unchanged(net: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[key]) for key, value in net.named_parameters())


def plain_adam(
    net: nn.Module, batches: list[Batch], objective: Objective, learning_rate: float, clip: float = math.inf
) -> list[dict[str, float]]:
    """Kingma and Ba, 2015, Algorithm 1, step by step; returns the named losses of every step."""
    history = []
    first = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    second = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    net.train()
    for step, batch in enumerate(batches, 1):
        losses = objective.losses(net, batch, INPUTS)
        total = sum(losses.terms.values())
        history.append({name: float(v.detach()) for name, v in {"loss": total, **losses.terms, **losses.notes}.items()})
        gradients = torch.autograd.grad(total, list(net.parameters()))
        norm = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
        with torch.no_grad():
            for (name, parameter), raw in zip(net.named_parameters(), gradients, strict=True):
                gradient = raw * min(1.0, clip / norm)
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient**2
                mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
                parameter.sub_(learning_rate * mean / (square.sqrt() + 1e-8))
    return history


# --- the same as a plain loop


@pytest.mark.parametrize(("objective", "settings"), METHODS, ids=["supervised", "fixmatch", "fedperl"])
def test_training_equals_adam_written_plainly(objective: Objective, settings: Settings) -> None:
    batches = make_batches(objective, settings)
    net, twin = make_net(), make_net()
    result = run(net, batches, objective, settings)
    history = plain_adam(twin, batches, objective, settings.learning_rate)

    assert result.steps == STEPS
    assert set(result.means) == set(history[0])
    for name, mean in result.means.items():
        assert mean == pytest.approx(sum(row[name] for row in history) / STEPS, rel=1e-5), name
    before, theirs = make_net().state_dict(), twin.state_dict()
    for key, value in net.state_dict().items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-7, atol=1e-9, msg=key)
        assert not torch.equal(value, before[key]), f"{key} never moved"


@pytest.mark.parametrize(("objective", "settings"), METHODS, ids=["supervised", "fixmatch", "fedperl"])
def test_training_equals_torchs_adam(objective: Objective, settings: Settings) -> None:
    batches = make_batches(objective, settings)
    net, twin = make_net(), make_net()
    run(net, batches, objective, settings)
    optimizer = torch.optim.Adam(twin.parameters(), lr=settings.learning_rate, foreach=False, fused=False)
    twin.train()
    for batch in batches:
        optimizer.zero_grad()
        sum(objective.losses(twin, batch, INPUTS).terms.values()).backward()
        optimizer.step()
    for key, value in twin.state_dict().items():
        torch.testing.assert_close(net.state_dict()[key], value, rtol=1e-7, atol=1e-9, msg=key)


def test_equal_calls_give_equal_weights_and_the_optimiser_starts_anew() -> None:
    """Two rounds with one net are two fresh optimisers in a row, not one with moments carried over."""
    objective, settings = METHODS[1]
    batches = make_batches(objective, settings)
    net, twin = make_net(), make_net()
    for _ in range(2):
        run(net, batches, objective, settings)
        plain_adam(twin, batches, objective, settings.learning_rate)
    again = make_net()
    for _ in range(2):
        run(again, batches, objective, settings)
    for key, value in net.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
        torch.testing.assert_close(value, twin.state_dict()[key], rtol=1e-7, atol=1e-9, msg=key)


def test_terms_are_summed_to_the_loss_and_notes_are_not() -> None:
    objective, settings = METHODS[2]
    means = run(make_net(), make_batches(objective, settings), objective, settings).means
    assert set(means) == {"loss", "loss_supervised", "loss_pseudo", "loss_consistency", "kept"}
    terms = [value for name, value in means.items() if name.startswith("loss_")]
    assert means["loss"] == pytest.approx(sum(terms), rel=1e-5)
    assert 0 < means["kept"] <= 1


def test_a_net_in_evaluation_mode_is_trained_all_the_same() -> None:
    objective, settings = METHODS[0]
    batches = make_batches(objective, settings)
    net, twin = make_net().eval(), make_net()
    run(net, batches, objective, settings)
    run(twin, batches, objective, settings)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), twin.state_dict().values(), strict=True))


# --- steps without a loss


def test_steps_without_a_loss_change_no_parameter() -> None:
    settings = FIXMATCH.model_copy(update={"threshold": 1.0})
    objective = FixMatchObjective(settings)
    net = make_net()
    before = copy(net)
    result = run(net, make_batches(objective, settings, labelled=0), objective, settings)
    assert result.means == {"loss": 0.0, "loss_pseudo": 0.0, "kept": 0.0}
    assert unchanged(net, before)


class _Scripted:
    """Pulls every parameter by a loss of its own, and keeps the pseudo labels of the steps it is told to."""

    wants_unlabelled = True

    def __init__(self, kept: list[bool]) -> None:
        self.kept = iter(kept)

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs) -> Losses:
        keep = float(next(self.kept))
        total = keep * sum(parameter.sum() for parameter in net.parameters())
        return Losses({"loss_pseudo": total}, {"kept": torch.tensor(keep)})


def test_momentum_does_not_move_a_step_without_a_loss() -> None:
    """Kept, not kept, not kept, kept: as many moves as with the two kept steps alone."""
    settings = Settings(images_per_round=4, batch=1, learning_rate=0.01)
    half = settings.model_copy(update={"images_per_round": 2})
    net, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(net.state_dict())
    before = copy(net)
    run(net, [Batch()] * 4, _Scripted([True, False, False, True]), settings)
    run(twin, [Batch()] * 2, _Scripted([True, True]), half)
    assert not unchanged(net, before)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))


def test_a_labelled_step_counts_although_no_pseudo_label_is_kept() -> None:
    """At tau = 1 FixMatch moves the parameters as supervised training does, its strong views only the statistics."""
    settings = FIXMATCH.model_copy(update={"threshold": 1.0})
    objective = FixMatchObjective(settings)
    batches = make_batches(objective, settings)
    net, twin = make_net(), make_net()
    run(net, batches, objective, settings)
    run(twin, batches, Supervised(), PLAIN)
    for (name, value), other in zip(net.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-7, atol=1e-9, msg=name)


# --- clipping


class _Slope:
    """One parameter vector, one constant gradient."""

    wants_unlabelled = False

    def __init__(self, slope: Tensor) -> None:
        self.slope = slope
        self.seen: list[Tensor] = []

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs) -> Losses:
        weight = next(net.parameters())
        weight.register_hook(self.seen.append)
        return Losses({"loss_supervised": (self.slope * weight).sum()})


@pytest.mark.parametrize(("clip", "norm"), [(None, 5.0), (1.0, 1.0), (100.0, 5.0)])
def test_clipping_scales_the_gradient_to_its_norm(clip: float | None, norm: float, monkeypatch) -> None:
    """A gradient (3, 4) has norm 5; clipped to 1 it is (0.6, 0.8); a larger limit does nothing."""
    used: list[Tensor] = []
    step = torch.optim.Adam.step

    def record(self: torch.optim.Adam, *args: object, **kwargs: object) -> object:
        used.append(self.param_groups[0]["params"][0].grad.clone())
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Adam, "step", record)
    net = nn.Linear(2, 1, bias=False)
    settings = Settings(images_per_round=1, batch=1, clip_gradient=clip)
    run(net, [Batch(labelled=torch.zeros(1))], _Slope(torch.tensor([[3.0, 4.0]])), settings)
    (gradient,) = used
    torch.testing.assert_close(gradient, torch.tensor([[0.6, 0.8]]) * norm, rtol=1e-5, atol=1e-6)


def test_clipped_training_equals_the_plain_loop_with_clipped_gradients() -> None:
    """Adam hides a constant scale, so the second step's gradient is clipped by another factor than the first's."""
    settings = PLAIN.model_copy(update={"clip_gradient": 0.5})
    batches = make_batches(Supervised(), settings)
    net, twin, unclipped = make_net(), make_net(), make_net()
    run(net, batches, Supervised(), settings)
    plain_adam(twin, batches, Supervised(), settings.learning_rate, clip=0.5)
    run(unclipped, batches, Supervised(), PLAIN)
    for (name, value), other in zip(net.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-7, atol=1e-9, msg=name)
    assert any((a - b).abs().max() > 1e-4 for a, b in zip(net.parameters(), unclipped.parameters(), strict=True))


# --- what stops a round


def test_an_abort_ends_the_round_before_its_next_step() -> None:
    objective, settings = METHODS[0]
    batches = make_batches(objective, settings)
    asked = []

    def after_two_steps() -> bool:
        asked.append(True)
        return len(asked) > 2

    net, twin = make_net(), make_net()
    with pytest.raises(RunError, match="abort"):
        run(net, batches, objective, settings, after_two_steps)
    plain_adam(twin, batches[:2], objective, settings.learning_rate)
    assert len(asked) == 3
    for key, value in net.state_dict().items():
        torch.testing.assert_close(value, twin.state_dict()[key], rtol=1e-7, atol=1e-9, msg=key)


def test_an_abort_before_the_first_step_changes_nothing() -> None:
    objective, settings = METHODS[0]
    net = make_net()
    before = copy(net)
    with pytest.raises(RunError, match="abort"):
        run(net, make_batches(objective, settings), objective, settings, lambda: True)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("step", [0, STEPS - 1])
def test_a_loss_that_is_not_finite_is_an_error_that_says_what_to_do(value: float, step: int) -> None:
    objective, settings = METHODS[0]
    batches = make_batches(objective, settings)
    batches[step].labelled[0, 0, 0, 0] = value
    with pytest.raises(RunError, match=r"finite loss.*learning_rate"):
        run(make_net(), batches, objective, settings)


def test_a_step_size_that_blows_the_net_up_is_noticed() -> None:
    settings = PLAIN.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(RunError, match="finite loss"):
        run(make_net(), make_batches(Supervised(), settings), Supervised(), settings)
