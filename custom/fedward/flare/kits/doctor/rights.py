"""Checks of who may send code along with a job (``byoc``), with FLARE's own reader of rights."""

from pathlib import Path

from nvflare.fuel.sec.authz import parse_policy_config
from nvflare.security.security import COMMAND_CATEGORIES

from fedward.errors import ConfigError
from fedward.flare.kits.doctor.rows import Row, broken, done, warning
from fedward.flare.kits.kit import Kit, read_json

_RIGHT = "byoc"
_ANY_RIGHT = "*"
_NOBODY = {"none", "no"}
_ALL = {"any", "all"}


def check(kit: Kit) -> list[Row]:
    """Look whether anybody may send code to a site or the server, whatever a job brings now."""
    try:
        file, roles = may_bring_code(kit)
    except ConfigError as error:
        return [broken("code rights", error)]
    if not roles:
        return [done("code rights", f"{file}: nobody may bring code")]
    remedy = f'Set "{_RIGHT}": "none" for each role in local/authorization.json: code could do anything with the data.'
    found = f"{file} grants {_RIGHT} to {', '.join(roles)}"
    return [
        warning(
            "code rights", expected="rules that let nobody bring code", found=found, remedy=remedy
        )
    ]


def may_bring_code(kit: Kit) -> tuple[str, list[str]]:
    """Return the file that counts, and the roles it gives the right to, with the condition if it is
    not always so.

    Raises:
        ConfigError: there is no such file, or FLARE cannot read it.
    """
    file = Path(kit.workspace.get_authorization_file_path() or kit.local / "authorization.json")
    policy, error = parse_policy_config(read_json(file), COMMAND_CATEGORIES)
    if policy is None:
        remedy = "Restore it from a new kit."
        raise ConfigError(
            str(file), expected="rights as FLARE reads them", found=error, remedy=remedy
        )
    allowed = []
    for role, rights in policy.role_rights.items():
        condition = rights.get(_ANY_RIGHT, rights.get(_RIGHT, "none"))
        conditions = [condition] if isinstance(condition, str) else condition
        left = _granted([" ".join(each.lower().split()) for each in conditions])
        if left:
            allowed.append(role if set(left) <= _ALL else f"{role} ({', '.join(left)})")
    return file.name, allowed


def _granted(conditions: list[str]) -> list[str]:
    """Return the conditions under which a right is given; none: never. FLARE refuses first, and
    then looks who may.
    """
    denied = {each.removeprefix("not ") for each in conditions if each.startswith("not ")}
    given = [each for each in conditions if not each.startswith("not ")]
    left = [each for each in given if each not in _NOBODY]
    if denied & _ALL or (given and not left):
        return []
    return left + [f"not {each}" for each in sorted(denied - _NOBODY)] or ["any"]
