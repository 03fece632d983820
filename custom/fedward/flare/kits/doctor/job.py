"""Checks of a job against a kit: would this site run it, and what would it bring?"""

from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.job_def import ALL_SITES
from nvflare.private.fed.utils.app_authz import AppAuthzService

from fedward.errors import ConfigError
from fedward.flare.kits import app_check
from fedward.flare.kits.app_check import CONFIGS
from fedward.flare.kits.doctor.policy import RULES, SCOPES, refusal, scopes
from fedward.flare.kits.doctor.rights import may_bring_code
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, skipped, warning
from fedward.flare.kits.kit import Kit, read_json, reading

_EXPORT = "A clinical export goes to every site and brings no code: fedward jobs FOLDER --only JOB --clinical."


def check(kit: Kit, folder: Path) -> list[Row]:
    """Look whether a job folder would be accepted with this kit."""
    try:
        meta = read_json(folder / "meta.json")
        app = app_of(kit, meta)
        if app is None:
            return [
                warning(
                    "job",
                    expected=f"a job for {kit.name}",
                    found="one for other sites",
                    remedy=_EXPORT,
                )
            ]
        config = read_json(folder / app / "config" / CONFIGS[kit.side])
        rows = [done("job", f"{meta.get('name', folder.name)}, app {app}")]
        if kit.role == "site":
            rows.append(_scope(kit, str(meta.get("scope") or "")))
        return [*rows, _app_check(kit, folder / app), _image(kit, meta), _classes(kit, config)]
    except ConfigError as error:
        return [broken("job", error)]


def app_of(kit: Kit, meta: dict[str, Any]) -> str | None:
    """Return the app that the job sends to the kit's participant."""
    me = "server" if kit.role == "server" else kit.name
    with reading(
        "meta.json", "a deploy_map that names sites for each app", "Export the job again."
    ):
        for app, places in meta["deploy_map"].items():
            sites = (
                places.get("sites") or places.get("targets") if isinstance(places, dict) else places
            )
            if any(site == me or site.casefold() == ALL_SITES.casefold() for site in sites or []):
                return str(app)
    return None


def _app_check(kit: Kit, app: Path) -> Row:
    try:
        app_check.check(app, kit.side)
    except ConfigError as error:
        return broken("job app", error)
    return done("job app", "an exported configuration, and nothing else")


def _scope(kit: Kit, scope: str) -> Row:
    try:
        manager = scopes(kit)
    except ConfigError:
        return skipped("job scope", f"{SCOPES} is broken, see above")
    asked = repr(scope) if scope else "none"
    if not manager.is_policy_defined():
        found = f"{asked}, and no such file: FLARE runs the job without filters"
        remedy = "Write the file, so that this site decides what jobs may do."
        return warning("job scope", expected=f"a scope of {SCOPES}", found=found, remedy=remedy)
    here = manager.get_scope(scope)
    if here:
        return done("job scope", here.name if scope else f"none named, so the default, {here.name}")
    remedy = f"The job is refused here. Change its meta.json, or allow the scope in {SCOPES}."
    return failed(
        "job scope",
        expected=f"one of {', '.join(manager.name_to_scopes)}",
        found=asked,
        remedy=remedy,
    )


def _image(kit: Kit, meta: dict[str, Any]) -> Row:
    """Look for what FLARE takes for own code besides files: an image, or a path of its own."""
    if not AppAuthzService.derive_local_app_info({}, meta, kit.name).get(AppValidationKey.BYOC):
        return done("own code", "none: the job brings no image")
    _, roles = may_bring_code(kit)
    found = (
        "an image or path of its own in launcher_spec, which could do anything with the site's data"
    )
    if roles:
        expected = f"none; by this site's rules it may come from: {', '.join(roles)}"
        return warning("own code", expected=expected, found=found, remedy=_EXPORT)
    return failed(
        "own code",
        expected="none: this site's rules let nobody bring code",
        found=found,
        remedy=_EXPORT,
    )


def _classes(kit: Kit, config: dict[str, Any]) -> Row:
    parts = [
        (part, part.get("path") or part.get("class_path"))
        for part in app_check.values(config)
        if isinstance(part, dict)
    ]
    named = [part for part, path in parts if isinstance(path, str) or {"id", "name"} <= {*part}]
    refused = sorted({reason for part in named if (reason := refusal(kit, part))})
    if refused:
        expected = "classes of this site's allow list"
        remedy = f"The job fails here. Ask for one that was exported with fedward jobs; the list is in {RULES}."
        return failed("job classes", expected=expected, found="; ".join(refused), remedy=remedy)
    return done(
        "job classes",
        f"it runs {', '.join(sorted(path for _, path in parts if path))}, and no other",
    )
