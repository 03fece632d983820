"""A supervisor against a federation that fails as a test wants; every clock stands still."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.flare_api.api_spec import NoConnection

from fedward.errors import RunError
from fedward.federation.flare import supervise
from fedward.federation.flare.jobs import export_job
from fedward.federation.flare.submit import UnreachableError
from tiny import tiny

RUN = "0123456789abcdef0123456789abcdef"


class Federation:
    """Two sites and a server; ``lives`` says, attempt by attempt, how the job goes.

    A life is a list of looks: a FLARE status, ``restarted`` or an exception; and what the results then hold.
    """

    def __init__(self, *lives: dict[str, Any]) -> None:
        self.lives, self.attempt = lives, -1
        self.runs, self.aborted, self.looks = [], [], iter(())
        self.server_start, self.gone = 0, False
        self.sites, self.idle = ["site-1", "site-2"], []

    @property
    def life(self) -> dict[str, Any]:
        return self.lives[self.attempt]

    def submit_job(self, folder: str) -> str:
        meta = json.loads((Path(folder) / "meta.json").read_text())
        self.runs.append(meta["custom_props"]["fedward_run"])
        self.attempt += 1
        self.looks, self.idle = iter(self.life["looks"]), self.life.get("idle", [])
        return f"job-{self.attempt}"

    def get_job_meta(self, job: str) -> dict[str, Any]:
        status = "FINISHED:ABORTED" if job in self.aborted else next(self.looks)
        if isinstance(status, Exception):
            raise status
        self.gone = status == "no process"
        if status in ("no process", "restarted"):
            self.server_start += status == "restarted"
            status = "RUNNING"
        return {"job_id": job, "status": status}

    def get_system_info(self) -> Any:
        clients = [SimpleNamespace(name=name) for name in self.sites]
        job = SimpleNamespace(job_id="another" if self.gone else f"job-{self.attempt}")
        return SimpleNamespace(
            server_info=SimpleNamespace(start_time=self.server_start), client_info=clients, job_info=[job]
        )

    def get_connected_client_list(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.sites]

    def get_client_job_status(self) -> list[dict[str, Any]]:
        at_work = {"job_id": f"job-{self.attempt}", "status": "started"}
        return [
            {"client_name": name, **({"status": "no_jobs"} if name in self.idle else at_work)} for name in self.sites
        ]

    def abort_job(self, job: str) -> None:
        self.aborted.append(job)

    def download_job_result(self, job: str, out: str) -> None:
        run = Path(out) / job / "workspace" / "fedward"
        run.mkdir(parents=True)
        if "run" in self.life:
            (run / "run.json").write_text(json.dumps({"status": self.life["run"], "summary": {}}))
            (run / "rounds.jsonl").write_text("{}\n" * self.life.get("rounds", 0))


def broken(rounds: int, status: str = "FINISHED:EXECUTION_EXCEPTION") -> dict[str, Any]:
    return {"looks": ["RUNNING", status], "run": "failed", "rounds": rounds}


GOOD = {"looks": ["SUBMITTED", "RUNNING", "FINISHED:COMPLETED"], "run": "finished"}
NO_SERVER = UnreachableError("server", expected="an answer", found="none", remedy="Wait.")


@pytest.fixture
def finish(tmp_path, monkeypatch):
    """Supervise a run in a federation; return its folder, relative to the results, and what was said."""
    export_job(tiny(), tmp_path / "job", clinical=True)
    clock = [0.0]
    monkeypatch.setattr(
        supervise,
        "time",
        SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds)),
    )

    def call(federation: Federation) -> tuple[str, list[str]]:
        @contextmanager
        def session(kit: Path) -> Iterator[Federation]:
            yield federation

        monkeypatch.setattr(supervise, "session", session)
        said: list[str] = []
        supervisor = supervise.Supervisor(tmp_path / "kit", tmp_path / "job", RUN, 20.0, said.append)
        return str(supervisor.finish(tmp_path / "out").relative_to(tmp_path / "out")), said

    return call


def test_a_job_that_goes_well_is_sent_once(finish):
    federation = Federation(GOOD)
    assert finish(federation) == ("job-0/workspace/fedward", ["attempt 1: job job-0"])
    assert federation.runs == [RUN]


def test_a_broken_job_is_sent_again_as_the_same_run(finish):
    federation = Federation(broken(2), broken(4, "FINISHED:ABNORMAL"), GOOD)
    folder, said = finish(federation)
    assert folder == "job-2/workspace/fedward"
    assert federation.runs == [RUN] * 3
    assert "EXECUTION_EXCEPTION" in said[1]
    assert "ABNORMAL" in said[3]


def test_three_attempts_without_a_further_round_are_enough(finish):
    federation = Federation(broken(2), broken(5), broken(5), broken(5), broken(5))
    with pytest.raises(RunError, match=r"job-4.*EXECUTION_EXCEPTION"):
        finish(federation)


@pytest.mark.parametrize("status", ["FAILED_TO_RUN", "ABORTED", "CAN_NOT_SCHEDULE", "ABANDONED"])
def test_what_is_refused_or_aborted_is_not_sent_again(finish, status):
    federation = Federation({"looks": [f"FINISHED:{status}"]}, GOOD)
    with pytest.raises(RunError, match=f"no run at all.*{status}"):
        finish(federation)
    assert len(federation.runs) == 1


def test_a_job_that_died_with_its_server_is_not_believed_to_run(finish):
    federation = Federation({"looks": ["RUNNING", NoConnection("gone"), "restarted"]}, GOOD)
    folder, said = finish(federation)
    assert folder == "job-1/workspace/fedward"
    assert said == [
        "attempt 1: job job-0",
        "waiting for the server: gone",
        "the job was lost with the server",
        "attempt 2: job job-1",
    ]


def test_an_end_that_flare_does_not_tell_is_not_awaited(finish):
    """FLARE waits for a site that hangs, with the results; a further attempt finds the run finished."""
    federation = Federation({"looks": ["RUNNING"] + ["no process"] * 20}, GOOD)
    assert finish(federation)[0] == "job-1/workspace/fedward"
    starting = Federation({"looks": ["no process"] * 20 + GOOD["looks"], "run": "finished"})
    assert finish(starting)[0] == "job-0/workspace/fedward"


def test_patience_with_a_server_has_an_end(finish):
    with pytest.raises(UnreachableError):
        finish(Federation({"looks": [NO_SERVER] * 99}))


def test_an_idle_site_is_taken_in_by_starting_the_job_again(finish):
    federation = Federation({"looks": ["RUNNING"] * 9, "idle": ["site-2"]}, GOOD)
    folder, said = finish(federation)
    assert folder == "job-1/workspace/fedward"
    assert federation.aborted == ["job-0"]
    assert "the job was stopped, to go on with site-2" in said


def test_a_site_that_stays_idle_is_not_waited_for_twice(finish):
    """It may refuse the job: its own rules say so, and the others go on."""
    again = {"looks": ["RUNNING"] * 9 + ["FINISHED:COMPLETED"], "run": "finished", "idle": ["site-2"]}
    federation = Federation({"looks": ["RUNNING"] * 9, "idle": ["site-2"]}, again)
    assert finish(federation)[0] == "job-1/workspace/fedward"
    assert federation.aborted == ["job-0"]


def test_sites_of_the_last_attempt_are_waited_for(finish):
    federation = Federation({"looks": ["RUNNING", "restarted"]}, GOOD)
    everyone, calls = federation.get_connected_client_list, iter(range(99))
    federation.get_connected_client_list = lambda: everyone()[: 1 if next(calls) < 4 else 2]
    assert finish(federation)[0] == "job-1/workspace/fedward"
    assert next(calls) == 5


def test_sites_that_do_not_come_back_are_named_and_left(finish):
    federation = Federation({"looks": ["RUNNING", "restarted"]}, GOOD)
    everyone, info = federation.get_connected_client_list, federation.get_system_info
    federation.get_connected_client_list = lambda: everyone()[:1]
    federation.get_system_info = info
    assert "going on without site-2" in finish(federation)[1]


def test_an_idle_site_that_the_job_does_not_go_to_is_left_alone(finish, tmp_path):
    export_job(tiny(), tmp_path / "job", clinical=True, sites=["site-1"])
    federation = Federation({"looks": ["RUNNING"] * 9 + ["FINISHED:COMPLETED"], "run": "finished", "idle": ["site-2"]})
    assert finish(federation)[0] == "job-0/workspace/fedward"
    assert federation.aborted == []
