"""A session in a process of its own: its answers, and what happens if it hangs or dies."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError, JobNotRunning
from nvflare.fuel.flare_api.flare_api import Session

from fedward.errors import ConfigError
from fedward.flare.jobs import remote
from fedward.flare.jobs.remote import NotTakenError, RemoteSession, UnreachableError
from fedward.flare.jobs.session_process import QUESTIONS

FAKE = """
    import json, os, pathlib, sys, time

    out = os.fdopen(int(sys.argv[3]), "w")
    print("CoreCell says what nobody wants to read")
    def tell(**line):
        out.write(json.dumps(line) + "\\n")
        out.flush()
    {login}
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        {answer}
"""


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "transfer").mkdir()
    admin = {
        "username": "lead@hospital-a.org",
        "project_name": "fedward",
        "server_identity": "localhost",
    }
    admin |= {"scheme": "http", "host": "localhost", "port": 8002}
    (tmp_path / "kit" / "startup" / "fed_admin.json").write_text(json.dumps({"admin": admin}))
    return tmp_path / "kit"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Let another process answer: statements for the login, and for each question."""

    def make(answer: str = "tell(answer=arguments)", login: str = "tell(answer=None)") -> None:
        text = textwrap.dedent(FAKE).format(login=login, answer=answer)
        (tmp_path / "fake_session.py").write_text(text)

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(remote, "PROCESS_MODULE", "fake_session")
    return make


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def test_questions_and_answers_pass_as_they_are(kit, fake, capfd):
    fake(
        "tell(answer=[name, *arguments] if name == 'list_jobs' else {'job': arguments[0], 'name': "
        "'ü\\n\"'})"
    )
    before = children()
    with RemoteSession(kit) as session:
        assert session.get_job_meta("42") == {"job": "42", "name": 'ü\n"'}
        assert session.list_jobs() == ["list_jobs"]
        assert len(children()) == len(before) + 1
    assert children() == before
    session.close()
    assert capfd.readouterr() == ("", "")


def test_a_session_imports_nothing_from_the_working_directory(kit, fake, tmp_path, monkeypatch):
    """A lead may call a command in a folder of fetched results, or of a job somebody has sent."""
    fake()
    here = tmp_path / "results"
    here.mkdir()
    (here / "json.py").write_text("open('ran', 'w').close()\nraise ImportError\n")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.chdir(here)
    with RemoteSession(kit) as session:
        assert session.list_jobs() == []
    assert [path.name for path in here.iterdir()] == ["json.py"]


def test_the_system_is_described_in_flares_own_objects(kit, fake):
    found = {
        "status": "started",
        "start_time": 1.5,
        "clients": [{"name": "hospital-a", "last_connect_time": 2.5}],
        "jobs": [{"job_id": "42", "app_name": "app"}],
    }
    fake(f"tell(answer={found!r})")
    with RemoteSession(kit) as session:
        info = session.get_system_info()
        assert info.server_info.status == "started"
        assert info.server_info.start_time == 1.5
        assert [
            (one.name, one.last_connect_time) for one in session.get_connected_client_list()
        ] == [("hospital-a", 2.5)]
        assert [(job.job_id, job.app_name) for job in info.job_info] == [("42", "app")]


@pytest.mark.parametrize("kind", [AuthorizationError, JobNotRunning, RuntimeError])
def test_flares_exceptions_come_back_in_one_line(kit, fake, kind):
    fake(f"tell(error=['{kind.__name__}', 'not\\n you'])")
    with RemoteSession(kit) as session:
        with pytest.raises(kind, match=r"^not you$"):
            session.abort_job("42")
        with pytest.raises(kind, match=r"^not you$"):
            session.list_jobs()


@pytest.mark.parametrize(
    "kind", ["NoConnection", "SessionClosed", "InternalError", "FLCommunicationError"]
)
def test_a_server_that_cannot_be_reached_is_named(kit, fake, kind):
    fake(f"tell(error=['{kind}', 'gone'])")
    with (
        RemoteSession(kit) as session,
        pytest.raises(UnreachableError, match=rf"startup kit .*found {kind}: gone"),
    ):
        session.list_jobs()


@pytest.mark.parametrize(
    ("kind", "text"),
    [("UnsafeAnswerError", "Do not use this server"), ("NoRoomError", "Make room")],
)
def test_what_this_machine_does_not_take_is_an_error_of_its_own(kit, fake, tmp_path, kind, text):
    fake(f"tell(error=['{kind}', 'so much'])")
    with (
        RemoteSession(kit) as session,
        pytest.raises(NotTakenError, match=rf"found so much\. .*{text}"),
    ):
        session.download_job_result("42", str(tmp_path))


