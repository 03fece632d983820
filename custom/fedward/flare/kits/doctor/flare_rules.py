"""Checks of the rules that FLARE reads from a kit, with FLARE's own readers.

They say which classes may run, what starts jobs, which logs leave, which privacy scopes exist, and
who may bring code (FLARE's right ``byoc``).
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.app_common.widgets import component_path_authorizer as authorizer
from nvflare.fuel.sec.authz import parse_policy_config
from nvflare.lighter.constants import ProvFileName
from nvflare.private.privacy_manager import Scope
from nvflare.security.security import COMMAND_CATEGORIES
from nvflare.tool.deploy import deploy_common as deploy

from fedward.errors import ConfigError
from fedward.flare.classes import (
    ALLOWED,
    CONSOLE,
    CONTROLLERS,
    JOBS_THAT_START,
    LAUNCHER,
    ONE_ENTRY_A_RECORD,
)
from fedward.flare.kits.builder import ERROR_LOG, LOGS, app_check
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, warning
from fedward.flare.kits.kit import Kit
from fedward.flare.kits.reading import read_json, reading
from fedward.flare.kits.resources import runtime_of
from fedward.flare.kits.scopes import SCOPES, quiet, read_scopes

_BRING_CODE = "byoc"
_ANY_RIGHT = "*"
_NOBODY = {"none", "no"}
_EVERYBODY = {"any", "all"}


def check(kit: Kit) -> list[Row]:
    """Check the rules of a site or of the server, except for who may bring code."""
    try:
        resources = read_json(kit.resources)
    except ConfigError as error:
        return [broken("allow list", error)]
    rows = [
        _allow_list(kit, resources),
        _app_check(kit, resources),
        _launcher(kit),
        _logs(kit),
    ]
    if kit.role == "site":
        rows += [_log_streaming(kit, resources), _registration(kit), _scopes(kit)]
    return rows


def class_refusal(kit: Kit, component: dict[str, Any]) -> str:
    """Return why the allow list refuses a component of a job; empty if it does not.

    The caller has made sure that the file with the list can be read.
    """
    with quiet():
        try:
            authorizer.ComponentPathAuthorizer().authorize_component_config(
                component, workspace=kit.workspace
            )
        except UnsafeComponentError as error:
            # Components are looked at one by one, so the place that FLARE names is always empty.
            return str(error).replace(" at config path ''", "")
    return ""


def _allow_list(kit: Kit, resources: dict[str, Any]) -> Row:
    required = ALLOWED[kit.side]
    file = kit.resources.relative_to(kit.folder).as_posix()
    listed = resources.get(authorizer.CLASS_ALLOW_LIST)
    additions = []
    if isinstance(listed, list):
        additions = [str(entry) for entry in listed if entry not in required]
    problem = _allow_list_problem(kit, resources, additions)
    if problem:
        return failed(
            "allow list",
            expected=f"a {authorizer.CLASS_ALLOW_LIST} of single classes: {', '.join(required)}",
            found=f"{file}: {problem}",
            remedy=(
                f"Write these into {file}, and "
                f'"{authorizer.CLASS_LIST_ENFORCEMENT_MODE}": "enforce".'
            ),
        )
    missing_controllers = [
        path
        for path in required
        if path in CONTROLLERS.values() and class_refusal(kit, {"path": path})
    ]
    if missing_controllers:
        return warning(
            "allow list",
            expected="the controllers of this version",
            found=f"{file} without {', '.join(missing_controllers)}",
            remedy=(
                "FLARE refuses jobs of controllers that are not listed. "
                f"Copy {authorizer.CLASS_ALLOW_LIST} from a newly provisioned kit."
            ),
        )
    if additions:
        return warning(
            "allow list",
            expected="no classes but fedward's",
            found=f"{file} with classes of this site's own: {', '.join(sorted(additions))}",
            remedy=(
                "Remove them if this site does not need them. The app check lets no job name them; "
                "without it, jobs could build them with any arguments."
            ),
        )
    return done("allow list", f"{file} admits {len(required)} classes, each by name")


def _allow_list_problem(kit: Kit, resources: dict[str, Any], additions: list[str]) -> str:
    """Return what is wrong with the allow list; empty if nothing is.

    Args:
        kit: the kit.
        resources: content of its file of rules.
        additions: entries that are not fedward's.
    """
    mode = authorizer.CLASS_LIST_ENFORCEMENT_MODE
    if resources.get(mode, "enforce") != "enforce":
        return f"{mode} other than enforce, so that every installed class may run"
    wide_entries = [entry for entry in additions if _admits_many(entry)]
    if wide_entries:
        return f"more than that, {', '.join(wide_entries)}"
    # A list from before a method had its controller still serves all other jobs.
    for path in ALLOWED[kit.side]:
        reason = class_refusal(kit, {"path": path})
        if reason and path not in CONTROLLERS.values():
            return reason
    return ""


def _admits_many(entry: str) -> bool:
    """Return whether an entry admits more than a single class of the site's own.

    That is a package, a module, or anything of FLARE's or fedward's.
    """
    if entry == authorizer.ALLOW_ALL or entry.endswith("."):
        return True
    if entry.startswith(("fedward.", "nvflare.")):
        return True
    try:
        is_module = find_spec(entry) is not None
    except (ImportError, ValueError):
        return False
    return is_module  # FLARE admits everything in a module that is listed.


def _app_check(kit: Kit, resources: dict[str, Any]) -> Row:
    wanted = app_check(kit.side)
    listed = resources.get("app_validator")
    if listed == wanted:
        return done("app check", "refuses jobs with other files than an export's")
    return failed(
        "app check",
        expected=f'"app_validator": {json.dumps(wanted)}',
        found=json.dumps(listed),
        remedy=f"Write it into {kit.resources.name}: without it jobs may bring any file.",
    )


def _launcher(kit: Kit) -> Row:
    """Check what starts jobs: fedward's launcher, or one that FLARE has for another runtime."""
    wanted = LAUNCHER[kit.side]
    try:
        launchers = [part for part in kit.components if part.get("id") in deploy.LAUNCHER_IDS]
    except ConfigError as error:
        return broken("launcher", error)
    paths = [launcher.get("path") for launcher in launchers]
    if paths == [wanted]:
        return done("launcher", "a job's process that is killed is started again")
    is_flares = len(paths) == 1 and paths[0] in deploy.BUILTIN_LAUNCHER_PATHS
    if is_flares and runtime_of(launchers[0]):
        return warning(
            "launcher",
            expected=f"{wanted}, which starts killed processes again",
            found=f"{paths[0]}, which starts no killed process again",
            remedy=(
                "Send jobs with fedward submit --supervise: "
                "it continues a run whose process was killed."
            ),
        )
    return failed(
        "launcher",
        expected=wanted,
        found=", ".join(map(str, paths)) or "none",
        remedy=(
            f"Name it in {kit.resources.name}: "
            "FLARE's own lets jobs' processes import from the kit."
        ),
    )


