"""A survey over FLARE: its executor and its simulator tell what the in-process engine tells."""

import json
from pathlib import Path

import pytest
from nvflare.apis.signal import Signal
from simulator import SITES, start
from test_flare_executor import Context

from asking import survey_requests
from clients import new_client
from fedward.flare.jobs.export import export_job
from fedward.flare.shareables import TASK, pack_request, unpack
from flare_app import executor_of
from running import run_local
from tiny import tiny

EXPERIMENT = tiny("survey")


def test_the_executor_tells_what_a_site_tells(tmp_path: Path) -> None:
    asked = survey_requests(EXPERIMENT)["site-1"]
    executor = executor_of(tmp_path, EXPERIMENT)
    packed = executor.execute(
        TASK, pack_request(asked.meta, asked.arrays), Context(tmp_path), Signal()
    )
    meta, arrays = unpack(packed)
    assert not arrays
    assert meta == new_client("site-1", EXPERIMENT, tmp_path / "other").handle(asked).meta
    assert meta["survey"]["unlabelled"] == 10


@pytest.mark.simulator
@pytest.mark.slow
def test_a_survey_in_the_simulator_equals_one_process(tmp_path: Path) -> None:
    export_job(EXPERIMENT, tmp_path / "job")
    process = start(tmp_path / "job", tmp_path / "workspace")
    local = run_local(EXPERIMENT, tmp_path / "local", sites=SITES)
    assert process.wait() == 0
    flare = tmp_path / "workspace" / "server" / "simulate_job" / "fedward"
    assert (flare / "surveys.jsonl").read_text() == (local / "surveys.jsonl").read_text()
    assert json.loads((flare / "run.json").read_text())["status"] == "finished"
    assert "What the sites hold" in (flare / "report.html").read_text()
