"""Supervision of a run until it has finished.

If a machine or FLARE's job is lost, the run is submitted again and continues after its last round.
That is needed because a job ends with the server that ran it, and because FLARE does not give the
running job to a site that comes back. Killed job processes are started again without a supervisor:
see :mod:`fedward.flare.launchers`. What a person stops stays stopped.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nvflare.apis.job_def import ALL_SITES, JobMetaKey, RunStatus
from nvflare.fuel.flare_api.api_spec import JobNotFound

from fedward.errors import FedwardError, RunError
from fedward.flare.jobs import submit
from fedward.flare.jobs.remote import NotTakenError, RemoteSession, UnreachableError
from fedward.flare.jobs.reporter import Reporter
from fedward.flare.jobs.status import NOT_RUNNING_YET, run_of
from fedward.flare.jobs.stopped_jobs import StoppedJobs
from fedward.flare.jobs.submit import POLL
from fedward.flare.jobs.watch import STOPPED, Watch
from fedward.flare.kits.kit import open_kit
from fedward.runs.standing import continuing
from fedward.server.run_status import progress

_FRUITLESS_LIMIT = 3
"""Attempts in a row that finish no further round, after which a run is given up."""

_FLARE_STATUSES = set(RunStatus)
"""FLARE's own statuses, with which a job may have left results.

