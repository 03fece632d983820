"""Whether a participant is connected: ``python3 -m fedward.flare.kits.health [KIT]``, by default ``FEDWARD_KIT``.

For the health checks of containers and service managers. FLARE's own processes say nothing of that to others on the
machine, so the connections are looked at. A connection stands only after both sides have accepted each other's
certificate: FLARE closes others at once.
"""

import os
import sys
from pathlib import Path

import psutil

from fedward.errors import FedwardError
from fedward.flare.kits.kit import Kit, open_kit

KIT = "FEDWARD_KIT"
"""Environment variable: the participant's kit."""


def connected(kit: Kit) -> bool:
    """Return whether this account's processes hold a site's connection to its server, or a server's open port."""
    own = [one for one in psutil.net_connections("tcp") if one.pid]  # others' have none
    if kit.role == "server":
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == kit.port for one in own)
    return any(one.status == psutil.CONN_ESTABLISHED and one.raddr.port == kit.port for one in own)


def main(arguments: list[str]) -> int:
    """Print one line; return 0 if the participant is connected, else 1."""
    folder = arguments[0] if arguments else os.environ.get(KIT)
    if not folder:
        print(f"health: name the participant's kit, as argument or in {KIT}")
        return 1
    try:
        kit = open_kit(Path(folder))
    except FedwardError as error:
        print(error)
        return 1
    well = connected(kit)
    print(f"{kit.role} {kit.name}: {'' if well else 'not '}connected, port {kit.port}")
    return int(not well)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
