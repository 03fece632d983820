"""What stands for a site's model: moments of tensors or rows, or answers to an image of noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import KDTree
from scipy.stats import truncnorm
from torch import Tensor

from fedward.errors import ConfigError
from fedward.jobs import load_experiment
from fedward.methods import method_of, settings_of
from fedward.methods.anonymous_peers import anonymise
from fedward.methods.fedperl.algorithm import FedPerl
from fedward.methods.fedperl.descriptions import (
    NOISE_DEVIATION,
    NOISE_MEAN,
    nearness,
    probe_image,
    row_moments,
)
from fedward.methods.fedperl.similarity import similarity
from fedward.methods.workflow import ClientUpdate, Exchange, Federation
from fedward.model_state import State
from fedward.nets import build
from fedward.security.policy_rules import refused_by_default
from fedward.seeds import torch_generator
from fedward.server.network import NetworkAtServer
from fedward.starting_model import initial_model
from tiny import tiny

SITES = [f"site-{number}" for number in range(1, 7)]


def points(models: int, features: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(models, features, generator=draw, dtype=torch.float64)


# --- row_moments


def test_row_moments_by_hand() -> None:
    """A row is a class's weights and its bias: (1, 3, 2) and (0, 0, 3)."""
    classifier = {
        "c.weight": torch.tensor([[1.0, 3.0], [0.0, 0.0]]),
        "c.bias": torch.tensor([2, 3.0]),
    }
    expected = [2, math.sqrt(2 / 3), 1, math.sqrt(2)]
    assert row_moments(classifier).tolist() == pytest.approx(expected)
    assert row_moments({"c.bias": torch.tensor([4.0, 5.0])}).tolist() == [4, 0, 5, 0]


def test_row_moments_equal_a_loop() -> None:
    weight = points(5, 12).reshape(5, 3, 4)
    bias = points(5, 1, seed=1)[:, 0]
    expected = []
    for class_ in range(5):
        row = [*weight[class_].flatten().tolist(), bias[class_].item()]
        mean = sum(row) / len(row)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in row) / len(row))
        expected += [mean, deviation]
    described = row_moments({"w": weight.float(), "b": bias.float()})
    assert described.dtype == torch.float64
    assert described.tolist() == pytest.approx(expected, abs=1e-6)


def test_classes_keep_their_rows_and_features_have_no_order() -> None:
    weight = points(4, 9)
    described = row_moments({"w": weight}).reshape(4, 2)
    shuffled_features = row_moments({"w": weight[:, torch.randperm(9)]}).reshape(4, 2)
    torch.testing.assert_close(shuffled_features, described)
    assert torch.equal(
        row_moments({"w": weight[[2, 0, 1, 3]]}).reshape(4, 2), described[[2, 0, 1, 3]]
    )


@pytest.mark.parametrize("classifier", [{}, {"w": torch.ones(3, 2), "b": torch.ones(4)}])
def test_a_classifier_without_rows_of_classes_is_refused(classifier: dict[str, Tensor]) -> None:
    with pytest.raises(ConfigError, match=r"one row for each class.*similarity=answers"):
        row_moments(classifier)


# --- nearness


def test_nearness_by_hand() -> None:
    """Distances of 5 (a triangle of 3 and 4) and of 0."""
    near = nearness(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]))
    assert near.tolist() == [[1, 1 / 6, 1], [1 / 6, 1, 1 / 6], [1, 1 / 6, 1]]


def test_the_nearest_are_those_of_a_k_d_tree() -> None:
    features = points(40, 8)
    near = nearness(features)
    assert torch.equal(near, near.T)
    _, expected = KDTree(features.numpy()).query(features.numpy(), 6)
    assert near.argsort(descending=True)[:, :6].tolist() == expected.tolist()
    assert torch.equal(nearness(features, [7, 3]), near[[7, 3]])
    assert nearness(features, []).shape == (0, 40)


def test_nearness_is_of_differences_alone() -> None:
    features = points(6, 3)
    rotation, _ = torch.linalg.qr(points(3, 3, seed=1))
    torch.testing.assert_close(nearness(features @ rotation + 7), nearness(features))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nearness_of_broken_features_is_refused(value: float) -> None:
    features = points(3, 2)
    features[1, 0] = value
    with pytest.raises(ConfigError, match="row 1"):
        nearness(features)


