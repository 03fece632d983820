"""``import fedward``: cheap, and enough to run an experiment and use its model."""

import ast
import doctest
import html
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedward
from fedward import cli, errors
from fedward.errors import (
    ConfigError,
    DataError,
    RunError,
    command,
    naming_arguments,
    option,
    setting,
)
from fedward.jobs import JOBS
from fedward.lab import notebook
from fedward.registry import METHODS, METRICS
from finished_run import new_run
from tiny import tiny

PUBLIC = [
    "Run",
    "TrainedModel",
    "doctor",
    "experiment",
    "load_model",
    "partition",
    "register",
    "run",
]
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
    assert done.stdout.strip() == f"set() {PUBLIC}"
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        fedward.train  # noqa: B018


def test_tab_lists_the_public_names_alone():
    assert dir(fedward) == PUBLIC
    attributes = [name for name, kind in vars(fedward.Run).items() if isinstance(kind, property)]
    assert {"report", "verdict", "numbers", "test", "best_round", "status"} < set(attributes)
    assert all(getattr(fedward.Run, name).__doc__ for name in attributes if name[0] != "_")


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
    assert run.info.job == "fedavg"
    assert all(
        0 < value <= 1 for values in run.series("val", "sure").values() for value in values.values()
    )
    assert run.report == tmp_path / "run" / "report.html"
    assert run.report.exists()
    assert run.clinician_page.exists()
    page = " ".join(html.unescape(run.report.read_text()).split())
    lead, numbers = " ".join(run.verdict.split()).split(" The selected model")
    assert lead in page
    assert f"The selected model{numbers.partition(' Not tested')[0]}" in page
    assert run.best_round == run.info.summary.best_round
    assert run.numbers.keys() >= {"accuracy", "f1_weighted", "sure"}
    assert run.test.value == run.numbers["sure"]
    by_hand = [run.at(site, "test", run.best_round)["accuracy"].value for site in run.info.sites]
    assert run.numbers["accuracy"] == pytest.approx(np.mean(by_hand))
    assert repr(run) == f"<Run {run.folder}: fedavg, finished, 2 sites>"
    assert fedward.Run.load(str(run.folder)).numbers == run.numbers
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
        match=r"image .*broken\.png: expected a whole image, found a file that is not one of "
        r"PNG, JPEG, TIFF, BMP and PPM",
    ):
        model.read([tmp_path / "photo.png", tmp_path / "broken.png"])
    with pytest.raises(RunError, match="other settings"):
        fedward.run(small(seed=9), tmp_path / "run", resume=True)
    assert fedward.load_model(tmp_path / "run", "last").classes == model.classes


def test_a_run_that_measured_nothing_says_so(tmp_path):
    folder = new_run(tmp_path / "run", tiny(), ["site-1"], "local").path
    run = fedward.Run.load(folder)
    assert (run.status, run.test, run.best_round, run.numbers) == ("running", None, None, {})
    assert run.verdict == "Not judged: no site measured the model on test images."


def write_images(folder):
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (120, 20, 20), np.uint8)
    np.savez(folder / "images.npz", images=images, labels=np.arange(120) % 2)
    return folder / "images.npz"


