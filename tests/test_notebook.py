"""``import fedward``: cheap, and enough to run an experiment and use its model."""

import doctest
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import fedward
from fedward.errors import ConfigError, DataError, RunError
from fedward.jobs import JOBS
from fedward.lab import notebook
from fedward.registry import METHODS, METRICS

SMALL = {
    "rounds": 2,
    "images_per_round": 16,
    "batch": 8,
    "participants": None,
    "learning_rate": 0.01,
}


def small(job: str = "fedavg", **changes):
    data = {"image_size": 16}
    synthetic = {"images": 40, "labelled": 0.5, "sites": 2}
    return fedward.experiment(
        job, **{**SMALL, "data": data, "synthetic": synthetic, "evaluate_every": 1, **changes}
    )


def test_the_import_costs_no_torch():
    code = (
        "import sys, fedward\n"
        "heavy = {'torch', 'pydantic', 'nvflare'} & set(sys.modules)\n"
        "print(heavy, sorted(fedward.__all__))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip()
        == "set() ['TrainedModel', 'experiment', 'load_model', 'register', 'run']"
    )
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        fedward.train  # noqa: B018


def test_every_public_name_is_there_and_documented():
    assert all(getattr(fedward, name).__doc__ for name in fedward.__all__)
    modules = {module.name for module in pkgutil.iter_modules(fedward.__path__)}
    assert not modules & set(fedward.__all__), (
        "an import of that module would take the name's place"
    )
    assert doctest.testmod(notebook).failed == 0


def test_an_experiment_is_a_job_with_changes():
    assert fedward.experiment("fedperl") == JOBS["fedperl"]()
    changed = fedward.experiment("fedavg", rounds=2, seed=7, data={"image_size": 28})
    assert (changed.options["rounds"], changed.seed, changed.data.image_size) == (2, 7, 28)
    assert changed.data.classes == JOBS["fedavg"]().data.classes, "what is not named stays"
    with pytest.raises(ConfigError, match="roundz"):
        fedward.experiment("fedavg", roundz=2)
    with pytest.raises(ConfigError, match=r"no job fedavgg \(did you mean fedavg\?\)"):
        fedward.experiment("fedavgg")


def test_a_run_and_its_model(tmp_path, monkeypatch):
    monkeypatch.setattr(METRICS, "registered", {})
    fedward.register(
        "sure", lambda probabilities, labels: float(probabilities.max(axis=1).mean()), kind="metric"
    )
    run = fedward.run(small(metrics=("sure",), key_metric="sure"), tmp_path / "run")
    assert (len(run.rounds), run.info.status, run.key_metric) == (2, "finished", "sure")
    assert all(
        0 < value <= 1 for values in run.series("val", "sure").values() for value in values.values()
    )
    model = fedward.load_model(tmp_path / "run")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    images = model.read([tmp_path / "photo.png", Image.fromarray(pixels)])
    assert torch.equal(images[0], images[1])
    chances = model(images)
    assert chances.shape == (2, len(model.classes))
    torch.testing.assert_close(chances.sum(1), torch.ones(2))
    assert model(model.read([])).shape == (0, len(model.classes))
    with pytest.raises(ConfigError, match=r"float \(N, 3, 16, 16\) in \[0, 1\]"):
        model(torch.zeros(1, 3, 20, 20))
    with pytest.raises(ConfigError, match="values outside"):
        model(images * 255)
    with pytest.raises(ConfigError, match="found ndarray float32 of "):
        model(images.numpy())
    with pytest.raises(ConfigError, match="expected a list of files"):
        model.read("photo.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(
        DataError,
        match=r"image .*broken\.png: expected a whole image, found a file that is none of "
        r"PNG, JPEG, TIFF, BMP and PPM",
    ):
        model.read([tmp_path / "photo.png", tmp_path / "broken.png"])
    with pytest.raises(RunError, match="other settings"):
        fedward.run(small(seed=9), tmp_path / "run", resume=True)
    assert fedward.load_model(tmp_path / "run", "last").classes == model.classes


def test_an_unfinished_run_has_no_model(tmp_path):
    with pytest.raises(RunError):
        fedward.load_model(tmp_path / "nowhere")


def test_a_method_of_a_notebook_runs_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(METHODS, "registered", {})
    fedward.register("mine", METHODS["fedavg"])
    assert fedward.experiment("mine").options == {}
    run = fedward.run(small("mine", net="small_cnn", rounds=1), tmp_path / "run")
    assert run.info.method == "mine"
    with pytest.raises(ConfigError, match="a kind of method, network"):
        fedward.register("mine", METHODS["fedavg"], kind="methods")
