"""A run supervised until it has finished: sent again, from its last round, when a machine or FLARE's job was lost.

A job ends with the server that ran it, yet FLARE calls it running for ever; and a site that comes back is not given the
job that runs. Killed job processes need none of this: see :mod:`fedward.flare.launchers`.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nvflare.apis.job_def import ALL_SITES, RunStatus
from nvflare.fuel.flare_api.flare_api import Session

from fedward.errors import FedwardError, RunError
from fedward.flare.jobs import submit
from fedward.flare.jobs.submit import CONNECTION_ERRORS, UnreachableError
from fedward.flare.jobs.watch import Watch
from fedward.server.progress import progress

_POLL = 2.0
"""Seconds between two looks at a job, or two tries to reach the server."""

_FRUITLESS = 3
"""Attempts in a row without a further round after which a run is given up."""

_ENDS = set(RunStatus)
"""What FLARE says of a job that has left results; other ends are the watch's."""

_HOPELESS = {RunStatus.FAILED_TO_RUN, RunStatus.FINISHED_CANT_SCHEDULE, RunStatus.ABANDONED, RunStatus.FINISHED_ABORTED}
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
    _sites: set[str] = field(default_factory=set, init=False)
    _called: set[str] = field(default_factory=set, init=False)
    """Sites that a job was started again for, and that have not been seen at work since: they may refuse it."""
    _rounds: int = field(default=0, init=False)
    """Rounds that the run has finished, as far as is known."""
    _fruitless: int = field(default=0, init=False)
    """Attempts since there was a further one."""
    _refused: bool = field(default=False, init=False)
    """Whether the sites' policies forbid the job, as they would the next time."""
    _silent: float | None = field(default=None, init=False)
    """Since when the server has not been reached; None while it answers."""

    def finish(self, out: Path) -> Path:
        """Return the folder of the finished run, fetched into ``out``.

        Raises:
            RunError: the job is refused, by the server or by too many sites, or aborted; three attempts in a row
                brought no further round; or the server could not be reached for ``patience`` seconds.
        """
        attempt = 0
        while True:
            attempt += 1
            watch = self._reach(self._start)
            self.say(f"attempt {attempt}: job {watch.job_id}")
            meta = self._until_end(watch)
            self._sites |= watch.members
            try:
                return self._finished(meta, out)
            except UnreachableError:
                raise
            except RunError as error:
                self._count(watch, submit.results(out, meta))
                if self._refused or meta["status"] in _HOPELESS:
                    raise
                if self._fruitless == _FRUITLESS:
                    self.say(f"given up: {_FRUITLESS} attempts in a row brought no further round")
                    raise
                self.say(str(error) if meta["status"] in _ENDS else error.found)

    def _start(self, flare: Session) -> Watch:
        self._await_sites(flare)
        started = flare.get_system_info().server_info.start_time
        job_id = submit.submit(flare, self.job, self.run)
        named = {site for sites in submit.job_meta(self.job)["deploy_map"].values() for site in sites} - {ALL_SITES}
        return Watch(job_id, started, named, self._called, self._rounds)

    def _until_end(self, watch: Watch) -> dict[str, Any]:
        """Look at a job until it has ended; see :meth:`Watch.look` for what is returned."""

        def looks(flare: Session) -> dict[str, Any]:
            while (meta := watch.look(flare)) is None:
                self._silent = None  # a login alone would not do: the server might answer nothing else
                time.sleep(_POLL)
            return meta

        return self._reach(looks)

    def _await_sites(self, flare: Session) -> None:
        """Wait for the sites of the last attempt: they come back one by one to a server that was started anew."""
        since = time.monotonic()
        while missing := self._sites - {client.name for client in flare.get_connected_client_list()}:
            if time.monotonic() - since > self.patience:
                self.say(f"going on without {', '.join(sorted(missing))}")
                return
            time.sleep(_POLL)

    def _finished(self, meta: dict[str, Any], out: Path) -> Path:
        """Return the folder of the finished run; raise RunError if another attempt may be worth making."""
        if meta["status"] in _ENDS:
            return self._reach(lambda flare: submit.fetch(flare, meta, out))
        expected, found = "a job that brings it to its end", f"the job was {meta['status']}"
        remedy = "Fix what ends it, then go on with `fedward submit --continue` and the run's name."
        raise RunError(f"run {self.run}", expected=expected, found=found, remedy=remedy)

    def _count(self, watch: Watch, run: Path) -> None:
        """Count an attempt that brought no further round; ``run`` is what was fetched of it, if anything."""
        rounds = watch.rounds
        with suppress(FedwardError):  # it left nothing that could be read
            state = progress(run)
            rounds, self._refused = max(rounds, state["round"]), bool(state["refused"])
        self._fruitless = 0 if rounds > self._rounds else self._fruitless + 1
        self._rounds = rounds

    def _reach(self, action: Callable[[Session], _Result]) -> _Result:
        """Do something at the server; while it cannot be reached, try again until patience is at its end."""
        self._silent = None
        while True:
            try:
                with submit.session(self.kit) as flare:
                    return action(flare)
            except (UnreachableError, *CONNECTION_ERRORS) as error:
                if self._silent is None:
                    self._silent = time.monotonic()
                    self.say(f"waiting for the server: {error}")
                if time.monotonic() - self._silent > self.patience:
                    if isinstance(error, UnreachableError):
                        raise
                    raise submit.lost(f"run {self.run}", error) from error
                time.sleep(_POLL)
