"""The mean teacher: its equations, and what its objective trains, follows and remembers."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import Stepping
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.local import Batch, Losses, RoundInputs
from fedward.methods.mean_teacher import TEACHER, MeanTeacher, MeanTeacherSettings, ema, sharpen

grid = settings(deadline=None, max_examples=50)
IMAGES = 6
CLASSES = 3
temperatures = st.floats(0.05, 20.0)
NAN = math.nan
INF = math.inf


def random_probabilities(images: int, classes: int, seed: int, spread: float = 2.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.softmax(
        spread * torch.randn(images, classes, generator=draw, dtype=torch.float64), dim=1
    )


def entropy(p: Tensor) -> Tensor:
    return -torch.special.xlogy(p, p).sum(dim=1)


# --- sharpen


def test_sharpened_by_hand() -> None:
    """With tau = 1/2 the squares: 0.64, 0.04 -> 16 : 1; and 9, 4, 1 of 14."""
    sharpened = sharpen(torch.tensor([[0.8, 0.2], [0.5, 0.5]], dtype=torch.float64), 0.5)
    torch.testing.assert_close(
        sharpened, torch.tensor([[16, 1], [8.5, 8.5]], dtype=torch.float64) / 17, rtol=1e-14, atol=0
    )
    three = sharpen(torch.tensor([[3.0, 2.0, 1.0]], dtype=torch.float64) / 6, 0.5)
    torch.testing.assert_close(
        three, torch.tensor([[9.0, 4.0, 1.0]], dtype=torch.float64) / 14, rtol=1e-14, atol=0
    )


@grid
@given(
    images=st.integers(0, 5),
    classes=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    temperature=temperatures,
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_sharpen_equals_the_formula_and_keeps_its_promises(
    images: int, classes: int, seed: int, temperature: float, dtype: torch.dtype
) -> None:
    p = random_probabilities(images, classes, seed).to(dtype)
    sharpened = sharpen(p, temperature)
    assert sharpened.dtype == dtype
    assert sharpened.shape == p.shape
    for row, given_row in zip(sharpened.tolist(), p.double().tolist(), strict=True):
        powers = [value ** (1 / temperature) for value in given_row]
        exact = dtype == torch.float64
        expected = [power / math.fsum(powers) for power in powers]
        assert row == pytest.approx(
            expected, rel=1e-10 if exact else 1e-4, abs=1e-15 if exact else 1e-7
        )
    assert (
        (sharpened[:, :, None] >= sharpened[:, None, :]) | (p[:, :, None] < p[:, None, :])
    ).all(), "the order of classes"
    if temperature < 1:
        assert (entropy(sharpened.double()) <= entropy(p.double()) + 1e-6).all()
    if temperature > 1:
        assert (entropy(sharpened.double()) >= entropy(p.double()) - 1e-6).all()


@grid
@given(seed=st.integers(0, 10_000), classes=st.integers(1, 6))
def test_a_temperature_of_one_is_the_identity_on_probabilities(seed: int, classes: int) -> None:
    p = random_probabilities(4, classes, seed)
    torch.testing.assert_close(sharpen(p, 1.0), p, rtol=1e-14, atol=0)
    torch.testing.assert_close(sharpen(3 * p, 1.0), p, rtol=1e-13, atol=0)  # and it normalises


@grid
@given(seed=st.integers(0, 1000), first=st.floats(0.2, 3.0), second=st.floats(0.2, 3.0))
def test_two_temperatures_are_their_product(seed: int, first: float, second: float) -> None:
    p = random_probabilities(4, 3, seed)
    torch.testing.assert_close(
        sharpen(sharpen(p, first), second), sharpen(p, first * second), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("temperature", [0.01, 0.5, 1.0, 7.0])
def test_a_class_of_zero_stays_zero_and_equals_stay_equal(temperature: float) -> None:
    sharpened = sharpen(torch.tensor([[0.0, 0.4, 0.4, 0.2], [0.0, 0.0, 1.0, 0.0]]), temperature)
    assert sharpened[0, 0] == 0
    assert sharpened[0, 1] == sharpened[0, 2]
    assert sharpened[1].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_small_temperature_is_one_hot(temperature: float, dtype: torch.dtype) -> None:
    """0.4^1000 is below every float32."""
    p = torch.tensor([[0.35, 0.4, 0.25], [0.5, 0.0, 0.5], [1e-30, 1e-31, 1e-32]], dtype=dtype)
    expected = torch.tensor([[0, 1, 0], [0.5, 0, 0.5], [1, 0, 0]], dtype=dtype)
    torch.testing.assert_close(sharpen(p, temperature), expected, rtol=0, atol=1e-50)


def test_no_temperature_is_too_small() -> None:
    assert sharpen(torch.tensor([[0.6, 0.4]]), 1e-39).tolist() == [[1.0, 0.0]]


def test_a_large_temperature_is_uniform_over_what_is_not_zero() -> None:
    flattened = sharpen(torch.tensor([[0.9, 0.1, 0.0]], dtype=torch.float64), 1e12)
    assert flattened[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-11)


def test_sharpen_shows_broken_rows_and_only_those() -> None:
    sharpened = sharpen(torch.tensor([[0.5, 0.5], [NAN, 1.0], [0.0, 0.0]]), 0.5)
    assert sharpened.isnan().tolist() == [[False, False], [True, True], [True, True]]


def test_sharpen_has_no_gradient_and_leaves_its_input_alone() -> None:
    p = random_probabilities(3, 4, 0).requires_grad_()
    before = p.detach().clone()
    assert not sharpen(p, 0.5).requires_grad
    assert torch.equal(p.detach(), before)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (3, 0)])
def test_sharpen_refuses_wrong_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"mean_teacher\.sharpen"):
        sharpen(torch.ones(shape), 0.5)


# --- ema


def make_net(seed: int = 0) -> nn.Sequential:
    """A net with BatchNorm, whose statistics differ from any batch's."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, CLASSES)
    )
    norm = net[2]
    assert isinstance(norm, nn.BatchNorm1d)
    norm.running_mean = torch.randn(5)
    norm.running_var = torch.rand(5) + 0.5
    norm.num_batches_tracked = torch.tensor(seed + 3)
    return net.train()


