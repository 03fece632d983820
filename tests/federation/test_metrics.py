"""The metrics for Prometheus: what the file says, and that it cannot end a run."""

import logging
import sys
from datetime import datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedward.errors import ConfigError
from fedward.federation.driver import run_experiment
from fedward.federation.local import LocalTransport
from fedward.federation.metrics import MetricsFile
from fedward.federation.progress import progress
from fedward.federation.run_folder import RunFolder
from tiny import tiny

SITES = ["site-1", "site-9"]


def samples(path: Path) -> dict[tuple[str, ...], float]:
    """Return (name, labels but the job's, sorted by name) -> value."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            assert sample.labels["job_name"] == "my job"
            labels = [value for name, value in sorted(sample.labels.items()) if name != "job_name"]
            found[(sample.name, *labels)] = sample.value
    return found


def test_every_commit_and_the_end_write_the_progress(tmp_path, monkeypatch):
    monkeypatch.setattr("fedward.federation.driver.write_report", lambda path: None)
    (tmp_path / "metrics").mkdir()
    metrics, seen = MetricsFile(tmp_path / "metrics", "my job"), []

    def watch(folder: Path) -> None:
        metrics(folder)
        found = samples(metrics.path)
        seen.append((found["fedward_round",], found["fedward_status", "running"], found["fedward_status", "finished"]))

    experiment = tiny("ssfl", options={"rounds": 2})
    transport = LocalTransport(experiment, SITES, tmp_path / "sites")
    folder = run_experiment(experiment, tmp_path / "run", transport, engine="local", watch=watch)
    assert seen == [(0, 1, 0), (0, 1, 0), (1, 1, 0), (2, 1, 0), (2, 0, 1)]  # started, three commits, the end

    state, found = progress(folder), samples(metrics.path)
    assert found == {
        ("fedward_round",): 2,
        ("fedward_rounds_planned",): 2,
        ("fedward_status", "running"): 0,
        ("fedward_status", "finished"): 1,
        ("fedward_status", "failed"): 0,
        ("fedward_sites", "asked"): 2,
        ("fedward_sites", "replied"): 2,
        ("fedward_sites", "failed"): 0,
        ("fedward_exchange_seconds",): state["exchange"]["seconds"],
        ("fedward_validation", "accuracy", "best"): state["best"]["value"],
        ("fedward_validation", "accuracy", "last"): state["last"]["value"],
        ("fedward_bytes_down_total",): state["bytes_down"],
        ("fedward_bytes_up_total",): state["bytes_up"],
        ("fedward_last_commit_timestamp_seconds",): datetime.fromisoformat(state["committed"]).timestamp(),
    }
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["fedward_my_job.prom"]


@pytest.mark.parametrize("job", ["../up", "a/b", "a b", "ä"])
def test_a_jobs_name_cannot_lead_out_of_the_folder(tmp_path, job):
    path = MetricsFile(tmp_path, job).path
    assert path.parent == tmp_path
    assert path.name.isascii()


def test_a_run_that_has_just_begun_has_few_samples(tmp_path):
    folder = RunFolder.create(tmp_path / "run", tiny(), SITES, "local").path
    metrics = MetricsFile(tmp_path, "my job")
    metrics(folder)
    found = samples(metrics.path)
    assert found["fedward_round",] == 0
    assert not [name for name, *_ in found if "validation" in name or "exchange" in name or "commit" in name]


def test_what_cannot_be_written_is_said_and_ends_nothing(tmp_path, caplog):
    metrics = MetricsFile(tmp_path, "job")
    with caplog.at_level(logging.WARNING):
        metrics(tmp_path / "no-run")
    assert f"metrics {metrics.path} are not written" in caplog.text
    assert not metrics.path.exists()


def test_a_folder_that_is_none_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match="FEDWARD_METRICS"):
        MetricsFile(tmp_path / "none", "job")


def test_without_the_library_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedward\[monitoring\]'"):
        MetricsFile(tmp_path, "job")
