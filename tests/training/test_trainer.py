"""The trainer against a loop written plainly, and the steps it must not take.

In float64: Adam makes a whole step of the rounding of a gradient near 0, and a pseudo-label may
hang on it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fedward.errors import RunError, WorkError
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import (
    Batch,
    Losses,
    Measurement,
    Objective,
    Phase,
    RoundInputs,
    Stateless,
    Uses,
)
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.settings import Settings
from fedward.methods.supervised import Supervised
from fedward.nets import build
from fedward.seeds import Draws
from fedward.training.batches import Pixels, RoundBatches
from fedward.training.optimizers import _grouped_by_decay
from fedward.training.trainer import Trained, train
from tiny import batch_norm_net

CLASSES = 8
STEPS = 4
CPU = torch.device("cpu")
INPUTS = RoundInputs(torch.linspace(0.5, 2.0, CLASSES, dtype=torch.float64))
SHARED = {"images_per_round": 8 * STEPS, "batch": 8, "learning_rate": 1e-3, "round_warm_up": 0.0}
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


def make_batches(
    objective: Objective, settings: Settings, labelled: int = 20, unlabelled: int = 30
) -> list[Batch]:
    peers = [batch_norm_net(seed, CLASSES).eval() for seed in (1, 2)]
    hidden = pictures(unlabelled, 1) if objective.uses.unlabelled == "unlabelled" else None
    batches = RoundBatches(pictures(labelled), hidden, peers, settings, Draws(3), ("site-1", 1))
    return [_double(batch) for batch in batches]


def _double(batch: Batch) -> Batch:
    images = {name: getattr(batch, name) for name in ("labelled", "weak", "strong", "peers")}
    return replace(
        batch, **{name: part.double() for name, part in images.items() if part is not None}
    )


def run(
    net: nn.Module,
    batches: list[Batch],
    objective: Objective,
    settings: Settings,
    aborted: Callable[[], bool] = lambda: False,
) -> Trained:
    phase = Phase(objective, settings.learning_rate)
    return train(net, batches, phase, INPUTS, settings, device=CPU, aborted=aborted)


def copy(net: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in net.state_dict().items()}


def unchanged(net: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[key]) for key, value in net.named_parameters())


def assert_same_net(net: nn.Module, twin: nn.Module) -> None:
    theirs = twin.state_dict()
    for key, value in net.state_dict().items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-7, atol=1e-9, msg=key)


def clipped(gradients: Sequence[Tensor], clip: float) -> list[Tensor]:
    norm = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
    return [gradient * min(1.0, clip / norm) for gradient in gradients]


def plain_sgd(
    net: nn.Module,
    batches: list[Batch],
    objective: Objective,
    learning_rate: float,
    *,
    momentum: float = 0.0,
    decay: float = 0.0,
    clip: float = math.inf,
) -> None:
    """SGD with momentum as torch has it: v <- m v + (g + d w), w <- w - lr v.

    Only g is clipped. Source: Sutskever et al., 2013.
    """
    velocity = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    net.train()
    for batch in batches:
        total = sum(objective.losses(net, batch, INPUTS).terms.values())
        gradients = clipped(torch.autograd.grad(total, list(net.parameters())), clip)
        with torch.no_grad():
            for (name, parameter), gradient in zip(net.named_parameters(), gradients, strict=True):
                velocity[name] = momentum * velocity[name] + gradient + decay * parameter
                parameter.sub_(learning_rate * velocity[name])


def plain_adam(
    net: nn.Module,
    batches: list[Batch],
    objective: Objective,
    learning_rate: float,
    clip: float = math.inf,
    decay: float = 0.0,
) -> list[dict[str, float]]:
    """Kingma and Ba, 2015, Algorithm 1, step by step; returns the named losses of every step."""
    history = []
    first = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    second = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    net.train()
    for step, batch in enumerate(batches, 1):
        losses = objective.losses(net, batch, INPUTS)
        total = sum(losses.terms.values())
        history.append(
            {
                name: float(v.detach())
                for name, v in {"loss": total, **losses.terms, **losses.logs}.items()
            }
        )
        gradients = clipped(torch.autograd.grad(total, list(net.parameters())), clip)
        with torch.no_grad():
            for (name, parameter), raw in zip(net.named_parameters(), gradients, strict=True):
                gradient = raw + decay * parameter
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient**2
                mean = first[name] / (1 - 0.9**step)
                square = second[name] / (1 - 0.999**step)
                parameter.sub_(learning_rate * mean / (square.sqrt() + 1e-8))
    return history


# --- the same as a plain loop


@pytest.mark.parametrize(
    ("objective", "settings"), METHODS, ids=["supervised", "fixmatch", "fedperl"]
)
def test_training_equals_adam_written_plainly(objective: Objective, settings: Settings) -> None:
    batches = make_batches(objective, settings)
    net = make_net()
    twin = make_net()
    result = run(net, batches, objective, settings)
    history = plain_adam(twin, batches, objective, settings.learning_rate)

    assert result.steps == STEPS
    assert set(result.means) == set(history[0])
    for name, mean in result.means.items():
        assert mean == pytest.approx(sum(row[name] for row in history) / STEPS, rel=1e-5), name
    before = make_net().state_dict()
    theirs = twin.state_dict()
    for key, value in net.state_dict().items():
        torch.testing.assert_close(value, theirs[key], rtol=1e-7, atol=1e-9, msg=key)
        assert not torch.equal(value, before[key]), f"{key} never moved"


@pytest.mark.parametrize(
    ("objective", "settings"), METHODS, ids=["supervised", "fixmatch", "fedperl"]
)
def test_training_equals_torchs_adam(objective: Objective, settings: Settings) -> None:
    batches = make_batches(objective, settings)
    net = make_net()
    twin = make_net()
    run(net, batches, objective, settings)
    optimizer = torch.optim.Adam(
        twin.parameters(), lr=settings.learning_rate, foreach=False, fused=False
    )
    twin.train()
    for batch in batches:
        optimizer.zero_grad()
        sum(objective.losses(twin, batch, INPUTS).terms.values()).backward()
        optimizer.step()
    for key, value in twin.state_dict().items():
        torch.testing.assert_close(net.state_dict()[key], value, rtol=1e-7, atol=1e-9, msg=key)


def test_equal_calls_give_equal_weights_by_a_new_optimiser() -> None:
    """Two rounds with one net have two new optimisers: no moments are carried over."""
    objective, settings = METHODS[1]
    batches = make_batches(objective, settings)
    net = make_net()
    twin = make_net()
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
    net = make_net().eval()
    twin = make_net()
    run(net, batches, objective, settings)
    run(twin, batches, objective, settings)
    assert all(
        torch.equal(a, b)
        for a, b in zip(net.state_dict().values(), twin.state_dict().values(), strict=True)
    )


# --- the optimiser that the settings name


@pytest.mark.parametrize(
    ("objective", "settings"), METHODS, ids=["supervised", "fixmatch", "fedperl"]
)
@pytest.mark.parametrize(
    "chosen",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.0, "weight_decay": 0.3},
        {"momentum": 0.7, "weight_decay": 0.3, "clip_gradient": 0.5},
    ],
    ids=["plain", "momentum", "decay", "all"],
)
def test_training_equals_sgd_written_plainly(
    objective: Objective, settings: Settings, chosen: dict
) -> None:
    settings = settings.model_copy(update={"optimizer": "sgd", "learning_rate": 0.05, **chosen})
    batches = make_batches(objective, settings)
    net = make_net()
    twin = make_net()
    assert run(net, batches, objective, settings).steps == STEPS
    plain_sgd(
        twin,
        batches,
        objective,
        0.05,
        momentum=settings.momentum,
        decay=settings.weight_decay,
        clip=settings.clip_gradient or math.inf,
    )
    assert_same_net(net, twin)
    before = make_net().state_dict()
    assert all(not torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_momentum_decay_and_clipping_each_change_sgd() -> None:
    """Else the test above would show nothing."""
    whole = PLAIN.model_copy(
        update={"optimizer": "sgd", "learning_rate": 0.05, "weight_decay": 0.3}
    )
    whole = whole.model_copy(update={"momentum": 0.7, "clip_gradient": 0.5})
    batches = make_batches(Supervised(), whole)
    nets = []
    for change in (
        {},
        {"momentum": 0.0},
        {"weight_decay": 0.0},
        {"clip_gradient": None},
        {"optimizer": "adam"},
    ):
        nets.append(make_net())
        run(nets[-1], batches, Supervised(), whole.model_copy(update=change))
    for net in nets[1:]:
        assert (
            max(
                (a - b).abs().max()
                for a, b in zip(nets[0].parameters(), net.parameters(), strict=True)
            )
            > 1e-3
        )


def test_weight_decay_of_adam_is_added_to_the_gradient() -> None:
    settings = PLAIN.model_copy(update={"weight_decay": 0.3})
    batches = make_batches(Supervised(), settings)
    net = make_net()
    twin = make_net()
    without = make_net()
    run(net, batches, Supervised(), settings)
    plain_adam(twin, batches, Supervised(), settings.learning_rate, decay=0.3)
    run(without, batches, Supervised(), PLAIN)
    assert_same_net(net, twin)
    assert (
        max(
            (a - b).abs().max() for a, b in zip(net.parameters(), without.parameters(), strict=True)
        )
        > 1e-4
    )


def test_adamw_decays_matrices_and_kernels_but_not_biases() -> None:
    """With a step of lr 0.01 and a decay of 0.3, a weight is 0.3 % smaller before Adam's step."""
    settings = PLAIN.model_copy(
        update={"optimizer": "adamw", "weight_decay": 0.3, "learning_rate": 0.01}
    )
    batches = make_batches(Supervised(), settings)[:1]
    net = make_net()
    twin = make_net()
    before = [parameter.detach().clone() for parameter in twin.parameters()]
    run(net, batches, Supervised(), settings)
    plain_adam(twin, batches, Supervised(), 0.01)
    decayed = [parameter.dim() > 1 for parameter in net.parameters()]
    assert len(set(decayed)) == 2
    for mine, theirs, old, decays in zip(
        net.parameters(), twin.parameters(), before, decayed, strict=True
    ):
        torch.testing.assert_close(mine.detach(), theirs.detach() - (0.003 * old if decays else 0))


