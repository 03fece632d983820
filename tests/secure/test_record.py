"""A provisioned federation and the records of both ends, and a job that is not the same at both."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.config import Experiment
from fedward.errors import RunError
from fedward.federation.flare.jobs import export_job
from fedward.federation.flare.submit import fetch, results, session, submit, wait
from local_federation import HOSPITALS, LEAD, Federation
from tiny import clinical

pytestmark = pytest.mark.secure
TIMEOUT = 180
NOISY = "hospital-a"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """One hospital adds noise to what it sends."""
    with Federation(tmp_path_factory.mktemp("federation"), image_size=16) as running:
        rules = running.kit(NOISY) / "local" / "privacy.json"
        policy = json.loads(rules.read_text())
        noise = {"clip": 1e-4, "noise_multiplier": 40.0, "delta": 1e-5, "max_epsilon": 8.0}
        path = "fedward.federation.flare.privacy.GaussianUpdateFilter"
        policy["scopes"][0]["task_result_filters"] = [{"path": path, "args": noise}]
        rules.write_text(json.dumps(policy))
        yield running


def experiment() -> Experiment:
    return clinical(options={"rounds": 2})


def site_logs(federation: Federation, run: Path) -> list[str]:
    run_id = json.loads((run / "run.json").read_text())["id"]
    return [str(federation.kit(hospital) / "fedward" / "answers" / f"{run_id}.jsonl") for hospital in sorted(HOSPITALS)]


def lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(log).read_text().splitlines()]


def test_the_record_of_a_job_fits_the_logs_of_all_sites(federation, tmp_path, capsys):
    """Also of the one whose updates are noisy when they leave."""
    export_job(experiment(), tmp_path / "job", clinical=True)
    with session(federation.kit(LEAD)) as flare:
        run = fetch(flare, wait(flare, submit(flare, tmp_path / "job"), TIMEOUT), tmp_path / "out")
    logs = site_logs(federation, run)
    assert main(["audit", "verify", str(run), "--site", *logs]) == 0
    assert "9 lines of sites' logs" in capsys.readouterr().out
    assert [row["event"] for log in logs for row in lines(log)] == ["answered"] * 9
    assert [bool(row["ledger"]) for log in logs for row in lines(log)][:3] == [True] * 3
    info = json.loads((run / "run.json").read_text())
    best = run / "best.safetensors"
    best.write_bytes(best.read_bytes()[:-1] + b"\x07")
    assert main(["audit", "verify", str(run)]) == 1
    assert "best.safetensors with SHA-256" in capsys.readouterr().err
    assert info["status"] == "finished"


def digest_in(config: Path) -> str:
    """Return the digest of the experiment in one of a job's files."""
    content = json.loads(config.read_text())
    (part,) = content["workflows"] if "workflows" in content else [entry["executor"] for entry in content["executors"]]
    return Experiment.parse(part["args"]["experiment"], config.name).digest


@pytest.mark.proves(
    "server",
    "a job whose settings in the server's file differ from those in the clients' file",
    "refused by every site, with both digests named; nothing is trained",
)
def test_a_job_of_two_minds_is_refused_by_every_site(federation, tmp_path):
    export_job(experiment(), tmp_path / "job", clinical=True)
    config = tmp_path / "job" / "app" / "config" / "config_fed_server.json"
    text = config.read_text()
    assert text.count('"learning_rate": 0.001') == 1
    config.write_text(text.replace('"learning_rate": 0.001', '"learning_rate": 1e-9'))
    ours, theirs = (digest_in(config.with_name(f"config_fed_{side}.json")) for side in ("client", "server"))
    with session(federation.kit(LEAD)) as flare:
        meta = wait(flare, submit(flare, tmp_path / "job"), TIMEOUT)
        with pytest.raises(RunError) as error:
            fetch(flare, meta, tmp_path / "out")
    run = results(tmp_path / "out", meta)
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    reasons = [reason for row in rounds for reason in row["failed"].values()] + [str(error.value)]
    assert {site for row in rounds for site in row["failed"]} == set(HOSPITALS)
    for reason in reasons:
        assert f"settings of the job: expected SHA-256 {ours}, as in this site's job" in reason
        assert f"found '{theirs}' at the server" in reason
    for log in site_logs(federation, run):
        assert {row["event"] for row in lines(log)} == {"refused"}
    assert main(["audit", "verify", str(run), "--site", *site_logs(federation, run)]) == 0
