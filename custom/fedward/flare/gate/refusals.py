"""Refusals in the log and the audit log: what was asked for, by whom, and why it is refused.

A flood of messages must not fill the disk, and a sender writes no lines of its own.
"""

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from nvflare.fuel.sec.audit import AuditService

from fedward.text import count

_WINDOW_SECONDS = 60.0
"""How long refusals of one sender are counted together."""

_WRITTEN_IN_FULL = 20
"""Refusals of one sender in a window that are written one by one.

The rest are only counted, because a flood must not fill the disk."""

_LONGEST_NAME = 80
"""The most characters of a sender's name, and of an action, in the log."""

_LONGEST_REASON = 400
"""The most characters of a reason in the log.

A reason quotes headers, whose length the sender chooses."""

_log = logging.getLogger(__name__)


class Refusals:
    """Writes refusals into the log and the audit log, with their sender.

    Of a flood only the first refusals are written. The number of the rest is written once the
    window has ended and any message arrives: heartbeats do every ten seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}
        """Sender -> its window, the oldest first. A window that has ended is removed."""

    def note(self, sender: str, action: str, reason: str, user: str = "") -> None:
        """Write a refusal.

        Args:
            sender: as :attr:`.arrivals.Arrival.sender`. Refusals of one sender are counted
                together.
            action: what was asked for.
            reason: why it is refused.
            user: the user for whom the sender claims to ask. Refusals are not counted by this name,
                because a sender could invent many.
        """
        self.write_counts()
        with self._lock:
            window = self._windows.setdefault(sender, _Window(time.monotonic()))
            window.count += 1
            if window.count > _WRITTEN_IN_FULL:
                return
        _write(f"{sender} for {user}" if user else sender, action, reason)

    def write_counts(self) -> None:
        """Write, for each window that has ended, how many of its refusals were not written."""
        for sender, window in self._ended_windows():
            unwritten = window.count - _WRITTEN_IN_FULL
            if unwritten > 0:
                # A full disk must not stop the message at hand, which may be another sender's.
                with suppress(OSError):
                    times = count(unwritten, "further time")
                    _write(sender, "more", f"{times} in {_WINDOW_SECONDS:.0f} s")

    def _ended_windows(self) -> list[tuple[str, "_Window"]]:
        """Remove the windows that have ended, and return them with their senders."""
        ended: list[tuple[str, _Window]] = []
        with self._lock:
            now = time.monotonic()
            for sender, window in self._windows.items():
                if now - window.start <= _WINDOW_SECONDS:
                    break  # All windows after this one began later.
                ended.append((sender, window))
            for sender, _ in ended:
                del self._windows[sender]
        return ended


@dataclass
class _Window:
    """The refusals of one sender that are counted together."""

    start: float
    """Time of the first refusal, by the monotonic clock, in seconds."""
    count: int = 0
    """Number of refusals so far, whether written or not."""


def _printable(text: str) -> str:
    """Return a sender's text without characters that start a new line or control a terminal."""
    return text.encode("unicode_escape").decode("ascii")


def _write(sender: str, action: str, reason: str) -> None:
    sender_name = _printable(sender)[:_LONGEST_NAME]
    # FLARE's audit log omits actions of certain names. A prefix of our own keeps all of them.
    event = f"refused {_printable(action)[:_LONGEST_NAME]}"
    text = _printable(reason)
    if len(text) > _LONGEST_REASON:
        text = f"{text[:_LONGEST_REASON]}..."
    _log.warning("%s from %s: %s", event, sender_name, text)
    AuditService.add_event(user=sender_name, action=event, msg=f" {text}")


refusals = Refusals()
"""The refusals of this process."""
