"""An ordinary day of a federation: its logs, its metrics, and jobs of FLARE's command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fedward.config import Experiment
from fedward.flare.jobs.configurations import experiment_in
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.status import describe
from fedward.flare.jobs.submit import fetch, session, submit, wait
from local_federation import HOSPITALS, LEAD, SERVER, Federation
from tiny import clinical
from waiting import PATIENCE, appears

pytestmark = pytest.mark.secure
EVERYONE = sorted(HOSPITALS)
ROUNDS = 10
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("everyday")
    (folder / "metrics").mkdir()
    environment = {"OMP_NUM_THREADS": "1", "FEDWARD_METRICS": str(folder / "metrics")}
    with Federation(folder / "federation", image_size=16, environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def metrics(federation: Federation) -> Path:
    return federation.folder.parent / "metrics"


def experiment(rounds: int) -> Experiment:
    return clinical(options={"rounds": rounds})


def scraped(folder: Path) -> Samples:
    """Return all samples of all files, read by Prometheus' own parser; duplicates are refused."""
    samples: Samples = {}
    for file in sorted(folder.glob("*.prom")):
        for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in samples
                samples[key] = sample.value
    return samples


def of(samples: Samples, name: str, **labels: str) -> list[float]:
    """Return the values of a metric whose samples have these labels."""
    wanted_labels = set(labels.items())
    return [
        value
        for (metric, sample_labels), value in samples.items()
        if metric == f"fedward_{name}" and wanted_labels <= set(sample_labels)
    ]


def nvflare(federation: Federation, *words: object) -> subprocess.CompletedProcess[str]:
    """Run FLARE's own command as the lead, with its settings in a folder of the test."""
    command = [sys.executable, "-m", "nvflare.cli", *map(str, words)]
    command += ["--startup-kit", str(federation.kit(LEAD))]
    environment = {**os.environ, "HOME": str(federation.folder.parent)}
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def watched(
    federation: Federation, metrics: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Samples]:
    """The metrics during and after a run, while somebody keeps asking for its progress."""
    folder = tmp_path_factory.mktemp("watched")
    scrapes: list[Samples] = []
    export_job(experiment(ROUNDS), folder / "job", clinical=True)
    with session(federation.kit(LEAD)) as lead:
        job_id = submit(lead, folder / "job", uuid4().hex)

        def ended() -> dict[str, Any] | None:
            describe(lead)
            scrapes.append(scraped(metrics))
            meta = dict(lead.get_job_meta(job_id))
            return meta if str(meta["status"]).startswith("FINISHED") else None

        meta = appears(ended)
        assert meta
        fetch(lead, meta, folder / "out")
    scrapes.append(scraped(metrics))
    return scrapes


@pytest.mark.proves(
    "faults",
    "somebody asks all the time how far a job is",
    "no `error_log.txt` of server, sites or job has a line",
)
def test_a_run_that_goes_well_logs_no_error(federation, watched):
    files = list(federation.folder.rglob("error_log.txt"))
    assert len(files) >= 2 * len(EVERYONE), "one for each participant, and one for each site's job"
    for file in files:
        assert file.read_text() == "", str(file)


def test_the_metrics_of_a_job_follow_it_from_round_to_round(watched):
    during = [
        of(samples, "round")
        for samples in watched
        if 1.0 in of(samples, "status", status="running")
    ]
    counts = [round_ for (round_,) in during]
    assert counts == sorted(counts)
    assert 0 <= counts[0] < counts[-1] <= ROUNDS
    last = watched[-1]
    assert of(last, "round") == of(last, "rounds_planned") == [ROUNDS]
    assert of(last, "status", status="finished") == [1.0]
    assert of(last, "status", status="running") == [0.0]
    assert of(last, "sites", outcome="replied") == [len(EVERYONE)]
    assert sum(of(last, "site_replied")) == len(EVERYONE)


def test_each_participant_tells_of_itself(federation, metrics, watched):
    assert appears(lambda: {file.name for file in metrics.glob("fedward_kit_*")} >= kit_files())
    found = scraped(metrics)
    for site in (SERVER, *EVERYONE):
        assert of(found, "unreadable", site=site)
        assert not any(of(found, "unreadable", site=site))
        assert all(value > 0 for value in of(found, "disk_free_bytes", site=site))


def kit_files() -> set[str]:
    return {f"fedward_kit_{name}.prom" for name in (SERVER, *EVERYONE)}


@pytest.mark.slow
def test_a_job_by_flares_own_command_runs_as_a_run_of_its_own(federation, tmp_path, watched):
    """A site reads its site file again for each job, without a restart."""
    site_file = federation.kit("hospital-a") / "local" / "fedward_site.yaml"
    before = site_file.read_text()
    site_file.write_text(yaml.safe_dump({**yaml.safe_load(before), "file": "/nowhere.npz"}))
    export_job(experiment(1), tmp_path / "job", clinical=True)
    done = nvflare(federation, "job", "submit", "-j", tmp_path / "job", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    job_id = json.loads(done.stdout)["data"]["job_id"]
    try:
        with session(federation.kit(LEAD)) as lead:
            wait(lead, job_id, PATIENCE)
    finally:
        site_file.write_text(before)
    run = federation.kit(SERVER) / "fedward" / "runs" / LEAD / job_id
    info = json.loads((run / "run.json").read_text())
    assert info["experiment"] == experiment_in(tmp_path / "job" / "app" / "config").model_dump(
        mode="json"
    )
    (row,) = map(json.loads, (run / "rounds.jsonl").read_text().splitlines())
    assert row["failed"].pop("hospital-a").startswith("DataError")
    assert row["failed"] == dict.fromkeys(
        ["hospital-b", "hospital-c"], "not used: minimum_replies is 3, came 2"
    )


def test_logs_are_fetched_with_the_results(federation, watched):
    with session(federation.kit(LEAD)) as lead:
        job_id = lead.list_jobs()[0]["job_id"]
    for site in (SERVER, "hospital-a", "all"):
        done = nvflare(federation, "job", "logs", job_id, "--site", site)
        assert done.returncode != 0
        assert "not authorized for 'get_job_log'" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.proves(
    "faults",
    "a site's process dies whose metrics Prometheus reads",
    "its file keeps an old time, by which an alert fires",
)
def test_the_metrics_of_a_dead_participant_grow_old(federation, metrics, watched):
    federation.stop_one("hospital-c")
    try:
        dead = scraped(metrics)
        name = "written_timestamp_seconds"
        (since,) = of(dead, name, site=SERVER)
        assert appears(lambda: of(scraped(metrics), name, site=SERVER)[0] > since + 60)
        found = scraped(metrics)
        assert of(found, name, site="hospital-c") == of(dead, name, site="hospital-c")
        (contact,) = of(found, "last_contact_timestamp_seconds", site="hospital-c")
        assert contact < of(found, "last_contact_timestamp_seconds", site="hospital-b")[0]
        assert contact < of(found, "last_contact_timestamp_seconds", site="hospital-a")[0]
    finally:
        federation.start("hospital-c")
        federation.wait_until_ready()
