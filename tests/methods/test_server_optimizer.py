"""The server's step: momentum on pseudo-gradients."""

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
from fedward.methods import METHODS, method_of
from fedward.methods.algorithm import ServerState
from fedward.methods.server_optimizer import advance
from fedward.methods.settings import Settings
from fedward.server.federation import federation_of
from fedward.server.public import PublicImages
from fedward.storage.model_files import StoredState
from finished_run import new_run
from interrupted import interrupted
from run_files import assert_equal, weights
from running import resume_local, run_local
from starting import initial_model
from tiny import tiny

SITES = ["site-1", "site-2", "site-9"]
changes_of_rounds = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=6)
quick = settings(deadline=None, max_examples=50)


def momentum(beta: float = 0.9) -> Settings:
    return Settings(server_optimizer="momentum", server_momentum=beta)


def walk(settings: Settings, changes: list[float]) -> list[float]:
    """Return a model of one number after each round, in which the mean moves by a change."""
    state = ServerState(0, {"w": torch.tensor([0.0])})
    models = []
    for change in changes:
        advance(state, {"w": state.model["w"] + change}, settings, {"w"})
        models.append(float(state.model["w"]))
    return models


# --- numbers by hand


def test_momentum_worked_by_hand() -> None:
    """m: 1, .5 + 2 = 2.5, 1.25 - 1 = .25; the model is at 1, 3.5, 3.75."""
    assert walk(momentum(0.5), [1.0, 2.0, -1.0]) == pytest.approx([1.0, 3.5, 3.75])


# --- naive loop


@quick
@given(changes_of_rounds, st.floats(0, 0.99))
def test_steps_equal_the_papers_algorithm(changes: list[float], beta: float) -> None:
    models = []
    model = 0.0
    moment = 0.0
    for change in changes:
        moment = beta * moment + change
        model += moment
        models.append(model)
    np.testing.assert_allclose(walk(momentum(beta), changes), models, rtol=1e-4, atol=1e-4)


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
    advance(state, mean, momentum(0.0), PARAMETERS)
    assert_equal(state.model, mean)


def test_tensors_that_are_no_parameters_are_averaged() -> None:
    state = ServerState(0, model(1))
    mean = model(2)
    # In the second round the model is no longer the mean, as the momentum carries it on.
    for _ in range(2):
        advance(state, mean, momentum(), PARAMETERS)
    assert list(state.model) == list(mean)
    equal_to_mean = {name for name in mean if torch.equal(state.model[name], mean[name])}
    assert equal_to_mean == set(mean) - PARAMETERS
    assert set(state.optimizer) == {f"first/{name}" for name in PARAMETERS}
    assert all(tensor.dtype == torch.float32 for tensor in state.optimizer.values())


def test_a_round_without_an_answer_moves_nothing() -> None:
    state = ServerState(0, model(1))
    advance(state, model(2), momentum(), PARAMETERS)
    model_before = state.model
    moments_before = state.optimizer
    advance(state, state.model, momentum(), PARAMETERS)
    assert state.model is model_before
    assert state.optimizer is moments_before
    equal_mean = {name: tensor.clone() for name, tensor in model_before.items()}
    advance(state, equal_mean, momentum(), PARAMETERS)
    weight = "net.weight"
    assert not torch.equal(state.model[weight], model_before[weight]), "momentum carries on"


def test_a_step_changes_nothing_it_was_given() -> None:
    start = model(1)
    mean = model(2)
    state = ServerState(0, start)
    advance(state, mean, momentum(), PARAMETERS)
    advance(state, mean, momentum(), PARAMETERS)
    assert_equal(start, model(1))
    assert_equal(mean, model(2))


# --- refusals


@pytest.mark.parametrize("method", METHODS)
def test_methods_without_one_plain_mean_refuse(method: str) -> None:
    options = {"server_optimizer": "momentum"}
    if method in ("fedavg", "ssfl", "fedperl", "fedal"):
        assert Experiment(method=method, options=options)
        return
    with pytest.raises(
        ConfigError,
        match=f"{method} cannot work with server_optimizer=momentum: its rounds do not end",
    ):
        Experiment(method=method, options=options)


@pytest.mark.parametrize("beta", [1.0, -0.1])
def test_a_momentum_out_of_range_is_refused(beta: float) -> None:
    with pytest.raises(ValidationError):
        momentum(beta)


# --- runs


def with_momentum(method: str, options: dict[str, Any] | None = None, **changes: Any) -> Experiment:
    server = {"server_optimizer": "momentum", "server_momentum": 0.5}
    return tiny(method, **changes, options={**server, **(options or {})})


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("method", ["fedavg", "fedperl"])
def test_moments_are_saved_and_a_run_resumes_bit_for_bit(tmp_path: Path, method: str) -> None:
    experiment = with_momentum(method)
    straight = run_local(experiment, tmp_path / "straight", sites=SITES)
    interrupted(experiment, tmp_path / "broken", SITES, 3, 1)
    saved = StoredState(tmp_path / "broken" / "rounds" / "00002" / "state.safetensors")
    assert any(name.startswith("optimizer/first/") for name in saved)
    resumed = resume_local(tmp_path / "broken")
    assert_equal(weights(straight), weights(resumed))
    last_state = "rounds/00003/state.safetensors"
    assert_equal(dict(StoredState(straight / last_state)), dict(StoredState(resumed / last_state)))
    assert json.loads((straight / "run.json").read_text())["status"] == "finished"


def test_a_networks_statistics_are_not_among_its_parameters(tmp_path: Path) -> None:
    experiment = with_momentum("fedavg", net="tf_efficientnet_lite0")
    algorithm = method_of(experiment)
    run = new_run(tmp_path / "run", experiment, SITES, "local")
    images = PublicImages(experiment, algorithm, tmp_path / "server", [])
    parameters = set(federation_of(algorithm, run, images).parameters)
    buffers = set(initial_model(experiment)[0]) - parameters
    assert len(parameters) > len(buffers) / 2 > 0
    assert {name.rsplit(".", 1)[1] for name in buffers} == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


@pytest.mark.usefixtures("without_report")
def test_the_first_round_with_momentum_is_the_plain_average(tmp_path: Path) -> None:
    plain = run_local(tiny("fedavg", options={"rounds": 1}), tmp_path / "plain", sites=SITES)
    stepped = run_local(
        with_momentum("fedavg", options={"rounds": 1}), tmp_path / "momentum", sites=SITES
    )
    for name, value in weights(stepped).items():
        torch.testing.assert_close(value, weights(plain)[name])


@pytest.mark.usefixtures("without_report")
def test_an_encrypted_mean_serves_as_well(tmp_path: Path) -> None:
    options = {"participants": 3, "optimizer": "sgd", "learning_rate": 0.01}
    plain = with_momentum("fedavg", options=options)
    encrypted = with_momentum("fedavg", options=options, secure_aggregation=True)
    plain_weights = weights(run_local(plain, tmp_path / "plain", sites=SITES))
    encrypted_weights = weights(run_local(encrypted, tmp_path / "secure", sites=SITES))
    for name, value in plain_weights.items():
        torch.testing.assert_close(encrypted_weights[name], value, rtol=0, atol=1e-5)