# --- probe_image


def test_the_probe_image_is_noise_cut_to_pixels() -> None:
    image = probe_image((3, 40, 50), seed=5)
    assert image.shape == (3, 40, 50)
    assert image.dtype == torch.float32
    assert 0 <= image.min() < 0.001
    assert 0.999 < image.max() <= 1
    uniform = torch.rand(
        3, 40, 50, generator=torch_generator(5, "probe image"), dtype=torch.float64
    )
    lowest = -NOISE_MEAN / NOISE_DEVIATION
    highest = (1 - NOISE_MEAN) / NOISE_DEVIATION
    law = truncnorm(lowest, highest, loc=NOISE_MEAN, scale=NOISE_DEVIATION)
    np.testing.assert_allclose(image.numpy(), law.ppf(uniform.numpy()), atol=1e-6)


def test_the_probe_image_depends_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = probe_image((1, 4, 4), seed=5)
    torch.manual_seed(2)
    assert torch.equal(probe_image((1, 4, 4), seed=5), first)
    assert not torch.equal(probe_image((1, 4, 4), seed=6), first)


# --- the network at the server


@pytest.mark.parametrize("trainable", ["all", "head"])
def test_the_server_answers_as_the_whole_network(trainable: str) -> None:
    experiment = tiny("fedperl", net="small_cnn_gn", trainable=trainable)
    algorithm = method_of(experiment)
    network = NetworkAtServer(experiment, algorithm)
    model = {
        name: value + 0.1 for name, value in initial_model(experiment, algorithm).state.items()
    }
    image = probe_image(network.image_shape, seed=3)
    logits = network.logits(model, image.unsqueeze(0))
    whole = initial_model(tiny("fedperl", net="small_cnn_gn"), algorithm).state
    expected = functional_logits({**whole, **model} if trainable == "head" else model, image)
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=0)
    assert not logits.requires_grad
    assert network.class_rows == {"classifier.weight", "classifier.bias"}


def functional_logits(model: State, image: Tensor) -> Tensor:
    net = build("small_cnn_gn", 8)
    net.load_state_dict(dict(model))
    with torch.no_grad():
        logits: Tensor = net.eval()(image.unsqueeze(0))
    return logits


# --- peers by descriptions


@dataclass
class LinearNetwork:
    """A network of one layer, whose answer to the probe image is a naive sum."""

    image_shape: tuple[int, int, int] = (1, 2, 2)
    class_rows: Sequence[str] = ("w",)

    def logits(self, model: State, images: Tensor) -> Tensor:
        pixels = images.flatten().tolist()
        sums = [
            sum(weight * pixel for weight, pixel in zip(row, pixels, strict=True))
            for row in model["w"].tolist()
        ]
        return torch.tensor([sums])


def model_of(site: str) -> dict[str, Tensor]:
    return {"w": points(3, 4, seed=int(site[-1])).float()}


def exchanges_of(
    options: Mapping[str, Any], models: Mapping[str, State]
) -> tuple[list[Exchange], FedPerl]:
    """Return the exchanges of two rounds in which each site answers with its model."""
    base = {"rounds": 2, "warm_up": 0, "participants": len(models)}
    method = FedPerl(settings_of("fedperl", {**base, **options}))  # type: ignore[arg-type]
    federation = Federation(sorted(models), 9, models, network=LinearNetwork())
    rounds = method.rounds(method.start(model_of("site-0")), federation)
    exchanges = [next(rounds)]
    updates = [ClientUpdate(site, models[site], 5, 5, 4) for site in sorted(models)]
    exchanges.append(rounds.send(updates))
    return exchanges, method


def nearest_by_a_loop(models: Mapping[str, State], site: str, count: int) -> list[str]:
    """Return the sites whose answers are the nearest to a site's, from the definition."""
    image = probe_image((1, 2, 2), seed=9).unsqueeze(0)
    answers = {
        name: LinearNetwork().logits(model, image)[0].tolist() for name, model in models.items()
    }
    distance = {}
    for other in models:
        if other != site:
            distance[other] = math.dist(answers[site], answers[other])
    return sorted(distance, key=lambda other: distance[other])[:count]