@pytest.mark.parametrize(
    ("name", "spared"),
    [
        ("vit_tiny_patch16_224", ["cls_token", "pos_embed"]),
        ("swinv2_tiny_window8_256", ["logit_scale"] * 12),
        ("swin_28", ["relative_position_bias_table"] * 6),
    ],
)
def test_adamw_leaves_tokens_scales_and_positions_alone(name: str, spared: list[str]) -> None:
    """They have two dimensions or more, but are no matrices and no kernels."""
    net = build(name, CLASSES)
    decaying, others = _grouped_by_decay(net)
    assert others["weight_decay"] == 0
    names = {id(parameter): path for path, parameter in net.named_parameters()}
    assert len(decaying["params"]) + len(others["params"]) == len(names)
    assert all(names[id(parameter)].endswith("weight") for parameter in decaying["params"])
    left = [names[id(parameter)] for parameter in others["params"] if parameter.dim() > 1]
    assert [path.rpartition(".")[2] for path in left] == spared


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_learning_rate_is_that_of_the_phase(optimizer: str) -> None:
    settings = PLAIN.model_copy(
        update={"optimizer": optimizer, "learning_rate": 1e30, "momentum": 0.9}
    )
    batches = make_batches(Supervised(), settings)
    net = make_net()
    twin = make_net()
    train(
        net,
        batches,
        Phase(Supervised(), 0.002),
        INPUTS,
        settings,
        device=CPU,
        aborted=lambda: False,
    )
    if optimizer == "adam":
        plain_adam(twin, batches, Supervised(), 0.002)
    else:
        plain_sgd(twin, batches, Supervised(), 0.002, momentum=0.9)
    assert_same_net(net, twin)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_phases_of_a_round_have_optimisers_of_their_own(optimizer: str) -> None:
    """Two phases equal two new optimisers in a row: no momentum is carried over."""
    settings = PLAIN.model_copy(update={"optimizer": optimizer, "momentum": 0.9})
    batches = make_batches(Supervised(), settings)
    first = batches[:3]
    second = batches[3:]
    net = make_net()
    twin = make_net()
    longer = make_net()
    for part, rate in ((first, 0.01), (second, 0.002)):
        train(
            net,
            part,
            Phase(Supervised(), rate),
            INPUTS,
            settings,
            device=CPU,
            aborted=lambda: False,
        )
        if optimizer == "adam":
            plain_adam(twin, part, Supervised(), rate)
        else:
            plain_sgd(twin, part, Supervised(), rate, momentum=0.9)
    assert_same_net(net, twin)
    for rate in (0.01, 0.01):
        train(
            longer,
            first,
            Phase(Supervised(), rate),
            INPUTS,
            settings,
            device=CPU,
            aborted=lambda: False,
        )
    carried = make_net()
    train(
        carried,
        first * 2,
        Phase(Supervised(), 0.01),
        INPUTS,
        settings,
        device=CPU,
        aborted=lambda: False,
    )
    assert any(
        (a - b).abs().max() > 1e-4
        for a, b in zip(longer.parameters(), carried.parameters(), strict=True)
    )


