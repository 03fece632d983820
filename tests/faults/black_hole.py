"""A way to a server on which everything can get lost, while its connections stay open."""

import socket
import threading
from contextlib import suppress


class Way:
    """Forwards connections to the server's port, until a test lets it swallow what comes."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """Let nothing through any more."""
        self._open.clear()

    def let_through(self) -> None:
        """Let everything through again, also what has waited."""
        self._open.set()

    def close(self) -> None:
        """Take no further connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._open.wait()  # a new connection meets the same hole
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while True:
                data = source.recv(1 << 16)
                if not data:
                    break
                self._open.wait()
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
