"""What the sender of a job is told while it runs: a line for each round, and each site that falls
silent or returns.
"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nvflare.fuel.flare_api.api_spec import SystemInfo

from fedward.flare.jobs.remote import RemoteSession
from fedward.flare.jobs.status import job_progress
from fedward.server.progress import round_lines
from fedward.terminal import one_line

_SILENT = 30.0
"""Seconds without a heartbeat, which comes every 10, after which a site is called silent."""

_LONGEST_GAP = 5.0
"""Seconds between two looks that count as silence at most: a server that stood still heard of
nobody in that time.
"""

_PAUSE = 10.0
"""The wait before a job's rounds are asked for again, as a multiple of the time that the last
answer took: the server reads the whole run folder for each."""


@dataclass
class _Contact:
    """One site as the server sees it."""

    heard: float
    """When the server last heard of it, by the server's clock."""
    silence: float = 0.0
    """Seconds for which that has not changed, as far as the looks tell."""
    told: bool = False
    """Whether the sender has been told that the site is lost."""


@dataclass
class Told:
    """Tells the sender of a run about its jobs, one after the other.

    Args:
        say: receives each line.
    """

    say: Callable[[str], None]
    round: int = 0
    """Rounds that the run has finished, as far as is known."""
    state: dict[str, Any] | None = None
    """The job's last word on its progress; None before the first."""
    _contacts: dict[str, _Contact] = field(default_factory=dict)
    _looked: float | None = None
    """When the contacts were last looked at."""
    _due: float = 0.0
    """When the job's rounds are asked for next."""
    _waiting: set[str] = field(default_factory=set)
    """Lines about sites that wait for an approval, as last told."""

    @property
    def lost(self) -> list[str]:
        """Sites that are silent now, each with how long."""
        silent = sorted((name, one) for name, one in self._contacts.items() if one.told)
        return [f"{name} is lost (no contact for {one.silence:.0f} s)" for name, one in silent]

    def begin(self) -> None:
        """Forget what the last job said; contacts stay."""
        self.state = None
        self._due = 0.0
        self._waiting = set()

    def look(
        self, flare: RemoteSession, job_id: str, system: SystemInfo, sites: Collection[str] = ()
    ) -> None:
        """Look at the sites' contacts and, if due, at the job's progress.

        ``sites``: those of the job; empty: all that are connected.
        """
        self._look_at_contacts(system, sites)
        began = time.monotonic()
        if began < self._due or not any(job.job_id == job_id for job in system.job_info):
            return
        state = None
        with suppress(
            Exception
        ):  # FLARE's have no common base; if the server is lost, the next question fails
            state = job_progress(flare, job_id)
        ended = time.monotonic()
        self._due = ended + _PAUSE * (ended - began)
        if state:
            self._tell(state)

    def _look_at_contacts(self, system: SystemInfo, sites: Collection[str]) -> None:
        now = time.monotonic()
        gap = 0.0 if self._looked is None else min(now - self._looked, _LONGEST_GAP)
        self._looked = now
        heard = {
            one.name: one.last_connect_time
            for one in system.client_info
            if not sites or one.name in sites
        }
        for name, last in heard.items():
            self._contacts.setdefault(name, _Contact(last))
        for name, contact in self._contacts.items():
            if name in heard and heard[name] != contact.heard:
                contact.heard = heard[name]
                contact.silence = 0.0
                if contact.told:
                    contact.told = False
                    self.say(f"{name} is back")
                continue
            contact.silence += gap
            if contact.silence >= _SILENT and not contact.told:
                contact.told = True
                self.say(
                    f"{name} is lost: the server has not heard of it for {contact.silence:.0f} s"
                )

    def _tell(self, state: dict[str, Any]) -> None:
        self.state = state
        digests = state.get("waiting") or {}
        waiting = {f"{site} waits for approval of job {digest}" for site, digest in digests.items()}
        for line in sorted(waiting - self._waiting):
            self.say(one_line(line))
        self._waiting = waiting
        if state["round"] > self.round:
            with suppress(KeyError):  # a job of another version of this package
                for line in round_lines(state, self.round + 1):
                    self.say(line)
            self.round = state["round"]
