"""The scripts ``job.py`` in FLARE's proof of concept, and in a running federation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from local_federation import HOSPITALS, LEAD, Federation

pytestmark = [pytest.mark.secure, pytest.mark.slow]
SCRIPT = Path(__file__).parents[2] / "jobs" / "fedavg" / "job.py"
SETTINGS = ["rounds=1", "participants=null", "images_per_round=32", "batch=8", "data.image_size=16"]


def run(
    folder: Path, *arguments: str, settings: list[str] | None = None, **environment: str
) -> Path:
    """Run a script in a folder and return the run folder it names."""
    changes = [part for change in settings or SETTINGS for part in ("--set", change)]
    # The start scripts call python3.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments, *changes],
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return (folder / done.stdout.split()[-1]).parent


def replied(run_folder: Path) -> list[str]:
    assert json.loads((run_folder / "run.json").read_text())["status"] == "finished"
    (row,) = map(json.loads, (run_folder / "rounds.jsonl").read_text().splitlines())
    return row["replied"]


def test_a_script_sends_the_clinical_job_to_a_federation(tmp_path):
    with Federation(tmp_path / "federation", image_size=16) as federation:
        found = run(tmp_path, "--kit", str(federation.kit(LEAD)))
    assert replied(found) == sorted(HOSPITALS)
    assert json.loads((found / "run.json").read_text())["experiment"]["synthetic"] is None
    assert not list((tmp_path / "federation").rglob("job.py")), "it is not sent"


def test_a_script_runs_in_flares_proof_of_concept(tmp_path):
    sites = ["synthetic.sites=3", "synthetic.images=200", "synthetic.labelled=1.0"]
    poc = tmp_path / "poc"
    found = run(tmp_path, "--poc", settings=SETTINGS + sites, NVFLARE_POC_WORKSPACE=str(poc))
    assert found.is_relative_to(poc)
    assert replied(found) == ["site-1", "site-2", "site-3"]
    assert not list(poc.rglob("job.py"))
