"""Auxiliary heads beside a network: what they learn, and that the network does not notice them."""

import copy
from typing import Any

import pytest
import torch
from stepping import Stepping
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.methods.auxiliary import SupervisedWithHeads, add_heads, heads_of
from fedward.methods.fedal.algorithm import FedAL
from fedward.methods.fedal.query_rounds import ActiveSettings
from fedward.methods.local import Batch, Objective, Phase, RoundInputs, logits_and_features
from fedward.methods.supervised import Supervised
from fedward.nets import build
from fedward.training.trainer import train
from tiny import batch_norm_net

CLASSES = 3
SETTINGS = ActiveSettings(sampler="mcdal", learning_rate=1e-2, weight_decay=0.0)
INPUTS = RoundInputs(torch.ones(CLASSES))


def batches(count: int, unlabelled: bool = True) -> list[Batch]:
    draw = torch.Generator().manual_seed(4)

    def images() -> Tensor:
        return torch.rand(6, 3, 16, 16, generator=draw)

    return [
        Batch(
            labelled=images(),
            labels=torch.randint(CLASSES, (6,), generator=draw),
            weak=images() if unlabelled else None,
        )
        for _ in range(count)
    ]


def with_heads() -> nn.Module:
    net = batch_norm_net(1, CLASSES)
    torch.manual_seed(2)
    add_heads(net)
    return net


def trained(net: nn.Module, objective: Objective, given: list[Batch]) -> nn.Module:
    phase = Phase(objective, SETTINGS.learning_rate)
    train(net, given, phase, INPUTS, SETTINGS, device=torch.device("cpu"), aborted=lambda: False)
    return net


def test_heads_do_not_change_a_bit_of_the_networks_training() -> None:
    """BatchNorm's statistics too: the heads look at it in evaluation mode."""
    plain = trained(batch_norm_net(1, CLASSES), Supervised(), batches(4)).state_dict()
    beside = trained(
        with_heads(), SupervisedWithHeads(SETTINGS, SETTINGS.learning_rate), batches(4)
    ).state_dict()
    assert set(beside) - set(plain) == {
        f"auxiliary.{head}.{kind}" for head in ("first", "second") for kind in WEIGHTS
    }
    for name, tensor in plain.items():
        assert torch.equal(beside[name], tensor), name


WEIGHTS = ("weight", "bias")


def test_heads_do_not_change_the_output() -> None:
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(with_heads().eval()(images), batch_norm_net(1, CLASSES).eval()(images))


@pytest.mark.parametrize(("weight_decay", "clip_gradient"), [(0.0, None), (0.1, 0.05)])
def test_two_steps_of_the_heads_are_those_of_the_paper(
    weight_decay: float, clip_gradient: float | None
) -> None:
    """Compare with plain torch: Adam on both losses, then on these less the three distances."""
    net = with_heads()
    (batch,) = batches(1)
    changes = {"weight_decay": weight_decay, "clip_gradient": clip_gradient}
    settings = SETTINGS.model_copy(update=changes)
    phase = Stepping(SupervisedWithHeads(settings, settings.learning_rate), net, INPUTS)
    phase.losses(batch)
    first = copy.deepcopy(heads_of(net).first)
    second = copy.deepcopy(heads_of(net).second)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2, weight_decay=weight_decay)
    net.eval()
    with torch.no_grad():
        known = net.features(2 * batch.labelled - 1)
        hidden = net.features(2 * batch.weak - 1)
        main = net.classifier(hidden).softmax(1)
    for apart in (0, 1):
        loss = F.cross_entropy(first(known), batch.labels) + F.cross_entropy(
            second(known), batch.labels
        )
        one = first(hidden).softmax(1)
        two = second(hidden).softmax(1)
        distance = (one - two).abs().mean() + (one - main).abs().mean() + (two - main).abs().mean()
        optimizer.zero_grad()
        (loss - apart * distance).backward()
        if clip_gradient is not None:
            nn.utils.clip_grad_norm_(parameters, clip_gradient)
        optimizer.step()
    net.train()
    phase.follow()
    assert net.training
    for name, ours in (("first", first), ("second", second)):
        torch.testing.assert_close(getattr(heads_of(net), name).weight, ours.weight)
        torch.testing.assert_close(getattr(heads_of(net), name).bias, ours.bias)


def test_the_heads_learn_at_the_rate_of_the_round() -> None:
    """With half a cosine over 25 rounds round 21 has less than a tenth of the largest rate."""
    settings = ActiveSettings(sampler="mcdal", schedule="cosine")
    (phase,) = FedAL(settings).phases("train", 21, 9)
    optimizer = phase.objective.init(with_heads(), INPUTS)
    assert optimizer.param_groups[0]["lr"] == phase.learning_rate < settings.learning_rate / 10


def distance_of_heads(net: nn.Module, images: Tensor) -> float:
    with torch.no_grad():
        _, features = logits_and_features(net.eval(), images)
        one, two = (logits.softmax(1) for logits in heads_of(net)(features))
    return float((one - two).abs().mean())


def test_heads_diverge_only_with_unlabelled_images() -> None:
    given = batches(1) * 60
    apart = trained(with_heads(), SupervisedWithHeads(SETTINGS, SETTINGS.learning_rate), given)
    together = trained(
        with_heads(),
        SupervisedWithHeads(SETTINGS, SETTINGS.learning_rate),
        [batches(1, unlabelled=False)[0]] * 60,
    )
    hidden = given[0].weak
    assert hidden is not None
    assert distance_of_heads(apart, hidden) > 5 * distance_of_heads(together, hidden)


@pytest.mark.parametrize("name", ["small_cnn", "small_cnn_gn", "tf_efficientnet_lite0"])
def test_every_network_tells_what_its_classifier_receives(name: str) -> None:
    net = build(name, CLASSES, seed=1).eval()
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        logits, features = logits_and_features(net, images)
        torch.testing.assert_close(net.classifier(features), logits)
        assert torch.equal(net(images), logits)
    assert not net.classifier._forward_pre_hooks, "nothing stays behind"


def test_equal_seeds_give_equal_heads_and_other_samplers_none() -> None:
    def state(sampler: str, seed: int) -> dict[str, Any]:
        extend = FedAL(ActiveSettings(sampler=sampler)).extend
        return build("small_cnn", CLASSES, seed=seed, extend=extend).state_dict()

    name = "auxiliary.first.weight"
    assert torch.equal(state("mcdal", 1)[name], state("mcdal", 1)[name])
    assert not torch.equal(state("mcdal", 1)[name], state("mcdal", 2)[name])
    assert not torch.equal(state("mcdal", 1)[name], state("mcdal", 1)["auxiliary.second.weight"])
    assert set(state("fedal", 1)) == set(build("small_cnn", CLASSES).state_dict())