@pytest.mark.parametrize("committee", [2, 3])
def test_fedmatch_sends_the_models_of_the_nearest_answers(committee: int) -> None:
    models = {site: model_of(site) for site in SITES}
    options = {"similarity": "answers", "anonymise": False, "committee": committee}
    (_, second), method = exchanges_of(options, models)
    assert method.requirements.server.network
    assert method.requirements.server.lone_peers == "anonymise = false"
    for site, task in second.tasks.items():
        expected = nearest_by_a_loop(models, site, committee)
        assert second.decisions["peers"]["chosen"][site] == expected
        assert [task.models[f"peer{place}"]["w"].tolist() for place in range(committee)] == [
            models[peer]["w"].tolist() for peer in expected
        ]


def test_fedmatch_plus_sends_their_mean_alone() -> None:
    models = {site: model_of(site) for site in SITES}
    (_, second), method = exchanges_of({"similarity": "answers"}, models)
    assert method.requirements.server.lone_peers == ""
    for site, task in second.tasks.items():
        expected = anonymise([models[peer] for peer in nearest_by_a_loop(models, site, 2)])
        assert list(task.models) == ["peer0"]
        assert torch.equal(task.models["peer0"]["w"], expected["w"])


def test_rows_choose_by_the_cosine_of_row_moments() -> None:
    models = {site: model_of(site) for site in SITES}
    (_, second), _ = exchanges_of({"similarity": "rows"}, models)
    matrix = similarity(torch.stack([row_moments(models[site]) for site in SITES]))
    for index, site in enumerate(SITES):
        order = [SITES[other] for other in matrix[index].argsort(descending=True) if other != index]
        assert second.decisions["peers"]["chosen"][site] == order[:2]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.proves(
    "site",
    "a finite update, whose model answers an image of noise with NaN or infinity",
    "the run goes on, and no other site gets the model as a peer",
)
def test_a_model_with_broken_answers_is_nobodys_peer(value: float) -> None:
    class Broken(LinearNetwork):
        def logits(self, model: State, images: Tensor) -> Tensor:
            logits = super().logits(model, images)
            if torch.equal(model["w"], model_of("site-2")["w"]):
                logits[0, 1] = value
            return logits

    models = {site: model_of(site) for site in SITES}
    settings = settings_of("fedperl", {"similarity": "answers", "committee": 4, "warm_up": 0})
    method = FedPerl(settings)  # type: ignore[arg-type]
    federation = Federation(SITES, 9, models, network=Broken())
    state = method.start(model_of("site-0"))
    state.remember(
        {site: method.description.of(models[site], federation.network, 9) for site in SITES}
    )
    peers, _ = method.choose_peers(SITES, 1, state, federation)
    for site in SITES:
        assert len(peers[site]) == 4
        assert site == "site-2" or "site-2" not in peers[site]


@pytest.mark.parametrize("similarity_of", ["moments", "rows", "answers"])
def test_a_gate_of_cosines_takes_no_distances(similarity_of: str) -> None:
    options = {"policy": "gated_similarity", "similarity": similarity_of}
    if similarity_of != "answers":
        assert settings_of("fedperl", options)
        return
    with pytest.raises(ValueError, match="similarity=answers has distances"):
        settings_of("fedperl", options)


@pytest.mark.parametrize(("job", "lone"), [("fedmatch_peers", True), ("fedmatch_plus", False)])
@pytest.mark.proves(
    "lead",
    "a job with FedMatch's peers, which sends one hospital's model to another",
    "refused by the default policy, unless peers are averaged",
)
def test_sites_refuse_a_lone_peer_by_default(job: str, lone: bool) -> None:
    experiment = load_experiment(job, clinical=True)
    refusals = refused_by_default(experiment, method_of(experiment), SITES)
    rules = {rule.name for rule in refusals}
    assert ("lone_peers" in rules) == lone
