"""Checks how a participant's own processes reach each other: with certificates, or open to others
on the machine.
"""

from typing import Any

from fedward.errors import ConfigError
from fedward.flare.kits.builder import CONNECTIONS
from fedward.flare.kits.doctor.rows import Row, broken, done, warning
from fedward.flare.kits.kit import Kit, read_json

_NAME = "own connections"
_FILE = f"local/{CONNECTIONS}"


def check(kit: Kit) -> list[Row]:
    """Look at how FLARE connects a job's process with its site's or its server's."""
    file = kit.local / CONNECTIONS
    try:
        content = read_json(file) if file.exists() else {}
    except ConfigError as error:
        return [broken(_NAME, error)]
    problem = _problem(content)
    if not problem:
        return [done(_NAME, "a job's process and its parent show each other the kit's certificate")]
    expected = "connections within this machine that need the kit's certificate"
    remedy = f"Copy {_FILE} from a newly provisioned kit, and start the participant again."
    return [warning(_NAME, expected=expected, found=problem, remedy=remedy)]


def _problem(content: dict[str, Any]) -> str:
    """Return how others could connect; empty if they cannot."""
    if content.get("allow_adhoc_conns"):
        return f"{_FILE}: allow_adhoc_conns, by which cells open ports for each other"
    resources = (content.get("internal") or {}).get("resources") or {}
    security = resources.get("connection_security", "clear")
    if security != "mtls":
        return f"connection_security {security!r}: any account of this machine may connect to its processes"
    return ""
