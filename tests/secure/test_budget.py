"""A provisioned federation in which one hospital adds noise, with a budget for one update."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nvflare.fuel.flare_api.flare_api import Session

from fedward.errors import DataError, RunError
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, results, session, submit, wait
from fedward.security.privacy_budget import epsilon
from fedward.security.privacy_ledger import PRIVACY, spent
from file_modes import modes
from local_federation import HOSPITALS, LEAD, Federation
from tiny import clinical
from waiting import PATIENCE

pytestmark = [pytest.mark.secure, pytest.mark.slow]
NOISE = {"clip": 0.001, "noise_multiplier": 4.0, "delta": 1e-5, "max_epsilon": 2.5}
USED_UP = {"hospital-b": "privacy budget used up: epsilon 1.993 of 2.5 at delta 1e-05"}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation(
        tmp_path_factory.mktemp("federation"),
        image_size=16,
        policy={"minimum_replies": 2, "minimum_effective_replies": 1.5},
    ) as running:
        rules = running.kit("hospital-b") / "local" / "privacy.json"
        policy = json.loads(rules.read_text())
        policy["scopes"][0]["task_result_filters"] = [noise_filter()]
        rules.write_text(json.dumps(policy))
        yield running


@pytest.fixture
def lead(federation: Federation) -> Iterator[Session]:
    with session(federation.kit(LEAD)) as flare:
        yield flare


def noise_filter() -> dict[str, Any]:
    return {"path": "fedward.flare.privacy.GaussianUpdateFilter", "args": NOISE}


def job(folder: Path, rounds: int) -> Path:
    experiment = clinical(minimum_replies=2, options={"rounds": rounds})
    export_job(experiment, folder, clinical=True)
    return folder


def run(flare: Session, folder: Path, out: Path) -> list[dict[str, Any]]:
    """Return what the server wrote of each round."""
    results = fetch(flare, wait(flare, submit(flare, folder), PATIENCE), out)
    return [json.loads(line) for line in (results / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def rounds(
    federation: Federation, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What the server wrote of three rounds: two of one job, one of the next."""
    folder = tmp_path_factory.mktemp("jobs")
    with session(federation.kit(LEAD)) as flare:
        first = run(flare, job(folder / "first", 2), folder / "out")
        return first + run(flare, job(folder / "second", 1), folder / "out")


@pytest.fixture
def ledger(federation: Federation) -> Path:
    return PRIVACY.file(federation.kit("hospital-b") / "fedward", "hospital-b")


@pytest.mark.proves(
    "lead",
    "more jobs for a hospital whose privacy budget is used up",
    "no update leaves, the lead reads why, and the run goes on with the others",
)
def test_a_hospital_stops_when_its_privacy_budget_is_used_up(rounds, ledger):
    assert [row["failed"] for row in rounds] == [{}, USED_UP, USED_UP]
    assert all(row["replied"] == sorted(set(HOSPITALS) - set(row["failed"])) for row in rounds)
    (release,) = map(json.loads, ledger.read_text().splitlines())
    assert release["round"] == 1
    assert release["releases"] == 1
    assert release["sigma"] == 0.004
    assert release["epsilon"] == pytest.approx(epsilon([4.0], 1e-5))
    assert modes(ledger) == {0o600}


def rounds_of(flare: Session, job_id: str, out: Path) -> list[dict[str, Any]]:
    """Return the server's log of each round of a job, whose run may fail for want of replies."""
    meta = wait(flare, job_id, PATIENCE)
    with suppress(RunError):
        fetch(flare, meta, out)
    return [
        json.loads(line) for line in (results(out, meta) / "rounds.jsonl").read_text().splitlines()
    ]


@pytest.mark.proves(
    "lead",
    "several jobs, or a job's name that leads to another ledger, to spend a privacy budget twice",
    "one budget covers all jobs",
)
def test_two_jobs_at_once_share_a_hospitals_budget(federation, lead, tmp_path):
    privacy = federation.kit("hospital-c") / "local" / "privacy.json"
    ours = (federation.kit("hospital-b") / "local" / "privacy.json").read_text()
    privacy.write_text(ours)
    jobs = [submit(lead, job(tmp_path / name, 2)) for name in ("first", "second")]
    rounds = [rounds_of(lead, job_id, tmp_path / "out") for job_id in jobs]
    answered = sum("hospital-c" in row["replied"] for rows in rounds for row in rows)
    ledger = PRIVACY.file(federation.kit("hospital-c") / "fedward", "hospital-c")
    assert answered == 1
    assert len(spent(ledger)) == 1
    assert all("privacy budget used up" in rows[-1]["failed"]["hospital-c"] for rows in rounds)


@pytest.mark.proves(
    "files",
    "a privacy ledger is cut, edited, forked, deleted, linked or another site's, or "
    "has a line that costs nothing",
    "no update leaves: the ledger's end and the site's log of answers notice it",
)
@pytest.mark.usefixtures("rounds")
def test_the_answers_of_a_run_know_the_ledger(ledger, tmp_path):
    assert spent(ledger) == [4.0]
    files = list(ledger.parent.glob("privacy-hospital-b.*"))
    moved = [file.rename(tmp_path / file.name) for file in files]
    try:
        with pytest.raises(DataError, match="log of answers knows of"):
            spent(ledger)
    finally:
        for file in moved:
            file.rename(ledger.parent / file.name)


@pytest.mark.proves(
    "lead",
    "a job that brings the noise filter itself",
    "refused; nothing is spent",
)
def test_a_job_cannot_spend_a_hospitals_privacy_budget(federation, lead, tmp_path):
    ledgers = [PRIVACY.file(federation.kit(name) / "fedward", name) for name in HOSPITALS]
    before = [path.exists() and path.read_bytes() for path in ledgers]
    config = job(tmp_path / "job", 1) / "app" / "config" / "config_fed_client.json"
    content = json.loads(config.read_text())
    content["task_result_filters"] = [{"tasks": ["fedward"], "filters": [noise_filter()]}]
    config.write_text(json.dumps(content))
    with pytest.raises(RunError, match="expected a finished run"):
        run(lead, tmp_path / "job", tmp_path / "out")
    assert [path.exists() and path.read_bytes() for path in ledgers] == before
