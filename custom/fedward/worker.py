"""One worker process of the in-process engine; :mod:`fedward.workers` starts it, and nobody else.

python -m fedward.worker FILE_DESCRIPTOR
"""

import logging
import os
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from fedward.client.client import Client
from fedward.local import SITES
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey
from fedward.terminal import printing_safely
from fedward.workers import receive, send


class _Collected(logging.Handler):
    """Keeps what the sites log, until the process that was started by a person logs it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, record.levelno, self.format(record)))

    def taken(self) -> list[tuple[str, int, str]]:
        lines, self.lines = self.lines, []
        return lines


def _work(connection: Connection) -> None:
    """Let sites answer requests until the other end of the pipe is closed, which ends this process at once."""
    requests: SimpleQueue[Any] = SimpleQueue()
    begin, _ = receive(connection)
    sites, content = SITES.validate_json(begin["begin"]), connection.recv_bytes()
    key, collected = SiteKey(content) if content else None, _Collected()
    logging.basicConfig(level=begin["level"], handlers=[collected], format="%(message)s")
    threading.Thread(target=_read, args=(connection, requests), daemon=True).start()
    clients = dict[str, Client]()
    while True:
        said, arrays = requests.get()
        name = said["site"]
        clients = {site: clients[site] for site in said["held"] if site in clients}
        clients[name] = clients.get(name) or sites.client(name, key)
        answer = clients[name].handle(Message(said["meta"], arrays))
        send(connection, {"meta": answer.meta, "log": collected.taken()}, answer.arrays)


def _read(connection: Connection, requests: "SimpleQueue[Any]") -> None:
    try:
        while True:
            requests.put(receive(connection))
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    with printing_safely(), suppress(EOFError):  # a run that ends before its first exchange
        _work(Connection(int(sys.argv[1])))
