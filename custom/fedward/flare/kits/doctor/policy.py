"""Checks of a site's own rules, with FLARE's own readers: classes that may run, logs that leave,
privacy scopes.
"""

import contextlib
import io
import json
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.app_common.widgets import component_path_authorizer as authorizer
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import PrivacyManager
from nvflare.tool.deploy import deploy_common as deploy

from fedward.errors import ConfigError
from fedward.flare.classes import ALLOWED, ERRORS, LAUNCHER
from fedward.flare.kits.builder import ERROR_LOG, LOGS, app_check
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, warning
from fedward.flare.kits.kit import Kit, read_json, reading
from fedward.terminal import one_line

RULES = "local/resources.json.default"
SCOPES = "local/privacy.json"
_ELSEWHERE = deploy.BUILTIN_LAUNCHER_PATHS - {
    deploy.PROCESS_CLIENT_LAUNCHER,
    deploy.PROCESS_SERVER_LAUNCHER,
}
"""FLARE's launchers for Docker, Kubernetes and Slurm, which ``nvflare deploy prepare`` puts in
place of ours.
"""


def check(kit: Kit) -> list[Row]:
    """Look at the rules of a site or of the server."""
    try:
        resources = read_json(kit.resources)
    except ConfigError as error:
        return [broken("allow list", error)]
    rows = [_allow_list(kit, resources), _app_check(kit, resources), _launcher(kit, resources)]
    if kit.role == "site":
        return [*rows, _logs(kit, resources), _scopes(kit)]
    return [*rows, _errors(kit)]


def refusal(kit: Kit, component: dict[str, Any]) -> str:
    """Return why the allow list refuses a component of a job without own code; empty if it does
    not.
    """
    with _quiet():
        try:
            authorizer.ComponentPathAuthorizer().authorize_component_config(
                component, workspace=kit.workspace
            )
        except UnsafeComponentError as error:
            return str(error).replace(
                " at config path ''", ""
            )  # the place is lost, as parts are looked at one by one
    return ""


def scopes(kit: Kit) -> PrivacyManager:
    """Return the site's privacy scopes with their filters, built as for a job; raises ConfigError
    if FLARE cannot.
    """
    with _quiet():
        try:
            return create_privacy_manager(kit.workspace, names_only=False)
        except Exception as error:  # whatever a filter raises when it is built
            expected = "scopes whose filters can be built"
            found = one_line(str(error))
            remedy = "As it is, every job fails at this site. FLARE's own sample file is no working example."
            raise ConfigError(SCOPES, expected=expected, found=found, remedy=remedy) from error


