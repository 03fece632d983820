"""Supervision of a run until it has finished.

If a machine or FLARE's job is lost, the run is sent again and continues from its last round. A job
ends with the server that ran it, and a site that comes back is not given the job that runs. Killed
job processes are started again without a supervisor: see :mod:`fedward.flare.launchers`. What a
person stops stays stopped.
"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nvflare.apis.job_def import ALL_SITES, JobMetaKey, RunStatus

from fedward.errors import FedwardError, RunError
from fedward.flare.jobs import submit
from fedward.flare.jobs.remote import RemoteSession, UnreachableError
from fedward.flare.jobs.reporter import Reporter
from fedward.flare.jobs.status import run_of
from fedward.flare.jobs.stopped_jobs import StoppedJobs
from fedward.flare.jobs.submit import POLL
from fedward.flare.jobs.watch import STOPPED, Watch
from fedward.flare.kits.kit import open_kit
from fedward.server.progress import progress

_FRUITLESS = 3
"""Attempts in a row without a further round after which a run is given up."""

_FLARES_STATUS = set(RunStatus)
"""Status of a job that may have left results; the watch gives a job other words as its status."""

_FINAL = {RunStatus.FAILED_TO_RUN, RunStatus.FINISHED_CANT_SCHEDULE, STOPPED}
"""Status after which the run is not sent again: it would fail again, or somebody stopped it."""

_Result = TypeVar("_Result")


@dataclass
class Supervisor:
    """Brings one run to its end, over as many jobs as that takes.

    Args:
        kit: startup kit of a lead or a project admin.
        job: exported job folder.
        run: 32 hexadecimal digits that name the run; that of an interrupted run continues it.
        patience: seconds to wait each time the server cannot be reached.
        say: receives each event, in one line.
    """

    kit: Path
    job: Path
    run: str
    patience: float
    say: Callable[[str], None]
    _reporter: Reporter = field(init=False)
    _user: str = field(init=False)
    """Name of the user whose kit it is."""
    _sites: set[str] = field(default_factory=set, init=False)
    """Sites that have been seen at work on the run."""
    _called: set[str] = field(default_factory=set, init=False)
    """Sites for which a job was started again and that have not been seen at work since.

    They may refuse the job."""
    _rounds: int = field(default=0, init=False)
    """Rounds that the run had finished after the last attempt, as far as is known."""
    _fruitless: int = field(default=0, init=False)
    """Attempts in a row without a further round."""
    _refused: bool = field(default=False, init=False)
    """Whether policies of the sites refuse the job, as they would the next time."""
    _silent_since: float | None = field(default=None, init=False)
    """When the server stopped answering; None while it answers."""

    def __post_init__(self) -> None:
        self._reporter = Reporter(self.say)
        self._user = open_kit(self.kit, "user").name

    def finish(self, out: Path) -> Path:
        """Bring the run to its end, and return its folder.

        A job of the run that is at the server already is watched instead of a new one. Results are
        fetched into ``out``, where the jobs that were stopped from here are recorded too.

        Raises:
            RunError: the job is refused, by the server or by too many sites, or stopped by somebody
                else; three attempts in a row brought no further round; or the server could not be
                reached for ``patience`` seconds.
            ConfigError: no job, or a record in ``out`` that cannot be read.
        """
        stopped_jobs = StoppedJobs.of(out, self.run)
        attempt = 0
        while True:
            attempt += 1
            watch = self._reach(lambda flare: self._start(flare, stopped_jobs))
            self.say(f"attempt {attempt}: job {watch.job_id}")
            self._reporter.begin()
            meta = self._until_end(watch)
            self._sites |= watch.members
            try:
                return self._finished(meta, out)
            except UnreachableError:
                raise
            except RunError as error:
                self._count_attempt(submit.results(out, meta))
                if self._refused or meta["status"] in _FINAL:
                    raise
                if self._fruitless == _FRUITLESS:
                    self.say(f"given up: {_FRUITLESS} attempts in a row brought no further round")
                    raise
                self.say(str(error) if meta["status"] in _FLARES_STATUS else error.found)

    def _start(self, flare: RemoteSession, stopped_jobs: StoppedJobs) -> Watch:
        """Return a watch over a job of this run that is at the server, or over one sent now."""
        server = flare.get_system_info()
        job_id = self._job_at_server(flare, {job.job_id for job in server.job_info})
        if job_id is None:
            self._await_sites(flare)
            server = flare.get_system_info()
            job_id = submit.submit(flare, self.job, self.run)
        named: set[str] = set()
        for sites in submit.job_meta(self.job)["deploy_map"].values():
            named.update(sites)
        return Watch(
            job_id=job_id,
            server_start=server.server_info.start_time,
            named=named - {ALL_SITES},
            called=self._called,
            reporter=self._reporter,
            stopped_jobs=stopped_jobs,
        )

    def _job_at_server(self, flare: RemoteSession, running: Collection[str]) -> str | None:
        """Return a job of this run that waits or runs at the server, None if there is none.

        It may be of an earlier call, or one whose submission was answered too late.
        """
        for job in flare.list_jobs():
            if job["job_id"] not in running and job["status"] != RunStatus.SUBMITTED.value:
                continue
            meta = flare.get_job_meta(job["job_id"])
            is_ours = meta.get(JobMetaKey.SUBMITTER_NAME.value) == self._user
            if is_ours and run_of(meta) == self.run:
                return str(job["job_id"])
        return None

    def _until_end(self, watch: Watch) -> dict[str, Any]:
        """Look at a job until it has ended; return what :meth:`Watch.look` returns of its end."""

        def look_until_end(flare: RemoteSession) -> dict[str, Any]:
            while True:
                meta = watch.look(flare)
                if meta is not None:
                    return meta
                # Not reset by a login alone: the server might answer nothing else.
                self._silent_since = None
                time.sleep(POLL)

        return self._reach(look_until_end)

    def _await_sites(self, flare: RemoteSession) -> None:
        """Wait for the sites of the last attempt: a server that was started again has none yet."""
        since = time.monotonic()
        reported: set[str] = set()
        while True:
            connected = {client.name for client in flare.get_connected_client_list()}
            missing = self._sites - connected
            if not missing:
                return
            names = ", ".join(sorted(missing))
            if missing != reported:
                self.say(f"waiting for {names} to connect, for {self.patience:.0f} s at most")
                reported = missing
            if time.monotonic() - since > self.patience:
                self.say(f"going on without {names}")
                return
            time.sleep(POLL)

    def _finished(self, meta: dict[str, Any], out: Path) -> Path:
        """Return the folder of the finished run.

        Raises:
            RunError: it has not finished; another attempt may be worth making.
        """
        if meta["status"] in _FLARES_STATUS:
            lost_sites = self._reporter.lost_sites
            return self._reach(lambda flare: submit.fetch(flare, meta, out, lost_sites))
        if meta["status"] == STOPPED:
            raise RunError(
                f"job {meta['job_id']}",
                expected="a job that nobody stops",
                found="it was stopped by somebody else, and is not sent again",
                remedy=f"To go on: `fedward submit --continue {self.run}`.",
            )
        raise RunError(
            f"run {self.run}",
            expected="a job that brings it to its end",
            found="; ".join([*self._reporter.lost_sites, f"the job was {meta['status']}"]),
            remedy=f"Fix what ends it, then go on with `fedward submit --continue {self.run}`.",
        )

    def _count_attempt(self, run: Path) -> None:
        """Count an attempt that did not bring the run to its end.

        Args:
            run: the folder of what was fetched of it, if anything was.
        """
        rounds = self._reporter.round
        with suppress(FedwardError):  # It left nothing that could be read.
            state = progress(run)
            rounds = max(rounds, state["round"])
            self._refused = bool(state["refused"])
        self._fruitless = 0 if rounds > self._rounds else self._fruitless + 1
        self._rounds = rounds
        self._reporter.round = rounds

    def _reach(self, action: Callable[[RemoteSession], _Result]) -> _Result:
        """Do something at the server; while it cannot be reached, try again until patience ends."""
        self._silent_since = None
        while True:
            try:
                with submit.session(self.kit) as flare:
                    return action(flare)
            except UnreachableError as error:
                if self._silent_since is None:
                    self._silent_since = time.monotonic()
                    self.say(f"waiting for the server: {error.found}")
                if time.monotonic() - self._silent_since > self.patience:
                    raise
                time.sleep(POLL)