# --- what an objective is told


class _Watching(Objective[int]):
    """Notes what is called, and the weights of that moment; its gradient is 1 everywhere."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Tensor]] = []
        self.begun: list[tuple[nn.Module, RoundInputs]] = []

    def init(self, net: nn.Module, inputs: RoundInputs) -> int:
        self.begun.append((net, inputs))
        self._note("init", net)
        return 0

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: int) -> Losses:
        assert inputs is self.begun[0][1]
        assert state == len(self.calls) // 2
        self._note("losses", net)
        return Losses({"loss_supervised": sum(parameter.sum() for parameter in net.parameters())})

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: int) -> int:
        self._note("after_step", net)
        return state + 1

    def remember(self, state: int) -> dict[str, dict[str, Tensor]]:
        return {"steps": {"taken": torch.tensor(state)}}

    def _note(self, call: str, net: nn.Module) -> None:
        self.calls.append((call, next(net.parameters()).detach().clone()))


def test_an_objective_sees_the_first_weights_and_every_step() -> None:
    settings = Settings(
        images_per_round=3, batch=1, optimizer="sgd", momentum=0.0, round_warm_up=0.0
    )
    net = nn.Linear(3, 2).double()
    objective = _Watching()
    start = net.weight.detach().clone()
    inputs = replace(INPUTS, steps_before=17)
    batches = [Batch(labelled=torch.zeros(1))] * 3
    result = train(
        net, batches, Phase(objective, 0.5), inputs, settings, device=CPU, aborted=lambda: False
    )
    assert result.steps == 3
    assert [call for call, _ in objective.calls] == ["init", *["losses", "after_step"] * 3]
    assert objective.begun == [(net, inputs)]
    assert result.memory == {"steps": {"taken": 3}}
    moves = [(start - weight).unique().tolist() for _, weight in objective.calls]
    assert moves == [[0.0], [0.0], [0.5], [0.5], [1.0], [1.0], [1.5]]


class _Counted:
    """Batches that say how often they were asked for."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.passes = 0
        self.given = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        self.passes += 1
        for batch in self.batches:
            self.given += 1
            yield batch


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_phase_takes_one_step_for_each_batch(steps: int) -> None:
    """Whatever images_per_round says: it is for those who make the batches."""
    batches = _Counted([Batch(labelled=torch.zeros(1))] * steps)
    settings = Settings(images_per_round=48, batch=16)
    result = train(
        nn.Linear(3, 2),
        batches,
        Phase(_Watching(), 0.1),
        INPUTS,
        settings,
        device=CPU,
        aborted=lambda: False,
    )
    assert (result.steps, batches.passes, batches.given) == (steps, 1, steps)


