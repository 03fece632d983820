"""The server's half of a job without FLARE's network: its run folder, and what is downloaded."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace
from nvflare.fuel.utils.class_loader import load_class
from nvflare.tool.job.job_cli import _discover_job_download_artifacts

from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.flare import controller as module
from fedward.flare.jobs.configurations import controller as controller_of
from fedward.flare.places import new_run, results_folder
from fedward.flare.workflows import MethodController
from fedward.lab.local import LocalTransport, Sites
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from isolated import write_sites
from tiny import tiny

SITES = ["site-1", "site-2", "site-3"]
EXPERIMENT = tiny(options={"rounds": 2})
OTHER = tiny("fedavg", options={"rounds": 1})
LEAD = "lead@a.org"
OTHER_LEAD = "lead@b.org"
RUN = "0123456789abcdef0123456789abcdef"


class Stopped(LocalTransport):
    """The in-process engine, which is stopped in the second round."""

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        if any(request.meta["round"] == 2 for request in requests.values()):
            raise RunError(
                "job", expected="to run to its end", found="an abort", remedy="Resume it."
            )
        super().exchange(requests, timeout, deliver)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for variable in ("FEDWARD_RUNS", "FEDWARD_SITES", "FEDWARD_METRICS"):
        monkeypatch.delenv(variable, raising=False)
    for name in ("local", "startup"):
        (tmp_path / "server" / name).mkdir(parents=True)
    return Workspace(str(tmp_path / "server"))


@pytest.fixture
def run(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Run a job in this process, without its report; return the run folder in what FLARE archives
    of it.
    """
    monkeypatch.setattr(module, "write_report", lambda folder: None)

    def call(
        job_id: str, experiment: Experiment = EXPERIMENT, engine: type = LocalTransport, **job: Any
    ) -> Path:
        path, arguments = controller_of(experiment)
        controller = load_class(path)(**arguments)
        sites = engine(Sites(controller.experiment, tmp_path / "sites"), SITES)
        monkeypatch.setattr(module, "FlareTransport", lambda _: sites)
        controller.engine = SimpleNamespace(
            get_workspace=lambda: workspace, get_component=lambda name: None
        )
        controller.fl_ctx = FLContext()
        controller.fl_ctx.set_prop(ReservedKey.RUN_NUM, job_id)
        controller.fl_ctx.set_prop(FLContextKey.JOB_META, {"name": "fedperl", **job})
        controller.carry_out()
        return results_folder(workspace, job_id)

    return call


def status(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["status"])


@pytest.mark.parametrize(
    ("kept", "props"),
    [("server/fedward/runs", {"custom_props": {"fedward_run": RUN}}), ("runs", {})],
)
def test_results_of_a_stopped_job_hold_no_sites_model(
    run, workspace, tmp_path, monkeypatch, kept, props
):
    if kept == "runs":
        monkeypatch.setenv("FEDWARD_RUNS", str(tmp_path / "runs"))
    with pytest.raises(RunError, match="an abort"):
        run("job-1", engine=Stopped, submitter_name=LEAD, **props)
    results = results_folder(workspace, "job-1")
    assert status(results) == "failed"
    files_of_results = Path(workspace.get_run_dir("job-1")).rglob("*")
    assert not [path for path in files_of_results if "models" in path.parts]
    models_to_continue_from = (tmp_path / kept / LEAD).glob("*/models/*/*.safetensors")
    assert list(models_to_continue_from)


