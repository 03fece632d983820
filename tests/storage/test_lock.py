"""Only one process writes a run folder."""

import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedward.errors import ConfigError, RunError
from fedward.storage.lock import is_held, locked, sole_writer

HOLD = """
import sys, time
from pathlib import Path
from fedward.storage.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "run"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_writer_is_refused_and_told_once_that_it_waits(tmp_path, holder, caplog):
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(RunError, match="another process has been writing it"),
        sole_writer(tmp_path / "run", patience=0.3),
    ):
        pytest.fail("there were two writers")
    (message,) = caplog.messages
    assert message == (
        f"run folder {tmp_path / 'run'}: another process writes it; "
        "waiting up to 0.3 s for it to end"
    )


def test_a_process_that_dies_lets_go(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with sole_writer(tmp_path / "run", patience=0):
        assert (tmp_path / "run").is_dir()


def test_who_waits_gets_it(tmp_path, holder):
    entered = threading.Event()

    def write() -> None:
        with sole_writer(tmp_path / "run"):
            entered.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not entered.is_set()
    holder.kill()
    thread.join(60)
    assert entered.is_set()


def test_a_folder_has_one_lock_whichever_path_leads_there(tmp_path, monkeypatch, holder):
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    for path in (Path("."), Path("../run"), tmp_path / "latest", tmp_path / "run" / ".." / "run"):
        assert is_held(path)
        with pytest.raises(RunError), sole_writer(path, patience=0):
            pytest.fail("there were two writers")


def test_who_asks_at_the_same_time_is_no_writer(tmp_path):
    with sole_writer(tmp_path / "run"):
        assert is_held(tmp_path / "run")
    with (tmp_path / ".run.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_held(tmp_path / "run")


def test_a_run_of_which_one_may_not_ask_is_taken_for_a_running_one(tmp_path, monkeypatch):
    """Only the owner may open the file of its lock."""

    def refused(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refused)
    assert is_held(tmp_path / "run")


@pytest.mark.proves(
    "server",
    "a pipe or a link in the place of the lock of a run",
    "no command waits for it or follows it",
)
@pytest.mark.parametrize(
    ("make", "is_taken_for_running"),
    [(os.mkfifo, False), (lambda lock: lock.symlink_to("/dev/zero"), True)],
)
def test_what_is_no_lock_does_not_hold_up_who_asks(tmp_path, make, is_taken_for_running):
    make(tmp_path / ".run.lock")
    assert is_held(tmp_path / "run") is is_taken_for_running


@pytest.mark.parametrize("holding", [sole_writer, locked])
@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda lock: lock.symlink_to("precious"), "a link"),
        (lambda lock: lock.symlink_to("none"), "a link"),
        (os.mkdir, "a folder"),
        (lambda lock: socket.socket(socket.AF_UNIX).bind(lock.name), "a socket"),
    ],
)
def test_what_is_no_lock_is_named_with_what_to_do(tmp_path, monkeypatch, holding, make, found):
    # The path of a socket is short.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_text("mine")
    make(tmp_path / ".run.lock")
    named = rf"lock .*/\.run\.lock: expected a plain file, found {found}\. Remove it"
    with pytest.raises(ConfigError, match=named), holding(tmp_path / "run"):
        pytest.fail("it was taken for a lock")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "none").exists()


def test_the_folder_itself_stays_empty(tmp_path):
    with sole_writer(tmp_path / "new" / "run"):
        assert list((tmp_path / "new" / "run").iterdir()) == []