def test_batches_of_other_sizes_weigh_alike_in_the_means() -> None:
    settings = Settings(images_per_round=None, batch=8, learning_rate=1e-3, round_warm_up=0.0)
    batches = [
        _double(batch)
        for batch in RoundBatches(pictures(19), None, [], settings, Draws(3), ("site-1", 1))
    ]
    assert [len(batch.labels) for batch in batches] == [10, 9]
    net = make_net()
    twin = make_net()
    result = run(net, batches, Supervised(), settings)
    history = plain_adam(twin, batches, Supervised(), 1e-3)
    assert result.means["loss"] == pytest.approx(sum(row["loss"] for row in history) / 2, rel=1e-5)
    assert_same_net(net, twin)


# --- the rate rises over the first steps


def rates_of(settings: Settings, objective: Objective, steps: int) -> list[list[float]]:
    """Return the learning rates of each step, by group of parameters."""
    used: list[list[float]] = []

    def record(optimizer: torch.optim.Optimizer, *_: object) -> None:
        used.append([group["lr"] for group in optimizer.param_groups])

    hook = register_optimizer_step_pre_hook(record)
    run(nn.Linear(2, 2), [Batch(labelled=torch.zeros(1))] * steps, objective, settings)
    hook.remove()
    return used


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_every_step_of_a_warm_up_has_its_rate(optimizer: str) -> None:
    settings = Settings(optimizer=optimizer, learning_rate=0.6, round_warm_up=0.4)
    groups = 2 if optimizer == "adamw" else 1
    expected = [pytest.approx([rate] * groups) for rate in (0.2, 0.4, 0.6, 0.6, 0.6)]
    assert rates_of(settings, _Watching(), 5) == expected


