"""What docs/network.md says of FLARE: which transports use an HTTP proxy, and where 443 is set."""

import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from fedward.flare.kits.kit import open_kit
from provisioned import PROJECT

CONNECT = """
import sys, threading
from nvflare.fuel.f3.drivers.aio_http_driver import AioHttpDriver
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo, Mode
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver

class Monitor:
    def state_change(self, connection): pass

scheme, port = sys.argv[1:]
driver = {"http": AioHttpDriver, "tcp": TcpDriver, "grpc": GrpcDriver}[scheme]()
driver.register_conn_monitor(Monitor())
params = {"scheme": scheme, "host": "localhost", "port": int(port)}
driver.connect(ConnectorInfo("one", driver, params, Mode.ACTIVE, 0, 0, False, threading.Event()))
"""


@pytest.mark.parametrize(("scheme", "proxied"), [("http", False), ("tcp", False), ("grpc", True)])
def test_only_grpc_asks_an_http_proxy(scheme, proxied):
    with (
        socket.create_server(("127.0.0.1", 0)) as proxy,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        seen: dict[str, bytes] = {}
        first = threading.Event()

        def hear(name: str, listener: socket.socket) -> None:
            connection, _ = listener.accept()
            with connection:
                seen.setdefault(name, connection.recv(16) if name == "proxy" else b"")
                first.set()

        for name, listener in {"proxy": proxy, "server": server}.items():
            threading.Thread(target=hear, args=(name, listener), daemon=True).start()
        place = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        environment = dict.fromkeys(
            ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), place
        )
        client = subprocess.Popen(
            [sys.executable, "-c", CONNECT, scheme, str(server.getsockname()[1])],
            env={"PATH": "/usr/bin:/bin", **environment},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert first.wait(60)
            assert seen == ({"proxy": b"CONNECT localhos"} if proxied else {"server": b""})
        finally:
            client.kill()
            client.wait()


def test_sites_and_people_may_connect_to_a_port_that_a_firewall_redirects(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "network.md").read_text()
    (written,) = re.findall(r"`connect_to:\s+({[^}]*})`", page)
    redirected = yaml.safe_load(written.replace("SERVER", "localhost"))
    assert redirected == {"host": "localhost", "port": 443}
    project = yaml.safe_load(PROJECT.read_text())
    kept = ("localhost", "hospital-a", "lead@hospital-a.org")
    project["participants"] = [each for each in project["participants"] if each["name"] in kept]
    for participant in project["participants"][1:]:
        participant["connect_to"] = redirected
    file = tmp_path / "project.yml"
    file.write_text(yaml.safe_dump(project, sort_keys=False))
    command = [sys.executable, "-m", "nvflare.cli", "provision", "--force"]
    subprocess.run([*command, "-p", file, "-w", tmp_path], check=True, capture_output=True)
    kits = tmp_path / "fedward" / "prod_00"
    assert [open_kit(kits / name).port for name in kept] == [8002, 443, 443]
