"""The moving average of the global model: what it is, who evaluates it, what a run keeps of it."""

import json
from collections.abc import Callable
from functools import cache
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
from fedward.methods.averages import moving_average
from fedward.methods.settings import Settings
from fedward.operation.audit_check import verify
from fedward.server.run_status import progress
from fedward.storage.model_files import StoredState
from fedward.storage.run_folder import RunFolder
from interrupted import interrupted
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_local
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-9"]
DECAY = 0.7


def one(value: float) -> dict[str, Tensor]:
    return {"w": torch.tensor([value])}


def walked(models: list[float], decay: float) -> list[float]:
    average = dict[str, Tensor]()
    found = []
    for rounds, value in enumerate(models, 1):
        average = moving_average(average, one(value), decay, rounds)
        found.append(float(average["w"]))
    return found


def test_the_average_worked_by_hand() -> None:
    """Decay 1/2: 1, then (1/4 + 3/2) / (3/4) = 7/3, then (1/8 + 3/4 - 2) / (7/8) = -9/7."""
    assert walked([1.0, 3.0, -4.0], 0.5) == pytest.approx([1, 7 / 3, -9 / 7])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=8), st.floats(0, 0.999))
def test_the_average_is_the_sum_of_fading_models(models: list[float], decay: float) -> None:
    rounds = len(models)
    shares = [decay ** (rounds - i) for i in range(1, rounds + 1)]
    assert walked(models, decay)[-1] == pytest.approx(np.average(models, weights=shares), abs=1e-5)


def test_the_first_average_is_the_first_trained_model() -> None:
    model = {"w": torch.randn(5), "bn.num_batches_tracked": torch.tensor(3)}
    average = moving_average({}, model, 0.99, 1)
    assert_equal(average, model)
    assert average["w"].data_ptr() != model["w"].data_ptr()
    assert_equal(
        moving_average(
            {"w": torch.ones(5), "bn.num_batches_tracked": torch.tensor(1)}, model, 0.0, 7
        ),
        model,
    )


def test_equal_models_are_their_average_exactly() -> None:
    assert walked([0.1] * 6, 0.9) == [float(torch.tensor(0.1))] * 6


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_out_of_range_is_refused(decay: float) -> None:
    with pytest.raises(ValidationError):
        Settings(average_decay=decay)


# --- runs


def averaging(method: str = "fedavg", decay: float = DECAY, **changes: Any) -> Experiment:
    options = {"rounds": 4, "average_decay": decay, **changes.pop("options", {})}
    return tiny(method, **changes, options=options)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, dict[str, Tensor]]]:
    """Folder -> round -> the model that training goes on from."""
    models: dict[str, dict[int, dict[str, Tensor]]] = {}
    commit = RunFolder.commit

    def keep(self: RunFolder, round_: int, state: Any) -> None:
        models.setdefault(self.path.name, {})[round_] = {
            key: state.model[key].clone() for key in state.model
        }
        commit(self, round_, state)

    monkeypatch.setattr(RunFolder, "commit", keep)
    return models


@pytest.mark.parametrize("method", ["fedavg", "fedperl"])
def test_training_goes_on_from_the_plain_model(
    tmp_path: Path, kept: dict[str, Any], method: str
) -> None:
    plain, averaged = (
        run_local(averaging(method, decay), tmp_path / name, sites=SITES)
        for name, decay in (("plain", 0.0), ("averaged", DECAY))
    )
    models = kept["averaged"]
    for round_, model in kept["plain"].items():
        assert_equal(model, models[round_])
    assert_equal(weights(plain), models[4])
    shares = [DECAY ** (4 - i) for i in range(1, 5)]
    for key, value in weights(averaged).items():
        expected = np.average(
            np.stack([models[i][key].numpy() for i in range(1, 5)]), axis=0, weights=shares
        )
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-5, atol=1e-6)


def evaluated(folder: Path) -> list[tuple[int, str]]:
    found = [
        row for row in rows(folder, "metrics") if (row["split"], row["name"]) == ("val", "accuracy")
    ]
    return [(row["round"], row["site"]) for row in found]


@pytest.mark.parametrize(
    ("every", "expected"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3, 4])]
)
def test_sites_evaluate_the_average_once_in_its_turn(
    tmp_path: Path, every: int, expected: list[int]
) -> None:
    folder = run_local(averaging(evaluate_every=every), tmp_path / "run", sites=SITES)
    assert evaluated(folder) == [(round_, site) for round_ in expected for site in SITES]
    audit = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    asked = [row["details"] for row in audit if row["event"] == "asked"]
    between = [(row["round"], row["tasks"], row["evaluate"]) for row in asked if row["part"] == 1]
    assert between == [(round_, {}, SITES) for round_ in expected[1:-1]]
    assert [row["evaluate"] for row in asked if row["part"] == 0][1:-1] == [[]] * 3
    verify(folder)


