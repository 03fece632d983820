"""Sites that an administrator has shut out with FLARE's ``disable-client``.

FLARE refuses their registration and their heartbeats from then on, but goes on to pass on what they
send: a site takes part in a running job until the job ends.
"""

from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.private.fed.server.client_manager import ClientManager

from fedward.flare.gate.arrivals import Arrival


class ShutOut:
    """The names that the server of this process does not hear."""

    def __init__(self) -> None:
        self.manager: ClientManager | None = None
        """FLARE's list of sites, once the server has one."""

    def refusal(self, arrival: Arrival) -> str:
        """Return why the server does not hear a site; empty if it does."""
        if arrival.receiver != FQCN.ROOT_SERVER or self.manager is None:
            return ""
        if arrival.request is not None and arrival.request[0] == CellChannel.SERVER_MAIN:
            return ""  # FLARE refuses it itself, and tells the site why.
        if self.manager.is_client_disabled(arrival.certificate):
            return "an administrator has shut it out"
        return ""


shut_out = ShutOut()
"""Those whom this process does not hear."""