def test_batches_that_teach_nothing_do_not_warm_up() -> None:
    settings = Settings(learning_rate=0.6, round_warm_up=0.4)
    assert rates_of(settings, _Scripted([False, True, False, True, True]), 5) == [
        [pytest.approx(rate)] for rate in (0.2, 0.4, 0.6)
    ]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_warm_up_is_a_factor_of_each_steps_move(optimizer: str) -> None:
    """With a warm-up, the first move of Adam and of SGD without momentum is half as long."""
    settings = PLAIN.model_copy(update={"optimizer": optimizer, "momentum": 0.0})
    batches = make_batches(Supervised(), settings)[:1]
    start = list(make_net().parameters())
    moves = []
    for share in (0.0, 1.0):
        net = make_net()
        run(net, batches, Supervised(), settings.model_copy(update={"round_warm_up": share}))
        moves.append(
            [after.detach() - before for after, before in zip(net.parameters(), start, strict=True)]
        )
    for whole, half in zip(*moves, strict=True):
        torch.testing.assert_close(half, whole / 2, rtol=1e-6, atol=1e-12)
    assert max(whole.abs().max() for whole in moves[0]) > 1e-4


# --- steps without a loss


def test_steps_without_a_loss_change_no_parameter() -> None:
    settings = FIXMATCH.model_copy(update={"threshold": 1.0})
    objective = FixMatchObjective(settings)
    net = make_net()
    before = copy(net)
    result = run(net, make_batches(objective, settings, labelled=0), objective, settings)
    assert result.means == {"loss": 0.0, "loss_pseudo": 0.0, "kept": 0.0}
    assert result.steps == 0
    assert unchanged(net, before)


@pytest.mark.parametrize(
    ("objective", "settings", "peers", "steps"),
    [
        (
            FixMatchObjective(FIXMATCH.model_copy(update={"unlabelled_weight": 0.0})),
            FIXMATCH,
            False,
            0,
        ),
        (FedPerlObjective(FEDPERL.model_copy(update={"threshold": 1.0})), FEDPERL, True, STEPS),
        (FedPerlObjective(FEDPERL.model_copy(update={"threshold": 1.0})), FEDPERL, False, 0),
        (
            FedPerlObjective(
                FEDPERL.model_copy(update={"threshold": 1.0, "consistency_weight": 0.0})
            ),
            FEDPERL,
            True,
            0,
        ),
    ],
    ids=["beta 0", "peers", "no peers", "gamma 0"],
)
def test_a_step_is_one_that_could_move_a_parameter(
    objective: Objective, settings: Settings, peers: bool, steps: int
) -> None:
    """Without labels a step needs a kept pseudo-label with a weight, or peers to follow."""
    batches = make_batches(objective, settings, labelled=0)
    if not peers:
        batches = [replace(batch, peers=None) for batch in batches]
    net = make_net()
    before = copy(net)
    assert run(net, batches, objective, settings).steps == steps
    assert unchanged(net, before) == (not steps)