def test_a_job_sent_again_continues_the_run_of_its_name(run, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDWARD_RUNS", str(tmp_path / "runs"))
    with pytest.raises(RunError, match="an abort"):
        run("job-1", engine=Stopped, submitter_name=LEAD)
    again = run("job-2", submitter_name=LEAD)
    audit = [json.loads(line) for line in (again / "audit.jsonl").read_text().splitlines()]
    assert [row["details"]["round"] for row in audit if row["event"] == "resumed"] == [1]
    assert status(run("job-3", submitter_name=LEAD)) == status(again) == "finished"


def test_jobs_of_one_name_are_separate_runs(run):
    infos = [
        json.loads((run(job, OTHER, submitter_name=LEAD) / "run.json").read_text())
        for job in ("a", "b")
    ]
    assert infos[0]["id"] != infos[1]["id"]
    assert infos[0]["job"] == infos[1]["job"] == "fedperl"


def test_a_run_a_job_may_not_continue_is_not_in_its_results(run, workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDWARD_RUNS", str(tmp_path / "runs"))
    run("job-1", submitter_name=LEAD)
    with pytest.raises(RunError, match="other settings"):
        run("job-2", OTHER, submitter_name=LEAD)
    (reason,) = results_folder(workspace, "job-2").iterdir()
    assert reason.name == "error.txt"
    assert "found other settings" in reason.read_text()


def test_a_job_that_cannot_begin_tells_its_sender_why(run, workspace, tmp_path, monkeypatch):
    """Whatever is wrong: here the server's folder of metrics, and then the run's name."""
    monkeypatch.setenv("FEDWARD_METRICS", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="folder of metrics"):
        run("job-1", submitter_name=LEAD)
    monkeypatch.delenv("FEDWARD_METRICS")
    with pytest.raises(ConfigError):
        run("job-2", submitter_name=LEAD, custom_props={"fedward_run": "../other"})
    for job, text in (("job-1", "the folder of metrics"), ("job-2", "job's run")):
        assert text in (results_folder(workspace, job) / "error.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"method": "scaffold"}, "found 'scaffold'. Name one of them, or install the package"),
        ({"method": "fedavg", "of_a_later_version": 1}, "of_a_later_version: unknown"),
    ],
)
def test_a_controller_that_cannot_be_made_tells_its_sender_why(workspace, arguments, text):
    """A method of a package that the server lacks, or a setting of another version of fedward."""
    controller = MethodController(**arguments)
    controller.engine = SimpleNamespace(get_workspace=lambda: workspace)
    controller.fl_ctx = FLContext()
    controller.fl_ctx.set_prop(ReservedKey.RUN_NUM, "job-1")
    with pytest.raises(ConfigError):
        controller.carry_out()
    assert text in (results_folder(workspace, "job-1") / "error.txt").read_text()
    assert controller.folder is None


def test_a_run_has_the_id_that_its_sender_gave_it(run):
    name = new_run(LEAD)
    folder = run("job-1", submitter_name=LEAD, custom_props={"fedward_run": name})
    assert json.loads((folder / "run.json").read_text())["id"] == name
    assert new_run(LEAD) != name


@pytest.mark.proves(
    "lead",
    "another lead's run, or its id",
    "not read: the server gives the run an id of its own",
)
@pytest.mark.parametrize(
    "name", [RUN, new_run(OTHER_LEAD), new_run(LEAD)[:16] + RUN[16:]], ids="abc"
)
def test_nobody_gives_a_run_the_id_of_another_ones(run, name):
    folder = run("job-1", submitter_name=LEAD, custom_props={"fedward_run": name})
    assert json.loads((folder / "run.json").read_text())["id"] != name


@pytest.mark.parametrize("name", ["fedperl", LEAD])
def test_a_lead_gets_nothing_of_another_leads_run(run, tmp_path, monkeypatch, name):
    monkeypatch.setenv("FEDWARD_RUNS", str(tmp_path / "runs"))
    first = [
        run("job-1", submitter_name=LEAD),
        run("job-2", submitter_name=LEAD, custom_props={"fedward_run": RUN}),
    ]
    ids = [json.loads((folder / "run.json").read_text())["id"].encode() for folder in first]
    results = run("job-3", OTHER, submitter_name=OTHER_LEAD, name=name)
    assert status(results) == "finished"
    files = [path.read_bytes() for path in results.rglob("*") if path.is_file()]
    assert not [content for content in files if any(run_id in content for run_id in ids)]


def test_a_simulated_run_lies_in_its_results(run, workspace):
    with pytest.raises(RunError, match="an abort"):
        run("simulate_job", engine=Stopped)
    assert status(results_folder(workspace, "simulate_job")) == "failed"
    assert not (Path(workspace.get_root_dir()) / "fedward").exists()


def test_site_files_that_do_not_fit_a_simulated_job_are_refused_before_round_1(
    run, workspace, tmp_path, monkeypatch
):
    sites = tmp_path / "files"
    write_sites(sites)
    (sites / "site-3.yaml").unlink()
    monkeypatch.setenv("FEDWARD_SITES", str(sites))
    with pytest.raises(ConfigError) as refused:
        run("simulate_job")
    problem = "site-1, field labels: expected classes of the job"
    assert f"Job fedperl does not fit the site files of FEDWARD_SITES, {sites}: {problem}" in str(
        refused.value
    )
    assert f"`fedward jobs own --only fedperl --site-files {sites}`" in str(refused.value)
    (reason,) = results_folder(workspace, "simulate_job").iterdir()
    assert reason.name == "error.txt", "no run began"


def test_flares_tools_find_metrics_and_model_in_the_results(run, workspace):
    """The function behind ``nvflare job download`` reads them, in the form that FLARE writes."""
    results = run("job-1", submitter_name=LEAD)
    found, missing = _discover_job_download_artifacts(workspace.get_run_dir("job-1"))
    assert missing == ["client_logs"], "there is no client"
    assert Path(found["global_model"]) == results / "model.safetensors"
    summary = json.loads(Path(found["metrics_summary"]).read_text())
    rounds = [json.loads(line) for line in Path(found["round_metrics"]).read_text().splitlines()]
    assert [row["round"] for row in rounds] == [0, 1, 2]
    assert summary["final_round"] == 2
    assert summary["final_aggregated_metrics"] == rounds[-1]["aggregated_metrics"]
    rows = [json.loads(line) for line in (results / "metrics.jsonl").read_text().splitlines()]
    values = [
        row["value"]
        for row in rows
        if (row["round"], row["split"], row["name"]) == (1, "val", "accuracy")
    ]
    told = {metric["name"]: metric["value"] for metric in rounds[1]["aggregated_metrics"]}
    assert told["val/accuracy"] == pytest.approx(fmean(values))
    assert not [name for name in told if name.startswith("train/") or name.count("/") > 1]
    assert [site["name"] for site in rounds[1]["sites"]] == SITES


def test_a_job_that_is_stopped_has_metrics_but_no_model(run, workspace):
    with pytest.raises(RunError, match="an abort"):
        run("job-1", engine=Stopped, submitter_name=LEAD)
    found, missing = _discover_job_download_artifacts(workspace.get_run_dir("job-1"))
    assert "global_model" in missing
    assert "metrics_summary" in found


def test_metrics_of_a_run_are_written(run, tmp_path, monkeypatch):
    pytest.importorskip("prometheus_client")
    monkeypatch.setenv("FEDWARD_METRICS", str(tmp_path))
    run("job-1", OTHER, submitter_name=LEAD)
    assert 'status="finished"} 1.0' in (tmp_path / "fedward_job_fedperl_job-1.prom").read_text()
