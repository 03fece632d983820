"""Whether a participant is connected, as containers ask; and what its process writes of that."""

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import RunStatus

from fedward.flare.kits import disks, presence
from fedward.flare.kits.health import main
from fedward.flare.kits.presence import KitPresence, Presence, end_if_taken


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def kit(folder: Path, role: str, port: int = 8002) -> str:
    server = {
        "name": "fedward",
        "service": {"target": f"localhost:{port}", "scheme": "http"},
        "admin_server": "server",
    }
    (folder / "startup").mkdir()
    content = {"servers": [server], "client": {"fqsn": "hospital-a"}}
    (folder / "startup" / f"fed_{role}.json").write_text(json.dumps(content))
    return str(folder)


def written(folder: Path, ago: float, **facts: Any) -> None:
    (folder / "fedward").mkdir(exist_ok=True)
    content = {"written": time.time() - ago, "port": None, "sites": {}, **facts}
    (folder / "fedward" / "presence.json").write_text(json.dumps(content))


def test_a_site_is_healthy_while_its_server_answers(tmp_path, capsys):
    site = kit(tmp_path, "client")
    assert main([site]) == 1
    assert capsys.readouterr().out == "site hospital-a: not connected, no contact so far\n"
    written(tmp_path, 40)
    assert main([site]) == 0
    assert capsys.readouterr().out == "site hospital-a: connected, last contact 40 s ago\n"
    written(tmp_path, 50)
    assert main([site]) == 1
    assert capsys.readouterr().out == "site hospital-a: not connected, last contact 50 s ago\n"


def test_a_contact_from_the_future_does_not_count(tmp_path):
    """The machine's clock has been set back since."""
    site = kit(tmp_path, "client")
    written(tmp_path, -3600)
    assert main([site]) == 1


def test_an_open_connection_is_no_contact(tmp_path, listener):
    port = listener.getsockname()[1]
    site = kit(tmp_path, "client", port)
    with socket.create_connection(("127.0.0.1", port)):
        assert main([site]) == 1


def test_a_server_is_healthy_while_it_holds_its_port(tmp_path, listener, capsys):
    port = listener.getsockname()[1]
    server = kit(tmp_path, "server", port)
    assert main([server]) == 1  # another process listens there
    now = time.time()
    written(tmp_path, 2, port=port, sites={"hospital-a": now - 3, "hospital-b": now - 120})
    assert main([server]) == 0
    contacts = "1 of 2 sites in contact; silent for hospital-b 120 s"
    line = f"server server: connected, port {port}, {contacts}\n"
    assert capsys.readouterr().out.endswith(line)
    written(tmp_path, 2, port=port, sites={"hospital-a": now - 3})
    assert main([server]) == 0
    assert "1 of 1 site in contact\n" in capsys.readouterr().out
    written(tmp_path, 2)
    assert main([server]) == 1
    line = f"server server: not connected, its process does not hold port {port}\n"
    assert capsys.readouterr().out == line
    written(tmp_path, 90, port=port)
    assert main([server]) == 1
    line = "server server: not connected, its process last wrote 90 s ago\n"
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_full_disk_is_named(tmp_path, monkeypatch, capsys, role):
    """Such a participant may be connected, but cannot write down that it is."""
    monkeypatch.setattr(disks.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    participant = kit(tmp_path, role)
    written(tmp_path, 90)
    assert main([participant]) == 1
    told = "not connected, its disk is full, and it could write nothing for 90 s\n"
    assert capsys.readouterr().out.endswith(told)


def test_a_disk_that_this_account_may_not_look_at_is_not_called_full(tmp_path, monkeypatch):
    def refused(path: object, **_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refused)
        patched.setattr(disks.shutil, "disk_usage", refused)
        assert not disks.is_full(tmp_path)


def test_the_kit_is_named_by_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("FEDWARD_KIT", raising=False)
    assert main([]) == 1
    assert "FEDWARD_KIT" in capsys.readouterr().out
    monkeypatch.setenv("FEDWARD_KIT", kit(tmp_path, "client"))
    written(tmp_path, 0)
    assert main([]) == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"written": "x", "port": 1, "sites": {}}'])
def test_what_cannot_be_read_is_not_healthy(tmp_path, capsys, text):
    site = kit(tmp_path, "client")
    written(tmp_path, 0)
    (tmp_path / "fedward" / "presence.json").write_text(text)
    assert main([site]) == 1
    assert "presence.json" in capsys.readouterr().out


def test_what_is_no_kit_is_not_healthy(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert "expected one of" in capsys.readouterr().out


def test_a_kit_of_an_earlier_version_says_what_it_lacks(tmp_path, capsys):
    site = kit(tmp_path, "client")
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "resources.json.default").write_text("{}")
    assert main([site]) == 1
    reason = "resources.json.default does not name fedward.flare.kits.presence.KitPresence"
    assert reason in capsys.readouterr().out


