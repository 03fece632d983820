"""Worker processes of the in-process engine: the sites of an exchange work side by side.

No site belongs to a process, because all that it remembers lies in its folder: whichever process is
free takes the next site, and answers are delivered in the order of the sites' names. So results
depend neither on the number of processes nor on their speed.
"""

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedward.errors import WorkError
from fedward.lab.processes import begin_process, fork_server
from fedward.methods import method_of
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey
from fedward.terminal import reason

if TYPE_CHECKING:
    from fedward.client.client import Client
    from fedward.lab.local import Sites

_PRELOADED = ("fedward.lab.local", "fedward.training.trainer")
"""Modules that every site uses in its first round."""
_GRACE = 5
"""Seconds that a dead process or fork server has to disappear."""
_UNKNOWN = 255
"""Exit code that :mod:`multiprocessing` gives where the fork server has died and cannot say it."""
_GONE = (EOFError, OSError)
"""What a pipe raises whose other end has died."""
_log = logging.getLogger(__name__)


class _Start(NamedTuple):
    """What a process is started with."""

    sites: "Sites"
    key: bytes
    """Of secure aggregation, a serialised context; empty without."""
    log_level: int
    environment: Mapping[str, str]


class _Task(NamedTuple):
    """What a process is asked."""

    site: str
    held: Sequence[str]
    """Sites that it keeps in memory, this one included."""
    request: Message


class _LogLine(NamedTuple):
    logger: str
    level: int
    text: str


class _Answer(NamedTuple):
    """What a process answers."""

    message: Message
    log: Sequence[_LogLine]
    """What the site logged, to be logged again by the process that was started by a person."""


