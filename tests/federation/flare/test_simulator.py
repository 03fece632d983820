"""The whole way through FLARE's simulator: the weights of the in-process engine, on as many threads as one likes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedward.federation.flare.jobs import export_job
from fedward.federation.local import run_local
from tiny import tiny

pytestmark = pytest.mark.simulator
SITES = ["site-1", "site-2", "site-3"]


def start(job: Path, workspace: Path, threads: int = 3, **environment: str) -> subprocess.Popen:
    """Start the simulator on three sites, its output in ``<workspace>.log``."""
    command = [
        Path(sys.executable).with_name("nvflare"),
        "simulator",
        job,
        "-w",
        workspace,
        "-n",
        "3",
        "-t",
        str(threads),
    ]
    with workspace.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True
        )


def assert_same_run(flare: Path, local: Path) -> None:
    ours, theirs = load_file(local / "model.safetensors"), load_file(flare / "model.safetensors")
    assert list(ours) == list(theirs)
    for key in ours:
        torch.testing.assert_close(theirs[key], ours[key], rtol=0, atol=1e-6, msg=key)
    for log in ("metrics", "peers", "bytes"):
        rows = [
            [
                row
                for row in map(json.loads, (folder / f"{log}.jsonl").read_text().splitlines())
                if row.get("name") != "seconds"
            ]
            for folder in (flare, local)
        ]
        assert rows[0] == rows[1]


@pytest.mark.parametrize(("method", "threads"), [("fedavg", 3), ("fedperl", 3), ("fedperl", 1)])
def test_the_simulator_gives_the_weights_of_the_in_process_engine(tmp_path, method, threads):
    experiment = tiny(method)
    export_job(experiment, tmp_path / "job")
    process = start(tmp_path / "job", tmp_path / "workspace", threads)
    local = run_local(experiment, tmp_path / "local", sites=SITES)
    assert process.wait() == 0
    results = tmp_path / "workspace" / "server" / "simulate_job"
    assert_same_run(results / "fedward", local)
    assert json.loads((results / "fedward" / "run.json").read_text())["engine"] == "flare"
    if threads == len(SITES):  # with fewer, a site's process may end before FLARE has sent its scalars
        assert sorted(path.name for path in (results / "tb_events").iterdir()) == SITES
    assert str(results / "fedward") in (tmp_path / "workspace.log").read_text()


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


def test_an_error_of_the_run_fails_the_job_and_is_shown(tmp_path):
    export_job(tiny("fedavg", stand_in=None), tmp_path / "job")  # and the sites have no data of their own
    assert start(tmp_path / "job", tmp_path / "workspace").wait() != 0
    text = (tmp_path / "workspace.log").read_text()
    assert "3 exchanges in a row" in text
    assert "ConfigError" in text
    info = json.loads((tmp_path / "workspace" / "server" / "simulate_job" / "fedward" / "run.json").read_text())
    assert info["status"] == "failed"