# --- what a participant's process writes


class Cell:
    """FLARE's connection, as far as it lets replies be looked at."""

    def __init__(self) -> None:
        self.core_cell = self
        self.filters = []

    def add_incoming_reply_filter(self, channel: str, topic: str, cb: Any) -> None:
        self.filters.append((channel, topic, cb))

    def reply(self, code: str) -> None:
        for _, _, look in self.filters:
            look(SimpleNamespace(get_header=lambda name: code))


def context(folder: Path, engine: Any) -> FLContext:
    found = FLContext()
    found.set_prop(
        FLContextKey.WORKSPACE_OBJECT,
        SimpleNamespace(get_root_dir=lambda: str(folder)),
        private=True,
    )
    found.get_engine = lambda: engine
    return found


def test_a_site_notes_each_heartbeat_that_is_answered(tmp_path):
    kit(tmp_path, "client")
    component = KitPresence()
    cell = Cell()
    engine = SimpleNamespace(get_cell=lambda: cell)
    file = tmp_path / "fedward" / "presence.json"
    for _ in range(3):
        component.handle_event(EventType.BEFORE_CLIENT_HEARTBEAT, context(tmp_path, engine))
        assert not file.exists()  # it is sent, and nobody has answered
    assert [(channel, topic) for channel, topic, _ in cell.filters] == [("task", "heart_beat")]
    cell.reply("unauthenticated")
    assert not file.exists()
    cell.reply("ok")
    assert 0 <= time.time() - json.loads(file.read_text())["written"] < 60
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = Cell()
    engine.get_cell = lambda: again
    component.handle_event(EventType.BEFORE_CLIENT_HEARTBEAT, context(tmp_path, engine))
    assert len(again.filters) == 1


def test_a_server_closes_at_its_start_what_ran_when_it_ended(tmp_path, monkeypatch):
    kit(tmp_path, "server", 1)
    closed = {}

    class Manager:
        def get_jobs_by_status(self, statuses: list[RunStatus], fl_ctx: FLContext) -> list[Any]:
            assert statuses == [RunStatus.RUNNING, RunStatus.DISPATCHED]
            return [SimpleNamespace(job_id="a"), SimpleNamespace(job_id="b")]

        def set_status(self, job: str, status: RunStatus, fl_ctx: FLContext) -> None:
            closed[job] = status

    engine = SimpleNamespace(get_component=lambda name: {"job_manager": Manager()}[name])
    KitPresence().handle_event(EventType.SYSTEM_BOOTSTRAP, context(tmp_path, engine))
    assert closed == {"a": RunStatus.ABANDONED, "b": RunStatus.ABANDONED}


def test_a_server_whose_port_is_taken_ends_and_touches_no_job(
    tmp_path, monkeypatch, capsys, listener
):
    port = listener.getsockname()[1]
    kit(tmp_path, "server", port)
    monkeypatch.setattr(presence, "os", SimpleNamespace(_exit=_leave))
    monkeypatch.setattr(presence, "_own_processes", lambda: {-1})
    with pytest.raises(SystemExit) as end:
        KitPresence().handle_event(EventType.SYSTEM_BOOTSTRAP, context(tmp_path, None))
    assert end.value.code == 1
    text = f"fedward: the server's port {port}: expected it free, found process {os.getpid()} ("
    assert capsys.readouterr().err.startswith(text)


def _leave(code: int) -> None:
    raise SystemExit(code)


def test_a_port_of_ones_own_is_not_taken(listener):
    end_if_taken(listener.getsockname()[1])


def test_a_socket_that_is_just_being_opened_is_no_others(monkeypatch):
    looks = iter([[None], [os.getpid()]])
    monkeypatch.setattr(presence, "_listening_processes", lambda port: next(looks))
    end_if_taken(1)
    assert not list(looks)


def test_a_server_writes_its_port_and_its_sites(tmp_path, monkeypatch, listener):
    port = listener.getsockname()[1]
    folder = kit(tmp_path, "server", port)
    engine = SimpleNamespace(
        get_clients=lambda: [SimpleNamespace(name="hospital-a", last_connect_time=7.0)]
    )
    monkeypatch.setattr(presence, "time", SimpleNamespace(time=time.time, sleep=_interrupt))
    with pytest.raises(KeyboardInterrupt):
        presence._watch_server(presence.open_kit(Path(folder)), engine)
    found = Presence.of(presence.open_kit(Path(folder)))
    assert found.port == port
    assert found.sites == {"hospital-a": 7.0}
    assert main([folder]) == 0


def _interrupt(seconds: float) -> None:
    raise KeyboardInterrupt
