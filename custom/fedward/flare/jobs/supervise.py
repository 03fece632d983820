"""A run supervised until it has finished: sent again, from its last round, when a machine or
FLARE's job was lost.

A job ends with the server that ran it, and a site that comes back is not given the job that runs.
Killed job processes need none of this: see :mod:`fedward.flare.launchers`. What a person stops
stays stopped.
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
from fedward.flare.jobs.record import Record
from fedward.flare.jobs.remote import RemoteSession, UnreachableError
from fedward.flare.jobs.status import run_of
from fedward.flare.jobs.submit import POLL
from fedward.flare.jobs.told import Told
from fedward.flare.jobs.watch import STOPPED, Watch
from fedward.flare.kits.kit import open_kit
from fedward.server.progress import progress

_FRUITLESS = 3
"""Attempts in a row without a further round after which a run is given up."""

_ENDS = set(RunStatus)
"""What FLARE says of a job that has left results; other ends are the watch's."""

_HOPELESS = {RunStatus.FAILED_TO_RUN, RunStatus.FINISHED_CANT_SCHEDULE, STOPPED}
"""Ends that a further attempt would only repeat, or that somebody wanted."""

_Result = TypeVar("_Result")


@dataclass
class Supervisor:
    """Brings one run to its end, over as many jobs as that takes.

    Args:
        kit: startup kit of a lead or a project admin.
        job: exported job folder.
        run: 32 hexadecimal digits that name the run; that of an interrupted run continues it.
        patience: seconds to wait for a server that cannot be reached; each time anew.
        say: receives each event, in one line.
    """

    kit: Path
    job: Path
    run: str
    patience: float
    say: Callable[[str], None]
    _told: Told = field(init=False)
    _user: str = field(init=False)
    _sites: set[str] = field(default_factory=set, init=False)
    _called: set[str] = field(default_factory=set, init=False)
    """Sites that a job was started again for, and that have not been seen at work since: they may
    refuse it.
    """
    _rounds: int = field(default=0, init=False)
    """Rounds that the run had finished after the last attempt, as far as is known."""
    _fruitless: int = field(default=0, init=False)
    """Attempts since there was a further one."""
    _refused: bool = field(default=False, init=False)
    """Whether the sites' policies forbid the job, as they would the next time."""
    _silent: float | None = field(default=None, init=False)
    """Since when the server has not been reached; None while it answers."""

    def __post_init__(self) -> None:
        self._told = Told(self.say)
        self._user = open_kit(self.kit, "user").name

    def finish(self, out: Path) -> Path:
        """Return the folder of the finished run, fetched into ``out``, where its jobs are recorded
        too.

        A job of the run that is at the server already is watched in place of a further one.

        Raises:
            RunError: the job is refused, by the server or by too many sites, or stopped by somebody
                else; three attempts in a row brought no further round; or the server could not be
                reached for ``patience`` seconds.
            ConfigError: no job, or a record in ``out`` that cannot be read.
        """
        record = Record.of(out, self.run)
        attempt = 0
        while True:
            attempt += 1
            watch = self._reach(lambda flare: self._start(flare, record))
            self.say(f"attempt {attempt}: job {watch.job_id}")
            self._told.begin()
            meta = self._until_end(watch)
            self._sites |= watch.members
            try:
                return self._finished(meta, out)
            except UnreachableError:
                raise
            except RunError as error:
                self._count(submit.results(out, meta))
                if self._refused or meta["status"] in _HOPELESS:
                    raise
                if self._fruitless == _FRUITLESS:
                    self.say(f"given up: {_FRUITLESS} attempts in a row brought no further round")
                    raise
                self.say(str(error) if meta["status"] in _ENDS else error.found)

    def _start(self, flare: RemoteSession, record: Record) -> Watch:
        """Return a watch over a job of this run that is at the server already, or else over one
        that is sent now.
        """
        server = flare.get_system_info()
        job_id = self._sent(flare, {job.job_id for job in server.job_info})
        if job_id is None:
            self._await_sites(flare)
            server = flare.get_system_info()
            job_id = submit.submit(flare, self.job, self.run)
        named = {
            site for sites in submit.job_meta(self.job)["deploy_map"].values() for site in sites
        } - {ALL_SITES}
        return Watch(job_id, server.server_info.start_time, named, self._called, self._told, record)

    def _sent(self, flare: RemoteSession, running: Collection[str]) -> str | None:
        """Return a job of this run that waits or runs, of an earlier call or a lost answer; None:
        there is none.
        """
        for job in flare.list_jobs():
            if job["job_id"] in running or job["status"] == RunStatus.SUBMITTED.value:
                meta = flare.get_job_meta(job["job_id"])
                if (
                    run_of(meta) == self.run
                    and meta.get(JobMetaKey.SUBMITTER_NAME.value) == self._user
                ):
                    return str(job["job_id"])
        return None

    def _until_end(self, watch: Watch) -> dict[str, Any]:
        """Look at a job until it has ended; see :meth:`Watch.look` for what is returned."""

        def looks(flare: RemoteSession) -> dict[str, Any]:
            while (meta := watch.look(flare)) is None:
                self._silent = (
                    None  # a login alone would not do: the server might answer nothing else
                )
                time.sleep(POLL)
            return meta

        return self._reach(looks)

    def _await_sites(self, flare: RemoteSession) -> None:
        """Wait for the sites of the last attempt: they come back one by one to a server that was
        started anew.
        """
        since = time.monotonic()
        awaited = set[str]()
        while missing := self._sites - {
            client.name for client in flare.get_connected_client_list()
        }:
            if missing != awaited:
                self.say(
                    f"waiting for {', '.join(sorted(missing))} to connect, for {self.patience:.0f} s at most"
                )
                awaited = missing
            if time.monotonic() - since > self.patience:
                self.say(f"going on without {', '.join(sorted(missing))}")
                return
            time.sleep(POLL)

    def _finished(self, meta: dict[str, Any], out: Path) -> Path:
        """Return the folder of the finished run; raise RunError if another attempt may be worth
        making.
        """
        if meta["status"] in _ENDS:
            return self._reach(lambda flare: submit.fetch(flare, meta, out, self._told.lost))
        if meta["status"] == STOPPED:
            expected = "a job that nobody stops"
            found = "it was stopped by somebody else, and is not sent again"
            remedy = f"To go on: `fedward submit --continue {self.run}`."
            raise RunError(f"job {meta['job_id']}", expected=expected, found=found, remedy=remedy)
        expected = "a job that brings it to its end"
        found = "; ".join([*self._told.lost, f"the job was {meta['status']}"])
        remedy = f"Fix what ends it, then go on with `fedward submit --continue {self.run}`."
        raise RunError(f"run {self.run}", expected=expected, found=found, remedy=remedy)

    def _count(self, run: Path) -> None:
        """Count an attempt that brought no further round; ``run`` is what was fetched of it, if
        anything.
        """
        rounds = self._told.round
        with suppress(FedwardError):  # it left nothing that could be read
            state = progress(run)
            rounds = max(rounds, state["round"])
            self._refused = bool(state["refused"])
        self._fruitless = 0 if rounds > self._rounds else self._fruitless + 1
        self._rounds = self._told.round = rounds

    def _reach(self, action: Callable[[RemoteSession], _Result]) -> _Result:
        """Do something at the server; while it cannot be reached, try again until patience is at
        its end.
        """
        self._silent = None
        while True:
            try:
                with submit.session(self.kit) as flare:
                    return action(flare)
            except UnreachableError as error:
                if self._silent is None:
                    self._silent = time.monotonic()
                    self.say(f"waiting for the server: {error.found}")
                if time.monotonic() - self._silent > self.patience:
                    raise
                time.sleep(POLL)
