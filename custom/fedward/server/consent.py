"""The server's side of sites' policies: who refuses a run's job, and whose administrator has not
approved it yet.
"""

from collections.abc import Collection, Mapping
from time import sleep
from typing import TYPE_CHECKING, Any

from fedward.errors import RunError
from fedward.storage.info import Summary
from fedward.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from fedward.console.listener import Listener

_LONGEST_PAUSE = 30
"""Seconds after which sites that wait for approval are asked again."""


class RunRefusedError(RunError):
    """So many sites' policies forbid the job that too few are left to carry it out."""


class Consent:
    """Keeps account of both for one run, and reports them."""

    def __init__(self, run: RunFolder, console: "Listener") -> None:
        self._run = run
        self._console = console
        self._minimum = run.experiment.minimum_replies
        self._refused: dict[str, str] = {}
        self._pauses = 0

    @property
    def refused(self) -> dict[str, Any]:
        """What a failed run's summary says of sites that refuse the job; nothing if none does."""
        return {"refused": sorted(self._refused)} if self._refused else {}

    def require(self, round_: int, replied: Collection[str], refused: Mapping[str, str]) -> None:
        """Note who accepted and who refused (site -> reason) in an exchange.

        Raises:
            RunRefusedError: too few sites are left. A policy that forbids a job forbids it the next
                time too.
        """
        self._refused = {
            site: why for site, why in self._refused.items() if site not in replied
        } | dict(refused)
        if len(self._run.sites) - len(self._refused) >= self._minimum:
            return
        self._run.flush()
        expected = f"at least {self._minimum} sites that accept the job"
        found = "; ".join(f"{site} refuses: {why}" for site, why in sorted(self._refused.items()))
        remedy = "Export a job that the sites allow, or ask their administrators."
        raise RunRefusedError(f"round {round_}", expected=expected, found=found, remedy=remedy)

    def pause(self) -> None:
        """Sleep before the next question, each time longer, up to half a minute."""
        sleep(min(_LONGEST_PAUSE, 2 ** min(self._pauses, 5)))
        self._pauses += 1

    def report(self, waiting: Mapping[str, str]) -> None:
        """Say in run.json and on the console which sites wait for approval of which job, where that
        has changed.
        """
        if waiting == self._run.info.summary.waiting:
            return
        self._run.set_status(
            "running", Summary(waiting=dict(sorted(waiting.items()))) if waiting else Summary()
        )
        self._console.waiting(waiting)
