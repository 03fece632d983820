"""A federation whose server asks off the record, and a job that differs between its two ends."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.config import Experiment
from fedward.errors import RunError
from fedward.flare.jobs.configurations import experiment_in
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, results, session, submit, wait
from foreign_jobs import SERVER, args, edit
from local_federation import HOSPITALS, LEAD, Federation
from tiny import clinical
from waiting import PATIENCE

pytestmark = pytest.mark.secure
NOISY = "hospital-a"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """One hospital adds noise to what it sends."""
    folder = tmp_path_factory.mktemp("federation")
    variables = {
        "FEDWARD_DISHONEST": str(folder),
        "PYTHONPATH": str(Path(__file__).with_name("dishonest")),
    }
    with Federation(folder, image_size=16, environment=variables) as running:
        rules = running.kit(NOISY) / "local" / "privacy.json"
        policy = json.loads(rules.read_text())
        noise = {"clip": 1e-4, "noise_multiplier": 40.0, "delta": 1e-5, "max_epsilon": 8.0}
        path = "fedward.flare.privacy.GaussianUpdateFilter"
        policy["scopes"][0]["task_result_filters"] = [{"path": path, "args": noise}]
        rules.write_text(json.dumps(policy))
        yield running


def experiment() -> Experiment:
    return clinical(options={"rounds": 2})


def site_logs(federation: Federation, run: Path) -> list[str]:
    run_id = json.loads((run / "run.json").read_text())["id"]
    return [
        str(federation.kit(hospital) / "fedward" / "answers" / f"{run_id}.jsonl")
        for hospital in sorted(HOSPITALS)
    ]


def lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(log).read_text().splitlines()]


@pytest.mark.slow
def test_the_record_of_a_job_fits_the_logs_of_all_sites(federation, tmp_path, capsys):
    """Also the log of the site whose updates are noisy when they leave."""
    export_job(experiment(), tmp_path / "job", clinical=True)
    with session(federation.kit(LEAD)) as flare:
        run = fetch(flare, wait(flare, submit(flare, tmp_path / "job"), PATIENCE), tmp_path / "out")
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


@pytest.mark.proves(
    "server",
    "other settings in the server's app than in the sites'",
    "refused by every site, with both digests",
)
@pytest.mark.slow
def test_a_job_of_two_minds_is_refused_by_every_site(federation, tmp_path):
    export_job(experiment(), tmp_path / "job", clinical=True)
    sites = tmp_path / "job" / "app"
    server = tmp_path / "job" / "app_server"
    shutil.copytree(sites, server)
    edit(SERVER, lambda content: args(SERVER)(content).update(learning_rate=1e-9))(server)
    places = {"app": sorted(HOSPITALS), "app_server": ["server"]}
    edit("meta.json", lambda meta: meta.update(deploy_map=places))(tmp_path / "job")
    digest_at_sites = experiment_in(sites / "config").digest
    digest_at_server = experiment_in(server / "config").digest
    with session(federation.kit(LEAD)) as flare:
        meta = wait(flare, submit(flare, tmp_path / "job"), PATIENCE)
        with pytest.raises(RunError) as error:
            fetch(flare, meta, tmp_path / "out")
    run = results(tmp_path / "out", meta)
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    reasons = [reason for row in rounds for reason in row["failed"].values()] + [str(error.value)]
    assert {site for row in rounds for site in row["failed"]} == set(HOSPITALS)
    for reason in reasons:
        expected = f"SHA-256 {digest_at_sites}, as in this site's job"
        assert f"settings of the job: expected {expected}" in reason
        assert f"found {digest_at_server} at the server" in reason
    for log in site_logs(federation, run):
        assert {row["event"] for row in lines(log)} == {"refused"}
    assert main(["audit", "verify", str(run), "--site", *site_logs(federation, run)]) == 0


@pytest.mark.proves(
    "server",
    "a server with changed code that asks off the record",
    "refused by every site, and found by `fedward audit verify`",
)
@pytest.mark.slow
def test_a_server_that_asks_off_the_record_learns_nothing(federation, tmp_path, capsys):
    export_job(experiment(), tmp_path / "job", clinical=True)
    (federation.folder / "armed").touch()
    try:
        with session(federation.kit(LEAD)) as flare:
            run = fetch(
                flare, wait(flare, submit(flare, tmp_path / "job"), PATIENCE), tmp_path / "out"
            )
    finally:
        (federation.folder / "armed").unlink()
    found = json.loads((federation.folder / "answers.json").read_text())
    expected = {
        "round -5": "found -5",
        "a round after the last": "one from 1 to 2",
        "a round of no run": (
            "request, round: expected a whole number from -10000000 to 10000000, "
            "found 1099511627776"
        ),
        "a part too many": "one from 0 to 0",
        "no last hash": "request, last_hash",
        "a sum without last hash": "request, last_hash",
        "another model": "the model of the request that this site has answered",
        "another model in the round before": "the model of the request that this site has answered",
        "another run": "run of this job",
        "other settings": "settings of the job",
        "another version": "version of fedward",
    }
    assert set(found) == set(expected)
    for name, reason in expected.items():
        assert set(found[name]) == set(HOSPITALS), name
        for error, arrays in found[name].values():
            assert reason in error
            assert arrays == 0
    for log in site_logs(federation, run):
        assert [row["event"] for row in lines(log)].count("answered") == 3
        assert main(["audit", "verify", str(run), "--site", log]) == 1
        assert "was shown" in capsys.readouterr().err
