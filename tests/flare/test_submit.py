"""Sending a job: what is said where a kit, a job or its end is not what it should be."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from fedward.errors import ConfigError, RunError
from fedward.flare.jobs import status
from fedward.flare.jobs import submit as submitting
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.remote import UnreachableError
from fedward.flare.jobs.status import LOST
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.flare.places import put_reason
from tiny import tiny

GONE = UnreachableError("the server", expected="an answer", found="none", remedy="Wait.")
META = {
    "job_id": "42",
    "status": "FINISHED:ABNORMAL",
    "job_deploy_detail": ["server: OK", "site-1: no"],
}


class Flare:
    """A FLARE session that answers as it is told."""

    def __init__(self, status: str | None = None, error: Exception | None = None) -> None:
        self.status = status
        self.error = error
        self.record = ""
        self.files = []
        self.looks: list[dict[str, Any]] = [META]
        self.starts = [1.0]

    def submit_job(self, folder: str) -> str:
        self.files = sorted(path.name for path in Path(folder).iterdir())
        (Path(folder) / ".__nvfl_sig.json").write_text("{}")
        if self.error:
            raise self.error
        return "42"

    def get_job_meta(self, job_id: str) -> dict[str, Any]:
        if self.error:
            raise self.error
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def get_system_info(self) -> Any:
        start = self.starts.pop(0) if len(self.starts) > 1 else self.starts[0]
        return SimpleNamespace(
            server_info=SimpleNamespace(start_time=start), client_info=[], job_info=[]
        )

    def download_job_result(self, job_id: str, out: str) -> str:
        if self.error:
            raise self.error
        run = Path(out) / job_id / "workspace" / "fedward"
        if self.record:
            run.mkdir(parents=True)
            (run / "run.json").write_text(self.record)
        elif self.status:
            run.mkdir(parents=True)
            (run / "run.json").write_text(
                json.dumps({"status": self.status, "summary": {"reason": "no space"}})
            )
        return str(Path(out) / job_id)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    export_job(tiny(), tmp_path / "job", clinical=True)
    return tmp_path / "job"


def test_a_copy_is_submitted_and_flares_signature_does_not_stay(job):
    flare = Flare()
    assert submit(flare, job) == "42"
    assert flare.files == ["app", "meta.json"]
    assert not list(job.rglob(".__nvfl_*"))


@pytest.mark.parametrize(
    ("content", "run"),
    [
        *((content, None) for content in (None, "{", "[]", "{}", '{"deploy_map": 3}')),
        (None, "0123456789abcdef" * 2),
    ],
)
def test_a_folder_that_is_no_job_is_not_sent(tmp_path, content, run):
    if content:
        (tmp_path / "meta.json").write_text(content)
    flare = Flare()
    with pytest.raises(ConfigError, match=rf"job {tmp_path}: expected .*meta\.json"):
        submit(flare, tmp_path, run)
    assert flare.files == []


def test_a_refusal_is_reported_with_its_reason(job):
    with pytest.raises(RunError, match="AuthorizationError: not you"):
        submit(Flare(error=AuthorizationError("not you")), job)


@pytest.fixture(autouse=True)
def _clock_that_jumps(monkeypatch):
    """Let each wait between two looks be over at once."""
    clock = [0.0]
    sleep = SimpleNamespace(
        monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    )
    for module in (submitting, status):
        monkeypatch.setattr(module, "time", sleep)


def test_waiting_ends_and_says_that_the_job_does_not():
    assert wait(Flare(), "42") == META
    going_on = Flare()
    going_on.looks = [{**META, "status": "RUNNING", "custom_props": {"fedward_run": "the run"}}]
    with pytest.raises(RunError, match=r"within 5 s.*goes on.*--continue 'the run'"):
        wait(going_on, "42", 5)
    with pytest.raises(UnreachableError):
        wait(Flare(error=GONE), "42")


def test_who_refused_a_job_is_waited_for():
    """FLARE writes the status first."""
    refused = {**META, "status": "FINISHED:FAILED_TO_RUN"}
    no_reason = {**refused, "job_deploy_detail": None}
    flare = Flare()
    flare.looks = [{**META, "status": "DISPATCHED"}, no_reason, no_reason, refused]
    assert wait(flare, "42") == refused
    flare.looks = [no_reason]
    assert wait(flare, "42") == no_reason, "a job may fail without one"


def test_a_job_that_was_lost_with_its_server_is_not_waited_for():
    """A server's kit of an earlier version does not close it."""
    flare = Flare()
    flare.looks = [{**META, "status": "RUNNING"}]
    flare.starts = [1.0, 1.0, 2.0]
    meta = wait(flare, "42")
    assert meta["status"] == LOST
    with pytest.raises(
        RunError, match=r"found one that was lost.*`fedward submit .* --continue 42`"
    ):
        fetch(flare, meta, Path("nowhere"))


def test_a_run_counts_by_its_own_status_not_by_flares(tmp_path):
    assert fetch(Flare("finished"), META, tmp_path) == tmp_path / "42" / "workspace" / "fedward"


@pytest.mark.parametrize("status", ["failed", "running", None])
def test_an_unfinished_run_is_an_error_with_flares_reason(tmp_path, status):
    with pytest.raises(
        RunError, match=f"found {status or 'no run'}.*ABNORMAL; server: OK; site-1: no"
    ) as error:
        fetch(Flare(status), META, tmp_path)
    assert ("no space" in str(error.value)) == bool(status)


@pytest.mark.parametrize("record", ["{", "[" * 100_000], ids=["half", "lists without end"])
def test_a_broken_record_is_an_error_with_flares_reason(tmp_path, record):
    flare = Flare()
    flare.record = record
    with pytest.raises(
        RunError, match=r"found a run\.json that cannot be read.*ABNORMAL; server: OK; site-1: no"
    ):
        fetch(flare, META, tmp_path)


def test_the_words_of_server_and_sites_cannot_pass_for_lines(tmp_path):
    flare = Flare()
    flare.record = json.dumps({"status": "failed", "summary": {"reason": "a\nrun folder /b"}})
    meta = {**META, "job_deploy_detail": ["site-1: c\r\nNext: d"]}
    with pytest.raises(RunError) as error:
        fetch(flare, meta, tmp_path)
    assert "failed: a run folder /b (FLARE: FINISHED:ABNORMAL; site-1: c Next: d)" in str(
        error.value
    )


def test_a_server_gone_when_results_are_fetched_is_named(tmp_path):
    with pytest.raises(UnreachableError):
        fetch(Flare(error=GONE), META, tmp_path)


def test_the_reason_of_a_run_that_did_not_begin_is_reported(tmp_path):
    put_reason(
        ConfigError("server", expected="images", found="none", remedy="Name some."),
        tmp_path / "42/workspace/fedward",
    )
    with pytest.raises(
        RunError, match=r"found no run at all: server: expected images, found none\. Name some\."
    ):
        fetch(Flare(), META, tmp_path)


def test_an_error_names_the_lost_sites_first(tmp_path):
    with pytest.raises(
        RunError, match=r"found site-2 is lost \(no contact for 60 s\); failed: no space"
    ):
        fetch(Flare("failed"), META, tmp_path, ["site-2 is lost (no contact for 60 s)"])


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_a_kit_that_is_no_users_is_named(tmp_path, content):
    (tmp_path / "startup").mkdir()
    if content:
        (tmp_path / "startup" / "fed_admin.json").write_text(content)
    with pytest.raises(ConfigError, match=str(tmp_path)), session(tmp_path):
        pass
