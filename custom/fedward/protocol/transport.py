"""How messages reach the sites: one exchange, whichever engine carries it."""

from collections.abc import Callable
from typing import Protocol

from fedward.protocol.wire import Message

Deliver = Callable[[str, Message], None]


class Transport(Protocol):
    """Carries one request to each named site and delivers each answer once, as it arrives."""

    def sites(self) -> list[str]:
        """Return the connected sites, sorted by name."""

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Send every request, call ``deliver(site, answer)`` per answer; return when all came or
        time is up.
        """