@pytest.mark.parametrize("kind", ["NoConnection", "AuthenticationError"])
def test_a_server_that_does_not_let_in_is_named(kit, fake, kind):
    fake(login=f"tell(error=['{kind}', 'who?'])")
    before = children()
    with pytest.raises(UnreachableError, match=r"expected a server that accepts it, found who\?"):
        RemoteSession(kit)
    assert children() == before


HANG = "[os.fork() for _ in range(2)], time.sleep(600)"


def test_a_login_that_hangs_ends_with_all_its_processes(kit, fake, monkeypatch):
    fake(login=HANG)
    monkeypatch.setattr(remote, "LOGIN_SECONDS", 3.0)
    before = children()
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="found none to the login in time"):
        RemoteSession(kit)
    assert time.monotonic() - began >= 3
    assert children() == before


def test_a_question_that_hangs_ends_the_session(kit, fake, monkeypatch):
    fake(answer=HANG)
    monkeypatch.setattr(remote, "ANSWER_SECONDS", 0.5)
    before = children()
    with RemoteSession(kit) as session:
        with pytest.raises(
            UnreachableError, match="found none to list_jobs in time; it may stand still"
        ):
            session.list_jobs()
        assert children() == before
        with pytest.raises(UnreachableError, match="found one that was given up"):
            session.list_jobs()


def test_a_process_that_hangs_at_the_end_is_killed(kit, fake, monkeypatch):
    fake()
    monkeypatch.setattr(remote, "_KILL_SECONDS", 0.5)
    answer_and_ignore_sigterm = [
        "tell(answer=[])",
        "signal = __import__('signal')",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    ]
    fake(answer="\n    ".join(answer_and_ignore_sigterm))
    text = (kit.parent / "fake_session.py").read_text()
    (kit.parent / "fake_session.py").write_text(text + "\ntime.sleep(600)\n")
    before = children()
    with RemoteSession(kit) as session:
        session.list_jobs()
    assert children() == before


def test_a_process_that_dies_leaves_its_last_words(kit, fake):
    fake(answer="sys.exit('out of memory')")
    with (
        RemoteSession(kit) as session,
        pytest.raises(UnreachableError, match=r"ended at list_jobs: .*out of memory"),
    ):
        session.list_jobs()
    fake(login="os._exit(3)")
    with pytest.raises(UnreachableError, match="its process ended at the login"):
        RemoteSession(kit)


def test_a_download_lasts_while_it_grows(kit, fake, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "STANDSTILL_SECONDS", 2.0)
    write_a_file = "pathlib.Path(sys.argv[2], 'transfer', str(i)).write_text('x')"
    write_slowly = f"[({write_a_file}, time.sleep(0.5)) for i in range(8)]"
    fake(answer=f"{write_slowly}, tell(answer=arguments[1])")
    with RemoteSession(kit) as session:
        assert session.download_job_result("42", str(tmp_path / "out")) == str(tmp_path / "out")
    fake(answer="time.sleep(600)")
    with (
        RemoteSession(kit) as session,
        pytest.raises(UnreachableError, match="none to results of job 42 in time"),
    ):
        session.download_job_result("42", str(tmp_path / "out"))


def test_only_what_is_listed_is_asked_and_flare_has_it():
    own = {name for name in vars(RemoteSession) if not name.startswith("_")} - {
        "close",
        "get_connected_client_list",
    }
    assert own == set(QUESTIONS)
    assert all(callable(getattr(Session, name)) for name in QUESTIONS)


def test_a_kit_of_no_user_opens_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected one of"):
        RemoteSession(tmp_path)


def test_nothing_else_in_the_package_opens_a_session() -> None:
    package = Path(remote.__file__).parents[2]
    ways = re.compile("new_(in)?secure_session|try_connect")
    users = [
        path.name for path in package.rglob("*.py") if ways.search(path.read_text(encoding="utf-8"))
    ]
    assert users == ["session_process.py"]


def test_the_process_ends_with_its_input_while_flare_tries(kit: Path) -> None:
    """Who asks may be killed; nobody listens at the kit's port, and FLARE tries for ten seconds."""
    answers, theirs = os.pipe()
    command = [
        sys.executable,
        "-m",
        remote.PROCESS_MODULE,
        "lead@hospital-a.org",
        str(kit),
        str(theirs),
    ]
    for name in ("client.crt", "client.key", "rootCA.pem"):
        (kit / "startup" / name).write_text("")
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=[theirs],
        timeout=60,
        check=False,
    )
    os.close(theirs)
    assert done.returncode == 0
    with os.fdopen(answers) as lines:
        found = [json.loads(line) for line in lines]
    assert all("error" in line for line in found)
