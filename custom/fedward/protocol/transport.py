"""The exchange of messages with the sites, which each engine carries in its own way."""

from collections.abc import Callable
from typing import Protocol

from fedward.protocol.wire import Message

Deliver = Callable[[str, Message], None]
"""Takes the name of a site and its answer."""


def failed(site: str, request: Message, reason: str) -> Message:
    """Return what stands for a site's answer where none of use has come."""
    return Message({"site": site, "round": request.meta["round"], "error": reason})


class Transport(Protocol):
    """Carries one request to each named site and delivers each answer once, as it arrives."""

    def sites(self) -> list[str]:
        """Return the connected sites, sorted by name."""

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Send every request, and return when all answers came or the time is up.

        Args:
            requests: site -> its request.
            timeout: seconds to wait for answers.
            deliver: called with each answer as it arrives.
        """
