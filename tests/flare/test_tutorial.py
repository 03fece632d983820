"""The package of docs/tutorial.md, installed as it is there; its method is SCAFFOLD."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from simulator import SITES, assert_same_run, start

import fedward
from fedward import cli
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.flare import places
from fedward.flare.classes import METHOD_CONTROLLER
from fedward.flare.jobs.export import export_job
from fedward.jobs import load_experiment
from fedward.methods import job_of, settings_of
from fedward.security.policy import POLICY_FILE, read_policy
from fedward.security.policy_rules import Circumstances, applied_rules, refused_by_default
from fedward.storage.model_files import StoredState
from run_files import rows, weights
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
RATE = 0.05


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which pip has installed the package, for the tests of this file."""
    source = tmp_path_factory.mktemp("tutorial") / "source"
    target = tmp_path_factory.mktemp("installed")
    shutil.copytree(TUTORIAL, source)  # a build leaves files beside the source
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "--target", target, source], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(target))
        yield target


def experiment(method: str, steps: int = 1, **options: Any) -> Experiment:
    plain = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": RATE}
    plain |= {"schedule": "constant", "round_warm_up": 0.0}
    options = {**plain, "participants": None, "batch": 8, "images_per_round": 8 * steps, **options}
    return tiny("fedavg", net="two_layers", options=options).model_copy(update={"method": method})


def run(folder: Path, method: str, steps: int = 1, **options: Any) -> Path:
    return fedward.run(experiment(method, steps, **options), folder, sites=SITES).folder


def without_control(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor for name, tensor in weights(folder).items() if not name.startswith("control.")
    }


def own_controls(folder: Path) -> list[dict[str, torch.Tensor]]:
    """Return each site's newest c_i by the names of the server's c, of sites that took part."""
    newest = [
        max(site.glob("memory/*/*.safetensors"), default=None)
        for site in sorted((folder / "sites").iterdir())
    ]
    return [
        {
            f"control.{name.removeprefix('control/').replace('.', '-')}": c
            for name, c in StoredState(file).items()
        }
        for file in newest
        if file
    ]


def test_with_one_local_step_it_is_fedavg(tmp_path):
    """The corrections of all sites then add up to nothing, in each round."""
    ours = run(tmp_path / "a", "scaffold")
    theirs = run(tmp_path / "b", "fedavg")
    torch.testing.assert_close(without_control(ours), weights(theirs), rtol=0, atol=1e-6)
    assert any(name.startswith("control.") for name in weights(ours))


def test_without_corrections_yet_it_is_fedavg(tmp_path):
    """In the first round c and each c_i are 0, however many steps there are; in the second not."""
    one = [
        run(tmp_path / f"{method}1", method, steps=3, rounds=1) for method in ("scaffold", "fedavg")
    ]
    torch.testing.assert_close(without_control(one[0]), weights(one[1]), rtol=0, atol=1e-6)
    two = [
        run(tmp_path / f"{method}2", method, steps=3, rounds=2) for method in ("scaffold", "fedavg")
    ]
    name = "classifier.weight"
    assert (weights(two[0])[name] - weights(two[1])[name]).abs().max() > 1e-6


@pytest.mark.parametrize("participants", [None, 2])
def test_the_servers_control_variate_is_the_mean_of_the_sites(tmp_path, participants):
    folder = run(tmp_path / "run", "scaffold", steps=3, participants=participants)
    found = own_controls(folder)
    control = weights(folder)
    for name in [name for name in control if name.startswith("control.")]:
        mean = sum(each[name] for each in found) / len(SITES)
        torch.testing.assert_close(control[name], mean, rtol=1e-3, atol=1e-4)
        assert control[name].abs().max() > 1e-3


