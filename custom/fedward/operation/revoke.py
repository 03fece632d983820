"""Revocation of users who left or whose key is lost: a participant's rules refuse them by name."""

import json
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedward import private
from fedward.disk import replacing
from fedward.errors import ConfigError
from fedward.flare.kits.kit import open_kit
from fedward.flare.kits.reading import read_json, reading

_NAME = re.compile(r"[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+")
"""Names of users, as FLARE provisions them. A site has none with an ``@``."""


def revoke(folder: Path, names: Sequence[str]) -> Path:
    """Refuse all that these users ask of a participant, from its next start on.

    FLARE has no list of revoked certificates: the users can still log in at the server, also with a
    session from before. The server then refuses their commands about jobs and about itself, and a
    site those about itself, such as its restart. Both refuse their jobs, those too that wait at the
    server. To revoke a user twice changes nothing.

    Args:
        folder: the kit of the server or of a site.
        names: of users, as in their certificates.

    Returns:
        The changed file.

    Raises:
        ConfigError: the kit of a user, rules that cannot be read, or a name that no user has.
    """
    kit = open_kit(folder)
    if kit.role == "user":
        raise ConfigError(
            f"kit {folder}",
            expected="the kit of the server or of a site",
            found=f"that of {kit.name}",
            remedy="Name the kit of the participant that is to refuse them.",
        )
    wrong_names = [name for name in names if not _NAME.fullmatch(name)]
    if wrong_names:
        raise ConfigError(
            "fedward revoke",
            expected="names of users, such as lead@hospital-a.org",
            found=", ".join(map(repr, wrong_names)),
            remedy="Name users as in project.yml. "
            "A site is shut out with `nvflare system disable-client`.",
        )
    file = kit.local / "authorization.json"
    # Of two revocations at once, none may write the file without the other's names.
    with private.locked(kit.folder):
        _rewrite(file, names)
    return file


def _rewrite(file: Path, names: Sequence[str]) -> None:
    """Write a participant's rules again, with users excluded from each right."""
    rules = read_json(file)
    remedy = "Restore the file from a newly provisioned kit."
    with reading(str(file), "permissions by role", remedy):
        rules["permissions"] = {
            role: _without(rights, names) for role, rights in rules["permissions"].items()
        }
    before = file.stat()
    with replacing(file) as partial:
        partial.write_text(json.dumps(rules, indent=2) + "\n", encoding="utf-8")
        # The server's account must be able to read it, whoever calls this.
        partial.chmod(stat.S_IMODE(before.st_mode))
        with suppress(PermissionError):
            os.chown(partial, before.st_uid, before.st_gid)


def _without(rights: Any, names: Sequence[str]) -> Any:
    """Return a role's rights with users excluded from each.

    Args:
        rights: right -> conditions, or one or several conditions for all rights, as FLARE's rules
            have them.
        names: the users.
    """
    if isinstance(rights, dict):
        return {right: _without(conditions, names) for right, conditions in rights.items()}
    conditions = [rights] if isinstance(rights, str) else list(rights)
    for name in names:
        exclusion = f"not n:{name}"
        if exclusion not in conditions:
            conditions.append(exclusion)
    return conditions
