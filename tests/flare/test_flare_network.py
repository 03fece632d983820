"""Which of FLARE's transports use an HTTP proxy, as docs/network.md says."""

import socket
import subprocess
import sys
import threading

import pytest

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