def test_a_first_control_variate_is_the_mean_gradient(tmp_path):
    """Option II with one step: c_i = (x - y_i) / eta, and c their mean."""
    begun = initial_model(experiment("scaffold"))[0]
    last = weights(run(tmp_path / "run", "scaffold", rounds=1))
    for name in ("classifier.weight", "features.0.bias"):
        key = f"control.{name.replace('.', '-')}"
        torch.testing.assert_close(
            last[key], (begun[name] - last[name]) / RATE, rtol=1e-3, atol=1e-5
        )
        assert last[key].abs().max() > 1e-3


@pytest.mark.parametrize(
    "wrong",
    [
        {"momentum": 0.9},
        {"optimizer": "adam"},
        {"weight_decay": 0.1},
        {"schedule": "cosine"},
        {"round_warm_up": 0.1},
    ],
)
def test_what_option_ii_cannot_undo_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        settings_of("scaffold", wrong)


def test_the_control_variate_does_not_go_up(tmp_path):
    folder = run(tmp_path / "run", "scaffold", rounds=2)
    rows_ = rows(folder, "bytes")
    assert all(row["down"] > 1.9 * row["up"] for row in rows_ if row["up"] > 5000)
    with pytest.raises(ConfigError, match="each site's steps"):
        tiny(
            "scaffold", secure_aggregation=True, options={"participants": 2, "learning_rate": RATE}
        )


def test_its_model_can_be_loaded(tmp_path):
    folder = run(tmp_path / "run", "scaffold", rounds=1)
    model = fedward.load_model(folder)
    assert type(model.net).__name__ == "TwoLayers"
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, len(model.classes))


@pytest.mark.simulator
@pytest.mark.slow
def test_the_simulator_equals_the_in_process_engine(tmp_path, installed, monkeypatch):
    spec = experiment("scaffold", steps=2, rounds=2)
    export_job(spec, tmp_path / "job", sites=SITES)
    (config,) = (tmp_path / "job").glob("*/config/config_fed_server.json")
    (workflow,) = json.loads(config.read_text())["workflows"]
    assert workflow["path"] == METHOD_CONTROLLER
    assert workflow["args"]["method"] == "scaffold"
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = start(tmp_path / "job", tmp_path / "workspace", PYTHONPATH=path)
    local = run(tmp_path / "local", "scaffold", steps=2, rounds=2)
    said = process.wait()
    results = tmp_path / "workspace" / "server" / "simulate_job" / "fedward"
    log = (tmp_path / "workspace.log").read_text()
    assert said == 0, log[-2000:]
    assert str(results) in log
    assert_same_run(results, local)


def test_its_job_for_hospitals_says_which_rules_they_have_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["jobs", str(tmp_path), "--only", "scaffold", "--clinical", "--set", "net=two_layers"]
    assert cli.main(command) == 0
    exported = tmp_path / "scaffold" / "app" / "config" / "config_fed_server.json"
    assert '"clip_gradient": null' in exported.read_text()
    warnings = capsys.readouterr().err
    assert "sites with the default policy refuse it; maximum_clip: " in warnings
    assert "the job says clip_gradient=null" in warnings
    assert "sites with the default policy refuse it; extensions: " in warnings


def test_its_lines_are_those_of_a_kits_policy_and_admit_the_job(tmp_path):
    page = TUTORIAL.with_suffix(".md").read_text()
    lines = page[page.index("```yaml\n") :].splitlines()[1:3]
    policy = (Path(places.__file__).parent / "kits" / "templates" / POLICY_FILE).read_text()
    for line in lines:
        rule = line.split(":")[0]
        (delivered,) = re.findall(rf"^{rule}:.*$", policy, re.M)
        policy = policy.replace(delivered, line)
    file = tmp_path / POLICY_FILE
    file.write_text(policy)
    job = load_experiment("scaffold", ["net=two_layers"], clinical=True)
    rules = applied_rules(read_policy(file), job, job_of(job), Circumstances())
    assert [rule.name for rule in rules if not rule.kept] == []
    assert [rule.name for rule in refused_by_default(job, job_of(job))] == [
        "extensions",
        "maximum_clip",
    ]
