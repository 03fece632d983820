"""Reports to the sender of a running job: finished rounds, and sites that are lost or return."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nvflare.fuel.flare_api.api_spec import SystemInfo

from fedward.flare.jobs.remote import RemoteSession
from fedward.flare.jobs.status import job_progress
from fedward.server.run_status import round_lines
from fedward.terminal import one_line

_SILENT = 30.0
"""Seconds without a heartbeat after which a site is called lost. Heartbeats come every 10."""

_LONGEST_GAP = 5.0
"""Seconds between two looks that count as silence at most.

A server that stood still for longer heard of nobody in that time."""

_PAUSE = 10.0
"""The wait before a job's rounds are asked for again, as a multiple of the last answer's time.

The server reads the whole run folder for each answer."""


@dataclass
class _Contact:
    """One site as the server sees it."""

    heard: float
    """When the server last heard of it, by the server's clock."""
    silence: float = 0.0
    """Seconds for which that time has not changed, by our clock."""
    reported_lost: bool = False
    """Whether the sender knows that the site is lost."""


@dataclass
class Reporter:
    """Reports to the sender of a run how its jobs go on, one job after the other.

    Args:
        say: receives each line.
    """

    say: Callable[[str], None]
    round: int = 0
    """Rounds that the run has finished, as far as is known."""
    state: dict[str, Any] | None = None
    """The job's last answer about its progress; None before the first."""
    _contacts: dict[str, _Contact] = field(default_factory=dict)
    _last_look: float | None = None
    """When the contacts were last looked at; None before the first look."""
    _next_question: float = 0.0
    """When the job's rounds are asked for next."""
    _waiting_lines: set[str] = field(default_factory=set)
    """Lines about sites that wait for an approval, as last reported."""
    _reported_value: dict[str, Any] | None = None
    """The metric with its round, as last reported; None before the first."""

    @property
    def lost_sites(self) -> list[str]:
        """A sentence about each site that is silent now, with how long it has been silent."""
        return [
            f"{name} is lost (no contact for {contact.silence:.0f} s)"
            for name, contact in sorted(self._contacts.items())
            if contact.reported_lost
        ]

    def begin(self) -> None:
        """Forget the last job's answers; contacts of sites stay."""
        self.state = None
        self._next_question = 0.0
        self._waiting_lines = set()

    def look(
        self, flare: RemoteSession, job_id: str, system: SystemInfo, sites: Collection[str] = ()
    ) -> None:
        """Look at the contacts of sites and, if it is time, at the job's progress.

        Args:
            flare: session of a user.
            job_id: the job's.
            system: what the server says of itself now.
            sites: those of the job; empty for all that are connected.
        """
        self._look_at_contacts(system, sites)
        began = time.monotonic()
        runs = any(job.job_id == job_id for job in system.job_info)
        if began < self._next_question or not runs:
            return
        state = None
        # FLARE's exceptions have no common base. If the server is lost, the next question fails.
        with suppress(Exception):
            state = job_progress(flare, job_id)
        ended = time.monotonic()
        self._next_question = ended + _PAUSE * (ended - began)
        if state:
            self._report_progress(state)

    def _look_at_contacts(self, system: SystemInfo, sites: Collection[str]) -> None:
        now = time.monotonic()
        gap = 0.0
        if self._last_look is not None:
            gap = min(now - self._last_look, _LONGEST_GAP)
        self._last_look = now
        heard = {
            client.name: client.last_connect_time
            for client in system.client_info
            if not sites or client.name in sites
        }
        for name, last_heard in heard.items():
            self._contacts.setdefault(name, _Contact(last_heard))
        # A site that the server no longer lists is silent, too.
        for name, contact in self._contacts.items():
            if name in heard and heard[name] != contact.heard:
                contact.heard = heard[name]
                contact.silence = 0.0
                if contact.reported_lost:
                    contact.reported_lost = False
                    self.say(f"{name} is back")
                continue
            contact.silence += gap
            if contact.silence >= _SILENT and not contact.reported_lost:
                contact.reported_lost = True
                silence = f"{contact.silence:.0f} s"
                self.say(f"{name} is lost: the server has not heard of it for {silence}")

    def _report_progress(self, state: dict[str, Any]) -> None:
        self.state = state
        digests = state.get("waiting") or {}
        waiting = {f"{site} waits for approval of job {digest}" for site, digest in digests.items()}
        for line in sorted(waiting - self._waiting_lines):
            self.say(one_line(line))
        self._waiting_lines = waiting
        if state["round"] > self.round:
            with suppress(KeyError):  # A job of another version of this package.
                self._report_rounds(state)
            self.round = state["round"]

    def _report_rounds(self, state: dict[str, Any]) -> None:
        """Report the rounds since the last report, and the metric if it is of another model."""
        value = state["last"]
        if value == self._reported_value:
            state = {**state, "last": None}
        self._reported_value = value
        for line in round_lines(state, self.round + 1):
            self.say(line)
