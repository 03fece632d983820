"""Labellers in the objectives: what they are given, what follows their batches, and that nothing
more leaves a site.
"""

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
from fedward.lab.local import run_local
from fedward.methods import METHODS, settings_of
from fedward.methods.fedperl import FedPerl, FedPerlObjective, FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective, FixMatchSettings, pseudo_label
from fedward.methods.local import Batch, Phase, RoundInputs
from fedward.methods.pseudo_labels import Labelling, PseudoLabels, Statistics, labeller_of
from fedward.methods.pseudo_labels.balanced import COUNTS
from fedward.methods.pseudo_labels.corrected import divergence
from fedward.methods.requirements import Feature
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.training.trainer import train
from interrupted import interrupted
from run_files import assert_equal, steady_rows, weights
from tiny import tiny

NAMES = get_args(Labelling)
AWARE = [name for name in NAMES if name != "fixed"]
IMAGES = 6
CLASSES = 3
PEERS = 2
INPUTS = RoundInputs(torch.ones(CLASSES), class_counts=torch.tensor([5, 1, 0]))
OPTIONS: dict[str, Any] = {"threshold": 0.4, "unlabelled_weight": 1.0}


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, CLASSES))


def batch(seed: int, peers: int = 0, labelled: bool = True) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    images = [3 * torch.randn(IMAGES, 5, generator=draw) for _ in range(3)]
    labels = torch.randint(CLASSES, (IMAGES,), generator=draw)
    answers = torch.softmax(3 * torch.randn(PEERS + 1, IMAGES, CLASSES, generator=draw), dim=2)
    known = (images[0], labels) if labelled else (None, None)
    return Batch(*known, images[1], images[2], answers[:peers] if peers else None, answers[-1])


def objective(name: str, peers: int = 0, **options: Any) -> FixMatchObjective:
    choices = {**OPTIONS, "pseudo_labels": name, **options}
    if peers:
        return FedPerlObjective(FedPerlSettings.model_validate(choices))
    return FixMatchObjective(FixMatchSettings.model_validate(choices))


def softmax(images: Tensor) -> Tensor:
    return net()(images).softmax(dim=1).detach()


# --- what a labeller is given, and what is made of it


@pytest.mark.parametrize("peers", [0, PEERS])
@pytest.mark.parametrize("name", NAMES)
def test_objectives_hand_statistics_from_batch_to_batch(name: str, peers: int) -> None:
    """Also behind batches after which no step was taken. With peers the labeller is given the mean
    over all.
    """
    phase = Stepping(objective(name, peers), net(), INPUTS)
    labeller = labeller_of(name, OPTIONS["threshold"])
    known = labeller.init(INPUTS)
    for seed in range(4):
        images = batch(seed, peers)
        losses = phase.losses(images)
        mean = (
            softmax(images.weak)
            if not peers
            else torch.cat([softmax(images.weak)[None], images.peers]).mean(dim=0)
        )
        found = labeller.label(mean, images.received, known)
        known = found.statistics
        assert torch.equal(losses.found["labels"], found.labels)
        assert torch.equal(losses.found["keep"], found.keep)
        assert losses.logs["kept"] == found.keep.float().mean()
        expected = labeller.loss(net()(images.strong), found, "kept")
        torch.testing.assert_close(losses.terms["loss_pseudo"], expected)
        assert set(phase.state) == set(known)
        for key, value in phase.state.items():
            torch.testing.assert_close(value, known[key])


def test_labellers_differ() -> None:
    kept = {name: [] for name in NAMES}
    for name in NAMES:
        phase = Stepping(objective(name, threshold=0.6), net(), INPUTS)
        for seed in range(4):
            found = phase.losses(batch(seed)).found
            kept[name] += torch.where(found["keep"], found["labels"], -1).tolist()
    assert len({tuple(labels) for labels in kept.values()}) == len(NAMES)


def test_a_target_between_two_models_is_the_loss() -> None:
    images = batch(1)
    made = objective("corrected", threshold=0.5)
    losses = made.losses(net(), images, INPUTS)
    found = made.labeller.label(softmax(images.weak), images.received, {})
    assert found.keep.any()
    assert ((found.targets > 0).sum(dim=1) > 1).any(), "else both models agree everywhere"
    torch.testing.assert_close(
        losses.terms["loss_pseudo"], divergence(net()(images.strong), found.targets, found.keep)
    )
    rows = replace(images, received=None)
    assert (
        FixMatchObjective(FixMatchSettings(**OPTIONS))
        .losses(net(), rows, INPUTS)
        .terms["loss_pseudo"]
        .isfinite()
    )