:class:`~fedward.flare.jobs.watch.Watch` has statuses of its own for jobs that have left none."""

_FINAL_STATUSES = {RunStatus.FAILED_TO_RUN, RunStatus.FINISHED_CANT_SCHEDULE, STOPPED}
"""Statuses after which a run is not sent again: it would fail again, or somebody stopped it."""

_Result = TypeVar("_Result")


@dataclass
class Supervisor:
    """Brings one run to its end, over as many jobs as that takes.

    Args:
        kit: startup kit of a lead or a project admin.
        job: exported job folder.
        run: the run's id, 32 hexadecimal digits. The id of an interrupted run continues that run.
        patience: seconds to wait each time for a server that cannot be reached, or for the sites of
            the last attempt.
        say: receives each event, in one line.
    """

    kit: Path
    job: Path
    run: str
    patience: float
    say: Callable[[str], None]
    _reporter: Reporter = field(init=False)
    _user: str = field(init=False)
    """Name of the user to whom the kit belongs."""
    _seen_sites: set[str] = field(default_factory=set, init=False)
    """Sites that have been seen at work on the run, in any attempt."""
    _recalled_sites: set[str] = field(default_factory=set, init=False)
    """Sites for which a job was started again and that have not been seen at work since.

    They may refuse the job, so that no job is started again for them a second time."""
    _finished_rounds: int = field(default=0, init=False)
    """Rounds that the run had finished after the last attempt, as far as is known."""
    _fruitless_attempts: int = field(default=0, init=False)
    """Attempts in a row that finished no further round."""
    _silent_since: float | None = field(default=None, init=False)
    """Time by the monotonic clock at which the server fell silent; None while it answers."""

    def __post_init__(self) -> None:
        self._reporter = Reporter(self.say)
        self._user = open_kit(self.kit, "user").name

    def finish(self, out: Path) -> Path:
        """Bring the run to its end, and return its folder.

        If the server already has a job of the run, that job is watched, and no new one is sent.

        Args:
            out: folder into which results are fetched. The jobs that were stopped from here are
                recorded there too.

        Raises:
            RunError: the job is refused, by the server or by too many sites, or stopped by somebody
                else; three attempts in a row finished no further round; the server could not be
                reached for ``patience`` seconds; or this machine does not take the results, which
                are unsafe or too large for its disk.
            ConfigError: the job folder holds no job, or a record in ``out`` cannot be read.
        """
        stopped_jobs = StoppedJobs.of(out, self.run)
        attempt = 0
        while True:
            attempt += 1
            watch = self._reach(lambda session: self._find_or_submit(session, stopped_jobs))
            self.say(f"attempt {attempt}: job {watch.job_id}")
            self._reporter.begin()
            meta = self._watch_until_end(watch)
            self._seen_sites |= watch.members
            try:
                return self._fetched_run(meta, out)
            except (UnreachableError, NotTakenError):
                raise
            except RunError as error:
                was_refused = self._count_attempt(submit.results(out, meta))
                if was_refused or meta["status"] in _FINAL_STATUSES:
                    raise
                if self._fruitless_attempts == _FRUITLESS_LIMIT:
                    self.say(
                        f"given up: {_FRUITLESS_LIMIT} attempts in a row brought no further round"
                    )
                    raise
                # The next attempt is the remedy for the losses that the watch reports, so only what
                # was found is said of them.
                self.say(str(error) if meta["status"] in _FLARE_STATUSES else error.found)

    def _find_or_submit(self, session: RemoteSession, stopped_jobs: StoppedJobs) -> Watch:
        """Return a watch over the job of this run at the server; submit one if there is none."""
        jobs = session.list_jobs()
        # In this order: a job that begins meanwhile waits in the list, or runs at the server.
        server = session.get_system_info()
        job_id = self._job_at_server(session, jobs, {job.job_id for job in server.job_info})
        if job_id is None:
            self._await_sites(session)
            server = session.get_system_info()
            job_id = submit.submit(session, self.job, self.run)
        named_sites: set[str] = set()
        for sites in submit.job_meta(self.job)["deploy_map"].values():
            named_sites.update(sites)
        return Watch(
            job_id=job_id,
            server_start=server.server_info.start_time,
            named=named_sites - {ALL_SITES},
            called=self._recalled_sites,
            reporter=self._reporter,
            stopped_jobs=stopped_jobs,
        )

    def _job_at_server(
        self, session: RemoteSession, jobs: Iterable[Mapping[str, Any]], running: Collection[str]
    ) -> str | None:
        """Return the id of a job of this run that waits or runs at the server; None without one.

        An earlier call may have submitted it, or this one if FLARE's answer came too late.

        Args:
            session: of the user.
            jobs: those of the server's store, each with its status.
            running: ids of the jobs that the server ran a moment later.
        """
        for job in jobs:
            if job["job_id"] not in running and job["status"] not in NOT_RUNNING_YET:
                continue
            try:
                meta = session.get_job_meta(job["job_id"])
            except JobNotFound:  # It has been deleted in the meantime.
                continue
            is_ours = meta.get(JobMetaKey.SUBMITTER_NAME.value) == self._user
            if is_ours and run_of(meta) == self.run:
                return str(job["job_id"])
        return None

    def _watch_until_end(self, watch: Watch) -> dict[str, Any]:
        """Watch a job until it has ended; return what :meth:`Watch.look` then returns."""

        def look_until_end(session: RemoteSession) -> dict[str, Any]:
            while True:
                meta = watch.look(session)
                if meta is not None:
                    return meta
                # Not reset by a login alone: the server might answer nothing else.
                self._silent_since = None
                time.sleep(POLL)

        return self._reach(look_until_end)

    def _await_sites(self, session: RemoteSession) -> None:
        """Wait for the sites of earlier attempts; a server that was restarted has none at first."""
        start = time.monotonic()
        reported: set[str] = set()
        while True:
            connected = {client.name for client in session.get_connected_client_list()}
            missing = self._seen_sites - connected
            if not missing:
                return
            names = ", ".join(sorted(missing))
            if missing != reported:
                self.say(f"waiting for {names} to connect, for {self.patience:.0f} s at most")
                reported = missing
            if time.monotonic() - start > self.patience:
                self.say(f"going on without {names}")
                return
            time.sleep(POLL)

    def _fetched_run(self, meta: dict[str, Any], out: Path) -> Path:
        """Fetch the results of a job that has ended, and return the folder of the finished run.

        Args:
            meta: as :meth:`Watch.look` returns it at the end of a job.
            out: as in :meth:`finish`.

        Raises:
            RunError: the run has not finished; another attempt may succeed.
        """
        if meta["status"] in _FLARE_STATUSES:
            lost_sites = self._reporter.lost_sites
            return self._reach(lambda session: submit.fetch(session, meta, out, lost_sites))
        if meta["status"] == STOPPED:
            raise RunError(
                f"job {meta['job_id']}",
                expected="a job that nobody stops",
                found="it was stopped by somebody else, and is not sent again",
                remedy=f"To go on: `{continuing(self.run)}`.",
            )
        raise RunError(
            f"run {self.run}",
            expected="a job that brings it to its end",
            found="; ".join([*self._reporter.lost_sites, f"the job was {meta['status']}"]),
            remedy=f"Fix what ends it, then go on with `{continuing(self.run)}`.",
        )

    def _count_attempt(self, run: Path) -> bool:
        """Count an attempt that did not bring the run to its end.

        Args:
            run: the run's folder, with what was fetched; it need not exist.

        Returns:
            Whether it failed because too many sites' policies refuse the job, which they would do
            at the next attempt too.
        """
        rounds = self._reporter.round
        was_refused = False
        with suppress(FedwardError):  # The attempt may have left nothing that can be read.
            state = progress(run)
            rounds = max(rounds, state["round"])
            was_refused = bool(state["refused"])
        if rounds > self._finished_rounds:
            self._fruitless_attempts = 0
        else:
            self._fruitless_attempts += 1
        self._finished_rounds = rounds
        self._reporter.round = rounds
        return was_refused

    def _reach(self, action: Callable[[RemoteSession], _Result]) -> _Result:
        """Do something at the server; while it cannot be reached, retry until patience ends."""
        self._silent_since = None
        while True:
            try:
                with submit.session(self.kit) as session:
                    return action(session)
            except UnreachableError as error:
                if self._silent_since is None:
                    self._silent_since = time.monotonic()
                    self.say(f"waiting for the server: {error.found}")
                if time.monotonic() - self._silent_since > self.patience:
                    raise
                time.sleep(POLL)
