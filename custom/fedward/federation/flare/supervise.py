"""A run watched until it has finished: sent again, from its last round, when a machine or FLARE's job was lost.

A job ends with the server that ran it, yet FLARE calls it running for ever; and a site that comes back is not given the
job that runs. Killed job processes need none of this: see :mod:`fedward.federation.flare.launchers`.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nvflare.apis.job_def import ALL_SITES, RunStatus
from nvflare.fuel.flare_api.flare_api import Session
from nvflare.fuel.hci.proto import MetaKey, MetaStatusValue

from fedward.errors import RunError
from fedward.federation.flare.submit import CONNECTION_ERRORS, UnreachableError, fetch, results, session, submit

_POLL = 2.0
"""Seconds between two looks at a job, or two tries to reach the server."""

_SURE = 3
"""Looks in a row at which a site must be idle before the job is started again for it."""

_FRUITLESS = 3
"""Attempts in a row without a further round after which a run is given up."""

_HOPELESS = {RunStatus.FAILED_TO_RUN, RunStatus.FINISHED_CANT_SCHEDULE, RunStatus.ABANDONED, RunStatus.FINISHED_ABORTED}
"""Ends that a further attempt would only repeat, or that somebody wanted."""

_OVERDUE = 15
"""Looks in a row at which a job has no process any more, after which FLARE's word on its end is not awaited: it waits
up to 15 minutes for that of a site that hangs."""

_LOST, _REJOIN, _ENDED = "lost with the server", "stopped, to go on with {}", "over, and FLARE waits for a silent site"

_Result = TypeVar("_Result")


@dataclass
class Supervisor:
    """Brings one run to its end, over as many jobs as that takes.

    Args:
        kit: startup kit of a lead or a project admin.
        job: exported job folder.
        run: 32 hexadecimal digits that name the run; that of an interrupted run continues it.
        patience: seconds to wait for a server that cannot be reached.
        say: where each event is told, in one line.
    """

    kit: Path
    job: Path
    run: str
    patience: float
    say: Callable[[str], None]
    _sites: set[str] = field(default_factory=set, init=False)
    _called: set[str] = field(default_factory=set, init=False)
    """Sites that a job was started again for, and that have not been seen at work since: they may refuse it."""
    _rounds: int = field(default=-1, init=False)
    _fruitless: int = field(default=0, init=False)

    def finish(self, out: Path) -> Path:
        """Return the folder of the finished run, fetched into ``out``.

        Raises:
            RunError: the job is refused or aborted, three attempts in a row brought no further round, or the server
                could not be reached for ``patience`` seconds.
        """
        attempt = 0
        while True:
            attempt += 1
            watch = self._reach(self._start)
            self.say(f"attempt {attempt}: job {watch.job_id}")
            meta = self._reach(watch.until_end)
            self._sites |= watch.members
            if run := self._verdict(meta, out):
                return run

    def _start(self, flare: Session) -> "_Watch":
        self._await_sites(flare)
        server = flare.get_system_info()
        job_id = submit(flare, self.job, self.run)
        return _Watch(job_id, server.server_info.start_time, self._named_sites(), self._called)

    def _named_sites(self) -> set[str]:
        """Return the sites that the job goes to, empty for all."""
        apps = json.loads((self.job / "meta.json").read_text(encoding="utf-8"))["deploy_map"]
        return {site for sites in apps.values() for site in sites} - {ALL_SITES}

    def _await_sites(self, flare: Session) -> None:
        """Wait for the sites of the last attempt: they come back one by one to a server that was started anew."""
        since = time.monotonic()
        while missing := self._sites - {client.name for client in flare.get_connected_client_list()}:
            if time.monotonic() - since > self.patience:
                self.say(f"going on without {', '.join(sorted(missing))}")
                return
            time.sleep(_POLL)

    def _verdict(self, meta: dict[str, Any], out: Path) -> Path | None:
        """Return the finished run, or None if another attempt is worth making."""
        status = meta["status"]
        if status not in set(RunStatus):
            self.say(f"the job was {status}")
            return None
        try:
            return self._reach(lambda flare: fetch(flare, meta, out))
        except UnreachableError:
            raise
        except RunError as error:
            rounds = _rounds(results(out, meta))
            self._fruitless = 0 if rounds > self._rounds else self._fruitless + 1
            self._rounds = max(rounds, self._rounds)
            if status in _HOPELESS or self._fruitless == _FRUITLESS:
                raise
            self.say(str(error))
            return None

    def _reach(self, action: Callable[[Session], _Result]) -> _Result:
        """Do something at the server; while it cannot be reached, try again until patience is at its end."""
        since: float | None = None
        while True:
            try:
                with session(self.kit) as flare:
                    return action(flare)
            except (UnreachableError, *CONNECTION_ERRORS) as error:
                if since is None:
                    since = time.monotonic()
                    self.say(f"waiting for the server: {error}")
                if time.monotonic() - since > self.patience:
                    raise
                time.sleep(_POLL)


@dataclass
class _Watch:
    """One look after the other at a job."""

    job_id: str
    server_start: Any
    named: set[str]
    """Sites that the job goes to; empty for all."""
    called: set[str]
    """Sites that are not called again before they have been seen at work; changed."""
    members: set[str] = field(default_factory=set)
    """Sites seen at work on the job."""
    left_out: list[str] = field(default_factory=list)
    """Sites that are connected and idle, for which the job was stopped."""
    _idle: dict[str, int] = field(default_factory=dict)
    _seen: bool = False
    _gone: int = 0
    """Looks in a row without a process of the job, after it had one."""

    def until_end(self, flare: Session) -> dict[str, Any]:
        """Return what FLARE says of the job at its end, with a ``status`` of ours where FLARE does not know it."""
        while True:
            meta = dict(flare.get_job_meta(self.job_id))
            if str(meta["status"]).startswith("FINISHED"):
                return {**meta, "status": _REJOIN.format(", ".join(self.left_out))} if self.left_out else meta
            server = flare.get_system_info()
            if server.server_info.start_time != self.server_start:
                return {**meta, "status": _LOST}
            if any(job.job_id == self.job_id for job in server.job_info):
                self._seen, self._gone = True, 0
                self._call_idle_sites(flare)
            elif self._seen:
                self._gone += 1
                if self._gone == _OVERDUE:
                    return {**meta, "status": _ENDED}
            time.sleep(_POLL)

    def _call_idle_sites(self, flare: Session) -> None:
        if self.left_out:
            return
        rows = flare.get_client_job_status() or []
        working = {row[MetaKey.CLIENT_NAME] for row in rows if row.get(MetaKey.JOB_ID) == self.job_id}
        free = {row[MetaKey.CLIENT_NAME] for row in rows if row.get(MetaKey.STATUS) == MetaStatusValue.NO_JOBS}
        if self.named:
            free &= self.named
        self.members |= working
        self.called -= working
        self._idle = {name: self._idle.get(name, 0) + 1 for name in free - self.called if working}
        self.left_out = sorted(name for name, looks in self._idle.items() if looks >= _SURE)
        self.called |= set(self.left_out)
        if self.left_out:
            flare.abort_job(self.job_id)


def _rounds(run: Path) -> int:
    """Return how many exchanges a run has on record."""
    try:
        return len((run / "rounds.jsonl").read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return 0
