"""Labellers in objectives: what they are given, what is learned, that nothing more leaves."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from stepping import Stepping
from torch import Tensor, nn

from asking import RUN, requests
from clients import new_client
from fedward.client.memory import site_models
from fedward.methods import settings_of
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import Batch, Losses, RoundInputs
from fedward.methods.pseudo_labels import labeller_of
from fedward.methods.pseudo_labels.settings import FixMatchSettings, LabellerName
from fedward.methods.pseudo_labels.threshold import pseudo_label
from fedward.methods.requirements import Feature
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.registry import METHODS
from tiny import tiny

NAMES = get_args(LabellerName)
IMAGES = 6
CLASSES = 3
PEERS = 2
INPUTS = RoundInputs(torch.ones(CLASSES))
OPTIONS: dict[str, Any] = {"threshold": 0.4, "unlabelled_weight": 1.0}


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, CLASSES))


def batch(seed: int, peers: int = 0, labelled: bool = True) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    labelled_views, weak, strong = (3 * torch.randn(IMAGES, 5, generator=draw) for _ in range(3))
    labels = torch.randint(CLASSES, (IMAGES,), generator=draw)
    peer_logits = 3 * torch.randn(PEERS, IMAGES, CLASSES, generator=draw)
    return Batch(
        labelled=labelled_views if labelled else None,
        labels=labels if labelled else None,
        weak=weak,
        strong=strong,
        peers=peer_logits.softmax(dim=2)[:peers] if peers else None,
    )


def objective(name: str, peers: int = 0, **options: Any) -> FixMatchObjective:
    choices = {**OPTIONS, "pseudo_labels": name, **options}
    if peers:
        return FedPerlObjective(FedPerlSettings.model_validate(choices))
    return FixMatchObjective(FixMatchSettings.model_validate(choices))


def predicted(images: Tensor) -> Tensor:
    """Return the probabilities (N, K) of a fresh network."""
    return net()(images).softmax(dim=1).detach()


# --- what a labeller is given, and what is made of it


@pytest.mark.parametrize("peers", [0, PEERS])
@pytest.mark.parametrize("name", NAMES)
def test_an_objective_learns_what_its_labeller_says(name: LabellerName, peers: int) -> None:
    """With peers the labeller is given the mean over the site and all of them."""
    phase = Stepping(objective(name, peers), net(), INPUTS)
    labeller = labeller_of(FixMatchSettings.model_validate({**OPTIONS, "pseudo_labels": name}))
    for seed in range(4):
        images = batch(seed, peers)
        losses = phase.losses(images)
        probabilities = predicted(images.weak)
        if peers:
            probabilities = torch.cat([probabilities[None], images.peers]).mean(dim=0)
        expected = labeller.label(probabilities)
        assert set(losses.carried) == {"labels", "keep"}
        assert torch.equal(losses.carried["labels"], expected.labels)
        assert torch.equal(losses.carried["keep"], expected.keep)
        assert losses.logs["kept"] == expected.keep.float().mean()
        expected_loss = labeller.loss(net()(images.strong), expected, "kept")
        torch.testing.assert_close(losses.terms["loss_pseudo"], expected_loss)


@pytest.mark.parametrize("name", NAMES)
def test_too_few_pseudo_labels_are_not_learned_from_reported_or_counted(name: LabellerName) -> None:
    """At a site without labels, a batch of fewer kept images than its smallest batch is no step."""
    images = batch(0, labelled=False)
    enough = Stepping(objective(name, threshold=0.0), net(), INPUTS)
    kept = round(enough.losses(images).logs["kept"].item() * IMAGES)
    assert kept
    inputs = replace(INPUTS, smallest_batch=kept + 1)
    phase = Stepping(objective(name, threshold=0.0), net(), inputs)
    losses = phase.losses(images)
    assert not losses.learns
    assert losses.terms["loss_pseudo"] == 0
    assert losses.logs["kept"] == 0
    assert not losses.carried["keep"].any()


@pytest.mark.parametrize("name", NAMES)
def test_beside_labels_the_smallest_batch_does_not_matter(name: LabellerName) -> None:
    """The labels of the same step hide a few pseudo-labels in its update."""
    inputs = replace(INPUTS, smallest_batch=IMAGES + 1)
    losses = Stepping(objective(name), net(), inputs).losses(batch(0))
    assert losses.carried["keep"].any()
    assert losses.terms["loss_pseudo"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_without_a_weight_pseudo_labels_alone_are_no_step(name: LabellerName) -> None:
    """Only where a site is kept close to its peers, which needs no pseudo-label."""

    def losses(peers: int, **options: float) -> Losses:
        made = objective(name, peers, unlabelled_weight=0.0, **options)
        return Stepping(made, net(), INPUTS).losses(batch(0, peers, labelled=False))

    alone = losses(0)
    assert alone.carried["keep"].any()
    assert not alone.learns
    assert not losses(PEERS, consistency_weight=0.0).learns
    assert losses(PEERS, consistency_weight=0.1).learns


def test_labellers_keep_the_same_labels_and_learn_other_targets() -> None:
    fixed, soft = (
        Stepping(objective(name, threshold=0.6), net(), INPUTS).losses(batch(1)) for name in NAMES
    )
    for part in ("labels", "keep"):
        assert torch.equal(fixed.carried[part], soft.carried[part])
    assert fixed.carried["keep"].any()
    assert fixed.terms["loss_pseudo"] != soft.terms["loss_pseudo"]


@pytest.mark.parametrize("peers", [0, PEERS])
@pytest.mark.parametrize("name", NAMES)
def test_pseudo_labels_carry_no_gradient(name: str, peers: int) -> None:
    """Weak views and peers train nothing but by FedPerl's consistency term."""
    images = batch(1, peers, labelled=False)
    sources = [images.weak] if images.peers is None else [images.weak, images.peers]
    for tensor in sources:
        tensor.requires_grad_()
    without_consistency = {"consistency_weight": 0.0} if peers else {}
    made = objective(name, peers, **without_consistency, threshold=0.0)
    losses = Stepping(made, net(), INPUTS).losses(images)
    losses.terms["loss_pseudo"].backward()
    assert all(tensor.grad is None for tensor in sources)
    assert not any(tensor.requires_grad for tensor in losses.carried.values())


