"""Progress over FLARE: the controller's answer, and what users read about their jobs."""

from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.flare_api.api_spec import (
    ClientInfo,
    JobInfo,
    JobNotFound,
    JobNotRunning,
    ServerInfo,
    SystemInfo,
)
from nvflare.widgets.info_collector import GroupInfoCollector, InfoCollector

from fedward.errors import ConfigError, RunError
from fedward.flare.controller import ExperimentController
from fedward.flare.jobs.status import STATS, describe, job_progress
from fedward.flare.places import METRICS_VARIABLE, named_folder
from fedward.flare.workflows import FedPerlController
from fedward.server.run_status import lines, progress
from fedward.storage.lock import sole_writer
from finished_run import new_run
from tiny import tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_run(tmp_path / "run", tiny(), ["site-1"], "flare").path


class Flare:
    """A FLARE session that answers as it is told: job -> its statistics, or an error."""

    def __init__(self, **jobs: Any) -> None:
        self.jobs = jobs
        self.statuses: dict[str, str] = {}
        self.server_start = 50.0

    def show_stats(self, job_id: str, target_type: str) -> dict[str, Any]:
        assert target_type == "server"
        answer = self.jobs[job_id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def list_jobs(self) -> list[dict[str, Any]]:
        metas = [self.get_job_meta(job) for job in [*self.jobs, "old"]]
        return [
            {**meta, "job_name": f"name of {meta['job_id']}", "submit_time": 1} for meta in metas
        ]

    def get_job_meta(self, job_id: str) -> dict[str, Any]:
        if isinstance(self.jobs.get(job_id), JobNotFound) and job_id not in self.statuses:
            raise JobNotFound(job_id)
        status = self.statuses.get(
            job_id, "RUNNING" if job_id in self.jobs else "FINISHED:COMPLETED"
        )
        return {"job_id": job_id, "status": status, "start_time": "1970-01-01T00:01:40+00:00"}

    def get_system_info(self) -> SystemInfo:
        return SystemInfo(
            ServerInfo("started", self.server_start),
            [ClientInfo("site-1", 0.0)],
            [JobInfo("e", "app")],
        )


def stats(state: dict[str, Any]) -> dict[str, Any]:
    return {"server": {"ServerRunner": {"status": "started"}, STATS: state}}


def collected(
    controller: ExperimentController, event: str = InfoCollector.EVENT_TYPE_GET_STATS
) -> dict[str, Any]:
    collector = GroupInfoCollector()
    context = FLContext()
    context.set_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR, collector, private=True, sticky=False)
    controller.handle_event(event, context)
    return collector.info


def test_the_controller_tells_its_runs_progress(folder):
    controller = FedPerlController()
    assert collected(controller) == {STATS: {}}
    controller.folder = folder
    stopped = progress(folder)
    assert stopped["status"] == "stopped"
    assert collected(controller) == {STATS: stopped}
    (folder / "run.json").write_text("{}")
    assert "expected a readable run.json" in collected(controller)[STATS]["error"]


def test_the_controller_of_a_running_job_says_what_the_next_round_is_for(folder):
    controller = FedPerlController(rounds=3, warm_up=1)
    controller.folder = folder
    with sole_writer(folder):
        stats = collected(controller)[STATS]
    assert stats["status"] == "running"
    assert stats["purpose"] == "warm-up without peers, until round 1"
    assert "  purpose   warm-up without peers, until round 1" in lines(stats)


def test_other_events_change_nothing(folder):
    controller = FedPerlController()
    controller.folder = folder
    assert collected(controller, "another") == {}


def test_a_running_job_is_listed_with_its_progress(folder):
    state = progress(folder)
    flare = Flare(a=stats(state))
    assert job_progress(flare, "a") == state
    assert describe(flare, "a") == ["job a", *lines(state)]


def test_all_running_jobs_are_listed_with_their_progress(folder):
    state = progress(folder)
    flare = Flare(
        a=stats(state), b=stats({}), c=JobNotRunning(), d=stats({"error": "damaged"}), e={}
    )
    assert describe(flare) == [
        "job a  name of a",
        *lines(state),
        "job b  name of b",
        "  starting",
        "job c  name of c",
        "  ending",
        "job d  name of d",
        "  damaged",
        "job e  name of e",
        "  starting",
    ]
    assert describe(Flare()) == ["no job runs"]


@pytest.mark.proves(
    "lead", "line breaks in a job's name, to fake lines of status", "it stays one line"
)
def test_a_jobs_name_stays_one_line():
    flare = Flare(a={})
    name = "x\n  best 1.000\r\nAll well"
    flare.list_jobs = lambda: [
        {"job_id": "a", "job_name": name, "status": "RUNNING", "submit_time": 1}
    ]
    assert describe(flare) == ["job a  x best 1.000 All well", "  starting"]


def test_a_job_is_listed_with_its_run():
    flare = Flare(a={})
    meta = flare.get_job_meta
    flare.get_job_meta = lambda job: {**meta(job), "custom_props": {"fedward_run": "0123\n4567"}}
    assert describe(flare, "a") == ["job a", "  run 0123 4567", "  starting"]


@pytest.mark.parametrize("status", ["SUBMITTED", "DISPATCHED", "RUNNING"])
@pytest.mark.parametrize("answer", [JobNotFound(), JobNotRunning()])
def test_a_job_that_begins_is_starting(status, answer):
    """FLARE says that there is no such job, or that it does not run."""
    flare = Flare(e=answer)
    flare.statuses["e"] = status
    assert describe(flare) == ["job e  name of e", "  starting"]
    with pytest.raises(RunError, match="found starting"):
        job_progress(flare, "e")


def test_a_lost_job_is_listed_until_another_is_sent():
    flare = Flare(a=JobNotRunning())
    flare.statuses["a"] = "FINISHED:ABANDONED"
    assert describe(flare) == ["job a  name of a", "  lost: the server ended while it ran"]
    jobs = flare.list_jobs()
    flare.list_jobs = lambda: [
        *jobs,
        {**jobs[0], "job_id": "b", "status": "FINISHED:COMPLETED", "submit_time": 2},
    ]
    assert describe(flare) == ["no job runs"]


def test_a_job_that_began_before_its_server_is_lost():
    flare = Flare(a=JobNotRunning())
    flare.statuses["a"], flare.server_start = "RUNNING", 101.0
    assert describe(flare) == ["job a  name of a", "  lost: the server ended while it ran"]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (
            JobNotRunning(),
            r"expected a running job, found FINISHED:COMPLETED\..*`fedward submit .* --continue a`",
        ),
        (JobNotFound(), "expected a job of this federation, found none"),
        (stats({"error": "damaged"}), "found damaged"),
    ],
)
def test_a_job_that_tells_nothing_is_named_with_the_reason(answer, found):
    flare = Flare(a=answer)
    if isinstance(answer, JobNotRunning):
        flare.statuses["a"] = "FINISHED:COMPLETED"
    with pytest.raises(RunError, match=f"job a: .*{found}"):
        job_progress(flare, "a")


def test_metrics_are_written_where_the_environment_says(monkeypatch):
    monkeypatch.delenv("FEDWARD_METRICS", raising=False)
    assert named_folder(METRICS_VARIABLE) is None
    monkeypatch.setenv("FEDWARD_METRICS", "/data/metrics")
    assert named_folder(METRICS_VARIABLE) == Path("/data/metrics")
    monkeypatch.setenv("FEDWARD_METRICS", "metrics")
    with pytest.raises(ConfigError, match="FEDWARD_METRICS"):
        named_folder(METRICS_VARIABLE)