class _Scripted(Stateless):
    """Pulls every parameter by a loss of its own, and keeps pseudo-labels in given steps."""

    uses = Uses(unlabelled="unlabelled", second_view="strong")

    def __init__(self, kept: list[bool]) -> None:
        self.kept = iter(kept)
        self.followed = 0

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: None) -> None:
        self.followed += 1

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        keep = float(next(self.kept))
        total = keep * sum(parameter.sum() for parameter in net.parameters())
        return Losses({"loss_pseudo": total}, learns=torch.tensor(keep > 0))


def test_momentum_does_not_move_a_step_without_a_loss() -> None:
    """Kept, not kept, not kept, kept: as many moves as with the two kept steps alone."""
    settings = Settings(images_per_round=4, batch=1, learning_rate=0.01, round_warm_up=0.0)
    half = settings.model_copy(update={"images_per_round": 2})
    net = nn.Linear(3, 2)
    twin = nn.Linear(3, 2)
    twin.load_state_dict(net.state_dict())
    before = copy(net)
    objective = _Scripted([True, False, False, True])
    assert run(net, [Batch()] * 4, objective, settings).steps == 2
    run(twin, [Batch()] * 2, _Scripted([True, True]), half)
    assert not unchanged(net, before)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))
    assert objective.followed == 2, "nothing follows a step that was not taken"


class _Unknown(Stateless):
    """Another method's: a number it calls ``kept`` is 0 and means nothing here."""

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        total = sum(parameter.sum() for parameter in net.parameters())
        return Losses({"loss_own": total}, {"kept": torch.tensor(0.0)})


def test_no_name_of_a_loss_or_note_stops_the_training() -> None:
    settings = Settings(images_per_round=2, batch=1, learning_rate=0.01)
    net = nn.Linear(3, 2)
    before = copy(net)
    assert run(net, [Batch()] * 2, _Unknown(), settings).steps == 2
    assert not unchanged(net, before)


def test_batches_that_teach_nothing_leave_the_network_as_it_was() -> None:
    """The objective learns from labelled images, and the batches have none: no step."""
    net = make_net()
    before = copy(net)
    trained = run(net, [Batch(), Batch()], Supervised(), PLAIN)
    assert (trained.steps, trained.means) == (0, {"loss": 0.0})
    assert unchanged(net, before)


def test_a_labelled_step_counts_without_pseudo_labels() -> None:
    """At tau = 1 FixMatch moves the parameters as supervised training does, and the statistics."""
    settings = FIXMATCH.model_copy(update={"threshold": 1.0})
    objective = FixMatchObjective(settings)
    batches = make_batches(objective, settings)
    net = make_net()
    twin = make_net()
    run(net, batches, objective, settings)
    run(twin, batches, Supervised(), PLAIN)
    assert_same_net(net, twin)


# --- clipping


class _Slope(Stateless):
    """One parameter vector, one constant gradient."""

    def __init__(self, slope: Tensor) -> None:
        self.slope = slope
        self.seen: list[Tensor] = []

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        weight = next(net.parameters())
        weight.register_hook(self.seen.append)
        return Losses({"loss_supervised": (self.slope * weight).sum()})