def copied(net: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach().clone() for key, value in net.state_dict().items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert torch.equal(found[key], value), key


def test_ema_by_hand() -> None:
    """3/4 of 8 and 1/4 of 4 is 7."""
    teacher = nn.Linear(1, 1).double()
    student = nn.Linear(1, 1).double()
    with torch.no_grad():
        teacher.weight.fill_(8.0)
        student.weight.fill_(4.0)
        teacher.bias.fill_(-1.0)
        student.bias.fill_(1.0)
    ema(teacher, student, 0.75)
    assert (teacher.weight.item(), teacher.bias.item()) == (7.0, -0.5)
    assert (student.weight.item(), student.bias.item()) == (4.0, 1.0)


@grid
@given(seed=st.integers(0, 1000), decay=st.floats(0, 1))
def test_ema_moves_parameters_and_copies_buffers_in_place(seed: int, decay: float) -> None:
    teacher = make_net(seed)
    student = make_net(seed + 1)
    old = copied(teacher)
    new = copied(student)
    places = {name: parameter.data_ptr() for name, parameter in teacher.named_parameters()}
    ema(teacher, student, decay)
    assert_equal(copied(student), new)
    assert {name: parameter.data_ptr() for name, parameter in teacher.named_parameters()} == places
    for name, parameter in teacher.named_parameters():
        expected = decay * old[name].double() + (1 - decay) * new[name].double()
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-6, atol=1e-6)
        assert parameter.grad is None
        assert parameter.grad_fn is None
    for name, buffer in teacher.named_buffers():
        assert torch.equal(buffer, new[name]), name


