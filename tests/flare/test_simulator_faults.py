"""Killed and failing jobs in FLARE's simulator."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from simulator import SITES, assert_same_run, start

from fedward.config import DERMOSCOPY
from fedward.flare.jobs.export import export_job
from fedward.lab.local import LocalTransport, Sites
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from running import run_experiment, run_local
from tiny import tiny

pytestmark = [pytest.mark.simulator, pytest.mark.slow, pytest.mark.usefixtures("without_report")]


def test_a_killed_job_continues_when_it_is_submitted_again(tmp_path):
    experiment = tiny(options={"rounds": 4})
    export_job(experiment, tmp_path / "job")
    runs = tmp_path / "runs"
    process = start(tmp_path / "job", tmp_path / "killed", FEDWARD_RUNS=str(runs))
    while not (runs / "job" / "rounds" / "00001" / "state.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (runs / "job" / "model.safetensors").exists()
    assert start(tmp_path / "job", tmp_path / "again", FEDWARD_RUNS=str(runs)).wait() == 0
    assert "resumed after round" in (tmp_path / "again.log").read_text()
    assert_same_run(runs / "job", run_local(experiment, tmp_path / "local", sites=SITES))


def killed_while_it_reads(site: str, file: Path, simulator: subprocess.Popen) -> None:
    """Kill a site's process as soon as it has a file open."""
    while True:
        assert simulator.poll() is None
        try:
            process = process_of(site, simulator)
            if any(opened.path == str(file) for opened in process.open_files()):
                process.kill()
                return
        except (ValueError, psutil.Error):  # there is no such process yet
            pass
        time.sleep(0.005)


def process_of(site: str, simulator: subprocess.Popen) -> psutil.Process:
    """Return the process of a site; with a thread for each, it is the same for the whole job."""
    (found,) = (
        child
        for child in psutil.Process(simulator.pid).children(recursive=True)
        if f"--client {site} " in " ".join(child.cmdline())
    )
    return found


SILENT = "no answer within 45 s"


class Deserted(LocalTransport):
    """The in-process engine, whose first site is gone from the second exchange on."""

    gone = False

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        self.gone = self.gone or any(request.meta["part"] for request in requests.values())
        super().exchange(
            {site: requests[site] for site in requests if not (self.gone and site == "site-1")},
            timeout,
            deliver,
        )


def write_images(file: Path, number: int, side: int = 16) -> None:
    """Write a data set with this number and size of training images; each image is a step."""
    rng = np.random.default_rng(0)
    counts = {"train": number, "val": 5, "test": 5}
    images = {
        f"{split}_images": rng.integers(0, 256, (n, side, side, 3), np.uint8)
        for split, n in counts.items()
    }
    np.savez(file, **images, **{f"{split}_labels": np.arange(n) % 8 for split, n in counts.items()})


def test_a_site_killed_in_half_a_round_is_missing_in_it_alone(tmp_path):
    """Site 2, without labels, dies while it reads its data; site 1 while it trains."""
    options = {"rounds": 1, "warm_up": 0, "images_at_most": None, "batch": 1, "adapt": False}
    experiment = tiny("isofed", timeout=45, synthetic=None, options=options)
    export_job(experiment, tmp_path / "job")
    sites = tmp_path / "sites"
    large = tmp_path / "sites" / "large.npz"
    sites.mkdir()
    labels = json.dumps(dict(enumerate(DERMOSCOPY)))
    for site, file in zip(SITES, ("many", "large", "few"), strict=True):
        (sites / f"{site}.yaml").write_text(f"{{kind: npz, file: {file}.npz, labels: {labels}}}")
    write_images(sites / "many.npz", 5000)
    write_images(sites / "few.npz", 24)
    transport = Deserted(Sites(experiment, tmp_path / "cache", [sites]), SITES)
    local = run_experiment(experiment, tmp_path / "local", transport)
    write_images(large, 20_000, side=64)
    process = start(tmp_path / "job", tmp_path / "workspace", FEDWARD_SITES=str(sites))
    killed_while_it_reads("site-2", large, process)
    while f"site-2: {SILENT}" not in (tmp_path / "workspace.log").read_text():
        assert process.poll() is None
        time.sleep(0.02)
    process_of("site-1", process).kill()
    assert process.wait() == 0
    flare = tmp_path / "workspace" / "server" / "simulate_job" / "fedward"
    assert_same_run(flare, local)
    first, second = map(json.loads, (flare / "rounds.jsonl").read_text().splitlines())
    assert first["part"] == 0
    assert second["part"] == 1
    assert first["failed"]["site-2"] == SILENT
    assert second["failed"]["site-2"] == SILENT
    assert second["failed"]["site-1"] == SILENT
    assert second["replied"] == ["site-3"]


def test_an_error_of_the_run_fails_the_job_and_is_shown(tmp_path):
    # The sites have no data of their own, either.
    export_job(tiny("fedavg", synthetic=None), tmp_path / "job")
    assert start(tmp_path / "job", tmp_path / "workspace").wait() != 0
    text = (tmp_path / "workspace.log").read_text()
    assert "3 exchanges in a row" in text
    assert "ConfigError" in text
    run = tmp_path / "workspace" / "server" / "simulate_job" / "fedward"
    assert json.loads((run / "run.json").read_text())["status"] == "failed"
