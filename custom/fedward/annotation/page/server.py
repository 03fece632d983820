"""Serving the page until Ctrl-C: the socket, the address, and a token that outlives a crash."""

import secrets
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path

from flask import Flask

from fedward import private
from fedward.annotation.page.connections import Handler, Server
from fedward.errors import ConfigError, reason_of_system

_SHORTEST_TOKEN = 32
"""Letters of a token that may be used again; a shorter one is damaged."""
_OWN = private.Standard(
    "a file of this account that only it may read or write",
    stat.S_IRWXG | stat.S_IRWXO,
    owners=True,
)
"""The standard of a token that may be used again."""


class Token:
    """The token of a run of the page, kept beside the queue while it runs.

    A page that ends well removes the token. A page that was killed finds it again at the next
    start, so that open tabs go on and send the answers that they could not send. A token that other
    accounts could read, or that is a link, is replaced, because somebody may know it.

    Args:
        folder: the queue's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "token"
        self.value = self._left_by_earlier_run()
        if len(self.value) < _SHORTEST_TOKEN:
            self.value = secrets.token_urlsafe(32)
            self._path.unlink(missing_ok=True)
            with open(self._path, "x", opener=private.opener) as file:
                file.write(self.value)

    def _left_by_earlier_run(self) -> str:
        """Return the token that an earlier run left; empty if it cannot be used."""
        try:
            return private.read(self._path, _OWN).decode("ascii")
        except (OSError, ValueError):
            return ""

    def forget(self) -> None:
        """Remove the token, so that the next run makes another one."""
        with suppress(OSError):
            self._path.unlink()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: an address of this machine.
        port: 0 for any free port.

    Raises:
        ConfigError: the host is not this machine's, or the port is taken or not allowed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = reason_of_system(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"fedward annotate cannot listen on port {port} of {host} ({reason})",
            "Name another with --port, or --port 0 for any free one.",
        ) from None


def address(listening: socket.socket, token: str) -> str:
    """Return the page's address, with the token.

    For a server that listens on all addresses of the machine, it has the machine's name.
    """
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}/?token={token}"


def server(app: Flask, listening: socket.socket) -> Server:
    """Return a server on a socket, which starts a thread for each request."""
    host, port = listening.getsockname()[:2]
    return Server(host, port, app, Handler, fd=listening.fileno())


def serve(running: Server) -> None:
    """Serve until Ctrl-C.

    The server runs in a thread of its own, because an interrupt that comes while a request starts
    could be lost there.
    """
    serving = threading.Thread(target=running.serve_forever, daemon=True)
    serving.start()
    with suppress(KeyboardInterrupt):
        serving.join()
    running.shutdown()