@contextlib.contextmanager
def _quiet() -> Any:
    """Keep what FLARE prints and logs out of the report; it is in the errors too."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _allow_list(kit: Kit, resources: dict[str, Any]) -> Row:
    ours = ALLOWED[kit.side]
    listed = resources.get(authorizer.CLASS_ALLOW_LIST)
    file = kit.resources.relative_to(kit.folder).as_posix()
    own = [str(entry) for entry in listed if entry not in ours] if isinstance(listed, list) else []
    if resources.get(authorizer.CLASS_LIST_ENFORCEMENT_MODE, "enforce") != "enforce":
        wrong = f"{authorizer.CLASS_LIST_ENFORCEMENT_MODE} other than enforce, so that every installed class may run"
    elif wide := ", ".join(filter(_is_wide, own)):
        wrong = f"more than that, {wide}"
    else:
        wrong = next((reason for path in ours if (reason := refusal(kit, {"path": path}))), "")
    if wrong:
        expected = f"a {authorizer.CLASS_ALLOW_LIST} of single classes: {', '.join(ours)}"
        remedy = (
            f'Write these into {file}, and "{authorizer.CLASS_LIST_ENFORCEMENT_MODE}": "enforce".'
        )
        return failed("allow list", expected=expected, found=f"{file}: {wrong}", remedy=remedy)
    if own:
        found = f"{file} with classes of this site's own: {', '.join(sorted(own))}"
        remedy = "The app check lets no job name them. Where it is taken out, jobs build them with any arguments."
        return warning(
            "allow list", expected="no classes but fedward's", found=found, remedy=remedy
        )
    return done("allow list", f"{file} admits {len(ours)} classes, each by name")


def _is_wide(entry: str) -> bool:
    """Return whether an entry admits more than one class of the site's own: a package, a module, or
    one of FLARE's.
    """
    if (
        entry == authorizer.ALLOW_ALL
        or entry.endswith(".")
        or entry.startswith(("fedward.", "nvflare."))
    ):
        return True
    try:
        return find_spec(entry) is not None  # a module; FLARE then admits all that it holds
    except (ImportError, ValueError):
        return False


def _app_check(kit: Kit, resources: dict[str, Any]) -> Row:
    wanted = app_check(kit.side)
    listed = resources.get("app_validator")
    if listed == wanted:
        return done("app check", "refuses jobs with other files than an export's")
    expected = f'"app_validator": {json.dumps(wanted)}'
    found = json.dumps(listed)
    remedy = f"Write it into {kit.resources.name}: without it jobs may bring any file."
    return failed("app check", expected=expected, found=found, remedy=remedy)


def _launcher(kit: Kit, resources: dict[str, Any]) -> Row:
    parts = [
        part for part in resources.get("components", []) if part.get("id") in deploy.LAUNCHER_IDS
    ]
    paths = [part.get("path") for part in parts if not part.get("disabled")]
    ours = LAUNCHER[kit.side]
    if paths == [ours]:
        return done("launcher", "a job's process that is killed is started again")
    if len(paths) == 1 and paths[0] in _ELSEWHERE:
        found = f"{paths[0]}: the runtime starts jobs, and none again"
        remedy = "Send jobs with fedward submit --supervise: it continues a run whose process was killed."
        return warning(
            "launcher",
            expected=f"{ours}, which starts killed processes again",
            found=found,
            remedy=remedy,
        )
    remedy = (
        f"Name it in {kit.resources.name}: FLARE's own lets jobs' processes import from the kit."
    )
    return failed(
        "launcher", expected=ours, found=", ".join(map(str, paths)) or "none", remedy=remedy
    )


def _logs(kit: Kit, resources: dict[str, Any]) -> Row:
    if not resources.get("allow_log_streaming", True):
        return done("logs", "stay at the site")
    found = "allow_log_streaming: FLARE sends jobs' logs to the server, with errors' paths and rows"
    remedy = f'Set "allow_log_streaming": false in {kit.resources.name}.'
    return warning("logs", expected="logs that stay at the site", found=found, remedy=remedy)


def _errors(kit: Kit) -> Row:
    """Look whether the server's log of errors leaves out what is none, so that somebody reads it."""
    file = Path(kit.workspace.get_log_config_file_path() or kit.local / LOGS)
    name = file.relative_to(kit.folder).as_posix()
    try:
        with reading(
            name, f"the handler {ERROR_LOG} of FLARE's", "Restore it from a newly provisioned kit."
        ):
            logs = read_json(file)
            filters = [
                logs["filters"][each]["()"]
                for each in logs["handlers"][ERROR_LOG].get("filters", [])
            ]
    except ConfigError as error:
        return broken("error log", error)
    if ERRORS in filters:
        return done("error log", "without questions to jobs that start")
    expected = f"{ERRORS} among the filters of {ERROR_LOG}"
    found = f"{name} without it"
    remedy = "Copy the file from a newly provisioned kit: each look at a job that starts is an error in error_log.txt."
    return warning("error log", expected=expected, found=found, remedy=remedy)


def _scopes(kit: Kit) -> Row:
    try:
        manager = scopes(kit)
    except ConfigError as error:
        return broken("privacy", error)
    if not manager.is_policy_defined():
        expected = f"{SCOPES} with the scopes this site allows"
        found = "none: jobs of any scope run, and nothing is filtered"
        remedy = "Write one, with a scope 'clinical' if clinical jobs shall run here."
        return warning("privacy", expected=expected, found=found, remedy=remedy)
    default = (
        f"default {manager.default_scope.name}"
        if manager.default_scope
        else "no default: a job must name one"
    )
    return done(
        "privacy", f"{'; '.join(map(_describe, manager.name_to_scopes.values()))}; {default}"
    )


def _describe(scope: Any) -> str:
    filters = [
        f"{type(each).__name__} ({kind} {way})"
        for kind, chains in (
            ("data", scope.task_data_filters),
            ("result", scope.task_result_filters),
        )
        for way, chain in chains.items()
        for each in chain
    ]
    return f"{scope.name}: {', '.join(filters) or 'no filters'}"
