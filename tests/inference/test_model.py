"""The model of a run, of whatever method, answers as it did at the sites; a wrong one does not
load.
"""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hospitals import Finished
from PIL import Image

import fedward
from fedward.config import DataSpec, Experiment
from fedward.digests import file_digest
from fedward.errors import ConfigError, DataError, RunError
from fedward.inference.card import ModelCard
from fedward.inference.model import TrainedModel
from fedward.methods import method_of
from fedward.nets import build
from fedward.registry import METHODS
from fedward.storage.info import Summary
from fedward.storage.lock import sole_writer
from fedward.training.networks import Networks
from finished_run import finished_run, new_run, run_of_two_models
from run_files import weights
from starting import initial_model
from tiny import tiny

CASES: dict[str, Experiment] = {
    # Sites that train alone keep their models.
    **{method: tiny(method) for method in METHODS if method != "alone"},
    "MCDAL's heads": tiny("fedal", options={"sampler": "mcdal"}),
    "MCDAL's heads behind a frozen encoder": tiny(
        "fedal", trainable="head", options={"sampler": "mcdal"}
    ),
    **{
        f"trainable={part}": tiny("fedavg", trainable=part)
        for part in ("head", "last:1", "adapters")
    },
}


def trained(experiment: Experiment, folder: Path) -> Path:
    """Write a finished run, whose model is a fresh one that every round has changed a little."""
    first = initial_model(experiment)
    state = {
        name: tensor + 0.01 if tensor.is_floating_point() else tensor
        for name, tensor in first.state.items()
    }
    return finished_run(folder, experiment, state, first.base)


@pytest.mark.parametrize("experiment", CASES.values(), ids=CASES)
def test_it_answers_as_at_a_site(experiment: Experiment, tmp_path: Path) -> None:
    run = trained(experiment, tmp_path / "run")
    data = experiment.data
    model = fedward.load_model(run)
    images = torch.rand(3, data.channels, data.image_size, data.image_size)
    at_site = Networks(experiment, method_of(experiment), torch.device("cpu"))
    at_site.load(weights(run))
    with torch.no_grad():
        expected = at_site.on_images.eval()(images).softmax(1)
    torch.testing.assert_close(model(images), expected)
    assert model.classes == data.classes
    assert not any(module.training for module in model.net.modules())


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "pre-trained alone": ({"pretraining_rounds": 3}, "no round trained its classifier"),
    "own classifiers": ({"upload": "encoder"}, "each site kept its own classifier"),
}


@pytest.mark.parametrize(("options", "found"), UNUSABLE.values(), ids=UNUSABLE)
def test_half_a_model_is_none(options: dict[str, Any], found: str, tmp_path: Path) -> None:
    run = trained(tiny("selffed", options=options), tmp_path / "run")
    with pytest.raises(ConfigError, match=f"expected a finished run with a model, found .*{found}"):
        fedward.load_model(run)