@pytest.mark.parametrize("decay", [0, 0.0, 1, 1.0])
def test_ema_at_its_ends_is_exact(decay: float) -> None:
    teacher = make_net(1)
    student = make_net(2)
    old = copied(teacher)
    new = copied(student)
    ema(teacher, student, decay)
    buffers = dict(student.named_buffers())
    for key, value in copied(teacher).items():
        assert torch.equal(value, new[key] if key in buffers or not decay else old[key]), key


def test_the_teacher_shares_no_memory_with_the_student() -> None:
    teacher = make_net(1)
    student = make_net(2)
    ema(teacher, student, 0.0)
    before = copied(teacher)
    with torch.no_grad():
        for tensor in [*student.parameters(), *student.buffers()]:
            tensor.add_(1)
    assert_equal(copied(teacher), before)


@grid
@given(decays=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_a_teacher_nears_a_still_student_by_the_decays(decays: list[float]) -> None:
    teacher = nn.Linear(2, 2).double()
    student = nn.Linear(2, 2).double()
    before = (teacher.weight - student.weight).detach().clone()
    for decay in decays:
        ema(teacher, student, decay)
    torch.testing.assert_close(
        (teacher.weight - student.weight).detach(), math.prod(decays) * before, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("student", [nn.Linear(3, 2), nn.Linear(2, 2, bias=False), nn.Linear(2, 3)])
def test_ema_refuses_another_architecture(student: nn.Module) -> None:
    teacher = nn.Linear(2, 2)
    before = copied(teacher)
    with pytest.raises(ConfigError, match="one architecture"):
        ema(teacher, student, 0.5)
    assert_equal(copied(teacher), before)


def test_ema_refuses_other_buffers_before_it_changes_anything() -> None:
    """GroupNorm has BatchNorm's parameters, and none of its buffers."""
    teacher = nn.BatchNorm1d(3)
    before = copied(teacher)
    student = nn.GroupNorm(1, 3)
    nn.init.constant_(student.weight, 9.0)
    with pytest.raises(ConfigError, match="one architecture"):
        ema(teacher, student, 0.5)
    assert_equal(copied(teacher), before)


def test_ema_refuses_a_parameter_in_the_place_of_a_buffer() -> None:
    """All tensors have the shapes of the teacher's, in the same order."""
    teacher = nn.BatchNorm1d(3)
    before = copied(teacher)
    student = nn.BatchNorm1d(3)
    mean = student.running_mean
    del student.running_mean
    student.register_parameter("running_mean", nn.Parameter(mean + 9))
    with pytest.raises(ConfigError, match="one architecture"):
        ema(teacher, student, 0.5)
    assert_equal(copied(teacher), before)


# --- the objective


def make_batch(seed: int = 1, images: int = IMAGES) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    weak, strong = (torch.rand(images, 3, 2, 2, generator=draw) for _ in range(2))
    return Batch(weak=weak, strong=strong)


def inputs(steps_before: int = 0, memory: dict[str, Any] | None = None) -> RoundInputs:
    return RoundInputs(torch.ones(CLASSES), steps_before, {} if memory is None else memory)


def teacher_of(lasting: bool = False, **options: Any) -> MeanTeacher:
    return MeanTeacher(MeanTeacherSettings.model_validate(options), lasting)


def plain_loss(
    teacher: nn.Module, student: nn.Module, batch: Batch, weight: float, temperature: float
) -> Tensor:
    """L_u with loops; the student is in training mode, the teacher in evaluation mode."""
    assert batch.weak is not None
    assert batch.strong is not None
    with torch.no_grad():
        guess = torch.softmax(teacher.eval()(batch.weak), dim=1) ** (1 / temperature)
    outputs = torch.softmax(student.train()(batch.strong), dim=1)
    total = torch.zeros(())
    for image in range(len(batch.weak)):
        for c in range(CLASSES):
            total = total + (guess[image, c] / guess[image].sum() - outputs[image, c]) ** 2
    return weight * total / len(batch.weak)


def value(losses: Losses) -> Tensor:
    assert list(losses.terms) == ["loss_consistency"]
    assert losses.logs == {}
    return losses.terms["loss_consistency"]


@pytest.mark.parametrize(("weight", "temperature"), [(0.02, 0.5), (1.0, 0.5), (3.0, 2.0)])
@pytest.mark.parametrize("images", [2, IMAGES])
def test_the_loss_and_its_gradient_equal_the_formula(
    weight: float, temperature: float, images: int
) -> None:
    net = make_net()
    batch = make_batch(images=images)
    objective = teacher_of(unlabelled_weight=weight, temperature=temperature)
    phase = Stepping(objective, net, inputs())
    loss = value(phase.losses(batch))
    twin = make_net()
    expected = plain_loss(make_net(), twin, batch, weight, temperature)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-8)
    for a, b in zip(
        torch.autograd.grad(loss / weight, list(net.parameters())),
        torch.autograd.grad(expected / weight, list(twin.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        assert a.abs().max() > 1e-4 or a.shape == (5,)  # a bias in front of BatchNorm has none


def test_the_default_is_that_of_rscfed() -> None:
    defaults = MeanTeacherSettings()
    assert (defaults.unlabelled_weight, defaults.temperature, defaults.ema_decay) == (
        0.02,
        0.5,
        0.999,
    )
    assert defaults.unlabelled_learning_rate == 0.021


def test_a_weight_of_zero_trains_nothing() -> None:
    net = make_net()
    objective = teacher_of(unlabelled_weight=0.0)
    phase = Stepping(objective, net, inputs())
    losses = phase.losses(make_batch())
    assert not losses.learns, "a step would still move the network by momentum and weight decay"
    loss = value(losses)
    assert loss.item() == 0
    assert all(not part.any() for part in torch.autograd.grad(loss, list(net.parameters())))


def test_nothing_to_see_has_no_term() -> None:
    net = make_net()
    objective = teacher_of()
    phase = Stepping(objective, net, inputs())
    assert phase.losses(Batch()) == Losses({})
    assert phase.losses(Batch(weak=make_batch().weak)) == Losses({})


def test_mean_teacher_needs_two_unlabelled_views_and_no_label() -> None:
    for lasting, second_view in ((False, "strong"), (True, "weak")):
        uses = teacher_of(lasting).uses
        assert (uses.labelled, uses.unlabelled, uses.second_view) == (
            False,
            "unlabelled",
            second_view,
        )


def test_teacher_and_its_view_get_no_gradient() -> None:
    net = make_net()
    batch = make_batch()
    objective = teacher_of(lasting=True)
    phase = Stepping(objective, net, inputs())
    assert batch.weak is not None
    assert batch.strong is not None
    batch.weak.requires_grad_()
    batch.strong.requires_grad_()
    value(phase.losses(batch)).backward()
    assert batch.weak.grad is None
    assert batch.strong.grad is not None
    assert not any(tensor.requires_grad for tensor in phase.memory[TEACHER].values())
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_the_teacher_predicts_in_evaluation_mode() -> None:
    net = make_net()
    objective = teacher_of(lasting=True)
    phase = Stepping(objective, net, inputs())
    before = {key: tensor.clone() for key, tensor in phase.memory[TEACHER].items()}
    phase.losses(make_batch())
    assert_equal({key: tensor.clone() for key, tensor in phase.memory[TEACHER].items()}, before)
    assert net.training
    twin = make_net()
    twin(make_batch().strong)
    assert_equal(
        copied(net), copied(twin)
    )  # one pass moved the student's statistics, that of the strong views


def decay_at(step: int, largest: float = 0.999) -> float:
    """RSCFed's a = min(1 - 1/(s + 1), largest), where s is 1 at the first step of all."""
    return min(1 - 1 / (step + 1), largest)


@pytest.mark.parametrize(
    ("steps_before", "largest"),
    [(0, 0.999), (1, 0.999), (40, 0.6), (5000, 0.999), (40, 0.0), (1, 1.0)],
)
def test_the_teacher_follows_after_each_optimiser_step(steps_before: int, largest: float) -> None:
    """The student of step i is that after the optimiser moved it; buffers are the student's own."""
    net = make_net()
    objective = teacher_of(lasting=True, ema_decay=largest)
    phase = Stepping(objective, net, inputs(steps_before))
    optimizer = torch.optim.SGD(net.parameters(), lr=5.0)
    expected = {key: tensor.double() for key, tensor in copied(net).items()}
    parameters = dict(net.named_parameters())
    for index in range(4):
        optimizer.zero_grad()
        value(phase.losses(make_batch(index))).backward()
        optimizer.step()
        phase.follow()
        a = decay_at(steps_before + index + 1, largest)
        for key, tensor in copied(net).items():
            expected[key] = (
                a * expected[key] + (1 - a) * tensor.double()
                if key in parameters
                else tensor.double()
            )
            torch.testing.assert_close(
                phase.memory[TEACHER][key].double(), expected[key], rtol=1e-5, atol=1e-6, msg=key
            )


def test_the_next_loss_is_that_of_the_teacher_that_followed() -> None:
    net = make_net()
    objective = teacher_of()
    batch = make_batch()
    phase = Stepping(objective, net, inputs(9))
    teacher = make_net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3)
    phase.follow()
    ema(teacher, net, decay_at(10))
    loss = value(phase.losses(batch))
    twin = copy.deepcopy(net)
    torch.testing.assert_close(
        loss, plain_loss(teacher, twin, batch, 0.02, 0.5), rtol=1e-5, atol=1e-8
    )


def test_a_teacher_of_one_round_is_not_remembered() -> None:
    """Whatever another teacher left in the memory."""
    memory: dict[str, Any] = {}
    for seed in (0, 1):
        net = make_net(seed)
        objective = teacher_of()
        phase = Stepping(objective, net, inputs(memory=memory))
        loss = value(phase.losses(make_batch()))
        torch.testing.assert_close(
            loss,
            plain_loss(make_net(seed), make_net(seed), make_batch(), 0.02, 0.5),
            rtol=1e-5,
            atol=1e-8,
        )
        phase.follow()
        assert memory == phase.memory == {}
    memory[TEACHER] = copied(make_net(5))
    net = make_net()
    objective = teacher_of()
    phase = Stepping(objective, net, inputs(memory=memory))
    phase.follow()
    assert_equal(memory[TEACHER], copied(make_net(5)))
    expected = plain_loss(make_net(), make_net(), make_batch(), 0.02, 0.5)
    torch.testing.assert_close(value(phase.losses(make_batch())), expected, rtol=1e-5, atol=1e-8)


def test_a_lasting_teacher_goes_on_from_memory() -> None:
    objective = teacher_of(lasting=True)
    phase = Stepping(objective, make_net(0), inputs())
    assert_equal(dict(phase.memory[TEACHER]), copied(make_net(0)))

    remembered = copied(make_net(7))
    memory = {TEACHER: {key: tensor.clone() for key, tensor in remembered.items()}}
    net = make_net(0)
    objective = teacher_of(lasting=True)
    phase = Stepping(objective, net, inputs(3, memory))
    assert_equal({key: tensor.clone() for key, tensor in phase.memory[TEACHER].items()}, remembered)
    loss = value(phase.losses(make_batch()))
    expected = plain_loss(make_net(7), make_net(0), make_batch(), 0.02, 0.5)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-8)


def test_memory_holds_the_teacher_not_the_net() -> None:
    given = copied(make_net(7))
    before = {key: tensor.clone() for key, tensor in given.items()}
    memory: dict[str, Any] = {TEACHER: given}
    net = make_net(0)
    objective = teacher_of(lasting=True)
    phase = Stepping(objective, net, inputs(1, memory))
    teacher = make_net(7)
    ema(teacher, net, decay_at(2))
    phase.follow()
    assert_equal(
        {key: tensor.clone() for key, tensor in phase.memory[TEACHER].items()}, copied(teacher)
    )
    assert_equal(given, before)  # as stored: only what begins the next exchange may change
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.add_(1)
    assert_equal(
        {key: tensor.clone() for key, tensor in phase.memory[TEACHER].items()}, copied(teacher)
    )
