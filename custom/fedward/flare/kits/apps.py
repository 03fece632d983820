"""What a job may bring to a participant: the configuration that ``fedward jobs`` writes, and at the server weights.

FLARE asks :class:`AppCheck` when it has unpacked a job's app and checked the signature, before any process of the job
starts. A refusal goes to the job's lead, with the name of the participant.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.fuel.utils.json_config_loader import JsonConfigLoader
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from pydantic import BaseModel

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import ConfigError
from fedward.flare.classes import ALLOWED, AVERAGING, CONTROLLERS, FOREIGN, Role
from fedward.flare.jobs.configurations import CLIENT, SERVER, WEIGHTS, client_config, server_config

CONFIGS: dict[Role, str] = {"site": CLIENT, "server": SERVER}

_FOLDER = "config"
_SIGNATURE = (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
_SIGNATURES = {f"{folder}{name}" for folder in ("", f"{_FOLDER}/") for name in _SIGNATURE}
_FILES = {f"{_FOLDER}/{name}" for name in (CLIENT, SERVER)} | _SIGNATURES
_KNOWN: dict[Role, set[str]] = {"site": _FILES, "server": _FILES | {f"{_FOLDER}/{name}" for name in WEIGHTS}}
_WEIGHTS = f"{_FOLDER}/{WEIGHTS[0]}"

_LARGEST = 1 << 20
"""Bytes of a file that is not the weights; an exported configuration has a few thousand."""

_PATHS = {"path", "class_path"}
_NAMES_CLASS = _PATHS | {"name", "class_attributes"}
"""Keys by which FLARE takes a value among the arguments for a class to build, or for the arguments themselves."""

_CONTROLLERS = {*CONTROLLERS.values(), AVERAGING, FOREIGN}

_EXPERIMENT = set(Experiment.model_fields) - {"method", "options"}
_PARTS: dict[str, type[BaseModel]] = {"data": DataSpec, "synthetic": SyntheticData}
"""Names that a controller's argument ``experiment`` may have, and mappings in it with names of their own."""

_INTERVAL = (0.05, 60.0)
"""Seconds between two questions of a site for work that a job may set."""

_LONGEST_TEXT = 200
"""Characters of what was found that an error repeats: the job's lead chose them, others read them."""

_log = logging.getLogger(__name__)


class AppCheck(AppValidator):  # type: ignore[misc]
    """Refuses an app with any other file, or another configuration, than the export's; the kits name it.

    FLARE looks at an app's configuration before it asks a validator, and reads it as HOCON or YAML too, where a file
    may include others and addresses. Therefore every file is read as JSON in a process that has this check.

    Args:
        role: whose kit it is, ``site`` or ``server``.
    """

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.role = role
        ConfigFactory._fmt2Loader = dict.fromkeys(ConfigFormat, JsonConfigLoader())

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        """Return why an app is refused, empty if it is not, and no properties."""
        try:
            check(Path(app_folder), self.role)
        except ConfigError as error:
            _log.error("a job is refused: %s", error)
            return str(error), {}
        return "", {}


def check(app: Path, role: Role) -> None:
    """Look at the files of an app, and at the configuration for a site or the server.

    At a site that is the server's, too: its executor reads the experiment there.

    Raises:
        ConfigError: a file or folder that no export has, a link, one that is too large, or a configuration that is
            not, but for the experiment, the one that an export has.
    """
    _check_files(app, role)
    for side in ("site", "server") if role == "site" else (role,):
        _check_configuration(app, side)


def _check_configuration(app: Path, side: Role) -> None:
    file = f"{_FOLDER}/{CONFIGS[side]}"
    try:
        content = json.loads((app / file).read_text(encoding="utf-8"), object_pairs_hook=_unique)
        problem = _differences(content, side)
    except (OSError, ValueError, RecursionError) as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
        raise _refused(f"app, file {file}", "plain JSON in UTF-8, each key once", found) from error
    if problem:
        raise _refused(f"app, file {file}", "what `fedward jobs` writes for an experiment", problem)


def _check_files(app: Path, role: Role) -> None:
    paths = {path.relative_to(app).as_posix(): path for path in sorted(app.rglob("*"))}
    strangers = [
        name
        for name, path in paths.items()
        if path.is_symlink() or not (path.is_dir() if name == _FOLDER else path.is_file() and name in _KNOWN[role])
    ]
    if strangers:
        files = ", ".join(sorted(_KNOWN[role] - _SIGNATURES))
        named = [name for name in strangers if PurePath(name).name not in _SIGNATURE] or strangers
        raise _refused("app", f"nothing but {files}", ", ".join(map(repr, named)))
    for name, path in paths.items():
        if name not in (_FOLDER, _WEIGHTS) and (size := path.stat().st_size) > _LARGEST:
            raise _refused(f"app, file {name}", f"at most {_LARGEST} bytes", f"{size}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key that comes twice")
    return content


def _differences(content: Any, side: Role) -> str:
    """Return in what a configuration differs from an exported one, empty if in its experiment alone."""
    for value in values(content):
        if isinstance(value, str) and ("{" in value or "}" in value):
            return f"a brace in {value!r}: FLARE would put a variable in its place"
        if isinstance(value, dict) and (named := {str(value[key]) for key in _PATHS & set(value)} - {*ALLOWED[side]}):
            return f"the class {', '.join(sorted(named))}"
    try:
        return _from_export(content, side)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "one without the part that runs the experiment"


def _from_export(content: Any, side: Role) -> str:
    if side == "site":
        interval = content["default_task_fetch_interval"]
        exported = client_config(interval)
    else:
        (workflow,), interval = content["workflows"], content["server"]["task_request_interval"]
        if workflow["path"] not in _CONTROLLERS:
            return "a workflow that is no controller"
        if problem := _arguments(workflow["args"]):
            return problem
        exported = server_config(workflow["path"], workflow["args"], interval)
    if others := sorted(key for key in {*content, *exported} if content.get(key) != exported.get(key)):
        return f"other values of {', '.join(others)}"
    if not _INTERVAL[0] <= interval <= _INTERVAL[1]:
        return f"{interval!r} seconds between two questions for work"
    return ""


def _arguments(args: dict[str, Any]) -> str:
    """Return what is wrong with a controller's arguments, such as one from which FLARE would build something.

    Names and values of a method's own settings are for the controller, and at a site the executor, to check: that
    takes torch.
    """
    experiment = args["experiment"]
    unknown = {name for name in args if not name.isidentifier()} | _NAMES_CLASS & set(args)
    unknown |= {name for value in args.values() if isinstance(value, dict) for name in _NAMES_CLASS & set(value)}
    unknown |= set(experiment) - _EXPERIMENT
    for part, model in _PARTS.items():
        unknown |= set(experiment.get(part) or ()) - set(model.model_fields)
    return f"unknown arguments, {', '.join(sorted(unknown))}" if unknown else ""


def values(content: Any) -> Iterator[Any]:
    """Yield everything in a configuration, keys too."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value


def _refused(where: str, expected: str, found: str) -> ConfigError:
    text = found.encode("unicode_escape").decode("ascii")
    text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    remedy = "Export the job with `fedward jobs`, and send it as it is."
    return ConfigError(where, expected=expected, found=text, remedy=remedy)
