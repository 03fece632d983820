"""Checks of a job against a kit's FLARE rules: would it run here, and what would it bring?"""

from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.job_def import ALL_SITES
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.fed_utils import extract_participants

from fedward.errors import ConfigError
from fedward.flare.kits import app_check
from fedward.flare.kits.app_check import CONFIGURATION_OF
from fedward.flare.kits.doctor.flare_rules import class_refusal, may_bring_code
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, skipped, warning
from fedward.flare.kits.kit import Kit
from fedward.flare.kits.reading import read_json, reading
from fedward.flare.kits.scopes import SCOPES, read_scopes

_EXPORT = (
    "A clinical export goes to every site and brings no code: "
    "fedward jobs FOLDER --only JOB --clinical."
)


def check(kit: Kit, folder: Path) -> list[Row]:
    """Check whether a job folder would be accepted with this kit."""
    try:
        meta = read_json(folder / "meta.json")
        app = app_for(kit, meta)
        if app is None:
            return [
                warning(
                    "job",
                    expected=f"a job for {kit.name}",
                    found="one for other sites",
                    remedy=_EXPORT,
                )
            ]
        config = read_json(folder / app / "config" / CONFIGURATION_OF[kit.side])
        rows = [done("job", f"{meta.get('name', folder.name)}, app {app}")]
        if kit.role == "site":
            rows.append(_scope(kit, str(meta.get("scope") or "")))
        rows += [_app_check(kit, folder / app), _own_code(kit, meta), _classes(kit, config)]
        return rows
    except ConfigError as error:
        return [broken("job", error)]


def app_for(kit: Kit, meta: dict[str, Any]) -> str | None:
    """Return the app that a job sends to the kit's participant, None if there is none.

    Args:
        kit: a site's or the server's.
        meta: content of the job's ``meta.json``.

    Raises:
        ConfigError: the content does not map apps to sites.
    """
    for app, participants in deployed(meta).items():
        if kit.participant in participants or ALL_SITES in participants:
            return app
    return None


def deployed(meta: dict[str, Any]) -> dict[str, set[str]]:
    """Return app -> the participants that get it: ``server``, sites, or FLARE's word for all.

    Raises:
        ConfigError: the content does not map apps to sites, as FLARE would read it.
    """
    expected = "a deploy_map that names sites for each app"
    with reading("meta.json", expected, "Export the job again."):
        apps = {}
        for app, places in meta["deploy_map"].items():
            names = {str(name) for name in extract_participants(places)}
            everybody = {name for name in names if name.casefold() == ALL_SITES.casefold()}
            apps[str(app)] = {ALL_SITES} if everybody else names
        return apps


def _app_check(kit: Kit, app: Path) -> Row:
    try:
        app_check.check(app, kit.side)
    except ConfigError as error:
        return broken("job app", error)
    return done("job app", "an exported configuration, and nothing else")


def _scope(kit: Kit, name: str) -> Row:
    """Check the privacy scope that a job names; empty if it names none."""
    try:
        manager = read_scopes(kit)
    except ConfigError:
        return skipped("job scope", f"{SCOPES} is broken, see above")
    asked = repr(name) if name else "none"
    if not manager.is_policy_defined():
        return warning(
            "job scope",
            expected=f"a scope of {SCOPES}",
            found=f"{asked}, and no such file: FLARE runs the job without filters",
            remedy="Write the file, so that this site decides what jobs may do.",
        )
    scope = manager.get_scope(name)
    if scope is None:
        return failed(
            "job scope",
            expected=f"one of {', '.join(manager.name_to_scopes)}",
            found=asked,
            remedy=(
                f"The job is refused here. Change its meta.json, or allow the scope in {SCOPES}."
            ),
        )
    if name:
        return done("job scope", scope.name)
    return done("job scope", f"none named, so the default, {scope.name}")


def _own_code(kit: Kit, meta: dict[str, Any]) -> Row:
    """Look for what FLARE counts as own code besides files: an image, or a Python path."""
    info = AppAuthzService.derive_local_app_info({}, meta, kit.participant)
    if not info.get(AppValidationKey.BYOC):
        return done("own code", "none: the job brings no image")
    found = (
        "an image or path of its own in launcher_spec, which could do anything with the site's data"
    )
    _, roles = may_bring_code(kit)
    if roles:
        expected = f"none; by this site's rules it may come from: {', '.join(roles)}"
        return warning("own code", expected=expected, found=found, remedy=_EXPORT)
    expected = "none: this site's rules let nobody bring code"
    return failed("own code", expected=expected, found=found, remedy=_EXPORT)


def _classes(kit: Kit, config: dict[str, Any]) -> Row:
    """Check every component of a configuration against the kit's allow list."""
    try:
        read_json(kit.resources)
    except ConfigError:
        return skipped("job classes", "the allow list cannot be read, see above")
    paths = set()
    refusals = set()
    for component in app_check.values(config):
        if not isinstance(component, dict):
            continue
        path = component.get("path") or component.get("class_path")
        if path:
            paths.add(path)
        if isinstance(path, str) or {"id", "name"} <= set(component):
            reason = class_refusal(kit, component)
            if reason:
                refusals.add(reason)
    if refusals:
        return failed(
            "job classes",
            expected="classes of this site's allow list",
            found="; ".join(sorted(refusals)),
            remedy=(
                "The job fails here. Ask for one that was exported with fedward jobs; "
                f"the list is in local/{kit.resources.name}."
            ),
        )
    return done("job classes", f"it runs {', '.join(sorted(paths))}, and no other")
