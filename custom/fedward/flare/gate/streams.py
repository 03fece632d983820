"""How many streams a site or a user may have open at one receiver.

FLARE reads each stream that has begun in a thread of its own, and its callback waits in another. A
process has 128 and 64 of these, and waits five minutes for a stream's next part. Without a limit,
the beginnings of a few dozen streams would keep the server, or the process of a job, from hearing
anybody else.
"""

import threading
from dataclasses import dataclass

from nvflare.fuel.f3.streaming.byte_receiver import RxTask

from fedward.flare.gate.arrivals import Arrival, StreamKey
from fedward.flare.gate.names import place_of

_MOST_OPEN = 16
"""Streams of several parts that one sender may have open.

An honest site or user has one or two, since FLARE sends models piece by piece. A few more stay open
for those five minutes where a connection breaks again and again."""


@dataclass
class _Begun:
    """A stream whose first part has arrived."""

    sender: str
    is_with_flare: bool = False
    """Whether FLARE has got the first part, and so knows whether the stream still goes on."""


class OpenStreams:
    """The streams of several parts that this process receives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[StreamKey, _Begun] = {}

    def refusal(self, arrival: Arrival) -> str:
        """Return why the receiver does not read a stream that begins; empty if it does.

        A stream that it reads is counted. The server's own streams are not: a site waits for its
        server anyway.
        """
        if arrival.new_stream is None or place_of(arrival.origin) in ("server", "server job"):
            return ""
        return self.begin(arrival.new_stream, arrival.sender)

    def begin(self, key: StreamKey, sender: str) -> str:
        """Count a stream that begins; return why it is refused, empty if it is accepted."""
        with self._lock:
            self._forget_ended()
            open_ones = sum(begun.sender == sender for begun in self._begun.values())
            if key not in self._begun and open_ones >= _MOST_OPEN:
                return f"it begins a further stream besides {open_ones} that have not ended"
            self._begun[key] = _Begun(sender)
            return ""

    def handed_over(self, key: StreamKey) -> None:
        """Note that FLARE has got the first part of a stream."""
        with self._lock:
            if key in self._begun:
                self._begun[key].is_with_flare = True

    def _forget_ended(self) -> None:
        for key, begun in list(self._begun.items()):
            if begun.is_with_flare and not _goes_on(key):
                del self._begun[key]


def _goes_on(key: StreamKey) -> bool:
    """Return whether FLARE waits for further parts of a stream."""
    task = RxTask.rx_task_map.get(key)
    return task is not None and not task.completed and not task.failed


streams = OpenStreams()
"""The streams of this process."""
