"""One job watched from outside: whether it still runs, which sites lack it, and how far its run is."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.api_spec import JobNotRunning, NoClientsAvailable
from nvflare.fuel.hci.proto import MetaKey, MetaStatusValue

from fedward.flare.jobs.record import Record
from fedward.flare.jobs.remote import RemoteSession, UnreachableError
from fedward.flare.jobs.status import LOST, has_ended, job_progress

if TYPE_CHECKING:
    from fedward.flare.jobs.told import Told

_SURE = 3
"""Looks in a row at which a site must be idle before the job is started again for it."""

_SURE_OF_A_MEMBER = 30
"""The same for a site that was at work and has not been seen away since: where somebody stops the
job, its sites are idle one after the other while the server's process still runs."""

_OVERDUE = 15
"""Looks in a row at which a job has no process any more, after which FLARE's word on its end is not
awaited: it waits up to 15 minutes for that of a site that hangs."""

LOST_WITH_SERVER = "lost with the server"
STOPPED = "stopped by somebody else"
_ENDED = "over, and FLARE waits for a silent site"
_REJOIN = "stopped, to go on with {}"


@dataclass
class Watch:
    """One look after the other at a job."""

    job_id: str
    server_start: Any
    named: set[str]
    """Sites that the job goes to; empty for all."""
    called: set[str]
    """Sites that are not called again before they have been seen at work; changed."""
    told: "Told"
    record: Record
    """Keeps that the job was stopped from here, and why."""
    members: set[str] = field(default_factory=set)
    """Sites seen at work on the job."""
    _idle: dict[str, int] = field(default_factory=dict)
    _away: set[str] = field(default_factory=set)
    """Members that have been seen away, so that they are new to the server when they are idle."""
    _seen: bool = False
    _gone: int = 0
    """Looks in a row without a process of the job, after it had one."""

    def look(self, flare: RemoteSession) -> dict[str, Any] | None:
        """Return what FLARE says of the job at its end, with a ``status`` of ours where FLARE does
        not know it.

        None while the job goes on. It is stopped once a site is sure to lack it.
        """
        meta = dict(flare.get_job_meta(self.job_id))
        if has_ended(meta):
            return self._end(meta)
        server = flare.get_system_info()
        if server.server_info.start_time != self.server_start:
            if meta["status"] != RunStatus.SUBMITTED.value:
                return {**meta, "status": LOST_WITH_SERVER}
            self.server_start = server.server_info.start_time  # the new server has yet to start it
        if any(job.job_id == self.job_id for job in server.job_info):
            self._seen = True
            self._gone = 0
            self.told.look(flare, self.job_id, server, self.named)
            self._call_idle_sites(flare)
        elif self._seen:
            self._gone += 1
            if self._gone == _OVERDUE:
                return {**meta, "status": _ENDED}
        return None

    def _end(self, meta: dict[str, Any]) -> dict[str, Any]:
        if meta["status"] == LOST:
            return {**meta, "status": LOST_WITH_SERVER}
        if meta["status"] == RunStatus.FINISHED_ABORTED.value:
            return {**meta, "status": self.record.stopped.get(self.job_id, STOPPED)}
        return meta

    def _call_idle_sites(self, flare: RemoteSession) -> None:
        try:
            rows = flare.get_client_job_status() or []
        except (
            NoClientsAvailable,
            RuntimeError,
        ):  # no site is connected; or none of those that are has answered
            rows = []
        except (
            UnreachableError
        ):  # the server waits for a silent site longer than FLARE's session for the server
            rows = []
        working = {
            row[MetaKey.CLIENT_NAME] for row in rows if row.get(MetaKey.JOB_ID) == self.job_id
        }
        free = {
            row[MetaKey.CLIENT_NAME]
            for row in rows
            if row.get(MetaKey.STATUS) == MetaStatusValue.NO_JOBS
        }
        if self.named:
            free &= self.named
        self.members |= working
        self.called -= working
        self._away = (self._away | (self.members - working - free)) - working
        self._idle = {name: self._idle.get(name, 0) + 1 for name in free - self.called if working}
        left_out = sorted(name for name, looks in self._idle.items() if looks >= self._looks(name))
        if left_out and self._goes_on(flare):
            self._stop(flare, left_out)

    def _looks(self, name: str) -> int:
        return _SURE_OF_A_MEMBER if name in self.members - self._away else _SURE

    def _goes_on(self, flare: RemoteSession) -> bool:
        """Return whether the job's own process says that its run goes on: it knows of an abort
        before FLARE tells.
        """
        try:
            state = job_progress(flare, self.job_id)
        except (
            Exception
        ):  # FLARE's have no common base; if the server is lost, the next question fails
            return False
        return state is None or state["status"] == "running"

    def _stop(self, flare: RemoteSession, left_out: list[str]) -> None:
        self.record.stopping(self.job_id, _REJOIN.format(", ".join(left_out)))
        try:
            flare.abort_job(self.job_id)
        except JobNotRunning:
            self.record.stopping(self.job_id, None)  # it had ended before
        except UnreachableError as error:
            if "is not running" not in error.found:
                raise
            self.record.stopping(self.job_id, None)
        self.called |= set(left_out)
