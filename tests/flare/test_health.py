"""Whether a participant is connected, as containers ask."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedward.flare.kits.health import main


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def kit(folder: Path, role: str, port: int) -> str:
    server = {"name": "fedward", "service": {"target": f"localhost:{port}", "scheme": "http"}, "admin_server": "server"}
    (folder / "startup").mkdir()
    content = {"servers": [server], "client": {"fqsn": "hospital-a"}}
    (folder / "startup" / f"fed_{role}.json").write_text(json.dumps(content))
    return str(folder)


def test_a_site_is_healthy_while_its_connection_stands(tmp_path, listener, capsys):
    port = listener.getsockname()[1]
    site = kit(tmp_path, "client", port)
    assert main([site]) == 1
    assert capsys.readouterr().out == f"site hospital-a: not connected, port {port}\n"
    with socket.create_connection(("127.0.0.1", port)):
        assert main([site]) == 0
    assert capsys.readouterr().out == f"site hospital-a: connected, port {port}\n"


def test_a_server_is_healthy_while_it_listens(tmp_path, listener):
    server = kit(tmp_path, "server", listener.getsockname()[1])
    assert main([server]) == 0
    listener.close()
    assert main([server]) == 1


def test_the_kit_is_named_by_the_environment(tmp_path, listener, monkeypatch, capsys):
    monkeypatch.delenv("FEDWARD_KIT", raising=False)
    assert main([]) == 1
    assert "FEDWARD_KIT" in capsys.readouterr().out
    monkeypatch.setenv("FEDWARD_KIT", kit(tmp_path, "server", listener.getsockname()[1]))
    assert main([]) == 0


def test_what_is_no_kit_is_not_healthy(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert "expected one of" in capsys.readouterr().out
