"""The server's side of sites' policies: who refuses a job, and who has not approved it yet."""

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
    """Too many sites' policies forbid the job for the others to carry it out."""


class Consent:
    """Keeps account of refusals and missing approvals in one run, and reports them."""

    def __init__(self, run: RunFolder, console: "Listener") -> None:
        self._run = run
        self._console = console
        self._minimum = run.experiment.minimum_replies
        self._refused: dict[str, str] = {}
        """Site that refused the job when it was last asked -> the rule of its policy."""
        self._waiting = dict(run.info.summary.waiting)
        """Site -> digest of the job that it has not approved yet, by its last answer."""
        self._pauses = 0
        """Number of pauses so far."""

    @property
    def refused(self) -> dict[str, Any]:
        """Fields of a failed run's summary about sites that refuse the job; none if none does."""
        return {"refused": sorted(self._refused)} if self._refused else {}

    def require(self, round_: int, replied: Collection[str], refused: Mapping[str, str]) -> None:
        """Note which sites accepted and which refused a job in an exchange.

        Args:
            round_: of the exchange.
            replied: sites that accepted the job.
            refused: site -> reason.

        Raises:
            RunRefusedError: too few sites are left. A policy that forbids a job forbids it the next
                time too.
        """
        for site in replied:
            self._refused.pop(site, None)
        self._refused.update(refused)
        if len(self._run.sites) - len(self._refused) >= self._minimum:
            return
        self._run.flush()
        refusals = [f"{site} refuses: {reason}" for site, reason in sorted(self._refused.items())]
        raise RunRefusedError(
            f"round {round_}",
            "Export a job that the sites allow, or ask their administrators.",
            expected=f"at least {self._minimum} sites that accept the job",
            found="; ".join(refusals),
        )

    def pause(self) -> None:
        """Sleep before the next question, each time longer, up to half a minute."""
        sleep(min(_LONGEST_PAUSE, 2 ** min(self._pauses, 5)))
        self._pauses += 1

    def report(self, asked: Collection[str], waiting: Mapping[str, str]) -> None:
        """Write into run.json and onto the console which sites wait for approval, if it changed.

        A site that was not asked, because others train in this exchange, still waits.

        Args:
            asked: sites that an exchange has asked.
            waiting: those of them that wait -> digest of the job.
        """
        for site in asked:
            self._waiting.pop(site, None)
        self._waiting.update(waiting)
        if self._waiting == self._run.info.summary.waiting:
            return
        all_waiting = dict(sorted(self._waiting.items()))
        self._run.set_status("running", Summary(waiting=all_waiting) if all_waiting else Summary())
        self._console.waiting(all_waiting)
