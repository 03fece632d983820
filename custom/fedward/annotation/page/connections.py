"""Connections to the page, with limits on the time, the size and the number of requests.

The number is limited for connections that have not shown the token.
"""

import io
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from fedward.annotation.page.guard import ADMIT, HEADERS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

LONGEST_REQUEST = 15.0
"""Seconds in which a request must arrive, and in which each part of a response must be taken."""
LARGEST_REQUEST = 256 * 1024
"""The most bytes of a request. Its line, headers and body are each limited to less."""
MOST_STRANGERS = 64
"""Open connections that have not shown the token; with one more, the oldest is closed."""
_PART = 64 * 1024
"""Bytes of a response that are sent at a time."""


class _Incoming(io.RawIOBase):
    """The bytes that a client sends.

    They end after :data:`LARGEST_REQUEST` bytes. Reading raises TimeoutError
    :data:`LONGEST_REQUEST` seconds after the beginning.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bytes_left = LARGEST_REQUEST
        self._end = time.monotonic() + LONGEST_REQUEST

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._connection.settimeout(seconds)
        count = self._connection.recv_into(memoryview(buffer)[: self._bytes_left])
        self._bytes_left -= count
        return count


class _Outgoing(io.BufferedIOBase):
    """The bytes that are sent to a client.

    The limit of time is for each part, because a large image may take long on a slow network.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        return True

    def write(self, content: "ReadableBuffer") -> int:
        parts = memoryview(content)
        for start in range(0, len(parts), _PART):
            self._connection.settimeout(LONGEST_REQUEST)
            self._connection.sendall(parts[start : start + _PART])
        return len(parts)


class Handler(WSGIRequestHandler):
    """Handles one request. It logs none, because addresses hold the token and sample ids."""

    server: "Server"

    def setup(self) -> None:
        """Read and write within limits."""
        super().setup()
        self.rfile = io.BufferedReader(_Incoming(self.connection))
        self.wfile = _Outgoing(self.connection)

    def parse_request(self) -> bool:
        """Return whether there is a valid request; its address must be one that can be parsed."""
        if not super().parse_request():
            return False
        try:
            urlsplit(self.path)
        except ValueError:
            self.send_error(400)
            return False
        return True

    def make_environ(self) -> dict[str, Any]:
        """Return WSGI's environment, with the function to call once the token was shown."""
        environment = super().make_environ()
        environment[ADMIT] = lambda: self.server.admit(self.connection)
        return environment

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse an invalid request. The response repeats nothing of it."""
        self.send_response(code)
        headers = {**HEADERS, "Content-Length": "0", "Connection": "close"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        """Return the program's name for responses, without a version."""
        return "fedward"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""

    def log_error(self, format: str, *args: Any) -> None:
        """Log nothing: anybody who reaches the port could fill the log."""


class Server(ThreadedWSGIServer):
    """A server with a thread for each connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # A dictionary keeps the order in which the connections came.
        self._strangers: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with a connection; end the oldest one without a token if there are too many."""
        with self._lock:
            self._strangers[request] = None
            if len(self._strangers) > MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def admit(self, request: socket.socket) -> None:
        """Note that a connection has shown the token."""
        with self._lock:
            self._strangers.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        """End with a connection."""
        self.admit(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print one line that a connection failed, without anything that it sent."""
        print(
            f"fedward annotate: a connection failed: {type(sys.exception()).__name__}",
            file=sys.stderr,
        )
