"""A server that is starting accepts no message before it knows its own certificate.

FLARE's server listens before that. It would check no token until then, and sign all its later
messages to itself with a signature that it refuses, so that no user got an answer any more. So
messages wait for the start, and are refused if it takes too long or fails.
"""

import threading

from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.connection import Connection, ConnState

from fedward.flare.gate.arrivals import Arrival

_LONGEST_START = 30.0
"""Seconds that a message waits for the server to start: as long as a site waits for an answer."""

started = threading.Event()
"""Whether the server of this process knows its own certificate."""


def start_refusal(arrival: Arrival, connection: Connection) -> str:
    """Return why the server refuses a message that came too early; empty once it has started.

    Only the server's own process starts like this. It waits for the start. FLARE has a hundred
    threads for messages, so further messages wait for a free thread.
    """
    if arrival.receiver != FQCN.ROOT_SERVER or started.is_set():
        return ""
    if not started.wait(_LONGEST_START):
        return f"the server has not started within {_LONGEST_START:.0f} s"
    if connection.state == ConnState.CLOSED:
        # Nobody waits for the answer. A farewell would even cut off its sender, if that has
        # connected again: FLARE removes whoever bears the name.
        return "its connection ended before the server had started"
    return ""