def check_console(kit: Kit) -> Row:
    """Check that a user's kit starts the console in which the server chooses no files."""
    script = kit.startup / ProvFileName.FL_ADMIN_SH
    try:
        with reading(script.name, "the script of FLARE's console", "Provision the kit again."):
            text = script.read_text(encoding="utf-8")
    except ConfigError as error:
        return broken("console", error)
    if f"-m {CONSOLE} " in text:
        return done("console", "sends submitted jobs and fetches results alone")
    return warning(
        "console",
        expected=f"{script.name} that runs {CONSOLE}",
        found="FLARE's own console, in which the server chooses files of yours",
        remedy="Copy the script from a newly provisioned kit. `fedward` itself needs no change.",
    )


def _log_streaming(kit: Kit, resources: dict[str, Any]) -> Row:
    if not resources.get("allow_log_streaming", True):
        return done("logs", "stay at the site")
    return warning(
        "logs",
        expected="logs that stay at the site",
        found=(
            "allow_log_streaming: FLARE sends the logs of jobs to the server, and errors in them "
            "quote paths and rows"
        ),
        remedy=f'Set "allow_log_streaming": false in {kit.resources.name}.',
    )


def _registration(kit: Kit) -> Row:
    """Check that a site sends no configuration when it registers at the server."""
    file = kit.startup / ProvFileName.FED_CLIENT_JSON
    try:
        client = read_json(file).get("client")
    except ConfigError as error:
        return broken("registration", error)
    if isinstance(client, dict) and client.get("site_config") == {}:
        return done("registration", "sends no configuration of the site")
    return failed(
        "registration",
        expected=f'"site_config": {{}} in {file.name}',
        found="none: FLARE sends entries of the site's configuration to the server",
        remedy=f"Copy {file.name} from a newly provisioned kit, and start the participant again.",
    )


def _logs(kit: Kit) -> Row:
    """Check the filters of the logs.

    All logs escape what jobs and messages bring. The server's log of errors holds errors alone, so
    that somebody reads it.
    """
    file = Path(kit.workspace.get_log_config_file_path() or kit.local / LOGS)
    name = file.relative_to(kit.folder).as_posix()
    restore = "Restore it from a newly provisioned kit."
    try:
        with reading(name, f"the handlers of FLARE's, {ERROR_LOG} among them", restore):
            logs = read_json(file)
            missing = _missing_filters(logs, at_server=kit.role == "server")
    except ConfigError as error:
        return broken("log files", error)
    if not missing:
        return done("log files", "one entry a record")
    return warning(
        "log files",
        expected=" and ".join(missing),
        found=f"{name} lacks them",
        remedy=(
            "Copy the file from a newly provisioned kit: a job could write entries of its own into "
            "this participant's logs."
        ),
    )