# --- settings, and what leaves a site


@pytest.mark.parametrize("method", ["ssfl", "fedperl"])
def test_no_labeller_sends_more_than_the_default(method: str) -> None:
    default = METHODS[method](settings_of(method, {})).requirements
    for name in NAMES:
        requirements = METHODS[method](settings_of(method, {"pseudo_labels": name})).requirements
        reasons = {**requirements.reasons_against, Feature.SEVERAL_LABELS: ""}
        assert replace(requirements, reasons_against=reasons) == default


@pytest.mark.parametrize(
    ("settings_type", "options", "message"),
    [
        (FixMatchSettings, {"pseudo_labels": "flexmatch"}, "pseudo_labels"),
        (FedPerlSettings, {"pseudo_labels": "soft", "combine": "sum"}, "combine=mean"),
    ],
)
def test_impossible_settings_are_refused(
    settings_type: type[FixMatchSettings], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        settings_type.model_validate(options)


def test_a_fixed_threshold_is_the_default() -> None:
    assert FixMatchSettings().pseudo_labels == "fixed"
    found = Stepping(objective("fixed"), net(), INPUTS).losses(batch(1)).carried
    labels, _ = pseudo_label(predicted(batch(1).weak), 0.4)
    assert torch.equal(found["labels"], labels)


# --- what leaves a site, and what it remembers


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_remembered(tmp_path: Path, name: str) -> None:
    experiment = tiny("ssfl", options={"pseudo_labels": name})
    site = new_client("site-9", experiment, tmp_path)
    model = build(experiment.net, 8, seed=3).state_dict()
    exchange = Exchange(1, model, {site.name: ClientTask("train")})
    answer = site.handle(requests(experiment, exchange, [site.name])[site.name])
    assert answer.meta["steps"] == 2
    assert {array.split("/", 1)[0] for array in answer.arrays} == {"diff"}
    expected_means = {"loss", "loss_supervised", "loss_pseudo", "kept", "seconds"}
    assert set(answer.meta["train"]) == expected_means
    assert site_models(tmp_path / "memory", RUN).at(1, 0) is None
