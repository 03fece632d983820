"""What SelfFed's objectives train, what they leave alone, and what they remember."""

import copy
from collections.abc import Mapping

import pytest
import torch
from stepping import Stepping
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs
from fedward.methods.selffed.contrast import info_nce
from fedward.methods.selffed.masking import (
    denormalise_units,
    mask_units,
    masked_loss,
    normalise_units,
)
from fedward.methods.selffed.objectives import (
    MASKED_NETS,
    PROJECTION,
    QUEUE,
    TARGET,
    Contrastive,
    MaskedModelling,
    add_projection,
    reconstructions,
)
from fedward.methods.selffed.settings import SelfFedSettings
from fedward.methods.supervised import Supervised
from fedward.nets import build
from fedward.registry import NETWORKS
from fedward.seeds import torch_generator
from fedward.training.trainer import train

IMAGES = 6
CLASSES = 5
SETTINGS = SelfFedSettings(
    rounds=4, pretraining_rounds=2, pretraining_warm_up=0, warm_up=0, queue=9, batch=IMAGES
)
RAW = SETTINGS.model_copy(update={"predicted_pixels": "raw"})
PARTS = {"encoder", "mask_token", "decoder", "classifier", "projection"}
TRAINS = {
    "masked": {"encoder", "mask_token", "decoder"},
    "supervised": {"encoder", "classifier"},
    "contrastive": {"encoder", "projection"},
}


def make_net(seed: int = 0) -> nn.Module:
    return build("masked_swin_28", CLASSES, seed=seed, extend=add_projection)


def pictures(seed: int, images: int = IMAGES) -> Tensor:
    return torch.rand(images, 3, 28, 28, generator=torch_generator(seed))


def batch_for(name: str, seed: int = 0) -> Batch:
    if name == "supervised":
        return Batch(labelled=pictures(seed), labels=torch.arange(IMAGES) % CLASSES)
    which = torch.arange(IMAGES) + IMAGES * seed
    return Batch(
        weak=pictures(seed),
        strong=pictures(seed + 100) if name == "contrastive" else None,
        which=which,
    )


def objective(name: str, settings: SelfFedSettings = SETTINGS) -> Objective:
    return {
        "masked": lambda: MaskedModelling(settings),
        "supervised": Supervised,
        "contrastive": lambda: Contrastive(settings),
    }[name]()


def queue_of(keys: Tensor) -> dict[str, Tensor]:
    """Return a queue with these keys, of images that no batch has."""
    return {"keys": keys, "images": -1 - torch.arange(len(keys))[:, None]}


def inputs_of(seed: int = 0, memory: dict | None = None) -> RoundInputs:
    if memory is None:
        keys = torch.randn(4, PROJECTION, generator=torch_generator(seed, "queue"))
        memory = {QUEUE: queue_of(keys)}
    return RoundInputs(torch.ones(CLASSES), 0, memory, torch_generator(seed, "mask"))


def losses_of(name: str, net: nn.Module, inputs: RoundInputs, batch: Batch | None = None) -> Losses:
    return Stepping(objective(name), net, inputs).losses(batch or batch_for(name))