def _missing_filters(logs: dict[str, Any], *, at_server: bool) -> list[str]:
    """Return which filters some handlers of a log configuration lack."""
    classes = {}
    for handler_name, handler in logs["handlers"].items():
        names = handler.get("filters", [])
        classes[handler_name] = {logs["filters"][filter_name]["()"] for filter_name in names}
    missing = []
    without = sorted(name for name, found in classes.items() if ONE_ENTRY_A_RECORD not in found)
    if without:
        missing.append(f"{ONE_ENTRY_A_RECORD} among the filters of {', '.join(without)}")
    if at_server and JOBS_THAT_START not in classes[ERROR_LOG]:
        missing.append(f"{JOBS_THAT_START} among the filters of {ERROR_LOG}")
    return missing


def _scopes(kit: Kit) -> Row:
    try:
        manager = read_scopes(kit)
    except ConfigError as error:
        return broken("privacy", error)
    if not manager.is_policy_defined():
        return warning(
            "privacy",
            expected=f"{SCOPES} with the scopes this site allows",
            found="none: jobs of any scope run, and nothing is filtered",
            remedy="Write one, with a scope 'clinical' if clinical jobs shall run here.",
        )
    default = "no default: a job must name one"
    if manager.default_scope:
        default = f"default {manager.default_scope.name}"
    scopes = [_scope_text(scope) for scope in manager.name_to_scopes.values()]
    return done("privacy", f"{'; '.join(scopes)}; {default}")


def _scope_text(scope: Scope) -> str:
    filters = [*_filter_texts("data", scope.task_data_filters)]
    filters += _filter_texts("result", scope.task_result_filters)
    return f"{scope.name}: {', '.join(filters) or 'no filters'}"


def _filter_texts(kind: str, chains: dict[str, list[object]]) -> Iterator[str]:
    for direction, chain in chains.items():
        for task_filter in chain:
            yield f"{type(task_filter).__name__} ({kind} {direction})"


def check_code_rights(kit: Kit) -> list[Row]:
    """Check whether anybody may send code to a site or the server, whatever a job brings now."""
    try:
        file_name, roles = may_bring_code(kit)
    except ConfigError as error:
        return [broken("code rights", error)]
    if not roles:
        return [done("code rights", f"{file_name}: nobody may bring code")]
    return [
        warning(
            "code rights",
            expected="rules that let nobody bring code",
            found=f"{file_name} grants {_BRING_CODE} to {', '.join(roles)}",
            remedy=(
                f'Set "{_BRING_CODE}": "none" for each role in local/authorization.json: '
                "code could do anything with the data."
            ),
        )
    ]


def may_bring_code(kit: Kit) -> tuple[str, list[str]]:
    """Return the name of the file with FLARE's rights, and the roles that may bring code.

    A role that has the right under conditions is followed by them in brackets.

    Raises:
        ConfigError: there is no such file, or FLARE cannot read it.
    """
    file = Path(kit.workspace.get_authorization_file_path() or kit.local / "authorization.json")
    content = read_json(file)
    with reading(str(file), "rights as FLARE reads them", "Restore it from a new kit."):
        policy, error = parse_policy_config(content, COMMAND_CATEGORIES)
        if policy is None:
            raise ValueError(error)
    roles = []
    for role, rights in policy.role_rights.items():
        conditions = rights.get(_ANY_RIGHT, rights.get(_BRING_CODE, "none"))
        if isinstance(conditions, str):
            conditions = [conditions]
        granted = _granted([" ".join(text.lower().split()) for text in conditions])
        if granted and set(granted) <= _EVERYBODY:
            roles.append(role)
        elif granted:
            roles.append(f"{role} ({', '.join(granted)})")
    return file.name, roles


def _granted(conditions: list[str]) -> list[str]:
    """Return the conditions under which a right is given; an empty list means never.

    FLARE looks at refusals (``not ...``) first, and then at whom the right is given to.
    """
    denied = {text.removeprefix("not ") for text in conditions if text.startswith("not ")}
    given = [text for text in conditions if not text.startswith("not ")]
    effective = [text for text in given if text not in _NOBODY]
    if denied & _EVERYBODY or (given and not effective):
        return []
    effective += [f"not {text}" for text in sorted(denied - _NOBODY)]
    return effective or ["any"]
