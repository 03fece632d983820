"""Serves the page until Ctrl-C: the socket, the address, and a token that a crash does not change."""

import os
import secrets
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path

from flask import Flask

from fedward import private
from fedward.annotation.page.connections import Handler, Server
from fedward.errors import ConfigError


class Token:
    """The token of a run of the page, kept beside the queue while it runs.

    A page that ends well forgets it. One that was killed finds it again, so that tabs which are
    still open go on, and send what they could not. One that others could read, or that is a link,
    is replaced: somebody may know it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "token"
        self.value = self._kept()
        if len(self.value) < 32:
            self.value = secrets.token_urlsafe(32)
            self._path.unlink(missing_ok=True)
            with open(self._path, "x", opener=private.opener) as file:
                file.write(self.value)

    def _kept(self) -> str:
        """Return the token that an earlier run left, empty if it cannot be used."""
        try:
            with open(self._path, "rb", opener=_no_link) as file:
                state = os.fstat(file.fileno())
                alone = (
                    stat.S_ISREG(state.st_mode)
                    and not state.st_mode & 0o077
                    and state.st_uid == os.geteuid()
                )
                return file.read(1000).decode("ascii") if alone else ""
        except (OSError, ValueError):
            return ""

    def forget(self) -> None:
        """Let the next run have another one."""
        with suppress(OSError):
            self._path.unlink()


def _no_link(path: str, flags: int) -> int:
    """Open a file that is no link, without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        ConfigError: the host is not this machine's, or the port is taken or not allowed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        where = f"fedward annotate, {host} port {port}"
        found = getattr(error, "strerror", None) or str(error)
        expected = "an address of this machine and a free port"
        remedy = "Name another with --port, or --port 0 for any free one."
        raise ConfigError(where, expected=expected, found=found, remedy=remedy) from None


def address(listening: socket.socket, token: str) -> str:
    """Return the page's address, token included; a server at all of the machine's addresses has the
    machine's name.
    """
    host, port = listening.getsockname()[:2]
    host = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}"


def server(app: Flask, listening: socket.socket) -> Server:
    """Return a server on a socket, a thread for each request."""
    host, port = listening.getsockname()[:2]
    return Server(host, port, app, Handler, fd=listening.fileno())


def serve(running: Server) -> None:
    """Serve until Ctrl-C.

    In a thread of its own: an interrupt in the middle of a request's start could be lost there.
    """
    serving = threading.Thread(target=running.serve_forever, daemon=True)
    serving.start()
    with suppress(KeyboardInterrupt):
        serving.join()
    running.shutdown()
