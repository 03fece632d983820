"""Exported jobs: the same bytes every time, what FLARE accepts, and nothing stale in the repository."""

import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator

from fedward.config import Experiment
from fedward.federation.flare.jobs import export_job, job_files, stale_jobs
from fedward.federation.flare.shareables import TASK
from fedward.jobs import JOBS, site_names
from tiny import tiny

SHIPPED = Path(__file__).parents[3] / "jobs"


def configs(files):
    return [json.loads(files[f"app/config/config_fed_{side}.json"]) for side in ("server", "client")]


def test_the_shipped_jobs_are_fresh():
    assert stale_jobs(SHIPPED) == []


def test_exports_are_the_same_bytes_every_time(tmp_path):
    for folder in ("one", "two"):
        export_job(tiny(), tmp_path / folder / "job")
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / f).rglob("*") if p.is_file()} for f in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("clinical", [False, True])
def test_server_and_sites_get_the_experiment_that_was_exported(clinical):
    experiment = tiny("ssfl", stand_in=None) if clinical else tiny("ssfl")
    server, client = configs(job_files(experiment, "job", clinical))
    for component in (server["workflows"][0], client["executors"][0]["executor"]):
        assert Experiment.parse(component["args"]["experiment"], "test") == experiment
    assert client["executors"][0]["tasks"] == [TASK]
    assert next(iter(server)) == next(iter(client)) == "format_version"


def test_a_clinical_job_has_no_code_no_stand_in_data_and_a_scope(tmp_path):
    export_job(tiny(), tmp_path / "job")
    export_job(tiny(), tmp_path / "job", clinical=True)
    assert not [path for path in (tmp_path / "job" / "app" / "custom").rglob("*") if path.is_file()]
    meta = json.loads((tmp_path / "job" / "meta.json").read_text())
    assert (meta["scope"], meta["deploy_map"]) == ("clinical", {"app": ["@ALL"]})
    server, _ = configs(job_files(tiny(), "job", clinical=True))
    assert server["workflows"][0]["args"]["experiment"]["stand_in"] is None


def test_a_research_job_names_its_ten_sites():
    meta = json.loads(job_files(tiny(), "job")["meta.json"])
    assert meta["deploy_map"] == {"app": ["server", *site_names(10)]}


@pytest.mark.parametrize("clinical", [False, True])
def test_flare_accepts_the_job_and_knows_whether_it_has_code(tmp_path, clinical):
    export_job(tiny(), tmp_path / "job", clinical)
    valid, error, meta = JobMetaValidator().validate("job", zip_directory_to_bytes(str(tmp_path), "job"))
    assert valid, error
    assert bool(meta.get("byoc")) is not clinical


def test_every_class_a_job_names_exists_and_takes_its_arguments():
    server, client = configs(job_files(tiny(), "job"))
    parts = [*server["workflows"], *server["components"], client["executors"][0]["executor"], *client["components"]]
    for part in parts:
        module, name = part["path"].rsplit(".", 1)
        getattr(import_module(module), name)(**part["args"])


def test_stale_foreign_and_missing_jobs_are_named(tmp_path):
    for name, experiment in JOBS.items():
        export_job(experiment, tmp_path / name)
    (tmp_path / "fedavg" / ".__nvfl_sig.json").write_text("{}")  # left where FLARE signed a submitted job
    assert stale_jobs(tmp_path) == []
    config = tmp_path / "fedperl" / "app" / "config" / "config_fed_server.json"
    config.write_text(config.read_text().replace("0.1", "0.2"))
    (tmp_path / "ssfl" / "note.txt").write_text("by hand")
    shutil.rmtree(tmp_path / "fedavg_full")
    (tmp_path / "mine").mkdir()
    assert stale_jobs(tmp_path) == ["fedavg_full", "fedperl", "mine", "ssfl"]
    assert stale_jobs(tmp_path / "nowhere") == sorted(JOBS)
