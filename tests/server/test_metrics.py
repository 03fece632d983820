"""The metrics for Prometheus: what the file says, and that it cannot end a run."""

import logging
import os
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedward.errors import ConfigError
from fedward.lab.local import LocalTransport, Sites
from fedward.server.job_metrics import JobMetrics
from fedward.server.run_status import progress
from finished_run import new_run
from running import run_experiment
from tiny import tiny

SITES = ["site-1", "site-9"]


def samples(path: Path) -> dict[tuple[str, ...], float]:
    """Return (name, labels but the job's, sorted by name) -> value."""
    values = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("job_name") == "my job"
            assert labels.pop("job_id") == "1-a"
            labels = [value for _, value in sorted(labels.items())]
            values[(sample.name, *labels)] = sample.value
    return values


def test_every_commit_and_the_end_write_the_progress(tmp_path, monkeypatch):
    monkeypatch.setattr("fedward.lab.simulation.write_report", lambda path: None)
    (tmp_path / "metrics").mkdir()
    metrics = JobMetrics(tmp_path / "metrics", "my job", "1-a")
    seen = []

    def watch(folder: Path) -> None:
        metrics(folder)
        values = samples(metrics.path)
        seen.append(
            (
                values["fedward_round",],
                values["fedward_status", "running"],
                values["fedward_status", "finished"],
            )
        )

    experiment = tiny("ssfl", options={"rounds": 2})
    transport = LocalTransport(Sites(experiment, tmp_path / "sites"), SITES)
    folder = run_experiment(experiment, tmp_path / "run", transport, watch=watch)
    assert seen == [
        (0, 1, 0),
        (0, 1, 0),
        (1, 1, 0),
        (2, 1, 0),
        (2, 0, 1),
    ]  # started, three commits, the end

    state = progress(folder)
    values = samples(metrics.path)
    assert values == {
        ("fedward_round",): 2,
        ("fedward_rounds_planned",): 2,
        ("fedward_status", "running"): 0,
        ("fedward_status", "finished"): 1,
        ("fedward_status", "failed"): 0,
        ("fedward_status", "stopped"): 0,
        ("fedward_sites", "asked"): 2,
        ("fedward_sites", "replied"): 2,
        ("fedward_sites", "failed"): 0,
        ("fedward_site_replied", "site-1"): 1,
        ("fedward_site_replied", "site-9"): 1,
        ("fedward_exchange_seconds",): state["exchange"]["seconds"],
        ("fedward_validation", "accuracy", "best"): state["best"]["value"],
        ("fedward_validation", "accuracy", "last"): state["last"]["value"],
        ("fedward_bytes_down_total",): state["bytes_down"],
        ("fedward_bytes_up_total",): state["bytes_up"],
        ("fedward_last_commit_timestamp_seconds",): datetime.fromisoformat(
            state["committed"]
        ).timestamp(),
    }
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == [
        "fedward_job_my_job_1-a.prom"
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path / "run", tiny(), SITES, "local").path


def test_another_account_reads_the_file_whatever_the_umask(tmp_path, run):
    before = os.umask(0o077)
    try:
        metrics = JobMetrics(tmp_path, "my job", "1-a")
        metrics(run)
    finally:
        os.umask(before)
    assert metrics.path.stat().st_mode & 0o777 == 0o644


def test_jobs_of_one_name_have_files_of_their_own(tmp_path, run):
    for job_id in ("1", "2"):
        JobMetrics(tmp_path, "my job", job_id)(run)
    assert len(list(tmp_path.glob("*.prom"))) == 2


def test_the_files_of_old_jobs_are_removed_and_nothing_else(tmp_path, run):
    month_ago = time.time() - 31 * 24 * 3600
    old = JobMetrics(tmp_path, "my job", "1")
    old(run)
    (tmp_path / "fedward_kit_hospital-a.prom").write_text("")
    (tmp_path / "others.prom").write_text("")
    for file in tmp_path.glob("*.prom"):
        os.utime(file, (month_ago, month_ago))
    JobMetrics(tmp_path, "my job", "2")
    assert sorted(file.name for file in tmp_path.glob("*.prom")) == [
        "fedward_kit_hospital-a.prom",
        "others.prom",
    ]


def test_what_cannot_be_removed_ends_nothing(tmp_path, run):
    month_ago = time.time() - 31 * 24 * 3600
    for job_id in ("1", "3"):
        JobMetrics(tmp_path, "my job", job_id)(run)
    (tmp_path / "fedward_job_my_job_2.prom").mkdir()
    for file in tmp_path.glob("*.prom"):
        os.utime(file, (month_ago, month_ago))
    JobMetrics(tmp_path, "my job", "4")
    assert [file.name for file in tmp_path.glob("*.prom")] == ["fedward_job_my_job_2.prom"]


def test_the_runs_folder_is_not_searched_after_each_round(tmp_path, run, monkeypatch):
    """A run of a thousand sites has tens of thousands of files."""

    def search(folder: Path) -> None:
        raise AssertionError("the folder is searched")

    monkeypatch.setattr("fedward.storage.info.require_plain_files", search)
    metrics = JobMetrics(tmp_path, "my job", "1-a")
    metrics(run)
    assert samples(metrics.path)["fedward_round",] is not None


@pytest.mark.proves(
    "files",
    "a link in place of a file of metrics",
    "replaced; its target stays",
)
def test_a_link_in_the_folder_is_replaced_and_not_followed(tmp_path, run):
    metrics = JobMetrics(tmp_path, "my job", "1-a")
    target = tmp_path / "target"
    target.write_text("mine")
    metrics.path.symlink_to(target)
    metrics(run)
    assert target.read_text() == "mine"
    assert not metrics.path.is_symlink()


@pytest.mark.proves(
    "lead",
    "a job's name that adds samples to the metrics",
    "one label's text",
)
def test_a_jobs_name_cannot_add_samples(tmp_path, run):
    name = 'x"} 1\nfedward_epsilon{site="hospital-a'
    metrics = JobMetrics(tmp_path, name, "1-a")
    metrics(run)
    families = list(text_string_to_metric_families(metrics.path.read_text()))
    assert {sample.labels["job_name"] for family in families for sample in family.samples} == {name}
    assert "fedward_epsilon" not in {family.name for family in families}


@pytest.mark.parametrize("job", ["../up", "a/b", "a b", "ä"])
def test_a_jobs_name_cannot_lead_out_of_the_folder(tmp_path, job):
    path = JobMetrics(tmp_path, job, "1-a").path
    assert path.parent == tmp_path
    assert path.name.isascii()


def test_a_run_that_has_just_begun_has_few_samples(tmp_path, run):
    metrics = JobMetrics(tmp_path, "my job", "1-a")
    metrics(run)
    values = samples(metrics.path)
    assert values["fedward_round",] == 0
    assert not [
        name
        for name, *_ in values
        if "validation" in name or "exchange" in name or "commit" in name
    ]


def test_what_cannot_be_written_is_said_and_ends_nothing(tmp_path, caplog):
    metrics = JobMetrics(tmp_path, "job", "1-a")
    with caplog.at_level(logging.WARNING):
        metrics(tmp_path / "no-run")
    assert f"metrics {metrics.path} are not written" in caplog.text
    assert not metrics.path.exists()


def test_a_folder_that_is_none_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match="FEDWARD_METRICS"):
        JobMetrics(tmp_path / "none", "job", "1-a")


def test_a_missing_library_is_named_with_its_install_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedward\[monitoring\]'"):
        JobMetrics(tmp_path, "job", "1-a")
