"""Checks of a job's app: the configuration that ``fedward jobs`` writes, and weights at the server.

The list of an app's files is checked before anything is unpacked. The files and their content are
checked before they come to the place from which the job would run. The job's lead reads a refusal,
with the name of the participant.
"""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any
from zipfile import BadZipFile, ZipFile

from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from pydantic import BaseModel

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import ConfigError, UnreadableJsonError, reason_of
from fedward.flare.classes import ALLOWED, CONTROLLERS, METHOD_CONTROLLER, JobSide
from fedward.flare.jobs.configurations import (
    CLIENT,
    DEVICES,
    SERVER,
    WEIGHTS,
    client_config,
    server_config,
)
from fedward.json_text import read_json_file

CONFIG_FOLDER = "config"
"""The one folder of an app."""

CONFIGURATION_OF: dict[JobSide, str] = {"site": CLIENT, "server": SERVER}
"""Whose configuration -> the name of its file."""

_SIGNATURE_NAMES = (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
_SIGNATURES = {
    f"{folder}{name}" for folder in ("", f"{CONFIG_FOLDER}/") for name in _SIGNATURE_NAMES
}
_CONFIGURATIONS = {f"{CONFIG_FOLDER}/{name}" for name in (CLIENT, SERVER)}
_WEIGHTS = {f"{CONFIG_FOLDER}/{name}" for name in WEIGHTS}
_ADMITTED: dict[JobSide, set[str]] = {
    "site": _CONFIGURATIONS | _SIGNATURES,
    "server": _CONFIGURATIONS | _SIGNATURES | _WEIGHTS,
}
"""Whose kit -> names of the files that an app may have."""

_LARGE_FILE = f"{CONFIG_FOLDER}/{WEIGHTS[0]}"
"""The one file of any size: the weights."""

_LARGEST = 1 << 20
"""Bytes of any other file. An exported configuration has a few thousand."""

_LONGEST_TEXT = 200
"""Characters of a job's text that an error repeats: the lead chose them, others read them."""

_PATHS = {"path", "class_path"}
"""Keys by which a configuration names a class."""

_NAMES_CLASS = _PATHS | {"name", "class_attributes"}
"""Keys of an argument that FLARE takes for a class to build, or for the arguments of one."""

_CONTROLLERS = {*CONTROLLERS.values(), METHOD_CONTROLLER}

_EXPERIMENT = set(Experiment.model_fields) - {"method", "options"}
"""Names that a controller's argument ``experiment`` may have."""

_PARTS: dict[str, type[BaseModel]] = {"data": DataSpec, "synthetic": SyntheticData}
"""Mappings in that argument that have names of their own."""

_SHORTEST_INTERVAL = 0.05
_LONGEST_INTERVAL = 60.0
"""Seconds between two questions of a site for work that a job may set."""


def check(app: Path, side: JobSide) -> None:
    """Check the files of an app, and its configuration for a site or the server.

    A site checks the server's configuration as well, because its executor reads the experiment
    there.

    Raises:
        ConfigError: a file or folder that no export has, a link, a file that is too large, or a
            configuration that differs from an exported one in more than the experiment.
    """
    check_files(_sizes(app), side)
    if side == "site":
        _check_configuration(app, "site")
    _check_configuration(app, "server")


def check_archive(archive: object, side: JobSide) -> None:
    """Check the list of files in a zipped app, which its sender wrote.

    Args:
        archive: the bytes of the zip file.
        side: whose kit it is for. At the server an app may hold the weights that a run starts from.

    Raises:
        ConfigError: it is not a zip file, or it holds a file that no export has, a name twice, or a
            file that is too large.
    """
    if not isinstance(archive, bytes):
        raise refused("app", "a zip file", f"a {type(archive).__name__}")
    try:
        with ZipFile(io.BytesIO(archive)) as opened:
            entries = opened.infolist()
    except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise refused("app", "a zip file", f"{type(error).__name__}: {error}") from error
    sizes = {
        entry.filename.rstrip("/"): None if entry.is_dir() else entry.file_size for entry in entries
    }
    if len(sizes) < len(entries):
        raise refused("app", "each file once", "a name that comes twice")
    folder_is_listed = CONFIG_FOLDER in sizes and sizes[CONFIG_FOLDER] is None
    if folder_is_listed:
        del sizes[CONFIG_FOLDER]
    check_files(sizes, side)


def check_files(sizes: Mapping[str, int | None], side: JobSide) -> None:
    """Check the names and sizes of an app's files.

    Args:
        sizes: name within the app -> bytes; None for anything but an ordinary file.
        side: whose kit it is for.

    Raises:
        ConfigError: a file that no export has, or one that is too large.
    """
    admitted = _ADMITTED[side]
    strangers = sorted(name for name, size in sizes.items() if size is None or name not in admitted)
    if strangers:
        expected = f"nothing but {', '.join(sorted(admitted - _SIGNATURES))}"
        # FLARE signs each folder, so a stranger's folder brings signatures of its own.
        without_signatures = [
            name for name in strangers if PurePath(name).name not in _SIGNATURE_NAMES
        ]
        raise refused("app", expected, ", ".join(map(repr, without_signatures or strangers)))
    for name, size in sizes.items():
        if name != _LARGE_FILE and size is not None and size > _LARGEST:
            raise refused(f"app, file {name}", f"at most {_LARGEST} bytes", str(size))


def _sizes(app: Path) -> dict[str, int | None]:
    """Return the files of an unpacked app, as :func:`check_files` takes them."""
    sizes: dict[str, int | None] = {}
    for path in app.rglob("*"):
        name = path.relative_to(app).as_posix()
        is_link = path.is_symlink()
        if name == CONFIG_FOLDER and path.is_dir() and not is_link:
            continue
        is_ordinary = path.is_file() and not is_link
        sizes[name] = path.stat().st_size if is_ordinary else None
    return sizes


def _check_configuration(app: Path, side: JobSide) -> None:
    file = f"{CONFIG_FOLDER}/{CONFIGURATION_OF[side]}"
    try:
        content = read_json_file(app / file, unique_keys=True)
    except (OSError, UnreadableJsonError) as error:
        # The lead reads this, so it names no folder of this participant, nor what lies in it.
        is_missing = isinstance(error, FileNotFoundError)
        found = "no such file" if is_missing else reason_of(error)
        raise refused(f"app, file {file}", "plain JSON in UTF-8, each key once", found) from error
    problem = _differences(content, side)
    if problem:
        raise refused(f"app, file {file}", "what `fedward jobs` writes for an experiment", problem)


def _differences(content: Any, side: JobSide) -> str:
    """Return how a configuration differs from an exported one; empty if in its experiment alone."""
    for value in values(content):
        if isinstance(value, str) and ("{" in value or "}" in value):
            return f"a brace in {value!r}: FLARE would put a variable in its place"
        if isinstance(value, dict):
            class_paths = {str(value[key]) for key in _PATHS & set(value)}
            strangers = class_paths - set(ALLOWED[side])
            if strangers:
                return f"the class {', '.join(sorted(strangers))}"
    try:
        return _from_export(content, side)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "one without the part that runs the experiment"


def _from_export(content: Any, side: JobSide) -> str:
    """Compare a configuration with the one that an export of the same experiment writes."""
    if side == "site":
        interval = content["default_task_fetch_interval"]
        (executor,) = content["executors"]
        device = executor["executor"]["args"]["device"]
        if device not in DEVICES:
            return f"the device {device!r}"
        exported = client_config(interval, device)
    else:
        (workflow,) = content["workflows"]
        interval = content["server"]["task_request_interval"]
        if workflow["path"] not in _CONTROLLERS:
            return "a workflow that is no controller"
        problem = _unknown_arguments(workflow["args"])
        if problem:
            return problem
        exported = server_config(workflow["path"], workflow["args"], interval)
    keys = {*content, *exported}
    different = sorted(key for key in keys if content.get(key) != exported.get(key))
    if different:
        return f"other values of {', '.join(different)}"
    if not _SHORTEST_INTERVAL <= interval <= _LONGEST_INTERVAL:
        return f"{interval!r} seconds between two questions for work"
    return ""


def _unknown_arguments(args: dict[str, Any]) -> str:
    """Return what is wrong with a controller's arguments; empty if nothing is.

    An argument from which FLARE would build something is wrong. Names and values of a method's own
    settings are left to the controller, and at a site to the executor: to check them takes torch.
    """
    experiment = args["experiment"]
    unknown = {name for name in args if not name.isidentifier()}
    unknown |= _NAMES_CLASS & set(args)
    for value in args.values():
        if isinstance(value, dict):
            unknown |= _NAMES_CLASS & set(value)
    unknown |= set(experiment) - _EXPERIMENT
    for part, model in _PARTS.items():
        unknown |= set(experiment.get(part) or ()) - set(model.model_fields)
    return f"unknown arguments, {', '.join(sorted(unknown))}" if unknown else ""


def values(content: Any) -> Iterator[Any]:
    """Yield every value in a configuration, and every key."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value


def refused(where: str, expected: str, found: str) -> ConfigError:
    """Return the error to raise about a job's app.

    The lead and readers of others' logs see it, so what was found is cut, and written in ASCII.
    """
    text = found.encode("unicode_escape").decode("ascii")
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}..."
    remedy = "Export the job with `fedward jobs`, and send it as it is."
    return ConfigError(where, expected=expected, found=text, remedy=remedy)
