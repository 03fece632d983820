"""The server's step: momentum and Adam on pseudo-gradients."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.lab.local import run_local
from fedward.methods import METHODS, method_of
from fedward.methods.algorithm import ServerState
from fedward.methods.server_optimizer import SECOND_BETA, TAU, advance
from fedward.methods.settings import Settings
from fedward.server.federation import federation_of
from fedward.server.public import PublicImages
from fedward.starting_model import initial_model
from fedward.storage.checkpoint import StoredState
from fedward.storage.run_folder import RunFolder
from interrupted import interrupted
from run_files import assert_equal, weights
from tiny import tiny

SITES = ["site-1", "site-2", "site-9"]
STEPS = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=6)
quick = settings(deadline=None, max_examples=50)


def chosen(kind: str, rate: float = 1.0, momentum: float = 0.9) -> Settings:
    return Settings.model_validate(
        {"server_optimizer": kind, "server_learning_rate": rate, "server_momentum": momentum}
    )


def one(value: float) -> dict[str, Tensor]:
    return {"w": torch.tensor([value])}


def walk(choice: Settings, changes: list[float]) -> list[float]:
    """Return the model after each round in which the mean lies so far from the model that was sent."""
    state = ServerState(0, one(0.0))
    found = []
    for change in changes:
        advance(state, one(float(state.model["w"]) + change), choice, {"w"})
        found.append(float(state.model["w"]))
    return found


# --- numbers by hand


def test_momentum_worked_by_hand() -> None:
    """m: 1, .5 + 2 = 2.5, 1.25 - 1 = .25; with a rate of .1 the model is at .1, .35, .375."""
    assert walk(chosen("momentum", 0.1, 0.5), [1.0, 2.0, -1.0]) == pytest.approx([0.1, 0.35, 0.375])


def test_adam_worked_by_hand() -> None:
    """m = .1, v = .99e-6 + .01 = .01000099: a step of .1 * .1 / (.10000495 + .001); then m = .09, v
    = .0099009801.
    """
    first = 0.01 / (0.010_000_99**0.5 + 0.001)
    second = first + 0.1 * 0.09 / (0.009_900_980_1**0.5 + 0.001)
    assert walk(chosen("adam", 0.1), [1.0, 0.0]) == pytest.approx([first, second])
    assert first == pytest.approx(0.0990050, abs=1e-6)


def test_a_learning_rate_goes_part_of_the_way() -> None:
    assert walk(chosen("average", 0.25), [1.0, 2.0]) == pytest.approx([0.25, 0.75])


# --- naive loop


@quick
@given(STEPS, st.floats(0, 0.99), st.floats(0.01, 2))
def test_steps_equal_the_papers_algorithms(changes: list[float], beta: float, rate: float) -> None:
    momentum = [0.0]
    adam = [0.0]
    m = 0.0
    first = 0.0
    second = TAU**2
    for change in changes:
        m = beta * m + change
        momentum.append(momentum[-1] + rate * m)
        first = beta * first + (1 - beta) * change
        second = SECOND_BETA * second + (1 - SECOND_BETA) * change**2
        adam.append(adam[-1] + rate * first / (second**0.5 + TAU))
    np.testing.assert_allclose(
        walk(chosen("momentum", rate, beta), changes), momentum[1:], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        walk(chosen("adam", rate, beta), changes), adam[1:], rtol=1e-3, atol=1e-3
    )


# --- identities


def model(seed: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "net.weight": torch.randn(3, 2, generator=draw),
        "bn.weight": torch.randn(2, generator=draw),
        "bn.running_mean": torch.randn(2, generator=draw),
        "bn.num_batches_tracked": torch.tensor(seed),
    }


PARAMETERS = {"net.weight", "bn.weight"}


def test_the_plain_average_is_the_mean_itself() -> None:
    state = ServerState(0, model(1))
    mean = model(2)
    advance(state, mean, Settings(), ())
    assert state.model is mean
    assert state.optimizer == {}


def test_momentum_of_0_is_the_plain_average() -> None:
    state = ServerState(0, model(1))
    mean = model(2)
    advance(state, mean, chosen("momentum", momentum=0.0), PARAMETERS)
    assert_equal(state.model, mean)


@pytest.mark.parametrize("kind", ["average", "momentum", "adam"])
def test_what_is_no_parameter_is_averaged(kind: str) -> None:
    state = ServerState(0, model(1))
    mean = model(2)
    for _ in range(2):
        advance(state, mean, chosen(kind, 0.5), PARAMETERS)
        assert list(state.model) == list(mean)
        assert {key for key in mean if torch.equal(state.model[key], mean[key])} == set(
            mean
        ) - PARAMETERS
    names = {"average": (), "momentum": ("first",), "adam": ("first", "second")}[kind]
    assert set(state.optimizer) == {f"{name}/{key}" for name in names for key in PARAMETERS}
    assert all(tensor.dtype == torch.float32 for tensor in state.optimizer.values())


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_a_round_without_an_answer_moves_nothing(kind: str) -> None:
    state = ServerState(0, model(1))
    advance(state, model(2), chosen(kind), PARAMETERS)
    before = state.model
    moments = state.optimizer
    advance(state, state.model, chosen(kind), PARAMETERS)
    assert state.model is before
    assert state.optimizer is moments
    advance(state, {key: value.clone() for key, value in before.items()}, chosen(kind), PARAMETERS)
    assert not torch.equal(state.model["net.weight"], before["net.weight"]), "momentum carries on"


def test_a_step_changes_nothing_it_was_given() -> None:
    given_ = model(1)
    mean = model(2)
    state = ServerState(0, given_)
    advance(state, mean, chosen("adam"), PARAMETERS)
    advance(state, mean, chosen("adam"), PARAMETERS)
    assert_equal(given_, model(1))
    assert_equal(mean, model(2))


def test_adams_steps_do_not_shrink_with_the_update() -> None:
    large, small = (walk(chosen("adam", 0.01), [size])[0] for size in (10.0, 1.0))
    assert large == pytest.approx(small, rel=0.02)


# --- refusals


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{"server_optimizer": "adam"}, {"server_learning_rate": 0.5}])
def test_methods_without_one_plain_mean_refuse(method: str, options: dict[str, Any]) -> None:
    if method in ("fedavg", "ssfl", "fedperl", "fedal"):
        assert Experiment(method=method, options=options)
    else:
        [(setting, value)] = options.items()
        with pytest.raises(
            ConfigError, match=f"{method} cannot work with {setting}={value}: its rounds do not end"
        ):
            Experiment(method=method, options=options)


@pytest.mark.parametrize(("rate", "momentum"), [(0.0, 0.9), (1.0, 1.0), (1.0, -0.1)])
def test_rates_out_of_range_are_refused(rate: float, momentum: float) -> None:
    with pytest.raises(ValidationError):
        chosen("momentum", rate, momentum)


# --- runs


def stepping(
    method: str, kind: str, options: dict[str, Any] | None = None, **changes: Any
) -> Experiment:
    rate = 0.01 if kind == "adam" else 0.5
    chosen_ = {"server_optimizer": kind, "server_learning_rate": rate}
    return tiny(method, **changes, options={**chosen_, **(options or {})})


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    ("method", "kind"), [("fedavg", "momentum"), ("fedavg", "adam"), ("fedperl", "adam")]
)
def test_moments_are_saved_and_a_run_resumes_bit_for_bit(
    tmp_path: Path, method: str, kind: str
) -> None:
    experiment = stepping(method, kind)
    straight = run_local(experiment, tmp_path / "straight", sites=SITES)
    interrupted(experiment, tmp_path / "broken", SITES, 3, 1)
    saved = StoredState(tmp_path / "broken" / "rounds" / "00002" / "state.safetensors")
    assert any(name.startswith("optimizer/first/") for name in saved)
    resumed = run_local(None, tmp_path / "broken", resume=True)
    assert_equal(weights(straight), weights(resumed))
    last = [
        StoredState(folder / "rounds" / "00003" / "state.safetensors")
        for folder in (straight, resumed)
    ]
    assert_equal(dict(last[0]), dict(last[1]))
    assert json.loads((straight / "run.json").read_text())["status"] == "finished"


def test_a_networks_statistics_are_not_among_its_parameters(tmp_path: Path) -> None:
    experiment = stepping("fedavg", "adam", net="tf_efficientnet_lite0")
    algorithm = method_of(experiment)
    run = RunFolder.create(tmp_path / "run", experiment, algorithm.requirements, SITES, "local")
    images = PublicImages(experiment, algorithm, tmp_path / "server", [])
    names = set(federation_of(algorithm, run, images).parameters)
    others = set(initial_model(experiment, None, algorithm)[0]) - names
    assert len(names) > len(others) / 2 > 0
    assert {name.rsplit(".", 1)[1] for name in others} == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


@pytest.mark.usefixtures("without_report")
def test_the_server_steps_parameters_from_the_mean(tmp_path: Path) -> None:
    """A rate of 1/2 goes half of the way that the plain average goes in the first round."""
    experiments = [
        tiny("fedavg", options={"rounds": 1, "server_learning_rate": rate}) for rate in (1.0, 0.5)
    ]
    whole, half = (
        weights(run_local(each, tmp_path / f"{n}", sites=SITES))
        for n, each in enumerate(experiments)
    )
    start = StoredState(tmp_path / "0" / "rounds" / "00000" / "state.safetensors")
    for key, value in half.items():
        torch.testing.assert_close(value, (whole[key] + start[f"model/{key}"]) / 2)


@pytest.mark.usefixtures("without_report")
def test_an_encrypted_mean_serves_as_well(tmp_path: Path) -> None:
    options = {"participants": 3, "optimizer": "sgd", "learning_rate": 0.01}
    runs = [
        weights(
            run_local(
                stepping("fedavg", "momentum", secure_aggregation=secure, options=options),
                folder,
                sites=SITES,
            )
        )
        for secure, folder in ((False, tmp_path / "plain"), (True, tmp_path / "secure"))
    ]
    for key, value in runs[0].items():
        torch.testing.assert_close(runs[1][key], value, rtol=0, atol=1e-5)
