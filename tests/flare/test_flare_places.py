"""Where the server writes and where a site looks."""

import json
from pathlib import Path

import pytest
from nvflare.apis.workspace import Workspace

from fedward.errors import ConfigError
from fedward.flare.places import (
    put_into_results,
    results_folder,
    run_folder,
    site_folders,
    state_folder,
)

JOB = {"name": "fedperl", "submitter_name": "lead@a.org"}
SIMULATED = {"name": "fedperl"}
ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    for variable in ("FEDWARD_RUNS", "FEDWARD_SITES", "FEDWARD_STATE"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "local").mkdir()
    (tmp_path / "startup").mkdir()
    return Workspace(str(tmp_path))


def test_by_default_everything_lies_in_flares_own_folders(workspace, tmp_path):
    assert site_folders(workspace) == [tmp_path / "local"]
    assert state_folder(Path(workspace.get_root_dir())) == tmp_path / "fedward"
    runs = tmp_path / "fedward" / "runs"
    assert run_folder(workspace, "job-id", JOB) == runs / "lead@a.org" / "job-id"


def test_named_folders_come_on_top(workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDWARD_RUNS", "/data/runs")
    sites = tmp_path / "sites"
    sites.mkdir()
    (sites / "site-1.yaml").touch()
    monkeypatch.setenv("FEDWARD_SITES", str(sites))
    assert site_folders(workspace) == [tmp_path / "local", sites]
    assert run_folder(workspace, "job-id", JOB) == Path("/data/runs/lead@a.org/fedperl")


@pytest.mark.proves(
    "lead",
    "jobs in containers of their own, where the privacy budget would begin again",
    "refused until the site mounts a folder that stays",
)
@pytest.mark.parametrize("launcher", ["docker_launcher", "k8s_launcher"])
def test_state_is_not_lost_with_a_jobs_container(workspace, tmp_path, monkeypatch, launcher):
    resources = tmp_path / "local" / "resources.json.default"
    resources.write_text(json.dumps({"components": [{"id": "resource_manager"}, {"id": launcher}]}))
    with pytest.raises(ConfigError, match="FEDWARD_STATE"):
        state_folder(Path(workspace.get_root_dir()))
    monkeypatch.setenv("FEDWARD_STATE", "/data/default/state")
    assert state_folder(Path(workspace.get_root_dir())) == Path("/data/default/state")
    assert run_folder(workspace, "job-id", JOB) == Path(
        "/data/default/state/runs/lead@a.org/job-id"
    )


def test_a_process_launcher_keeps_state_in_the_kit(workspace, tmp_path):
    (tmp_path / "local" / "resources.json").write_text(
        json.dumps({"components": [{"id": "process_launcher"}]})
    )
    (tmp_path / "local" / "resources.json.default").write_text(
        json.dumps({"components": [{"id": "k8s_launcher"}]})
    )
    assert state_folder(Path(workspace.get_root_dir())) == tmp_path / "fedward"


def test_a_simulated_run_lies_in_results_or_a_named_folder(workspace, tmp_path, monkeypatch):
    assert run_folder(workspace, "simulate_job", SIMULATED) == tmp_path / "simulate_job" / "fedward"
    monkeypatch.setenv("FEDWARD_RUNS", "/data/runs")
    assert run_folder(workspace, "simulate_job", SIMULATED) == Path("/data/runs/fedperl")


@pytest.mark.parametrize("runs", ["", "/data/runs"])
@pytest.mark.parametrize("run", [None, ID])
def test_a_servers_run_lies_outside_results_and_others_folders(workspace, monkeypatch, runs, run):
    monkeypatch.setenv("FEDWARD_RUNS", runs)
    folders = {
        lead: run_folder(workspace, ID, named(run, lead)) for lead in ("lead@a.org", "lead@b.org")
    }
    for lead, folder in folders.items():
        assert folder.parent.name == lead
        assert not folder.is_relative_to(workspace.get_run_dir(ID))
    disguised = run_folder(workspace, ID, {**named(run, "lead@b.org"), "name": "lead@a.org"})
    assert folders["lead@a.org"].parent not in (disguised, *disguised.parents)
    with pytest.raises(ConfigError, match="job's submitter"):
        run_folder(workspace, ID, SIMULATED)


def test_a_folder_without_site_files_is_refused(workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDWARD_SITES", str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="absent: expected a folder with a file"):
        site_folders(workspace)


@pytest.mark.parametrize("variable", ["FEDWARD_RUNS", "FEDWARD_SITES"])
def test_a_relative_folder_is_refused(workspace, monkeypatch, variable):
    monkeypatch.setenv(variable, "runs")
    with pytest.raises(ConfigError, match=variable):
        site_folders(workspace), run_folder(workspace, "job-id", JOB)


def named(run: object, submitter: object = "lead@a.org") -> dict:
    return {
        **JOB,
        "submitter_name": submitter,
        "custom_props": {"fedward_run": run} if run is not None else {},
    }


def test_a_run_with_a_name_belongs_to_who_began_it(workspace, tmp_path, monkeypatch):
    runs = tmp_path / "fedward" / "runs"
    assert run_folder(workspace, "job-id", named(ID)) == runs / "lead@a.org" / ID
    assert run_folder(workspace, "another", named(ID)) == runs / "lead@a.org" / ID
    assert run_folder(workspace, "job-id", named(ID, "lead@b.org")) == runs / "lead@b.org" / ID
    monkeypatch.setenv("FEDWARD_RUNS", "/data/runs")
    assert run_folder(workspace, "job-id", named(ID)) == Path("/data/runs/lead@a.org") / ID


@pytest.mark.proves("lead", "a run id or name that leads out of the folder", "refused")
@pytest.mark.parametrize("bad", ["..", "../x", "/etc", "", ".hidden", "a/b", 7, None])
def test_a_name_that_could_lead_out_of_the_folder_is_refused(workspace, monkeypatch, bad):
    with pytest.raises(ConfigError, match="job's submitter"):
        run_folder(workspace, "job-id", named(ID, bad))
    if bad is not None:
        with pytest.raises(ConfigError, match="job's run"):
            run_folder(workspace, "job-id", named(bad))
    monkeypatch.setenv("FEDWARD_RUNS", "/data/runs")
    with pytest.raises(ConfigError, match="job's name"):
        run_folder(workspace, "job-id", {**JOB, "name": bad})


def test_results_hold_a_run_without_what_only_continues_it(workspace, tmp_path):
    run = tmp_path / "run"
    results = results_folder(workspace, "job-id")
    for file in (
        "run.json",
        "model.safetensors",
        "models/site-1/00001.safetensors",
        "rounds/00001/state.json",
    ):
        (run / file).parent.mkdir(parents=True, exist_ok=True)
        (run / file).write_text(file)
    put_into_results(run, results)
    put_into_results(run, results)
    put_into_results(results, results)
    assert sorted(path.relative_to(results).as_posix() for path in results.rglob("*")) == [
        "model.safetensors",
        "run.json",
    ]
