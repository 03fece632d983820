"""Worker processes of the in-process engine, and what they are forked from;
:mod:`fedward.lab.workers` alone starts it.

python -m fedward.lab.worker FILE_DESCRIPTOR
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn

from fedward.client.client import Client
from fedward.lab.local import SITES
from fedward.lab.workers import CODE, END, END_OF, FORK, receive, send
from fedward.methods import method_of
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey
from fedward.terminal import printing_safely
from fedward.training import trainer  # noqa: F401, what every site imports before it trains


class _Collected(logging.Handler):
    """Keeps what the sites log, until the process that was started by a person logs it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, record.levelno, self.format(record)))

    def taken(self) -> list[tuple[str, int, str]]:
        lines = self.lines
        self.lines = []
        return lines


def _work(connection: Connection) -> None:
    """Let sites answer requests until the other end of the pipe is closed, which ends this process
    at once.
    """
    requests: SimpleQueue[Any] = SimpleQueue()
    begin, _ = receive(connection)
    sites = SITES.validate_json(begin["begin"])
    content = connection.recv_bytes()
    key = SiteKey(content) if content else None
    collected = _Collected()
    logging.basicConfig(level=begin["level"], handlers=[collected], format="%(message)s")
    threading.Thread(target=_read, args=(connection, requests), daemon=True).start()
    algorithm = method_of(sites.experiment)
    clients = dict[str, Client]()
    while True:
        said, arrays = requests.get()
        name = said["site"]
        clients = {site: clients[site] for site in said["held"] if site in clients}
        clients[name] = clients.get(name) or sites.client(name, algorithm, key)
        answer = clients[name].handle(Message(said["meta"], arrays))
        send(connection, {"meta": answer.meta, "log": collected.taken()}, answer.arrays)


def _read(connection: Connection, requests: "SimpleQueue[Any]") -> None:
    try:
        while True:
            requests.put(receive(connection))
    except (EOFError, OSError):
        os._exit(0)


def _fork(control: socket.socket) -> None:
    """Fork and end processes as :mod:`fedward.lab.workers` asks, until the other end of the socket
    is closed.
    """
    forked: list[int] = []
    while True:
        asked, pipes, _, _ = socket.recv_fds(control, len(FORK), 1)
        if asked == FORK:
            pid = os.fork()
            if not pid:
                _work_and_exit(control, pipes[0])
            forked.append(pid)
            os.close(pipes[0])  # else the pipe would not end with the process
        elif asked == END:
            number, grace = END_OF.unpack(control.recv(END_OF.size, socket.MSG_WAITALL))
            control.sendall(CODE.pack(_ended(forked[number], grace)))
        else:
            return


def _work_and_exit(control: socket.socket, pipe: int) -> NoReturn:
    code = 1
    try:
        control.close()
        with suppress(EOFError):  # a run that ends before its first exchange
            _work(Connection(pipe))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _ended(pid: int, grace: float) -> int:
    """Return the exit code of a process, which is killed if it still lives after so many seconds."""
    patience = time.monotonic() + grace
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > patience:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


if __name__ == "__main__":
    with printing_safely(), suppress(BrokenPipeError):
        warnings.filterwarnings(
            "ignore", "This process .* is multi-threaded"
        )  # NumPy's BLAS ends its threads at a fork
        gc.freeze()  # what is shared stays so
        _fork(socket.socket(fileno=int(sys.argv[1])))
