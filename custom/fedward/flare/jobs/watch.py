"""One job watched from outside: whether it still runs, which sites lack it, and how far its run is."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nvflare.fuel.flare_api.api_spec import NoClientsAvailable
from nvflare.fuel.flare_api.flare_api import Session
from nvflare.fuel.hci.proto import MetaKey, MetaStatusValue

from fedward.flare.jobs.status import job_progress

_SURE = 3
"""Looks in a row at which a site must be idle before the job is started again for it."""

_OVERDUE = 15
"""Looks in a row at which a job has no process any more, after which FLARE's word on its end is not awaited: it waits
up to 15 minutes for that of a site that hangs."""

_LOST, _REJOIN, _ENDED = "lost with the server", "stopped, to go on with {}", "over, and FLARE waits for a silent site"


@dataclass
class Watch:
    """One look after the other at a job."""

    job_id: str
    server_start: Any
    named: set[str]
    """Sites that the job goes to; empty for all."""
    called: set[str]
    """Sites that are not called again before they have been seen at work; changed."""
    rounds: int
    """Rounds that the run has finished, as far as is known."""
    further: bool = False
    """Whether the job has brought one of them. It is asked until then and no longer, since the server reads the whole
    run folder for an answer; what comes later is known with the next attempt."""
    members: set[str] = field(default_factory=set)
    """Sites seen at work on the job."""
    left_out: list[str] = field(default_factory=list)
    """Sites that are connected and idle, for which the job was stopped."""
    _idle: dict[str, int] = field(default_factory=dict)
    _seen: bool = False
    _gone: int = 0
    """Looks in a row without a process of the job, after it had one."""

    def look(self, flare: Session) -> dict[str, Any] | None:
        """Return what FLARE says of the job at its end, with a ``status`` of ours where FLARE does not know it.

        None while the job goes on. It is stopped once a site is sure to lack it.
        """
        meta = dict(flare.get_job_meta(self.job_id))
        if str(meta["status"]).startswith("FINISHED"):
            return {**meta, "status": _REJOIN.format(", ".join(self.left_out))} if self.left_out else meta
        server = flare.get_system_info()
        if server.server_info.start_time != self.server_start:
            return {**meta, "status": _LOST}
        if any(job.job_id == self.job_id for job in server.job_info):
            self._seen, self._gone = True, 0
            if not self.further:
                with suppress(Exception):  # FLARE's have no common base; if the server is lost, the next question fails
                    state = job_progress(flare, self.job_id)
                    if state and state["round"] > self.rounds:
                        self.rounds, self.further = state["round"], True
            if not self.left_out:
                self._call_idle_sites(flare)
        elif self._seen:
            self._gone += 1
            if self._gone == _OVERDUE:
                return {**meta, "status": _ENDED}
        return None

    def _call_idle_sites(self, flare: Session) -> None:
        try:
            rows = flare.get_client_job_status() or []
        except (NoClientsAvailable, RuntimeError):  # no site is connected; or none of those that are has answered
            rows = []
        working = {row[MetaKey.CLIENT_NAME] for row in rows if row.get(MetaKey.JOB_ID) == self.job_id}
        free = {row[MetaKey.CLIENT_NAME] for row in rows if row.get(MetaKey.STATUS) == MetaStatusValue.NO_JOBS}
        if self.named:
            free &= self.named
        self.members |= working
        self.called -= working
        self._idle = {name: self._idle.get(name, 0) + 1 for name in free - self.called if working}
        if left_out := sorted(name for name, looks in self._idle.items() if looks >= _SURE):
            self.left_out = left_out
            self.called |= set(left_out)
            flare.abort_job(self.job_id)