def test_fairness_is_a_part_of_the_pseudo_label_loss() -> None:
    found = {weight: objective("freematch", fairness_weight=weight) for weight in (0.0, 0.01, 0.02)}
    terms = {
        weight: Stepping(made, net(), INPUTS).losses(batch(2)).terms["loss_pseudo"]
        for weight, made in found.items()
    }
    assert terms[0.01] < terms[0.0]
    torch.testing.assert_close(terms[0.02] - terms[0.0], 2 * (terms[0.01] - terms[0.0]))


@pytest.mark.parametrize("peers", [0, PEERS])
@pytest.mark.parametrize("name", NAMES)
def test_pseudo_labels_carry_no_gradient(name: str, peers: int) -> None:
    """Weak views, peers and the model received train nothing but by FedPerl's consistency."""
    images = batch(1, peers, labelled=False)
    given = [
        tensor for tensor in (images.weak, images.peers, images.received) if tensor is not None
    ]
    for tensor in given:
        tensor.requires_grad_()
    made = objective(name, peers, **({"consistency_weight": 0.0} if peers else {}), threshold=0.0)
    losses = Stepping(made, net(), INPUTS).losses(images)
    losses.terms["loss_pseudo"].backward()
    assert all(tensor.grad is None for tensor in given)
    assert not any(tensor.requires_grad for tensor in losses.found.values())


@pytest.mark.parametrize("name", NAMES)
def test_batches_without_unlabelled_images_tell_nothing(name: str) -> None:
    phase = Stepping(objective(name), net(), INPUTS)
    before = phase.state
    phase.losses(Batch(batch(1).labelled, batch(1).labels))
    assert phase.state == before


def test_statistics_follow_batches_that_are_no_step() -> None:
    """With a threshold of 1 nothing is kept, and a site without labels has nothing else to learn
    from.
    """
    settings = FixMatchSettings(pseudo_labels="aligned", threshold=1.0, batch=2, images_per_round=8)
    seen: list[Tensor] = []

    class Noting(FixMatchObjective):
        def losses(
            self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: Any = None
        ) -> Any:
            seen.append(state["model"])
            return super().losses(net, batch, inputs, state)

    batches = [batch(seed, labelled=False) for seed in range(3)]
    options: dict[str, Any] = {"device": torch.device("cpu"), "aborted": lambda: False}
    trained = train(net(), batches, Phase(Noting(settings), 1e-3), INPUTS, settings, **options)
    assert trained.steps == 0
    assert len({tuple(model.tolist()) for model in seen}) == 3


# --- the model received


class Watching(FedPerlObjective):
    """Fixed thresholds, and a list of the batches that were labelled, with the answers of the model
    received or not.
    """

    def __init__(self, received: bool) -> None:
        super().__init__(FedPerlSettings.model_validate(OPTIONS))
        self.uses = replace(self.uses, received=received)
        self.seen = list[Batch]()

    def label(
        self, local: Tensor, batch: Batch, known: Statistics, inputs: RoundInputs
    ) -> PseudoLabels:
        self.seen.append(batch)
        return super().label(local, batch, known, inputs)


