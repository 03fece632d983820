"""Recipes: the files of an exported job, in FLARE's environments, and the scripts ``job.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvflare.fuel.utils.class_loader import load_class
from nvflare.recipe import PocEnv, ProdEnv, SimEnv, add_experiment_tracking
from simulator import SITES, assert_same_run

from fedward.errors import ConfigError, RunError
from fedward.flare.jobs import recipes
from fedward.flare.jobs.configurations import receiver
from fedward.flare.jobs.export import job_files
from fedward.flare.jobs.recipes import FedwardRecipe, environment, execute, parse_arguments
from fedward.jobs import JOBS, load_experiment, simulated_sites
from run_files import rows
from running import run_local
from tiny import tiny

SHIPPED = Path(__file__).parents[2] / "jobs"
SMALL = [
    "rounds=2",
    "synthetic.sites=3",
    "synthetic.images=40",
    "images_per_round=16",
    "evaluate_every=1",
]


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def chosen(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["job.py", *arguments])
    return parse_arguments()


ADMIN = {
    **{
        "username": "lead@hospital-a.org",
        "project_name": "fedward",
        "server_identity": "localhost",
    },
    **{"host": "localhost", "port": 8003, "scheme": "grpc"},
}


@pytest.fixture
def kit(tmp_path):
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "fed_admin.json").write_text(json.dumps({"admin": ADMIN}))
    return tmp_path / "kit"


@pytest.mark.parametrize("name", JOBS)
def test_every_shipped_job_has_a_script_outside_its_recipe(tmp_path, name):
    FedwardRecipe(JOBS[name](), name).export(str(tmp_path))
    shipped = files_of(SHIPPED / name)
    compile(shipped.pop("job.py"), "job.py", "exec")
    assert files_of(tmp_path / name) == shipped


def test_a_running_federation_gets_the_clinical_flavour(tmp_path, kit):
    FedwardRecipe(tiny(), "job").export(str(tmp_path), env=ProdEnv(str(kit)))
    assert files_of(tmp_path / "job") == job_files(tiny(), "job", clinical=True)
    with pytest.raises(ConfigError, match="admits no other receiver"):
        FedwardRecipe(tiny(), "job", "mlflow").export(str(tmp_path), env=ProdEnv(str(kit)))


def test_parts_that_flares_helpers_add_are_refused_and_not_lost(tmp_path):
    recipe = FedwardRecipe(tiny(), "job")
    with pytest.raises(
        ConfigError, match="expected the parts of a job as `fedward jobs` writes them"
    ):
        add_experiment_tracking(recipe, "tensorboard")
    with pytest.raises(ConfigError, match="for server"):
        recipe.add_server_config({"heart_beat_timeout": 1})


def test_the_command_line_chooses_the_environment(monkeypatch, kit):
    simulated = environment(chosen(monkeypatch), simulated_sites(JOBS["isofed"]()))
    assert isinstance(simulated, SimEnv)
    assert simulated.clients == ["site-1", "site-2", "site-3", "site-4"]
    assert simulated.num_threads == 4
    assert not Path(simulated.workspace_root).is_absolute(), (
        "never a folder that others on the machine share"
    )
    local = environment(chosen(monkeypatch, "--poc"), simulated.clients)
    assert isinstance(local, PocEnv)
    assert local.clients == simulated.clients
    running = environment(chosen(monkeypatch, "--kit", str(kit)), simulated.clients)
    assert isinstance(running, ProdEnv)
    assert running.username == "lead@hospital-a.org"
    for wrong in (["--poc", "--kit", str(kit)], ["--tracking", "mail"]):
        with pytest.raises(SystemExit):
            chosen(monkeypatch, *wrong)


def test_site_files_give_a_script_its_classes_and_its_sites(monkeypatch, tmp_path):
    (tmp_path / "data.json").write_text('{"classes": ["a", "b"]}')
    environments = []

    def carry_out(recipe, env):
        recipe.export(str(tmp_path / "jobs"), env=env)
        environments.append(env)
        return tmp_path

    monkeypatch.setattr(recipes, "execute", carry_out)
    monkeypatch.setattr(sys, "argv", ["job.py", "--site-files", str(tmp_path), "--set", "rounds=1"])
    monkeypatch.setenv("FEDWARD_SITES", "")
    opened = []
    recipes.main("fedavg", lambda *given: opened.append(given) or ["north", "south"])
    ((experiment, folder),) = opened
    assert (experiment.data.classes, folder) == (("a", "b"), tmp_path)
    assert os.environ["FEDWARD_SITES"] == str(tmp_path)
    assert environments[0].clients == ["north", "south"]
    exported = files_of(tmp_path / "jobs" / "fedavg")
    assert exported == job_files(experiment, "fedavg", sites=["north", "south"])


def test_what_was_started_is_stopped_whatever_happens(monkeypatch, tmp_path):
    env = SimEnv(num_clients=1, workspace_root=str(tmp_path))
    stopped = []
    monkeypatch.setattr(env, "stop", lambda: stopped.append(1))
    monkeypatch.setattr(SimEnv, "deploy", lambda *_: "job")
    with pytest.raises(RunError, match="expected a finished run"):
        execute(FedwardRecipe(tiny(), "job"), env)
    monkeypatch.setattr(SimEnv, "deploy", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        execute(FedwardRecipe(tiny(), "job"), env)
    assert len(stopped) == 2


@pytest.mark.parametrize("tracking", ["tensorboard", "mlflow", "wandb"])
def test_flares_receivers_take_the_arguments(tracking):
    if tracking != "tensorboard":
        pytest.importorskip(tracking)
    part = receiver(tracking, "job")
    built = load_class(part["path"])(**part["args"])
    assert built.events == ["fed.analytix_log_stats"]


@pytest.mark.simulator
@pytest.mark.usefixtures("without_report")
def test_a_script_gives_the_weights_of_the_in_process_engine(tmp_path):
    """With peers in the second round, and all that travels in half of the bytes."""
    assert recipes.WORKSPACE == "simulator_workspace"
    chosen = [*SMALL, "warm_up=1", "committee=2", "threshold=0.0", "update_dtype=float16"]
    changes = [part for change in chosen for part in ("--set", change)]
    script = subprocess.Popen(
        [sys.executable, SHIPPED / "fedperl" / "job.py", *changes],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    local = run_local(load_experiment("fedperl", chosen), tmp_path / "local", sites=SITES)
    said, errors = script.communicate()
    assert script.returncode == 0, errors[-2000:]
    report = Path(said.split()[-1].removeprefix("file://"))
    results = tmp_path / "simulator_workspace" / "fedperl" / "server" / "simulate_job"
    assert report == results / "fedward" / "report.html"
    assert report.is_file()
    assert_same_run(report.parent, local)
    assert [row["round"] for row in rows(report.parent, "peers")] == [2]
    assert json.loads((report.parent / "run.json").read_text())["engine"] == "simulator"
    assert sorted(path.name for path in (report.parents[1] / "tb_events").iterdir()) == SITES