def test_numbers_are_those_of_the_average(tmp_path: Path) -> None:
    """A decay near 0 makes the average the plain model, and so its numbers."""
    plain, same, other = (
        run_local(averaging(decay=decay), tmp_path / str(decay), sites=SITES)
        for decay in (0.0, 1e-12, DECAY)
    )
    measured = [
        [row for row in steady_rows(folder, "metrics") if row["split"] != "train"]
        for folder in (plain, same)
    ]
    assert sorted(map(str, measured[0])) == sorted(map(str, measured[1]))
    others = [row for row in steady_rows(other, "metrics") if row["split"] != "train"]
    assert [row for row in others if row["round"] < 2] == [
        row for row in measured[1] if row["round"] < 2
    ]
    assert others != measured[1]


def test_the_best_model_is_an_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    averages: dict[int, dict[str, Tensor]] = {}
    commit = RunFolder.commit

    def keep(self: RunFolder, round_: int, state: Any) -> None:
        averages[round_] = dict(state.evaluated)
        commit(self, round_, state)

    monkeypatch.setattr(RunFolder, "commit", keep)
    folder = run_local(averaging(options={"learning_rate": 5e-3}), tmp_path / "run", sites=SITES)
    best = json.loads((folder / "best.json").read_text())["round"]
    assert_equal(dict(StoredState(folder / "best.safetensors")), averages[best])
    assert_equal(weights(folder), averages[4])
    verify(folder)


@pytest.mark.usefixtures("narrow_swin")
@pytest.mark.parametrize("method", ["fedperl", "rscfed", "selffed"])
def test_a_run_in_parts_or_phases_may_be_averaged(tmp_path: Path, method: str) -> None:
    options: dict[str, Any] = {"rounds": 3}
    if method == "selffed":
        options |= {"pretraining_rounds": 1, "contrastive": "client"}
    folder = run_local(averaging(method, options=options), tmp_path / "run", sites=SITES)
    assert sorted({round_ for round_, _ in evaluated(folder)}) == (
        # Of SelfFed's, round 2 is the first that trains the classifier.
        [2, 3] if method == "selffed" else [0, 1, 2, 3]
    )
    assert not any(row["failed"] for row in rows(folder, "rounds"))
    verify(folder)


@pytest.mark.parametrize(("method", "options"), [("alone", {}), ("selffed", {"upload": "encoder"})])
def test_tensors_that_stay_at_their_sites_have_no_average(
    method: str, options: dict[str, Any]
) -> None:
    assert tiny(method, options=options)
    with pytest.raises(ConfigError, match=f"{method} cannot work with average_decay=0.5"):
        tiny(method, options={**options, "average_decay": 0.5})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a method to its run without an interruption, which runs once."""

    @cache
    def run_of(method: str) -> Path:
        return run_local(
            averaging(method), tmp_path_factory.mktemp(method) / "straight", sites=SITES
        )

    return run_of


@pytest.mark.parametrize(("round_", "part"), [(3, 0), (2, 1)])
@pytest.mark.parametrize("method", ["fedavg", "fedperl"])
def test_an_averaging_run_resumes_bit_for_bit(
    tmp_path: Path, undisturbed: Callable[[str], Path], method: str, round_: int, part: int
) -> None:
    """Killed while a round trains, and while its average is evaluated."""
    straight = undisturbed(method)
    interrupted(averaging(method), tmp_path / "broken", SITES, round_, 1, part=part)
    resumed = resume_local(tmp_path / "broken")
    for name in ("model", "best"):
        undisturbed_model = StoredState(straight / f"{name}.safetensors")
        resumed_model = StoredState(resumed / f"{name}.safetensors")
        assert_equal(dict(undisturbed_model), dict(resumed_model))
    for log in ("metrics", "bytes", "peers"):
        assert steady_rows(straight, log) == steady_rows(resumed, log)
    verify(resumed)


def test_every_exchange_between_rounds_is_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_local(averaging(), tmp_path / "run", sites=SITES)
    exchanges = [(row["round"], row["part"], len(row["asked"])) for row in rows(folder, "rounds")]
    assert exchanges == [
        (1, 0, 2),
        (1, 1, 0),
        (2, 0, 2),
        (2, 1, 0),
        (3, 0, 2),
        (3, 1, 0),
        (4, 0, 2),
    ]
    sizes = {
        (row["round"], row["site"], row["down"]) for row in rows(folder, "bytes") if row["up"] == 0
    }
    assert {down for _, _, down in sizes} == {weights_size(folder)}
    state = progress(folder)
    assert state["exchange"]["round"] == 4
    assert len(state["exchange"]["asked"]) == 2
    shown = [
        line.split() for line in capsys.readouterr().out.splitlines() if line[:6].strip().isdigit()
    ]
    assert [line[0] for line in shown] == ["0", "1", "2", "3", "4"]
    values = {row["round"]: [] for row in rows(folder, "metrics")}
    for row in rows(folder, "metrics"):
        if (row["split"], row["name"]) == ("val", "accuracy"):
            values[row["round"]].append(row["value"])
    assert [line[3] for line in shown] == [f"{np.mean(values[round_]):.3f}" for round_ in range(5)]


def weights_size(folder: Path) -> int:
    return sum(value.nbytes for value in weights(folder).values() if value.is_floating_point())
