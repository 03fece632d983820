"""Checks of a site's own rules, with FLARE's own readers: classes that may run, logs that leave, privacy scopes."""

import contextlib
import io
import logging
from pathlib import Path
from typing import Any

from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.workspace import Workspace
from nvflare.app_common.widgets.component_path_authorizer import (
    ALLOW_ALL,
    CLASS_ALLOW_LIST,
    CLASS_LIST_ENFORCEMENT_MODE,
    ComponentPathAuthorizer,
)
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import PrivacyManager

from fedward.errors import ConfigError
from fedward.federation.flare.kit_doctor.kit import Kit, read_json
from fedward.federation.flare.kit_doctor.rows import Row, broken, done, failed, warning
from fedward.sites.site_file import find_site_file

RULES = "local/resources.json"
SCOPES = "local/privacy.json"
_OURS = {
    "site": "fedward.federation.flare.executor.FedwardExecutor",
    "server": "fedward.federation.flare.controller.FedwardController",
}


def check(kit: Kit) -> list[Row]:
    """Look at the rules of a site or of the server."""
    try:
        resources = read_json(resources_file(kit))
    except ConfigError as error:
        return [broken("allow list", error)]
    rows = [_allow_list(kit, resources)]
    if kit.role == "site":
        rows += [_logs(resources), _scopes(kit), _data(kit)]
    return rows


def resources_file(kit: Kit) -> Path:
    """Return the file FLARE reads: the participant's own, else the one it came with."""
    return Path(Workspace(str(kit.folder), kit.name).get_resources_file_path() or kit.folder / RULES)


def refusal(kit: Kit, component: dict[str, Any]) -> str:
    """Return why the allow list refuses a component of a job without own code; empty if it does not."""
    with _quiet():
        try:
            ComponentPathAuthorizer().authorize_component_config(component, workspace=_workspace(kit))
        except UnsafeComponentError as error:
            return str(error).replace(" at config path ''", "")  # the place is lost, as parts are looked at one by one
    return ""


def scopes(kit: Kit) -> PrivacyManager:
    """Return the site's privacy scopes with their filters, built as for a job; raises ConfigError if FLARE cannot."""
    with _quiet():
        try:
            return create_privacy_manager(_workspace(kit), names_only=False)
        except Exception as error:  # whatever a filter raises when it is built
            raise ConfigError(
                SCOPES,
                expected="scopes whose filters can be built",
                found=" ".join(str(error).split()),
                remedy="As it is, every job fails at this site. FLARE's own sample file is no working example.",
            ) from error


def _workspace(kit: Kit) -> Workspace:
    return Workspace(str(kit.folder), kit.name)


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
    file = resources_file(kit).relative_to(kit.folder).as_posix()
    if ALLOW_ALL in (resources.get(CLASS_ALLOW_LIST) or []):
        return _open(f"{file} with an entry {ALLOW_ALL!r}: every installed class")
    if reason := refusal(kit, {"path": _OURS[kit.role]}):
        return failed(
            "allow list",
            expected=f"a {CLASS_ALLOW_LIST} that admits 'fedward.'",
            found=f"{file}: {reason}",
            remedy=f"Add it in {RULES}, which replaces the .default beside it as a whole.",
        )
    if resources.get(CLASS_LIST_ENFORCEMENT_MODE) == "warn":
        return _open(f"{file} with {CLASS_LIST_ENFORCEMENT_MODE} warn: every installed class")
    return done("allow list", f"{file} admits fedward's classes")


def _open(found: str) -> Row:
    remedy = "Name the classes this site wants to run, such as 'fedward.', beside FLARE's own list."
    return warning("allow list", expected="a list of what a job may run", found=found, remedy=remedy)


def _logs(resources: dict[str, Any]) -> Row:
    if resources.get("allow_log_streaming", True):
        return warning(
            "logs",
            expected="logs that stay at the site",
            found="allow_log_streaming: FLARE sends jobs' logs to the server, with errors' paths and rows",
            remedy=f'Set "allow_log_streaming": false in {RULES}.',
        )
    return done("logs", "stay at the site")


def _scopes(kit: Kit) -> Row:
    try:
        manager = scopes(kit)
    except ConfigError as error:
        return broken("privacy", error)
    if not manager.is_policy_defined():
        return warning(
            "privacy",
            expected=f"{SCOPES} with the scopes this site allows",
            found="none: jobs of any scope run, and nothing is filtered",
            remedy="Write one, with a scope 'clinical' if clinical jobs shall run here.",
        )
    default = manager.default_scope
    told = f"default {default.name}" if default else "no default: a job must name one"
    return done("privacy", f"{'; '.join(map(_describe, manager.name_to_scopes.values()))}; {told}")


def _data(kit: Kit) -> Row:
    """Look for the site's data file; what is in it is a doctor's visit of its own."""
    if file := find_site_file(kit.name, [kit.local]):
        return done("data", f"local/{file.name}; check it too: fedward doctor {file.name}")
    return warning(
        "data",
        expected="local/fedward_site.yaml, which names this site's data",
        found="no such file: clinical jobs fail here",
        remedy="Write it, and check it with fedward doctor.",
    )


def _describe(scope: Any) -> str:
    filters = [
        f"{type(each).__name__} ({kind} {way})"
        for kind, chains in (("data", scope.task_data_filters), ("result", scope.task_result_filters))
        for way, chain in chains.items()
        for each in chain
    ]
    return f"{scope.name}: {', '.join(filters) or 'no filters'}"