@pytest.mark.parametrize(("clip", "norm"), [(None, 5.0), (1.0, 1.0), (100.0, 5.0)])
def test_clipping_scales_the_gradient_to_its_norm(clip: float | None, norm: float) -> None:
    """A gradient (3, 4) has norm 5; clipped to 1 it is (0.6, 0.8); a larger limit does nothing."""
    used: list[Tensor] = []

    def record(optimizer: torch.optim.Optimizer, *_: object) -> None:
        used.append(optimizer.param_groups[0]["params"][0].grad.clone())

    net = nn.Linear(2, 1, bias=False)
    settings = Settings(images_per_round=1, batch=1, clip_gradient=clip)
    hook = register_optimizer_step_pre_hook(record)
    run(net, [Batch(labelled=torch.zeros(1))], _Slope(torch.tensor([[3.0, 4.0]])), settings)
    hook.remove()
    (gradient,) = used
    torch.testing.assert_close(gradient, torch.tensor([[0.6, 0.8]]) * norm, rtol=1e-5, atol=1e-6)


def test_clipped_training_equals_a_plain_clipped_loop() -> None:
    """Adam hides a constant scale, so the second gradient is clipped by another factor."""
    settings = PLAIN.model_copy(update={"clip_gradient": 0.5})
    batches = make_batches(Supervised(), settings)
    net = make_net()
    twin = make_net()
    unclipped = make_net()
    run(net, batches, Supervised(), settings)
    plain_adam(twin, batches, Supervised(), settings.learning_rate, clip=0.5)
    run(unclipped, batches, Supervised(), PLAIN)
    for (name, value), other in zip(net.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-7, atol=1e-9, msg=name)
    assert any(
        (a - b).abs().max() > 1e-4
        for a, b in zip(net.parameters(), unclipped.parameters(), strict=True)
    )


# --- what stops a round


def test_an_abort_ends_the_round_before_its_next_step() -> None:
    objective, settings = METHODS[0]
    batches = make_batches(objective, settings)
    asked = []

    def after_two_steps() -> bool:
        asked.append(True)
        return len(asked) > 2

    net = make_net()
    twin = make_net()
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


class _Unmeasured(Measurement):
    """Must not be measured."""

    def measure(self, net: nn.Module, batches: Iterable[Batch]) -> None:
        raise AssertionError("measured after an abort")


def test_an_abort_ends_the_round_before_a_measurement() -> None:
    with pytest.raises(WorkError, match="abort"):
        train(
            make_net(),
            [Batch()],
            Phase(_Unmeasured(), 0.0),
            INPUTS,
            PLAIN,
            device=CPU,
            aborted=lambda: True,
        )


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("step", [0, STEPS - 1])
def test_a_loss_that_is_not_finite_is_an_error_with_a_remedy(value: float, step: int) -> None:
    objective, settings = METHODS[0]
    batches = make_batches(objective, settings)
    batches[step].labelled[0, 0, 0, 0] = value
    with pytest.raises(RunError, match=r"Training diverged.*Lower the learning rate, here 0\.\d+"):
        run(make_net(), batches, objective, settings)


def test_a_step_size_that_blows_the_net_up_is_noticed() -> None:
    settings = PLAIN.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(RunError, match="Training diverged"):
        run(make_net(), make_batches(Supervised(), settings), Supervised(), settings)


def test_a_batch_of_one_image_that_batchnorm_cannot_normalise_is_an_error_with_a_remedy() -> None:
    """Of two images, or of one whose map is larger, it can."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4), nn.Flatten()
    ).double()
    batch = make_batches(Supervised(), PLAIN)[0]
    images = (batch.labelled, batch.labels % 4)
    inputs = RoundInputs(torch.ones(4, dtype=torch.float64))

    def trained(number: int) -> Trained:
        labelled, labels = (part[:number] for part in images)
        batches = [Batch(labelled=labelled, labels=labels)]
        phase = Phase(Supervised(), 1e-3)
        return train(net, batches, phase, inputs, PLAIN, device=CPU, aborted=lambda: False)

    with pytest.raises(WorkError, match=r"BatchNorm.*one small image.*more images of each kind"):
        trained(1)
    assert trained(2).steps == 1
    net[1] = nn.AdaptiveAvgPool2d(2)
    net.append(nn.Linear(16, 4).double())
    assert trained(1).steps == 1