def parts_of(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def state_of(net: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


# --- the network


def test_the_projection_comes_on_top_and_changes_no_logit() -> None:
    plain = build("masked_swin_28", CLASSES, seed=3)
    net = make_net(3)
    assert parts_of(set(net.state_dict())) == PARTS
    assert not changed(plain.state_dict(), net.state_dict())
    images = pictures(1)
    assert torch.equal(plain(images), net(images))
    first, relu, last = net.projection
    assert isinstance(relu, nn.ReLU)
    assert first.in_features == 64
    assert first.out_features == 64
    assert last.out_features == PROJECTION


def test_unfit_networks_are_refused_with_those_that_fit() -> None:
    assert list(MASKED_NETS) == [name for name in NETWORKS if name.startswith("masked_")]
    message = r"masked_swin_28, masked_swin_32, .* found a SwinClassifier"
    with pytest.raises(ConfigError, match=message):
        build("swin_28", CLASSES, extend=add_projection)


# --- gradients


@pytest.mark.parametrize("name", TRAINS)
def test_a_loss_reaches_its_own_parts_and_no_other(name: str) -> None:
    net = make_net()
    terms = losses_of(name, net, inputs_of()).terms
    (loss,) = terms.values()
    loss.backward()
    reached = {part for part, parameter in net.named_parameters() if parameter.grad is not None}
    assert parts_of(reached) == TRAINS[name]
    for name_of_parameter in reached:
        if not name_of_parameter.endswith("bias"):
            assert bool(net.get_parameter(name_of_parameter).grad.abs().sum() > 0)


@pytest.mark.parametrize("name", TRAINS)
def test_weight_decay_moves_no_part_that_a_phase_does_not_train(name: str) -> None:
    net = make_net()
    before = state_of(net)
    settings = SETTINGS.model_copy(update={"weight_decay": 0.5})
    phase = Phase(objective(name, settings), 1e-3)
    batches = [batch_for(name, seed) for seed in (0, 1)]
    cpu = torch.device("cpu")
    train(net, batches, phase, inputs_of(), settings, device=cpu, aborted=lambda: False)
    assert parts_of(changed(before, net.state_dict())) == TRAINS[name]


@pytest.mark.parametrize("name", ["masked", "contrastive"])
def test_without_images_there_is_no_term(name: str) -> None:
    assert losses_of(name, make_net(), inputs_of(), Batch()).terms == {}


@pytest.mark.parametrize("name", ["masked", "contrastive"])
def test_labels_have_no_way_in(name: str) -> None:
    uses = objective(name).uses
    assert not uses.labelled
    assert uses.unlabelled == "all"


# --- phase 1


def test_the_reconstruction_loss_equals_its_equations() -> None:
    net = make_net()
    terms = losses_of("masked", net, inputs_of(7)).terms
    images = pictures(0)
    mask = mask_units(IMAGES, 7, 0.6, torch_generator(7, "mask"))
    expected = masked_loss(net.reconstruct(images, mask), normalise_units(images, 7), mask)
    assert set(terms) == {"loss_reconstruction"}
    torch.testing.assert_close(terms["loss_reconstruction"], expected, rtol=0, atol=0)


def test_the_loss_of_raw_pixels_equals_a_slow_loop() -> None:
    """As in eq. (3): the pixels themselves, here with their mean over a unit."""
    net = make_net()
    losses = Stepping(objective("masked", RAW), net, inputs_of(7)).losses(batch_for("masked"))
    images = pictures(0)
    mask = mask_units(IMAGES, 7, 0.6, torch_generator(7, "mask"))
    predicted = net.reconstruct(images, mask).detach().double().numpy()
    pixels = images.double().numpy()
    errors = []
    for image, row, column in mask.nonzero().tolist():
        total = 0.0
        for channel in range(3):
            for y in range(4 * row, 4 * row + 4):
                for x in range(4 * column, 4 * column + 4):
                    error = pixels[image, channel, y, x] - predicted[image, channel, y, x]
                    total += error**2
        errors.append(total / (3 * 4 * 4))
    assert len(errors) == IMAGES * 30
    loss = losses.terms["loss_reconstruction"].item()
    assert loss == pytest.approx(sum(errors) / len(errors), rel=1e-5)


def test_a_raw_prediction_is_shown_as_it_is() -> None:
    net = make_net().eval()
    images = pictures(0, 2)
    net.reconstruct = lambda images, mask: 1.5 - images
    shown = reconstructions(net, images, RAW, torch_generator(5))
    hidden = shown["masked"] != images
    expected = torch.where(hidden, (1.5 - images).clamp(0, 1), images)
    assert torch.equal(shown["reconstruction"], expected)


def test_hidden_units_are_new_each_step_and_follow_the_draw() -> None:
    net = make_net()
    inputs = inputs_of(7)
    first = losses_of("masked", net, inputs).terms["loss_reconstruction"]
    second = losses_of("masked", net, inputs).terms["loss_reconstruction"]
    assert first != second
    assert losses_of("masked", net, inputs_of(7)).terms["loss_reconstruction"] == first


def test_a_perfect_prediction_shows_the_image() -> None:
    """The masks are those of the generator; hidden units are grey before they are filled in."""
    net = make_net().eval()
    images = pictures(0, 3)
    mask = mask_units(3, 7, 0.6, torch_generator(5))
    hidden = mask.repeat_interleave(4, dim=1).repeat_interleave(4, dim=2)
    hidden = hidden[:, None].expand(-1, 3, -1, -1)
    perfect = torch.where(hidden, normalise_units(images, 7), 99.0)
    net.reconstruct = lambda images, mask: perfect
    shown = reconstructions(net, images, SETTINGS, torch_generator(5))
    assert list(shown) == ["original", "masked", "reconstruction"]
    assert torch.equal(shown["original"], images)
    assert torch.equal(shown["masked"], torch.where(hidden, 0.5, images))
    torch.testing.assert_close(shown["reconstruction"], images)
    assert torch.equal(shown["reconstruction"][~hidden], images[~hidden])


def test_a_shown_prediction_is_clipped_to_the_pixel_range() -> None:
    net = make_net().eval()
    images = pictures(0, 2)
    all_hidden = SETTINGS.model_copy(update={"mask_ratio": 1.0})
    for parameter in net.decoder.parameters():
        parameter.data.mul_(20)
    picture = reconstructions(net, images, all_hidden, torch_generator(5))["reconstruction"]
    predicted = net.reconstruct(images, torch.ones(2, 7, 7, dtype=torch.bool))
    expected = denormalise_units(predicted, images, 7)
    assert expected.max() > 1
    assert torch.equal(picture, expected.clamp(0, 1))
    assert not picture.requires_grad


# --- the contrastive network


def features(net: nn.Module, images: Tensor) -> Tensor:
    return net.projection(net.encoder(images).mean(dim=(2, 3)))


def test_the_contrastive_loss_equals_its_equation() -> None:
    """The strong view goes through the network, the weak one through the target, at first equal."""
    net = make_net()
    inputs = inputs_of()
    batch = batch_for("contrastive")
    queue = inputs.memory[QUEUE]["keys"]
    terms = losses_of("contrastive", net, inputs, batch).terms
    query = features(net, batch.strong)
    key = features(net, batch.weak)
    expected = info_nce(query, key, queue, SETTINGS.temperature)
    assert set(terms) == {"loss_contrastive"}
    torch.testing.assert_close(terms["loss_contrastive"], expected)


def test_the_very_first_step_has_nothing_to_tell_apart() -> None:
    phase = Stepping(objective("contrastive"), make_net(), inputs_of(memory={}))
    assert phase.losses(batch_for("contrastive")).terms["loss_contrastive"].item() == 0
    assert set(phase.memory) == {TARGET, QUEUE}


def test_target_and_queue_follow_each_step() -> None:
    net = make_net()
    given = {}
    phase = Stepping(objective("contrastive"), net, inputs_of(memory=given))
    keys = []
    for seed in (0, 1):
        target = {name: tensor.clone() for name, tensor in phase.memory[TARGET].items()}
        batch = batch_for("contrastive", seed)
        phase.losses(batch)
        keys.append(features(with_weights(net, target), batch.weak))
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.01)
        phase.follow()
        for name, tensor in phase.memory[TARGET].items():
            expected = 0.99 * target[name] + 0.01 * net.state_dict()[name]
            torch.testing.assert_close(tensor, expected, msg=name)
    assert parts_of(set(phase.memory[TARGET])) == {"encoder", "projection"}
    kept = torch.cat(keys)[-SETTINGS.queue :]
    torch.testing.assert_close(phase.memory[QUEUE]["keys"], kept)
    newest_images = list(range(2 * IMAGES))[-SETTINGS.queue :]
    assert phase.memory[QUEUE]["images"].flatten().tolist() == newest_images
    assert not phase.memory[QUEUE]["keys"].requires_grad
    assert given == {}, "what is remembered is for the caller to keep"


def test_a_repeated_image_is_no_negative_of_itself() -> None:
    """Half of the batch is in the queue from an earlier step, with keys of other images."""
    net = make_net()
    batch = batch_for("contrastive")
    keys = torch.randn(IMAGES, PROJECTION, generator=torch_generator(7))
    images = torch.tensor([[0], [1], [2], [70], [71], [72]])
    inputs = inputs_of(memory={QUEUE: {"keys": keys, "images": images}})
    loss = losses_of("contrastive", net, inputs, batch).terms["loss_contrastive"]
    query = features(net, batch.strong)
    key = features(net, batch.weak)
    is_own_key = torch.zeros(IMAGES, IMAGES, dtype=torch.bool)
    is_own_key[range(3), range(3)] = True
    expected = info_nce(query, key, keys, SETTINGS.temperature, is_own_key)
    torch.testing.assert_close(loss, expected)
    assert expected < info_nce(query, key, keys, SETTINGS.temperature)


def with_weights(net: nn.Module, target: Mapping[str, Tensor]) -> nn.Module:
    twin = copy.deepcopy(net)
    twin.load_state_dict(target, strict=False)
    return twin.requires_grad_(False)


def test_a_remembered_target_answers_in_the_next_round() -> None:
    other = make_net(5)
    net = make_net()
    inputs = inputs_of()
    inputs.memory[TARGET] = {
        name: tensor
        for name, tensor in state_of(other).items()
        if name.startswith(("encoder.", "projection."))
    }
    batch = batch_for("contrastive")
    loss = losses_of("contrastive", net, inputs, batch).terms["loss_contrastive"]
    query = features(net, batch.strong)
    key = features(other, batch.weak)
    expected = info_nce(query, key, inputs.memory[QUEUE]["keys"], SETTINGS.temperature)
    torch.testing.assert_close(loss, expected)


def test_steps_lower_the_contrastive_loss() -> None:
    """The queue holds keys of other images, and stays as it is."""
    net = make_net()
    batch = batch_for("contrastive")
    inputs = inputs_of(memory={QUEUE: queue_of(features(net, pictures(50, 8)).detach())})
    phase = Stepping(objective("contrastive"), net, inputs)
    values = []
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(10):
        (loss,) = phase.losses(batch).terms.values()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[-1] < values[0] - 0.2