class Workers:
    """Carries an exchange to several processes; a transport as
    :class:`fedward.lab.local.LocalTransport`.

    A process that dies costs its site this exchange, and another one takes its place. Each keeps
    the images of some sites in memory, so that together they hold every site about twice at most.

    Args:
        sites: what the processes make sites of.
        names: of the sites.
        count: number of processes, 2 or more.
        key: of secure aggregation, a serialised context; empty without.
    """

    def __init__(self, sites: "Sites", names: Sequence[str], count: int, key: bytes) -> None:
        self._names = sorted(names)
        self._sites = sites
        self._key = key
        self._most_held = -(-2 * len(self._names) // count)
        # The fork server imports while this process prepares the first exchange.
        fork_server(_PRELOADED)
        self._workers = [_Worker() for _ in range(count)]

    def sites(self) -> list[str]:
        """Return the sites' names, sorted."""
        return self._names

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Let each site answer its request; ``timeout`` is not used, as no site is late here."""
        waiting = sorted(requests)
        undelivered = sorted(requests)
        idle = list(range(len(self._workers)))
        site_at: dict[int, str] = {}
        answers: dict[str, Message] = {}
        while undelivered:
            while waiting and idle:
                place = idle.pop(0)
                site = self._choose(waiting, place)
                waiting.remove(site)
                site_at[place] = site
                self._ask(place, site, requests[site])
            while undelivered and undelivered[0] in answers:
                site = undelivered.pop(0)
                deliver(site, answers.pop(site))
            if not site_at:
                continue
            place_of = {self._workers[place].connection: place for place in site_at}
            for connection in wait(list(place_of)):
                place = place_of[connection]  # type: ignore[index]
                site = site_at.pop(place)
                answers[site] = self._answer(place, site, requests[site])
                idle.append(place)

    def close(self) -> None:
        """End the processes at once, also those that still work: a site's files outlast that."""
        for worker in self._workers:
            worker.close()

    def _choose(self, waiting: Sequence[str], place: int) -> str:
        """Return the site that a process takes next: one that it holds, else one that few hold."""
        held = [worker.held for worker in self._workers]

        def rank(site: str) -> tuple[bool, int, str]:
            holders = sum(site in sites for sites in held)
            return site not in held[place], holders, site

        return min(waiting, key=rank)

    def _ask(self, place: int, site: str, request: Message) -> None:
        worker = self._workers[place]
        if not worker.started:
            level = logging.getLogger().getEffectiveLevel()
            worker.start(_Start(self._sites, self._key, level, dict(os.environ)))
        others = [name for name in worker.held if name != site]
        worker.held = [*others, site][-self._most_held :]
        # Models are read from the run's files only now.
        arrays = {name: np.asarray(array) for name, array in request.arrays.items()}
        # That a process has died is noticed when its answer is awaited.
        with suppress(*_GONE):
            worker.connection.send(_Task(site, worker.held, Message(request.meta, arrays)))

    def _answer(self, place: int, site: str, request: Message) -> Message:
        worker = self._workers[place]
        try:
            answer: _Answer = worker.connection.recv()
        except _GONE:
            self._workers[place] = _Worker()
            return _died(site, request, worker.end())
        for line in answer.log:
            logging.getLogger(line.logger).log(line.level, "%s", line.text)
        return answer.message


class _Worker:
    """One process, which starts with its first task."""

    def __init__(self) -> None:
        self.held: list[str] = []
        """Sites whose images it has in memory; the one that worked last is at the end."""
        self.started = False
        self.connection: Connection
        self._process: ForkServerProcess

    def start(self, start: _Start) -> None:
        """Start the process as soon as the fork server has imported all."""
        deadline = time.monotonic() + _GRACE
        while not self.started:
            try:
                self._start(start)
                self.started = True
            except _GONE:
                # A fork server that is just dying refuses; a moment later a new one is started.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _start(self, start: _Start) -> None:
        context = fork_server(_PRELOADED)
        self.connection, theirs = context.Pipe()
        with theirs:
            self._process = context.Process(target=_work, args=(theirs, start), daemon=True)
            self._process.start()

    def end(self) -> int | None:
        """Wait until a process that died is gone; return its exit code, None if it is unknown."""
        self.connection.close()
        self._process.join(_GRACE)
        code = self._process.exitcode
        return None if code == _UNKNOWN else code

    def close(self) -> None:
        """End the process at once."""
        if self.started:
            self.connection.close()
            self._process.kill()
            self._process.join()


def _died(site: str, request: Message, exit_code: int | None) -> Message:
    """Return the answer of a site whose process has died."""
    if exit_code is None:
        end = "ended with exit code unknown"
    elif exit_code < 0:
        end = f"killed by {signal.Signals(-exit_code).name}"
    else:
        end = f"ended with exit code {exit_code}"
    error = WorkError(
        f"site {site}",
        "If memory ran out, run with fewer --workers.",
        expected="its process to finish the work",
        found=end,
    )
    _log.error("%s", error)
    return Message({"site": site, "round": request.meta["round"], "error": reason(str(error))})


# --- In a worker process


class _LogLines(logging.Handler):
    """Keeps what the sites log."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[_LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(_LogLine(record.name, record.levelno, self.format(record)))

    def take(self) -> list[_LogLine]:
        """Return the lines since the last call."""
        lines = self._lines
        self._lines = []
        return lines


def _work(connection: Connection, start: _Start) -> None:
    """Let sites answer requests until the other end of the pipe is closed."""
    begin_process(start.environment)
    log = _LogLines()
    logging.basicConfig(level=start.log_level, handlers=[log], format="%(message)s")
    key = SiteKey(start.key) if start.key else None
    algorithm = method_of(start.sites.experiment)
    clients: dict[str, Client] = {}
    with suppress(*_GONE):
        while True:
            task: _Task = connection.recv()
            site = task.site
            clients = {name: clients[name] for name in task.held if name in clients}
            if site not in clients:
                clients[site] = start.sites.client(site, algorithm, key)
            answer = clients[site].handle(task.request)
            connection.send(_Answer(answer, log.take()))
