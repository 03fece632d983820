"""People whose key is lost or who have left: the server's own rules refuse them by name."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedward.errors import ConfigError
from fedward.flare.kits.kit import open_kit, read_json, reading
from fedward.storage.disk import replacing

_NAME = re.compile(r"[A-Za-z0-9._@+-]+")
"""What FLARE's rules can name: spaces and colons mean something else there."""


def revoke(folder: Path, names: Sequence[str]) -> Path:
    """Refuse every command of these people at the server, from its next start on; return the
    changed file.

    FLARE has no list of revoked certificates: they still log in, also with a session from before,
    and each of their commands is refused. Doing it again changes nothing.

    Args:
        folder: the server's kit.
        names: of users, as in their certificates.

    Raises:
        ConfigError: another kit, rules that cannot be read, or a name that rules cannot hold.
    """
    kit = open_kit(folder)
    if kit.role != "server":
        remedy = "Name the server's. A site is shut out with `nvflare system disable-client`."
        raise ConfigError(
            f"kit {folder}", expected="the server's kit", found=f"that of {kit.name}", remedy=remedy
        )
    wrong = [name for name in names if not _NAME.fullmatch(name)]
    if wrong:
        expected = "names of letters, digits and . _ @ + -"
        remedy = "Name users as in project.yml."
        raise ConfigError(
            "fedward revoke", expected=expected, found=", ".join(map(repr, wrong)), remedy=remedy
        )
    file = kit.local / "authorization.json"
    rules = read_json(file)
    with reading(
        str(file), "permissions by role", "Restore the file from a newly provisioned kit."
    ):
        rules["permissions"] = {
            role: _without(rights, names) for role, rights in rules["permissions"].items()
        }
    with replacing(file) as partial:
        partial.write_text(json.dumps(rules, indent=2) + "\n", encoding="utf-8")
    return file


def _without(rights: Any, names: Sequence[str]) -> Any:
    """Return a role's rights, by name or one for all, with people left out of each."""
    if isinstance(rights, dict):
        return {right: _without(conditions, names) for right, conditions in rights.items()}
    conditions = [rights] if isinstance(rights, str) else list(rights)
    return [*conditions, *(rule for name in names if (rule := f"not n:{name}") not in conditions)]
