"""Worker processes of the in-process engine: the sites of an exchange work side by side.

A site is not bound to a process, because all that it remembers lies in its folder: whichever
process is free takes the next site, and answers are delivered in the order of the sites' names. So
results depend neither on the number of processes nor on their speed.
"""

import logging
import math
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedward.errors import WorkError, option
from fedward.lab.processes import begin_process, fork_server
from fedward.methods import job_of
from fedward.protocol.transport import Deliver, failed
from fedward.protocol.wire import Message
from fedward.security.encryption import SiteKey
from fedward.terminal import reason

if TYPE_CHECKING:
    from fedward.client.respondent import Respondent
    from fedward.lab.local import Sites

_PRELOADED = ("fedward.lab.local", "fedward.training.trainer")
"""Modules that every site uses in its first round."""
_GRACE = 5
"""Seconds that a dead process or fork server has to disappear."""
_UNKNOWN = 255
"""Exit code that :mod:`multiprocessing` gives if the fork server died before it reported one."""
_GONE = (EOFError, OSError)
"""What a pipe or the fork server raises once the other end has died."""
_log = logging.getLogger(__name__)


class _Start(NamedTuple):
    """What a process receives when it starts."""

    sites: "Sites"
    key: bytes
    """The sites' context of secure aggregation, serialised; empty without secure aggregation."""
    log_level: int
    """Level of the command's root logger."""
    environment: Mapping[str, str]
    """Environment variables of the command."""


class _Task(NamedTuple):
    """A request that a process answers as one of the sites."""

    site: str
    held: Sequence[str]
    """Sites that the process keeps in memory, this one included; it drops all others."""
    request: Message


class _LogLine(NamedTuple):
    """A line that a site logged in its process."""

    logger: str
    """Name of the logger."""
    level: int
    text: str


class _Answer(NamedTuple):
    """A site's answer, from the process in which it worked."""

    message: Message
    log: Sequence[_LogLine]
    """What the site logged; the command's own process logs it again."""


class Workers:
    """A transport that lets the sites work in several processes.

    If a process dies, its site fails in this exchange, and a new process takes its place. Each
    process keeps the images of some sites in memory: all together hold a site twice on average.

    Args:
        sites: what the processes make sites of.
        names: names of the sites.
        count: number of processes, 2 or more.
        key: the sites' context of secure aggregation, serialised; empty without it.
    """

    def __init__(self, sites: "Sites", names: Sequence[str], count: int, key: bytes) -> None:
        self._names = sorted(names)
        self._sites = sites
        self._key = key
        self._most_held = math.ceil(2 * len(self._names) / count)
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
        """Indices of the processes that have no task."""
        site_at: dict[int, str] = {}
        """Index of a process at work -> its site."""
        answers: dict[str, Message] = {}
        """Answers that wait for those of sites with earlier names."""
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
        """End all processes at once, even at work: a site's files are whole at any moment."""
        for worker in self._workers:
            worker.close()

    def _choose(self, waiting: Sequence[str], place: int) -> str:
        """Return the site that a process takes next.

        It is a site that the process holds in memory, else the one that the fewest processes hold.
        """
        held = [worker.held for worker in self._workers]

        def rank(site: str) -> tuple[bool, int, str]:
            holders = sum(site in sites for sites in held)
            # False comes before True.
            return site not in held[place], holders, site

        return min(waiting, key=rank)

    def _ask(self, place: int, site: str, request: Message) -> None:
        """Send a request to a process, which is started if it was idle until now."""
        worker = self._workers[place]
        if not worker.started:
            level = logging.getLogger().getEffectiveLevel()
            worker.start(_Start(self._sites, self._key, level, dict(os.environ)))
        others = [name for name in worker.held if name != site]
        worker.held = [*others, site][-self._most_held :]
        # Arrays of models lie in the run's files; they are read only now, for one site at a time.
        arrays = {name: np.asarray(array) for name, array in request.arrays.items()}
        # That a process has died is noticed when its answer is awaited.
        with suppress(*_GONE):
            worker.connection.send(_Task(site, worker.held, Message(request.meta, arrays)))

    def _answer(self, place: int, site: str, request: Message) -> Message:
        """Receive a process's answer; if the process has died, the answer is an error."""
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
        # Both exist once the process has started.
        self.connection: Connection
        self._process: ForkServerProcess

    def start(self, start: _Start) -> None:
        """Start the process; it waits until the fork server has imported its modules."""
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
        self.connection, far_end = context.Pipe()
        # The new process gets a copy of the far end. This one must be closed here: a pipe reports
        # that a process has died only when nobody else holds its end.
        with far_end:
            self._process = context.Process(target=_work, args=(far_end, start), daemon=True)
            self._process.start()

    def end(self) -> int | None:
        """Wait until the dead process is gone; return its exit code, None if it is unknown."""
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
        f"If memory ran out, run with fewer workers ({option('workers')}).",
        expected="its process to finish the work",
        found=end,
    )
    _log.error("%s", error)
    return failed(site, request, reason(str(error)))


# --- In a worker process


class _LogLines(logging.Handler):
    """Collects what the sites log, until it travels with an answer."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[_LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record as a line of text, because its arguments may not be picklable."""
        self._lines.append(_LogLine(record.name, record.levelno, self.format(record)))

    def take(self) -> list[_LogLine]:
        """Return the lines since the last call."""
        lines = self._lines
        self._lines = []
        return lines


def _work(connection: Connection, start: _Start) -> None:
    """Answer requests as their sites until the other end of the pipe is closed."""
    begin_process(start.environment)
    log = _LogLines()
    logging.basicConfig(level=start.log_level, handlers=[log], format="%(message)s")
    key = SiteKey(start.key) if start.key else None
    algorithm = job_of(start.sites.experiment)
    clients: dict[str, Respondent] = {}
    """The sites that this process holds in memory."""
    with suppress(*_GONE):
        while True:
            task: _Task = connection.recv()
            site = task.site
            clients = {name: clients[name] for name in task.held if name in clients}
            if site not in clients:
                clients[site] = start.sites.client(site, algorithm, key)
            answer = clients[site].handle(task.request)
            connection.send(_Answer(answer, log.take()))