def test_the_model_received_answers_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all batches, whatever the net has learned since. Peers answer as they do without it."""
    without, with_it = watching = [Watching(received) for received in (False, True)]
    experiment = tiny(options={"images_per_round": 24})
    site = new_client("site-1", experiment, tmp_path)
    model, *peers = (build(experiment.net, 8, seed=seed).state_dict() for seed in range(PEERS + 1))
    for objective_ in watching:
        monkeypatch.setattr(FedPerl, "phases", lambda *_, made=objective_: [Phase(made, 0.1)])
        site.learner.train(model, peers, 2)
    alone = build(experiment.net, 8, seed=9).eval()
    alone.load_state_dict(model)
    assert len(with_it.seen) == 3
    for one, other in zip(without.seen, with_it.seen, strict=True):
        assert one.received is None
        assert torch.equal(one.peers, other.peers)
        torch.testing.assert_close(
            other.received, alone(other.weak).softmax(dim=1), rtol=1e-5, atol=1e-6
        )


def test_only_a_correction_asks_the_model_received() -> None:
    asks = {name: objective(name, peers).uses.received for name in NAMES for peers in (0, PEERS)}
    assert asks == {name: name == "corrected" for name in NAMES}


# --- settings, and what leaves a site


@pytest.mark.parametrize("method", ["ssfl", "fedperl"])
def test_nothing_more_leaves_a_site(method: str) -> None:
    by_default = METHODS[method](settings_of(method, {})).requirements
    for name in NAMES:
        found = METHODS[method](settings_of(method, {"pseudo_labels": name})).requirements
        reasons = {**found.unsupported, Feature.SEVERAL_LABELS: ""}
        assert replace(found, unsupported=reasons) == by_default


def test_impossible_settings_are_refused() -> None:
    assert FixMatchSettings().pseudo_labels == "fixed"
    assert FixMatchSettings().fairness_weight == 0
    assert FixMatchSettings(pseudo_labels="freematch", fairness_weight=0.01).fairness_weight == 0.01
    wrong: list[tuple[type[FixMatchSettings], dict[str, Any], str]] = [
        (FixMatchSettings, {"pseudo_labels": "flexmatch"}, "pseudo_labels"),
        (
            FixMatchSettings,
            {"pseudo_labels": "freematch", "fairness_weight": -0.1},
            "fairness_weight",
        ),
        (FixMatchSettings, {"fairness_weight": 0.1}, "set pseudo_labels=freematch"),
        (FedPerlSettings, {"pseudo_labels": "aligned", "combine": "sum"}, "combine=mean"),
    ]
    for kind, options, said in wrong:
        with pytest.raises(ValueError, match=said):
            kind.model_validate(options)


def test_a_fixed_threshold_has_nothing_to_know() -> None:
    phase = Stepping(objective("fixed"), net(), INPUTS)
    found = phase.losses(batch(1)).found
    assert phase.state == phase.memory == {}
    assert torch.equal(found["labels"], pseudo_label(softmax(batch(1).weak), 0.4)[0])
    assert set(found) == {"labels", "keep"}


# --- what a site remembers


@pytest.mark.parametrize("name", NAMES)
def test_only_counts_are_remembered_and_they_stay(tmp_path: Path, name: str) -> None:
    experiment = tiny("ssfl", options={"pseudo_labels": name})
    site = new_client("site-9", experiment, tmp_path)
    model = build(experiment.net, 8, seed=3).state_dict()
    for round_ in (1, 2):
        asked = requests(
            experiment, Exchange(round_, model, {site.name: ClientTask("train")}), [site.name]
        )[site.name]
        answer = site.handle(asked)
        assert answer.meta["steps"] == 2
        assert {array.split("/", 1)[0] for array in answer.arrays} == {"diff"}
        assert set(answer.meta["train"]) == {
            "loss",
            "loss_supervised",
            "loss_pseudo",
            "kept",
            "seconds",
        }
        known = site_models(tmp_path / "memory", RUN).at(round_, 0)
        assert (known is not None) == (name == "balanced")
        if known is not None:
            assert list(known) == [COUNTS]
            assert known[COUNTS]["kept"].shape == (8,)
            assert known[COUNTS]["kept"].sum().item() == 16 * answer.meta["train"]["kept"]
            assert known[COUNTS]["kept"].any() or round_ > 1


@pytest.mark.parametrize("name", AWARE)
def test_a_resumed_run_is_an_undisturbed_one(
    tmp_path: Path, name: str, without_report: None
) -> None:
    """FedPerl with peers, from the second round on, in the middle of which the server dies."""
    sites = ["site-1", "site-6", "site-9"]
    options = {"pseudo_labels": name, "threshold": 0.14, "participants": 3}
    experiment = tiny(options=options)
    whole = run_local(experiment, tmp_path / "whole", sites=sites)
    interrupted(experiment, tmp_path / "run", sites, round_=2, answered=2)
    resumed = run_local(None, tmp_path / "run", resume=True)
    assert_equal(weights(resumed), weights(whole))
    for log in ("metrics", "peers"):
        assert steady_rows(resumed, log) == steady_rows(whole, log)
