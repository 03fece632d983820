"""One job watched from outside: whether it still runs, and which sites do not take part."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nvflare.apis.job_def import RunStatus
from nvflare.fuel.flare_api.api_spec import JobNotRunning, NoClientsAvailable
from nvflare.fuel.hci.proto import MetaKey, MetaStatusValue

from fedward.flare.jobs.remote import RemoteSession, UnreachableError
from fedward.flare.jobs.status import LOST, has_ended, job_progress, meta_of, with_reason
from fedward.flare.jobs.stopped_jobs import StoppedJobs

if TYPE_CHECKING:
    from fedward.flare.jobs.reporter import Reporter

_LOOKS_AT_A_NEWCOMER = 3
"""Looks in a row at which a site must be idle before the job is started again for it."""

_LOOKS_AT_A_MEMBER = 30
"""The same for a site that was at work and has not been seen away since.

Where somebody stops the job, its sites become idle one after the other while the server's process
still runs."""

_OVERDUE = 15
"""Looks in a row at a job without a process after which FLARE's report of its end is not awaited.

FLARE waits up to 15 minutes for the report of a site that hangs."""

LOST_WITH_SERVER = "lost with the server"
"""Status of a job that ran when the server ended."""

STOPPED = "stopped by somebody else"
"""Status of a job that was stopped, but not from here."""

_ENDED = "over, and FLARE waits for a silent site"
_REJOIN = "stopped, to go on with {}"


@dataclass
class Watch:
    """Looks at a job, one after the other."""

    job_id: str
    server_start: Any
    """When the server was started, as it says; changes if the server is started again."""
    named: set[str]
    """Sites that the job goes to; empty for all."""
    called: set[str]
    """Sites for which the job was started again and that have not been seen at work since.

    It is not started again for them. The watch changes this set."""
    reporter: "Reporter"
    stopped_jobs: StoppedJobs
    """Keeps which jobs were stopped from here, and why."""
    members: set[str] = field(default_factory=set)
    """Sites that have been seen at work on the job."""
    _idle_looks: dict[str, int] = field(default_factory=dict)
    """Site -> looks in a row at which it was idle."""
    _away: set[str] = field(default_factory=set)
    """Members that have been seen away, and are newcomers once they are idle."""
    _had_process: bool = False
    _looks_without_process: int = 0
    """Looks in a row without a process of the job, after it had one."""

    def look(self, flare: RemoteSession) -> dict[str, Any] | None:
        """Look at the job, and stop it once a site certainly does not take part.

        Returns:
            What FLARE says of the job at its end, with a ``status`` of ours where FLARE does not
            know it; None while the job goes on.
        """
        meta = meta_of(flare, self.job_id)
        if has_ended(meta):
            return {**with_reason(flare, meta), "status": self._end_status(meta)}
        server = flare.get_system_info()
        if server.server_info.start_time != self.server_start:
            if meta["status"] != RunStatus.SUBMITTED.value:
                return {**meta, "status": LOST_WITH_SERVER}
            self.server_start = server.server_info.start_time  # The new server has yet to start it.
        if any(job.job_id == self.job_id for job in server.job_info):
            self._had_process = True
            self._looks_without_process = 0
            self.reporter.look(flare, self.job_id, server, self.named)
            self._call_idle_sites(flare)
        elif self._had_process:
            self._looks_without_process += 1
            if self._looks_without_process == _OVERDUE:
                return {**meta, "status": _ENDED}
        return None

    def _end_status(self, meta: dict[str, Any]) -> Any:
        status = meta["status"]
        if status == LOST:
            return LOST_WITH_SERVER
        if status == RunStatus.FINISHED_ABORTED.value:
            return self.stopped_jobs.reasons.get(self.job_id, STOPPED)
        return status

    def _call_idle_sites(self, flare: RemoteSession) -> None:
        """Stop the job if sites have been idle for long enough: the next attempt includes them."""
        rows = _site_rows(flare)
        working = {
            row[MetaKey.CLIENT_NAME] for row in rows if row.get(MetaKey.JOB_ID) == self.job_id
        }
        idle = {
            row[MetaKey.CLIENT_NAME]
            for row in rows
            if row.get(MetaKey.STATUS) == MetaStatusValue.NO_JOBS
        }
        if self.named:
            idle &= self.named
        self.members |= working
        self.called -= working
        self._away |= self.members - working - idle
        self._away -= working
        # Without any site at work the job is about to end, or has yet to begin.
        counted = idle - self.called if working else set()
        self._idle_looks = {name: self._idle_looks.get(name, 0) + 1 for name in counted}
        left_out = sorted(
            name for name, looks in self._idle_looks.items() if looks >= self._looks_needed(name)
        )
        if left_out and self._goes_on(flare):
            self._stop(flare, left_out)

    def _looks_needed(self, name: str) -> int:
        is_member = name in self.members and name not in self._away
        return _LOOKS_AT_A_MEMBER if is_member else _LOOKS_AT_A_NEWCOMER

    def _goes_on(self, flare: RemoteSession) -> bool:
        """Return whether the job's own process says that its run goes on.

        The process knows of an abort before FLARE reports it.
        """
        try:
            state = job_progress(flare, self.job_id)
        except Exception:
            # FLARE's exceptions have no common base. If the server is lost, the next call fails.
            return False
        return state is None or state["status"] == "running"

    def _stop(self, flare: RemoteSession, left_out: list[str]) -> None:
        self.stopped_jobs.add(self.job_id, _REJOIN.format(", ".join(left_out)))
        try:
            flare.abort_job(self.job_id)
        except JobNotRunning:
            self.stopped_jobs.remove(self.job_id)  # It had ended before.
        except UnreachableError as error:
            if "is not running" not in error.found:
                raise
            self.stopped_jobs.remove(self.job_id)
        self.called |= set(left_out)


def _site_rows(flare: RemoteSession) -> list[dict[str, Any]]:
    """Return a row for each job of each site that answers; an empty list if none does."""
    try:
        return flare.get_client_job_status() or []
    except (NoClientsAvailable, RuntimeError):
        return []  # No site is connected, or none of those that are has answered.
    except UnreachableError:
        return []  # The server waits longer for a silent site than FLARE's session for the server.
