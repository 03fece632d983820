"""A supervisor against a federation that fails as a test wants; every clock stands still."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.flare_api.api_spec import JobNotFound, NoClientsAvailable

from fedward.errors import ConfigError, RunError
from fedward.flare.jobs import reporter, supervise
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.remote import NotTakenError, UnreachableError
from fedward.flare.jobs.status import STATS
from finished_run import new_run
from tiny import tiny

RUN = "0123456789abcdef0123456789abcdef"
LEAD = "lead@hospital-a.org"


def unreachable(found: str) -> UnreachableError:
    return UnreachableError("the server", expected="an answer", found=found, remedy="Wait.")


class Federation:
    """Two sites and a server; ``lives`` says, attempt by attempt, how the job goes.

    A life is a list of looks: a FLARE status, ``restarted`` or an exception; what a job that runs
    says of its rounds, one answer after the other, the last one again and again; sites that are
    idle, after how many looks at work and how many away; and what the results then hold.
    """

    def __init__(self, *lives: dict[str, Any]) -> None:
        self.lives = lives
        self.attempt = -1
        self.runs = []
        self.aborted = []
        self.looks = iter(())
        self.server_start = 0
        self.gone = False
        self.ended = {}
        self.sites = ["site-1", "site-2"]
        self.idle = []
        self.answers = []
        self.asked = 0
        self.busy = 0
        self.away = 0
        self.status = "running"
        self.waiting = []
        """What the job's process says of the run; and jobs that are there already, as (id, run,
        submitter).
        """

    @property
    def life(self) -> dict[str, Any]:
        return self.lives[self.attempt]

    def submit_job(self, folder: str) -> str:
        meta = json.loads((Path(folder) / "meta.json").read_text())
        self.runs.append(meta["custom_props"]["fedward_run"])
        self.attempt += 1
        self.looks = iter(self.life["looks"])
        self.idle = self.life.get("idle", [])
        self.answers = list(self.life.get("answers", [None]))
        self.busy = self.life.get("busy", 0)
        self.away = self.life.get("away", 0)
        return f"job-{self.attempt}"

    def list_jobs(self) -> list[dict[str, Any]]:
        return [
            {"job_id": job, "status": "SUBMITTED"} for job, _, _ in self.waiting if self.attempt < 0
        ]

    def get_job_meta(self, job: str) -> dict[str, Any]:
        for name, run, submitter in self.waiting:
            if job == name and self.attempt < 0:
                self.attempt = 0
                self.looks = iter(self.life["looks"])
                return {
                    "job_id": job,
                    "custom_props": {"fedward_run": run},
                    "submitter_name": submitter,
                }
        status = (
            "FINISHED:ABORTED" if job in self.aborted else self.ended.get(job) or next(self.looks)
        )
        if isinstance(status, Exception):
            raise status
        self.gone = status == "no process"
        if str(status).startswith("FINISHED"):
            self.ended[job] = status
        if status in ("no process", "restarted"):
            self.server_start += status == "restarted"
            status = "RUNNING"
        return {"job_id": job, "status": status}

    def get_system_info(self) -> Any:
        clients = [SimpleNamespace(name=name, last_connect_time=self.asked) for name in self.sites]
        job = SimpleNamespace(job_id="another" if self.gone else f"job-{self.attempt}")
        return SimpleNamespace(
            server_info=SimpleNamespace(start_time=self.server_start),
            client_info=clients,
            job_info=[job],
        )

    def get_connected_client_list(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.sites]

    def show_stats(self, job: str, target: str) -> dict[str, Any]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {
            "server": {} if answer is None else {STATS: {"round": answer, "status": self.status}}
        }

    def get_client_job_status(self) -> list[dict[str, Any]]:
        if not self.sites:
            raise NoClientsAvailable("no clients available")
        at_work = {"job_id": f"job-{self.attempt}", "status": "started"}
        idle = self.idle if self.busy == 0 else []
        away = idle if self.away and not self.busy else []
        self.away -= 1 if away else 0
        self.busy = max(self.busy - 1, 0)
        rows = {
            name: {"status": "no_jobs"} if name in idle else at_work
            for name in self.sites
            if name not in away
        }
        return [{"client_name": name, **row} for name, row in rows.items()]

    def abort_job(self, job: str) -> None:
        self.aborted.append(job)

    def download_job_result(self, job: str, out: str) -> None:
        run = Path(out) / job / "workspace" / "fedward"
        if "run" in self.life:
            new_run(run, tiny(), self.sites, "flare")
            info = json.loads((run / "run.json").read_text())
            (run / "run.json").write_text(json.dumps({**info, "status": self.life["run"]}))
            (run / "rounds.jsonl").write_text(
                "".join(map(row, range(1, self.life.get("rounds", 0) + 1)))
            )


def row(number: int) -> str:
    exchange = {
        "round": number,
        "seconds": 1.0,
        "asked": [],
        "replied": [],
        "failed": {},
        "bytes_down": 0,
        "bytes_up": 0,
        "peer_models": 0,
    }
    return json.dumps(exchange) + "\n"


def broken(rounds: int, status: str = "FINISHED:EXECUTION_EXCEPTION") -> dict[str, Any]:
    return {"looks": ["RUNNING", status], "run": "failed", "rounds": rounds}


GOOD = {"looks": ["SUBMITTED", "RUNNING", "FINISHED:COMPLETED"], "run": "finished"}
REPEATED = "given up: 3 attempts in a row brought no further round"


@pytest.fixture
def finish(tmp_path, monkeypatch):
    """Supervise a run in a federation; return its folder and the lines it printed."""
    export_job(tiny(), tmp_path / "job", clinical=True)
    clock = [0.0]
    time = SimpleNamespace(
        monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    )
    for module in (supervise, reporter):
        monkeypatch.setattr(module, "time", time)
    monkeypatch.setattr(supervise, "open_kit", lambda kit, role: SimpleNamespace(name=LEAD))

    def call(federation: Federation, lines: list[str] | None = None) -> tuple[str, list[str]]:
        @contextmanager
        def session(kit: Path) -> Iterator[Federation]:
            yield federation

        monkeypatch.setattr(supervise.submit, "session", session)
        lines = [] if lines is None else lines
        supervisor = supervise.Supervisor(
            tmp_path / "kit", tmp_path / "job", RUN, 20.0, lines.append
        )
        return str(supervisor.finish(tmp_path / "out").relative_to(tmp_path / "out")), lines

    return call


def test_a_job_that_goes_well_is_sent_once(finish):
    federation = Federation(GOOD)
    assert finish(federation) == ("job-0/workspace/fedward", ["attempt 1: job job-0"])
    assert federation.runs == [RUN]


def test_a_folder_without_a_job_is_not_sent_or_retried(finish, tmp_path):
    (tmp_path / "job" / "meta.json").write_text("{")
    federation = Federation(GOOD)
    with pytest.raises(ConfigError, match=r"expected a folder with a meta\.json"):
        finish(federation)
    assert federation.runs == []


def test_a_broken_job_is_sent_again_as_the_same_run(finish):
    federation = Federation(broken(2), broken(4, "FINISHED:ABNORMAL"), GOOD)
    folder, lines = finish(federation)
    assert folder == "job-2/workspace/fedward"
    assert federation.runs == [RUN] * 3
    assert "EXECUTION_EXCEPTION" in lines[1]
    assert "ABNORMAL" in lines[3]


@pytest.mark.parametrize("rounds", [[2, 5, 5, 5, 5], [0, 0, 0], [1, 1, 1, 2, 2, 1, 2]])
def test_three_attempts_without_a_further_round_are_enough(finish, rounds):
    federation = Federation(*map(broken, rounds), GOOD)
    lines = []
    with pytest.raises(RunError, match=rf"job-{len(rounds) - 1}.*EXECUTION_EXCEPTION"):
        finish(federation, lines)
    assert lines[-1] == REPEATED


def lost(*answers: Any) -> dict[str, Any]:
    return {"looks": ["RUNNING"] * len(answers) + ["restarted"], "answers": answers}


def left_out(*answers: Any) -> dict[str, Any]:
    """Site 2 comes, goes, and comes back."""
    return {"looks": ["RUNNING"] * 9, "idle": ["site-2"], "busy": 1, "away": 1, "answers": answers}


def hung(*answers: Any) -> dict[str, Any]:
    return {"looks": ["RUNNING"] * len(answers) + ["no process"] * 20, "answers": answers}


@pytest.mark.parametrize(
    ("end", "text"),
    [(lost, "lost with the server"), (hung, "FLARE waits"), (left_out, "to go on with site-2")],
)
def test_a_job_that_never_comes_further_is_not_sent_for_ever(finish, end, text):
    federation = Federation(*[end(4)] * 4, GOOD)
    lines = []
    with pytest.raises(RunError, match=text):
        finish(federation, lines)
    assert lines[-1] == REPEATED
    assert len(federation.runs) == 4


def test_every_kind_of_end_counts(finish):
    federation = Federation(broken(3), lost(3), hung(3), left_out(3), GOOD)
    with pytest.raises(RunError, match="to go on with site-2"):
        finish(federation)


@pytest.mark.parametrize("end", [lost, hung])
def test_a_job_that_comes_further_each_time_is_sent_again(finish, end):
    federation = Federation(*(end(None, rounds, rounds + 1) for rounds in range(6)), GOOD)
    assert finish(federation)[0] == "job-6/workspace/fedward"


def test_a_round_that_was_not_seen_counts_with_the_next_attempt(finish):
    federation = Federation(lost(1), lost(1), lost(1), lost(2), lost(2), lost(2), GOOD)
    assert finish(federation)[0] == "job-6/workspace/fedward"


@pytest.mark.parametrize(
    "answer", [JobNotFound(), RuntimeError("FLARE's own"), unreachable("no collector")]
)
def test_a_job_without_progress_is_still_watched(finish, answer):
    federation = Federation(
        {"looks": ["RUNNING"] * 99 + ["FINISHED:COMPLETED"], "answers": [answer], "run": "finished"}
    )
    assert finish(federation) == ("job-0/workspace/fedward", ["attempt 1: job job-0"])


@pytest.mark.parametrize("status", ["FAILED_TO_RUN", "CAN_NOT_SCHEDULE"])
def test_what_is_refused_is_not_sent_again(finish, status):
    federation = Federation({"looks": [f"FINISHED:{status}"]}, GOOD)
    with pytest.raises(RunError, match=f"no run at all.*{status}"):
        finish(federation)
    assert len(federation.runs) == 1


def test_a_job_that_died_with_its_server_is_not_believed_to_run(finish):
    federation = Federation({"looks": ["RUNNING", unreachable("gone"), "restarted"]}, GOOD)
    folder, lines = finish(federation)
    assert folder == "job-1/workspace/fedward"
    assert lines == [
        "attempt 1: job job-0",
        "waiting for the server: gone",
        "the job was lost with the server",
        "attempt 2: job job-1",
    ]


def test_an_end_that_flare_does_not_tell_is_not_awaited(finish):
    """FLARE holds the results for a site that hangs; another attempt finds the run finished."""
    federation = Federation({"looks": ["RUNNING"] + ["no process"] * 20}, GOOD)
    assert finish(federation)[0] == "job-1/workspace/fedward"
    starting = Federation({"looks": ["no process"] * 20 + GOOD["looks"], "run": "finished"})
    assert finish(starting)[0] == "job-0/workspace/fedward"


def test_patience_with_a_server_has_an_end(finish):
    with pytest.raises(UnreachableError, match="gone"):
        finish(Federation({"looks": ["RUNNING", *[unreachable("gone")] * 99]}))


def test_patience_begins_again_once_the_server_has_answered(finish):
    outage = [unreachable("gone")] * 8  # 16 s of 20
    federation = Federation(
        {"looks": [*outage, "RUNNING", *outage, "RUNNING", "FINISHED:COMPLETED"], "run": "finished"}
    )
    folder, lines = finish(federation)
    assert folder == "job-0/workspace/fedward"
    assert lines == ["attempt 1: job job-0", *["waiting for the server: gone"] * 2]


def test_a_server_that_only_lets_in_is_not_waited_for_for_ever(finish):
    federation = Federation(GOOD)
    tries = iter(range(99))

    def submit_job(folder: str) -> str:
        next(tries)
        raise unreachable("no space")

    federation.submit_job = submit_job
    with pytest.raises(UnreachableError, match="no space"):
        finish(federation)
    assert next(tries) == 12


def test_results_that_cannot_be_fetched_now_are_fetched_later(finish):
    federation = Federation(GOOD)
    download = federation.download_job_result
    errors = iter([unreachable("gone")])

    def download_job_result(job: str, out: str) -> None:
        for error in errors:
            raise error
        download(job, out)

    federation.download_job_result = download_job_result
    assert finish(federation)[0] == "job-0/workspace/fedward"


def test_results_that_this_machine_does_not_take_end_it(finish):
    """A hostile server would get the job again, and a full disk the same results."""
    federation = Federation(GOOD, GOOD)

    def download_job_result(job: str, out: str) -> None:
        raise NotTakenError("results", expected="those of a job", found="a name outside of them")

    federation.download_job_result = download_job_result
    with pytest.raises(NotTakenError, match="a name outside of them"):
        finish(federation)
    assert federation.runs == [RUN]


def test_a_federation_without_any_site_is_watched_on(finish):
    federation = Federation(GOOD)
    federation.sites = []
    assert finish(federation) == ("job-0/workspace/fedward", ["attempt 1: job job-0"])


def test_connected_sites_without_answers_are_still_watched(finish):
    federation = Federation(GOOD)

    def get_client_job_status() -> list[dict[str, Any]]:  # FLARE has no error of its own for this
        raise RuntimeError("runtime error encountered: ERROR_RUNTIME: no responses from clients")

    federation.get_client_job_status = get_client_job_status
    assert finish(federation) == ("job-0/workspace/fedward", ["attempt 1: job job-0"])


def test_an_idle_site_is_taken_in_by_starting_the_job_again(finish):
    federation = Federation({"looks": ["RUNNING"] * 9, "idle": ["site-2"]}, GOOD)
    folder, lines = finish(federation)
    assert folder == "job-1/workspace/fedward"
    assert federation.aborted == ["job-0"]
    assert "the job was stopped, to go on with site-2" in lines


def test_a_site_that_stays_idle_is_not_waited_for_twice(finish):
    """It may refuse the job: its own rules say so, and the others go on."""
    again = {
        "looks": ["RUNNING"] * 9 + ["FINISHED:COMPLETED"],
        "run": "finished",
        "idle": ["site-2"],
    }
    federation = Federation({"looks": ["RUNNING"] * 9, "idle": ["site-2"]}, again)
    assert finish(federation)[0] == "job-1/workspace/fedward"
    assert federation.aborted == ["job-0"]


def test_sites_of_the_last_attempt_are_waited_for(finish):
    federation = Federation({"looks": ["RUNNING", "restarted"]}, GOOD)
    everyone = federation.get_connected_client_list
    calls = iter(range(99))
    federation.get_connected_client_list = lambda: everyone()[: 1 if next(calls) < 4 else 2]
    assert finish(federation)[0] == "job-1/workspace/fedward"
    assert next(calls) == 5


def test_sites_that_do_not_come_back_are_named_and_left(finish):
    federation = Federation({"looks": ["RUNNING", "restarted"]}, GOOD)
    everyone = federation.get_connected_client_list
    info = federation.get_system_info
    federation.get_connected_client_list = lambda: everyone()[:1]
    federation.get_system_info = info
    assert "going on without site-2" in finish(federation)[1]


def test_an_idle_site_that_the_job_does_not_go_to_is_left_alone(finish, tmp_path):
    export_job(tiny(), tmp_path / "job", clinical=True, sites=["site-1"])
    federation = Federation(
        {"looks": ["RUNNING"] * 9 + ["FINISHED:COMPLETED"], "run": "finished", "idle": ["site-2"]}
    )
    assert finish(federation)[0] == "job-0/workspace/fedward"
    assert federation.aborted == []


# --- who stopped what

STOPPED = (
    r"job job-0: expected a job that nobody stops, found it was stopped by somebody "
    r"else.*--continue " + RUN
)


@pytest.mark.parametrize("answers", [None, 2])
def test_what_somebody_else_stops_is_not_sent_again(finish, answers):
    federation = Federation(
        {"looks": ["RUNNING", "RUNNING", "FINISHED:ABORTED"], "answers": [answers]}, GOOD
    )
    with pytest.raises(RunError, match=STOPPED):
        finish(federation)
    assert len(federation.runs) == 1


@pytest.mark.parametrize("status", ["failed", "finished", "stopped"])
def test_a_site_that_stops_is_not_taken_for_one_that_comes_back(finish, status):
    """The job's process knows of an abort before FLARE reports it.

    Meanwhile its sites become idle, one after the other.
    """
    looks = ["RUNNING"] * 60 + ["FINISHED:ABORTED"]
    for away in (0, 1):
        federation = Federation(
            {"looks": looks, "idle": ["site-2"], "busy": 1, "away": away, "answers": [1]}, GOOD
        )
        federation.status = status
        with pytest.raises(RunError, match=STOPPED):
            finish(federation)
        assert federation.aborted == []


def test_a_member_that_comes_back_unseen_is_taken_in_later(finish):
    """It was away between two looks; for so long no abort takes."""
    federation = Federation(
        {"looks": ["RUNNING"] * 40, "idle": ["site-2"], "busy": 1, "answers": [1]}, GOOD
    )
    folder, lines = finish(federation)
    assert folder == "job-1/workspace/fedward"
    assert federation.aborted == ["job-0"]
    assert "the job was stopped, to go on with site-2" in lines


def test_a_job_that_ended_before_it_could_be_stopped_counts(finish, tmp_path):
    federation = Federation(
        {
            "looks": ["RUNNING"] * 3 + ["FINISHED:COMPLETED"],
            "idle": ["site-2"],
            "answers": [1],
            "run": "finished",
        }
    )

    def abort_job(job: str) -> None:
        raise unreachable(f"InternalError: Job {job} is not running.")

    federation.abort_job = abort_job
    assert finish(federation)[0] == "job-0/workspace/fedward"
    assert json.loads((tmp_path / "out" / f"{RUN}.stopped.json").read_text()) == {}


def test_a_new_supervisor_watches_the_job_that_runs(finish):
    federation = Federation({"looks": ["RUNNING", "FINISHED:COMPLETED"], "run": "finished"})
    federation.waiting = [("job-0", RUN, LEAD)]
    assert finish(federation) == ("job-0/workspace/fedward", ["attempt 1: job job-0"])
    assert federation.runs == []


@pytest.mark.parametrize("listed", ["SUBMITTED", "DISPATCHED"])
def test_a_job_that_begins_while_it_is_looked_for_is_not_sent_twice(finish, listed):
    """The server runs it only after the first of the two questions, whichever that is."""
    federation = Federation({"looks": ["RUNNING", "FINISHED:COMPLETED"], "run": "finished"})
    federation.waiting = [("job-0", RUN, LEAD)]
    questions: list[str] = []
    info = federation.get_system_info

    def get_system_info() -> Any:
        system = info()
        if not questions:
            system.job_info = []
        questions.append("system")
        return system

    def list_jobs() -> list[dict[str, Any]]:
        questions.append("jobs")
        return [{"job_id": "job-0", "status": listed if len(questions) == 1 else "RUNNING"}]

    federation.get_system_info = get_system_info
    federation.list_jobs = list_jobs
    assert finish(federation)[0] == "job-0/workspace/fedward"
    assert federation.runs == []


@pytest.mark.parametrize(("run", "user"), [("f" * 32, LEAD), (RUN, "lead@hospital-b.org")])
def test_another_runs_or_persons_job_is_not_taken_for_ones_own(finish, run, user):
    federation = Federation({"looks": []}, GOOD)
    federation.waiting = [("job-0", run, user)]
    assert finish(federation)[0] == "job-1/workspace/fedward"
    assert federation.runs == [RUN]


def test_a_new_supervisor_knows_what_the_last_one_stopped(finish, tmp_path):
    federation = Federation({"looks": ["FINISHED:ABORTED"]}, GOOD)
    federation.waiting = [("job-0", RUN, LEAD)]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"{RUN}.stopped.json").write_text(
        json.dumps({"job-0": "stopped, to go on with site-2"})
    )
    assert finish(federation)[0] == "job-1/workspace/fedward"
    (tmp_path / "out" / f"{RUN}.stopped.json").write_text("[]")
    with pytest.raises(ConfigError, match="expected a JSON object"):
        finish(Federation(GOOD))


def test_a_job_that_its_servers_kit_calls_abandoned_was_lost(finish):
    federation = Federation({"looks": ["RUNNING", "FINISHED:ABANDONED"]}, GOOD)
    folder, lines = finish(federation)
    assert folder == "job-1/workspace/fedward"
    assert "the job was lost with the server" in lines