def test_a_run_that_has_not_finished_has_no_model(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", tiny("fedavg"), ["site-1"], "local")
    with sole_writer(run.path), pytest.raises(ConfigError, match="found one that is running"):
        fedward.load_model(run.path)
    command = re.escape(f"`fedward run --resume {run.path}`")
    with pytest.raises(ConfigError, match=f"found one that has stopped .* it with {command}"):
        fedward.load_model(run.path)
    run.set_status("failed", Summary(reason="no reply"))
    with pytest.raises(ConfigError, match=rf"has failed \(no reply\)\. .* it with {command}"):
        fedward.load_model(run.path)


def test_another_model_than_the_runs_is_refused(finished: Finished, tmp_path: Path) -> None:
    copy = shutil.copytree(finished.run, tmp_path / "copy")
    shutil.copy(next(copy.glob("rounds/*/state.safetensors")), copy / "model.safetensors")
    with pytest.raises(RunError, match=r"expected SHA-256 [0-9a-f]{64}, by audit\.jsonl"):
        fedward.load_model(copy, "last")
    (copy / "audit.jsonl").write_text("")
    with pytest.raises(RunError, match=r"expected an audit\.jsonl that names it"):
        fedward.load_model(copy)


@pytest.mark.parametrize(("best_round", "described"), [(1, "best"), (0, "best"), (None, "model")])
def test_the_model_is_the_one_that_the_report_describes(
    best_round: int | None, described: str, tmp_path: Path
) -> None:
    run = run_of_two_models(tmp_path / "run", tiny("fedavg"))
    info = json.loads((run / "run.json").read_text())
    info["summary"]["best_round"] = best_round
    (run / "run.json").write_text(json.dumps(info))
    digest = {which: file_digest(run / f"{which}.safetensors") for which in ("best", "model")}
    assert digest["best"] != digest["model"]
    assert fedward.load_model(run).sha256 == digest[described]
    assert fedward.load_model(run, "last").sha256 == digest["model"]


def test_a_card_has_the_round_of_its_model(tmp_path: Path) -> None:
    run = run_of_two_models(tmp_path / "run", tiny("fedavg"))
    assert ModelCard.of(fedward.load_model(run), run).round == 1
    assert ModelCard.of(fedward.load_model(run, "last"), run).round == 2


@pytest.mark.parametrize(
    "damage",
    [None, b"", b"[" * 100_000, b"\xff", b"[]", b"{}", b'{"round": null}', b'{"round": Infinity}'],
)
def test_a_card_without_a_readable_file_beside_its_model_is_refused(
    damage: bytes | None, tmp_path: Path
) -> None:
    run = run_of_two_models(tmp_path / "run", tiny("fedavg"))
    model = fedward.load_model(run)
    if damage is None:
        (run / "best.json").unlink()
    else:
        (run / "best.json").write_bytes(damage)
    with pytest.raises(RunError, match=r"best\.json: expected .* its round among it, found"):
        ModelCard.of(model, run)


def evaluated(path: Path, model: TrainedModel, temperature: object) -> Path:
    path.write_text(json.dumps({"model": {"sha256": model.sha256}, "temperature": temperature}))
    return path


@pytest.mark.parametrize("attack", ["NaN", "another network", "another type"])
def test_a_model_that_is_none_of_the_run_is_refused(attack: str, tmp_path: Path) -> None:
    """Whoever writes a run folder can write an audit log that fits it."""
    job = tiny("fedavg")
    state = build("small_cnn_gn" if attack == "another network" else job.net, 8).state_dict()
    if attack == "NaN":
        state["classifier.bias"][0] = float("nan")
    if attack == "another type":
        state["classifier.bias"] = state["classifier.bias"].half()
    run = finished_run(tmp_path / "run", job, state)
    with pytest.raises(
        RunError, match="expected finite numbers for all tensors of the run's network"
    ):
        fedward.load_model(run)


@pytest.mark.parametrize("images", [[torch.rand(1, 16, 16)], ["lesion.jpg"], None])
def test_anything_but_a_tensor_of_images_is_refused_with_what_to_do(
    images: Any, finished: Finished
) -> None:
    with pytest.raises(ConfigError, match=r"found a (list|NoneType)") as caught:
        fedward.load_model(finished.run)(images)
    assert "model.read(files)" in str(caught.value)


GREY = DataSpec(image_size=16, channels=1, views="upright")


def untrained() -> TrainedModel:
    """Return a model that has never been trained, for one grey image of 16 pixels a side."""
    experiment = tiny("fedavg", data=GREY, synthetic=None)
    return TrainedModel(build(experiment.net, 8, channels=1), experiment, "0" * 64)


@pytest.mark.parametrize(
    ("images", "found"),
    [
        (torch.ones(1, 1, 16, 16, dtype=torch.uint8), r"Tensor torch\.uint8 of \(1, 1, 16, 16\)"),
        (torch.full((1, 1, 16, 16), -0.1), "values outside"),
        (torch.full((1, 1, 16, 16), math.nan), "values outside"),
    ],
    ids=["whole numbers", "normalised", "NaN"],
)
def test_images_that_are_not_from_0_to_1_are_refused(images: torch.Tensor, found: str) -> None:
    with pytest.raises(ConfigError, match=rf"expected float \(N, 1, 16, 16\) in .*{found}"):
        untrained()(images)


def test_a_blank_picture_is_refused_as_at_a_site() -> None:
    with pytest.raises(DataError, match="found a blank one"):
        untrained().read([Image.new("L", (30, 30), 7)])


def test_a_model_that_a_run_does_not_have_is_refused(tmp_path: Path) -> None:
    run = run_of_two_models(tmp_path / "run", tiny("fedavg"))
    with pytest.raises(ConfigError, match="expected best or last, found 'newest'"):
        fedward.load_model(run, "newest")
    (run / "best.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"found no best\.safetensors"):
        fedward.load_model(run)


def test_a_temperature_divides_the_logits(finished: Finished, tmp_path: Path) -> None:
    model = fedward.load_model(finished.run)
    images = torch.rand(4, 1, 16, 16)
    file = evaluated(tmp_path / "found.json", model, {"value": 2.5})
    cooler = fedward.load_model(finished.run, calibration=file)
    with torch.no_grad():
        torch.testing.assert_close(cooler(images), (model.net(images) / 2.5).softmax(1))


@pytest.mark.parametrize(
    "temperature", [None, {"value": 0.04}, {"value": 21}, {"value": float("inf")}, {}, 3, "warm"]
)
def test_what_is_no_temperature_is_refused(
    temperature: object, finished: Finished, tmp_path: Path
) -> None:
    file = evaluated(tmp_path / "found.json", fedward.load_model(finished.run), temperature)
    with pytest.raises(
        ConfigError, match=r"found\.json: expected (a temperature|the JSON file of an evaluation)"
    ):
        fedward.load_model(finished.run, calibration=file)


def test_a_temperature_of_another_model_is_refused(finished: Finished, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(
        json.dumps({"model": {"sha256": "0" * 64}, "temperature": {"value": 2}})
    )
    with pytest.raises(ConfigError, match="found one of 0000"):
        fedward.load_model(finished.run, calibration=tmp_path / "other.json")
