"""Worker processes of the in-process engine: the sites of an exchange work beside one another, one
in each.

They are forked from a process that Python's own command has started and that has imported what
sites need, nothing
more: no work was done there, and no GPU touched. So they begin in milliseconds and share its
memory. Each has a pipe to this process. JSON and safetensors go through it. A site is no process's
own, as all that it remembers lies in its
folder: whichever is free takes the next one, and answers are delivered in the order of names. So
results depend neither on the number of processes nor on their speed.
"""

import json
import logging
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from fedward.errors import WorkError
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.terminal import reason

FORK = b"f"
END = b"e"
"""What the process that others are forked from is told: to fork one with the pipe that comes along,
or to end one.
"""
END_OF = struct.Struct("!HH")
CODE = struct.Struct("!h")
"""Which one, and after how many seconds by force; its exit code."""
_GRACE = 5
"""Seconds a process has to end by itself when there is no more work, before it is killed."""
_GONE = (EOFError, OSError)
"""What a pipe raises whose other end has died."""
_log = logging.getLogger(__name__)


def send(connection: Connection, said: Any, arrays: Mapping[str, np.ndarray] | None = None) -> None:
    """Send JSON values and arrays through a pipe."""
    given = {
        name: np.asarray(array, order="C") for name, array in (arrays or {}).items()
    }  # as save() wants them
    connection.send_bytes(
        json.dumps([said, list(given)]).encode()
    )  # safetensors would sort the names
    connection.send_bytes(save(given))


def receive(connection: Connection) -> tuple[Any, dict[str, np.ndarray]]:
    """Return what :func:`send` sent at the other end; EOFError or OSError if that has died."""
    said, names = json.loads(connection.recv_bytes())
    arrays = load(connection.recv_bytes())
    return said, {name: arrays[name] for name in names}


class _Forker:
    """The process that the others are forked from. It ends when this one closes the socket between
    them, or dies.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "fedward.lab.worker", str(theirs.fileno())]
        # In a session of its own: Ctrl-C reaches this process alone, which ends the others.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        self._forked = 0

    def fork(self, connection: Connection) -> int:
        """Let a process begin with this end of a pipe, as soon as all is imported; return its
        number.
        """
        socket.send_fds(self._socket, [FORK], [connection.fileno()])
        self._forked += 1
        return self._forked - 1

    def end(self, number: int, grace: int) -> int | None:
        """Return a process's exit code, once it has ended or was killed after ``grace`` seconds;
        None if unknown.
        """
        try:
            self._socket.sendall(END + END_OF.pack(number, grace))
            return int(*CODE.unpack(self._socket.recv(CODE.size, socket.MSG_WAITALL)))
        except (OSError, struct.error):
            return None

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait()


class _Worker:
    """One process, which is forked here and begins with the facts that it is sent."""

    def __init__(self, forker: _Forker) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            self._forker = forker
            self._number = forker.fork(theirs)
        self.began = False
        self.held: list[str] = []
        """Sites whose images it has in memory, the one that worked last at the end."""

    def end(self, grace: int) -> int | None:
        """End the process, by force if it still lives after so many seconds, and return its exit
        code.
        """
        self.connection.close()
        return self._forker.end(self._number, grace)


class Workers:
    """Carries an exchange to ``count`` processes; a transport as
    :class:`fedward.lab.local.LocalTransport`.

    A process that dies costs its site this exchange, and another takes its place. Each keeps the
    images of some sites in memory, so that all together hold every site about twice at most.

    Args:
        names: of the sites.
        count: of processes, 2 or more.
        begin: what a process makes its sites of, as JSON.
        key: of secure aggregation, a serialised context; empty without.
    """

    def __init__(self, names: Sequence[str], count: int, begin: str, key: bytes) -> None:
        self._names = sorted(names)
        self._begin = begin
        self._key = key
        self._most_held = -(-2 * len(self._names) // count)
        self._forker = _Forker()
        self._workers = [_Worker(self._forker) for _ in range(count)]

    def sites(self) -> list[str]:
        """Return the sites' names, sorted."""
        return self._names

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Let each site answer its request; one in these processes is not late, so ``timeout`` is
        not used.
        """
        waiting = sorted(requests)
        undelivered = sorted(requests)
        idle = list(range(len(self._workers)))
        busy = dict[int, str]()
        answers = dict[str, Message]()
        while undelivered:
            while waiting and idle:
                site = self._choose(waiting, place := idle.pop(0))
                waiting.remove(site)
                busy[place] = site
                self._ask(place, site, requests[site])
            while undelivered and undelivered[0] in answers:
                deliver(site := undelivered.pop(0), answers.pop(site))
            pipes = {self._workers[place].connection: place for place in busy}
            for pipe in wait(list(pipes)) if busy else []:
                place = pipes[pipe]  # type: ignore[index]
                site = busy.pop(place)
                answers[site] = self._answer(place, site, requests[site])
                idle.append(place)

    def close(self) -> None:
        """End the processes. One that still works, as after Ctrl-C, is killed: a site's files
        outlast that.
        """
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.end(_GRACE)
        self._forker.close()

    def _choose(self, waiting: Sequence[str], place: int) -> str:
        """Return the site that a process takes next: one that it holds, else one that few others
        hold.
        """
        held = [worker.held for worker in self._workers]
        return min(
            waiting,
            key=lambda site: (site not in held[place], sum(site in each for each in held), site),
        )

    def _ask(self, place: int, site: str, request: Message) -> None:
        worker = self._workers[place]
        worker.held = [*(name for name in worker.held if name != site), site][-self._most_held :]
        with suppress(*_GONE):  # seen when its answer is awaited
            if not worker.began:
                send(
                    worker.connection,
                    {"begin": self._begin, "level": logging.getLogger().getEffectiveLevel()},
                )
                worker.connection.send_bytes(self._key)
                worker.began = True
            send(
                worker.connection,
                {"site": site, "held": worker.held, "meta": request.meta},
                request.arrays,
            )

    def _answer(self, place: int, site: str, request: Message) -> Message:
        worker = self._workers[place]
        try:
            said, arrays = receive(worker.connection)
        except _GONE:
            code = worker.end(_GRACE)
            self._workers[place] = self._another()
            return _died(site, request, code)
        for name, level, text in said["log"]:
            logging.getLogger(name).log(level, "%s", text)
        return Message(said["meta"], arrays)

    def _another(self) -> _Worker:
        try:
            return _Worker(self._forker)
        except OSError:  # the process that they are forked from has died, too
            self._forker.close()
            self._forker = _Forker()
            return _Worker(self._forker)


def _died(site: str, request: Message, code: int | None) -> Message:
    """Return the answer of a site whose process has died."""
    ended = f"ended with exit code {'unknown' if code is None else code}"
    found = f"killed by {signal.Signals(-code).name}" if code and code < 0 else ended
    remedy = "If memory ran out, run with fewer --workers."
    error = WorkError(
        f"site {site}", expected="its process to finish the work", found=found, remedy=remedy
    )
    _log.error("%s", error)
    return Message({"site": site, "round": request.meta["round"], "error": reason(str(error))})
