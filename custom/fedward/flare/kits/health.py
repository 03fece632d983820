"""Whether a participant is connected, for health checks: ``python3 -m fedward.flare.kits.health``.

The kit is the argument, by default ``FEDWARD_KIT``. Containers and service managers run this
command. What counts is the last contact, which the participant's own process writes down
(:mod:`fedward.flare.kits.presence`): an open connection may lead nowhere.
"""

import os
import sys
import time
from pathlib import Path

from fedward.errors import FedwardError
from fedward.flare.classes import KIT_PRESENCE
from fedward.flare.kits.disks import is_full
from fedward.flare.kits.kit import Kit, open_kit
from fedward.flare.kits.presence import RECENT, Presence
from fedward.text import count

KIT_VARIABLE = "FEDWARD_KIT"
"""Environment variable: the participant's kit."""


def connected(kit: Kit) -> tuple[bool, str]:
    """Return whether a participant is connected, and the evidence for it.

    A site is connected if its server answers it, a server if its own process holds its port.

    Raises:
        ConfigError: what the participant's process has written cannot be read.
    """
    presence = Presence.of(kit)
    if presence is None:
        if is_older(kit):
            return False, f"as local/{kit.resources.name} does not name {KIT_PRESENCE}"
        return False, "no contact so far"
    if not presence.recent:
        return False, _silence(kit, presence)
    if kit.role != "server":
        return True, f"last contact {presence.age:.0f} s ago"
    if presence.port != kit.port:
        return False, f"its process does not hold port {kit.port}"
    now = time.time()
    silent = [
        f"{name} {now - last:.0f} s"
        for name, last in sorted(presence.sites.items())
        if now - last > RECENT
    ]
    heard = len(presence.sites) - len(silent)
    evidence = f"port {kit.port}, {heard} of {count(len(presence.sites), 'site')} in contact"
    if silent:
        evidence += f"; silent for {', '.join(silent)}"
    return True, evidence


def _silence(kit: Kit, presence: Presence) -> str:
    """Return what is known of a participant whose last contact is too old."""
    if is_full(kit.own_folder):
        return f"its disk is full, and it could write nothing for {presence.age:.0f} s"
    if kit.role == "server":
        return f"its process last wrote {presence.age:.0f} s ago"
    return f"last contact {presence.age:.0f} s ago"


def is_older(kit: Kit) -> bool:
    """Return whether the kit is of a version whose processes did not write down their contacts."""
    try:
        return KIT_PRESENCE not in kit.resources.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def main(arguments: list[str]) -> int:
    """Print one line; return 0 if the participant is connected, else 1."""
    folder = arguments[0] if arguments else os.environ.get(KIT_VARIABLE)
    if not folder:
        print(f"health: name the participant's kit, as argument or in {KIT_VARIABLE}")
        return 1
    try:
        kit = open_kit(Path(folder))
        is_connected, evidence = connected(kit)
    except FedwardError as error:
        print(error)
        return 1
    state = "connected" if is_connected else "not connected"
    print(f"{kit.role} {kit.name}: {state}, {evidence}")
    return 0 if is_connected else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
