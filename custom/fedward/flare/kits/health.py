"""Whether a participant is connected: ``python3 -m fedward.flare.kits.health [KIT]``, by default
``FEDWARD_KIT``.

For the health checks of containers and service managers. What counts is the last contact, which the
participant's own process writes down (:mod:`fedward.flare.kits.presence`): a connection that stands
may lead nowhere.
"""

import os
import sys
import time
from pathlib import Path

from fedward.errors import FedwardError
from fedward.flare.classes import PRESENCE
from fedward.flare.kits.kit import Kit, open_kit
from fedward.flare.kits.presence import RECENT, Presence

KIT = "FEDWARD_KIT"
"""Environment variable: the participant's kit."""


def connected(kit: Kit) -> tuple[bool, str]:
    """Return whether a site's server answers it, or a server's own process holds its port; and what
    shows it.

    Raises:
        ConfigError: what the participant's process has written cannot be read.
    """
    presence = Presence.of(kit)
    if presence is None:
        if is_older(kit):
            return False, f"as local/{kit.resources.name} does not name {PRESENCE}"
        return False, "no contact so far"
    if kit.role != "server":
        return presence.recent, f"last contact {presence.age:.0f} s ago"
    if not presence.recent:
        return False, f"its process last wrote {presence.age:.0f} s ago"
    if presence.port != kit.port:
        return False, f"its process does not hold port {kit.port}"
    now = time.time()
    silent = [
        f"{name} {now - last:.0f} s"
        for name, last in sorted(presence.sites.items())
        if now - last > RECENT
    ]
    sites = f"{len(presence.sites) - len(silent)} of {len(presence.sites)} sites in contact"
    return True, f"port {kit.port}, {sites}" + (
        f"; silent for {', '.join(silent)}" if silent else ""
    )


def is_older(kit: Kit) -> bool:
    """Return whether a kit comes from a version whose processes did not write of their contacts."""
    return kit.resources.is_file() and PRESENCE not in kit.resources.read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print one line; return 0 if the participant is connected, else 1."""
    folder = arguments[0] if arguments else os.environ.get(KIT)
    if not folder:
        print(f"health: name the participant's kit, as argument or in {KIT}")
        return 1
    try:
        kit = open_kit(Path(folder))
        well, found = connected(kit)
    except FedwardError as error:
        print(error)
        return 1
    print(f"{kit.role} {kit.name}: {'' if well else 'not '}connected, {found}")
    return int(not well)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
