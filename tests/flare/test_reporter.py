"""What the sender of a job is told while it runs."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.flare_api.api_spec import ClientInfo, JobInfo, ServerInfo, SystemInfo

from fedward.flare.jobs import reporter as module
from fedward.flare.jobs.reporter import Reporter
from fedward.flare.jobs.status import STATS
from fedward.server.run_status import round_lines


class Federation:
    """A server with some sites, and a job that says of its rounds what a test wants."""

    def __init__(self) -> None:
        self.heard = {"hospital-a": 0.0, "hospital-b": 0.0}
        self.state: Any = None
        self.asked = 0
        self.slow = 0.0

    def info(self) -> SystemInfo:
        sites = [ClientInfo(name, last) for name, last in self.heard.items()]
        return SystemInfo(ServerInfo("started", 1.0), sites, [JobInfo("job", "app")])

    def show_stats(self, job: str, target: str) -> dict[str, Any]:
        self.asked += 1
        module.time.sleep(self.slow)
        if isinstance(self.state, Exception):
            raise self.state
        return {"server": {STATS: self.state} if self.state else {}}


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    time = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    monkeypatch.setattr(module, "time", time)
    return time


def state(round_: int, failed: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    exchange = {
        "round": round_,
        "seconds": 4.25,
        "asked": ["a", "b", "c"],
        "replied": ["a", "b"],
        "failed": failed or {},
    }
    last = {"round": round_ - 1, "value": 0.2171}
    return {
        **{
            "status": "running",
            "round": round_,
            "rounds": 12,
            "exchange": exchange,
            "metric": "f1_weighted",
        },
        **{"last": last, "waiting": {}, **changes},
    }


def reported(clock: Any, states: Iterable[dict[str, Any]]) -> tuple[list[str], Reporter]:
    """Return what a reporter says of these answers of a job, one after the other."""
    lines = []
    federation = Federation()
    reporter = Reporter(lines.append)
    for answer in states:
        federation.state = answer
        reporter.look(federation, "job", federation.info())
        clock.sleep(2)
    return lines, reporter


def test_each_round_is_a_line_and_each_failure_too(clock):
    failures = [(1, {}), (1, {}), (2, {"c": "no answer within 30 s"}), (5, {})]
    lines, reporter = reported(clock, [state(round_, failed) for round_, failed in failures])
    assert lines == [
        "round 1 of 12: 2 of 3 sites replied, f1_weighted 0.217 (round 0), 4.2 s",
        "round 2 of 12: 2 of 3 sites replied, f1_weighted 0.217 (round 1), 4.2 s",
        "            c: no answer within 30 s",
        "rounds 3 to 5 of 12: 2 of 3 sites replied, f1_weighted 0.217 (round 4), 4.2 s",
    ]
    assert reporter.round == 5


def test_a_value_that_was_not_measured_anew_is_named_once(clock):
    measured_after = {1: 0, 2: 0, 4: 2}
    states = [
        state(round_, last={"round": measured, "value": 0.217})
        for round_, measured in measured_after.items()
    ]
    lines, _ = reported(clock, states)
    assert lines == [
        "round 1 of 12: 2 of 3 sites replied, f1_weighted 0.217 (round 0), 4.2 s",
        "round 2 of 12: 2 of 3 sites replied, 4.2 s",
        "rounds 3 to 4 of 12: 2 of 3 sites replied, f1_weighted 0.217 (round 2), 4.2 s",
    ]


def test_lines_are_of_80_columns_and_say_what_is_known():
    assert round_lines(state(1, exchange=None, last=None), 1) == ["round 1 of 12"]
    lines = round_lines(state(3, {"c": "x" * 200}, metric="balanced_accuracy_of_a_long_name"), 3)
    assert max(map(len, lines)) <= 80


def test_a_server_that_answers_slowly_is_asked_less_often(clock):
    federation = Federation()
    federation.state = state(1)
    federation.slow = 3.0
    reporter = Reporter([].append)
    for _ in range(30):
        reporter.look(federation, "job", federation.info())
        clock.sleep(2)
    assert federation.asked == 2


@pytest.mark.parametrize(
    "answer", [None, RuntimeError("FLARE's own"), {"round": 3, "status": "running"}]
)
def test_a_job_that_says_nothing_of_use_is_looked_at_on(clock, answer):
    lines = []
    federation = Federation()
    federation.state = answer
    Reporter(lines.append).look(federation, "job", federation.info())
    assert lines == []


def test_a_site_that_waits_for_approval_is_named_once(clock):
    lines = []
    federation = Federation()
    federation.state = state(0, waiting={"hospital-b": "abc"})
    reporter = Reporter(lines.append)
    for _ in range(3):
        reporter.look(federation, "job", federation.info())
        clock.sleep(2)
    assert lines == ["hospital-b waits for approval of job abc"]


@pytest.mark.parametrize("removed", [False, True])
def test_a_silent_site_is_named_within_a_few_heartbeats(clock, removed):
    """The server goes on listing it for a minute, and then no longer."""
    lines = []
    federation = Federation()
    reporter = Reporter(lines.append)
    for second in range(0, 60, 2):
        federation.heard["hospital-a"] = second // 10 * 10
        if removed and second == 20:
            del federation.heard["hospital-b"]
        reporter.look(federation, "job", federation.info())
        clock.sleep(2)
        if lines:
            break
    assert lines == ["hospital-b is lost: the server has not heard of it for 30 s"]
    assert reporter.lost_sites == ["hospital-b is lost (no contact for 30 s)"]
    federation.heard["hospital-b"] = 70.0
    reporter.look(federation, "job", federation.info())
    assert lines[1:] == ["hospital-b is back"]
    assert reporter.lost_sites == []


def test_a_server_that_stood_still_has_lost_nobody(clock):
    lines = []
    federation = Federation()
    reporter = Reporter(lines.append)
    for _ in range(3):
        reporter.look(federation, "job", federation.info())
        clock.sleep(300)
    assert lines == []


def test_sites_that_the_job_does_not_go_to_are_not_reported(clock):
    lines = []
    federation = Federation()
    reporter = Reporter(lines.append)
    for _ in range(30):
        reporter.look(federation, "job", federation.info(), {"hospital-b"})
        clock.sleep(2)
    assert lines == ["hospital-b is lost: the server has not heard of it for 30 s"]