def test_partition_and_doctor_are_the_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write_images(tmp_path)
    data = fedward.partition(source, "python", sites=2, labelled=0.5, classes=["a", "b"])
    printed = capsys.readouterr().out
    words = ["--sites", "2", "--labelled", "0.5", "--classes", "a", "b"]
    assert cli.main(["partition", str(source), "--out", "shell", *words]) == 0
    in_shell = printed.replace("python", "shell").split()
    assert [word for word in capsys.readouterr().out.split() if word not in in_shell] == [
        "--set",
        "data.views=rotation_invariant.",
    ], "the rest is alike"
    names = sorted(path.name for path in Path("python").iterdir())
    assert names == ["data.json", "site-1.yaml", "site-2.yaml"]
    for name in names:
        assert Path("python", name).read_bytes() == Path("shell", name).read_bytes()
    assert data == json.loads(Path("python/data.json").read_text())
    assert fedward.experiment("fedavg", data=data).data.classes == ("a", "b")
    assert fedward.doctor("python/site-1.yaml", out="sheets") is True
    assert "site-1: 62 images, 20x20, grey" in capsys.readouterr().out
    assert Path("sheets/site-1-contact-sheet.png").exists()
    Path("images.npz").unlink()
    assert fedward.doctor("python/site-1.yaml") is False
    assert "Not usable." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"sitez": 2}, r"there is no argument sitez \(did you mean sites\?\)"),
        ({"sites": "two"}, "sites=: expected a whole number, found two"),
        ({"sites": 0}, "sites=: expected at least 1, found 0"),
        ({}, "expected sites= or by=, found .*Say into how many sites, as in sites=4"),
        ({"labels": {"-1": ""}, "sites": 2}, "^labels=: expected labels of the data .*found -1"),
        ({"out": "x", "sites": 2}, r"no argument out of fedward\.partition\. It is called folder"),
    ],
)
def test_errors_of_partition_name_arguments(tmp_path, arguments, error):
    with pytest.raises(ConfigError, match=error):
        fedward.partition(write_images(tmp_path), tmp_path / "out", **arguments)


@pytest.mark.parametrize(
    ("written", "in_shell", "in_python"),
    [
        (lambda: option("out"), "--out", "folder="),
        (lambda: option("sites", 4), "--sites 4", "sites=4"),
        (lambda: option("resplit", True), "--resplit", "resplit=True"),
        (lambda: option("label-kind", "one"), "--label-kind one", 'label_kind="one"'),
        (lambda: setting("rounds", 5), "--set rounds=5", "rounds=5"),
        (
            lambda: setting("data.classes", ["a", "b c"], "[a, b c]"),
            '--set "data.classes=[a, b c]"',
            'data={"classes": ["a", "b c"]}',
        ),
        (
            lambda: command("partition", option("val", 0.3)),
            "fedward partition ... --val 0.3",
            "fedward.partition(..., val=0.3)",
        ),
    ],
)
def test_options_are_written_as_the_caller_gives_them(written, in_shell, in_python):
    assert written() == in_shell
    with naming_arguments(out="folder"):
        assert written() == in_python
    assert doctest.testmod(errors).failed == 0


def test_what_functions_raise_names_no_option_of_a_command():
    package = Path(fedward.__file__).parent
    shells = {"lab/fedward_run.py", "lab/partition/arguments.py", "sites/decoding.py"}
    found = []
    for folder in ("lab", "lab/partition", "sites", "storage", "client", "runs"):
        for path in (package / folder).glob("*.py"):
            if path.relative_to(package).as_posix() in shells:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
                    texts = [
                        part.value
                        for part in ast.walk(node)
                        if isinstance(part, ast.Constant) and isinstance(part.value, str)
                    ]
                    found += [text for text in texts if re.search(r"(?<![\w-])--[a-z]", text)]
    assert not found, "options are written by fedward.errors.option"


def test_errors_of_a_run_name_arguments(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"Name another folder with folder=\. resume=True continues"):
        fedward.run(small(), tmp_path)
    with pytest.raises(ConfigError, match=r"^init="):
        fedward.run(small(), tmp_path / "new", init=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"no argument out of fedward\.run\. It is called folder"):
        fedward.run(small(), out=tmp_path / "new")
    with pytest.raises(ConfigError, match=r"^fedward\.run: missing a required argument: 'folder'"):
        fedward.run(small())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"experiment": "fedavg"}, r"^experiment=: expected an experiment, .* found 'fedavg'"),
        ({"folder": 3}, r"^folder=: expected a path, found 3"),
        ({"sites": "site-1"}, r"^sites=: expected a list of names, found 'site-1'"),
        ({"workers": "2"}, r"^workers=: expected a whole number, found '2'"),
        ({"resume": "yes"}, r"^resume=: expected True or False, found 'yes'"),
        ({"site_files": 3}, r"^site_files=: expected a path, found 3"),
    ],
)
def test_an_argument_of_another_type_is_refused(tmp_path, arguments, error):
    with pytest.raises(ConfigError, match=error):
        fedward.run(**{"experiment": small(), "folder": tmp_path / "new", **arguments})


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
