"""Checks of a kit's files: their completeness, the start script, and connections on the machine.

The start script matters because of what it lets Python import. Neither the kit nor the folders of
jobs may be on the path: a file that lies there would run as code.
"""

import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import WorkspaceConstants
from nvflare.apis.job_def import DEFAULT_STUDY
from nvflare.app_opt.job_launcher.study_runtime import (
    STUDY_RUNTIME_FILE,
    StudyRuntime,
    load_study_runtime_file,
)

from fedward.errors import ConfigError
from fedward.flare.kits.builder import CONNECTIONS, SAFE_IMPORTS
from fedward.flare.kits.disks import is_full, written_folders
from fedward.flare.kits.doctor.rows import Row, broken, done, failed, skipped, warning
from fedward.flare.kits.kit import STARTUP, UNPACK_AGAIN, Kit
from fedward.flare.kits.reading import read_json, reading
from fedward.flare.kits.resources import Runtime, runtime_of
from fedward.flare.places import OWN_FOLDER
from fedward.terminal import one_line

STARTS = ("startup/start_docker.sh", "startup/start_slurm.sh", "helm_chart/Chart.yaml")
"""What starts a kit that ``nvflare deploy prepare`` has made; it has no ``start.sh``."""

_SCRIPT = "startup/sub_start.sh"
_CONNECTIONS_FILE = f"local/{CONNECTIONS}"

_SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable that keeps the working directory out of Python's path."""

_CHANGES_THE_PATH = re.compile(r"PYTHON(SAFEPATH|PATH|HOME)|sys\.path")
_STARTS_FLARE = re.compile(r"python3?[\d.]*\s.*-m\s+nvflare\.private")
_STARTS_AS_PROVISIONED = re.compile(
    r"\s*exec python3 -u -m "
    r"nvflare\.private\.fed\.app\.(client\.client|server\.server)_train -m [^;&|]*"
)
_SETS_SAFE_PATH = re.compile(rf"export\s+{_SAFE_PATH}=['\"]?\w+['\"]?")


def complete(kit: Kit) -> Row:
    """Check that all files are there; a prepared kit has another start script."""
    wanted = [kit.key, kit.certificate, kit.root]
    if not is_prepared(kit):
        wanted.append(kit.startup / ("fl_admin.sh" if kit.role == "user" else "start.sh"))
    missing = [path.relative_to(kit.folder).as_posix() for path in wanted if not path.is_file()]
    if not kit.local.is_dir():
        missing.append("local/")
    if not missing:
        return done("layout", f"{STARTUP}/ and local/ of a {kit.role}'s kit")
    return failed(
        "layout",
        expected=f"a whole kit of a {kit.role}",
        found=f"no {', '.join(missing)}",
        remedy=UNPACK_AGAIN,
    )


def check(kit: Kit) -> list[Row]:
    """Check disks, leftovers in a prepared kit, what may be imported, and connections here."""
    rows = [_disks(kit)]
    if is_prepared(kit):
        rows.append(_leftovers(kit))
    rows += _imports(kit)
    rows.append(_own_connections(kit))
    return rows


def _disks(kit: Kit) -> Row:
    try:
        folders = written_folders(kit)
    except ConfigError:
        return skipped("disk", "the participant's folders are not known")
    full_folders = sorted({str(folder) for folder in folders.values() if is_full(folder)})
    if not full_folders:
        return done("disk", "it has room")
    return failed(
        "disk",
        expected="room for what the participant writes",
        found=f"no room in {', '.join(full_folders)}",
        remedy=f"Make room. `fedward prune {kit.folder}` lists what can be removed.",
    )


def is_prepared(kit: Kit) -> bool:
    """Return whether the kit was made from another one by ``nvflare deploy prepare``."""
    return any((kit.folder / name).is_file() for name in STARTS)


def _leftovers(kit: Kit) -> Row:
    """Look for records that were copied from a kit in use: they are older than the prepared kit."""
    try:
        prepared_at = kit.resources.stat().st_mtime
    except OSError:
        return skipped("prepared kit", f"there is no file {kit.resources.name}")
    copied = sorted(
        path.name
        for path in kit.folder.iterdir()
        if _holds_records(path) and _oldest_change(path) < prepared_at
    )
    if not copied:
        return done("prepared kit", "made from one that was not in use")
    return warning(
        "prepared kit",
        expected="no records of jobs from before it was made",
        found=f"copies of {', '.join(copied)}",
        remedy=(
            "FLARE copies the whole kit. Use this kit alone from now on: two would each count "
            "their own privacy budget. Remove folders of jobs, which may hold models."
        ),
    )


def _holds_records(path: Path) -> bool:
    if not path.is_dir():
        return False
    return path.name == OWN_FOLDER or (path / WorkspaceConstants.JOB_META_FILE).is_file()


def _oldest_change(folder: Path) -> float:
    times = [math.inf]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # A participant that runs replaces and removes files.
                times.append(Path(parent, name).stat().st_mtime)
    return min(times)


def _imports(kit: Kit) -> list[Row]:
    """Check what starts the participant, and its jobs if FLARE's own launcher starts them."""
    try:
        components = kit.components
    except ConfigError:
        return []  # The row of the launcher reports it.
    launchers = [component for component in components if runtime_of(component)]
    runtime = runtime_of(launchers[0]) if launchers else None
    if not runtime:
        return [_start_script(kit.folder / _SCRIPT)]
    if runtime == "slurm":
        participant = _start_script(kit.folder / _SCRIPT)
    else:  # The command that starts the participant names no environment.
        participant = skipped(
            "start script", f"{runtime}'s image must set {_SAFE_PATH}, as fedward's does"
        )
    expected = "a launcher with arguments as `nvflare deploy prepare` writes them"
    try:
        with reading(str(kit.resources), expected, "Prepare the kit again."):
            jobs = _job_imports(kit, runtime, launchers[0].get("args") or {})
    except ConfigError as error:
        jobs = broken("job imports", error)
    return [participant, jobs]


def _start_script(file: Path) -> Row:
    """Compare the lines that decide what is imported with those that provisioning wrote."""
    lines = []
    if file.is_file():
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    path_lines = [
        line for line in lines if _CHANGES_THE_PATH.search(line) and not line.startswith("echo ")
    ]
    start_lines = [line for line in lines if _STARTS_FLARE.search(line)]
    wrong_lines = [line for line in path_lines if line != SAFE_IMPORTS]
    wrong_lines += [line for line in start_lines if not _STARTS_AS_PROVISIONED.fullmatch(line)]
    in_order = (
        path_lines == [SAFE_IMPORTS]
        and bool(start_lines)
        and lines.index(SAFE_IMPORTS) < lines.index(start_lines[0])
    )
    if in_order and not wrong_lines:
        return done("start script", "imports nothing from the kit")
    if wrong_lines:
        found = "; ".join(map(one_line, wrong_lines))
    elif path_lines:
        found = "that line, in another place"
    else:
        found = "no such line"
    return failed(
        "start script",
        expected=f"{_SCRIPT} as provisioning writes it: {SAFE_IMPORTS}",
        found=found,
        remedy=(
            "Restore the script from the kit as it was handed out. "
            "As it is, files in the kit may run as code."
        ),
    )


def _job_imports(kit: Kit, runtime: Runtime, launcher_args: dict[str, Any]) -> Row:
    """Check the environment of jobs that FLARE's launcher starts in the folder of their files."""
    file = kit.folder / STUDY_RUNTIME_FILE
    studies = {DEFAULT_STUDY: StudyRuntime(DEFAULT_STUDY)}
    try:
        if file.exists():
            studies |= load_study_runtime_file(str(file), runtime)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return failed(
            "job imports",
            expected=f"a {STUDY_RUNTIME_FILE} that FLARE can read",
            found=one_line(str(error)),
            remedy="Correct it: FLARE refuses every job with such a file.",
        )
    unsafe_studies = [
        name
        for name, study in studies.items()
        if not _sets_safe_path(runtime, launcher_args, study)
    ]
    if not unsafe_studies:
        return done("job imports", f"{_SAFE_PATH} is set: nothing from the folders of jobs")
    expected = f"{_SAFE_PATH} in the environment of each job"
    found = f"none for the study {', '.join(unsafe_studies)}"
    if runtime == "slurm":
        remedy = f"Write export {_SAFE_PATH}=1 into setup of slurm.yaml and prepare the kit again."
        return failed("job imports", expected=expected, found=found, remedy=remedy)
    remedy = (
        f'Write {_SAFE_PATH}: "1" into env of {STUDY_RUNTIME_FILE}. '
        "Without it, the image alone decides what is imported."
    )
    return warning("job imports", expected=expected, found=found, remedy=remedy)


def _sets_safe_path(runtime: Runtime, launcher_args: dict[str, Any], study: StudyRuntime) -> bool:
    """Return whether a study's jobs get the variable, which counts unless it is empty."""
    environment = {**(launcher_args.get("default_job_env") or {}), **study.env}
    if _SAFE_PATH in environment or runtime != "slurm":
        return bool(environment.get(_SAFE_PATH))
    setup = str(study.slurm.get("setup", launcher_args.get("setup") or ""))
    lines = [line.strip() for line in setup.splitlines() if _SAFE_PATH in line]
    return bool(lines) and all(_SETS_SAFE_PATH.fullmatch(line) for line in lines)


def _own_connections(kit: Kit) -> Row:
    """Check how FLARE connects a job's process with its site's or its server's."""
    file = kit.local / CONNECTIONS
    try:
        settings = read_json(file) if file.exists() else {}
    except ConfigError as error:
        return broken("own connections", error)
    internal = settings.get("internal")
    resources = internal.get("resources") if isinstance(internal, dict) else None
    security = "clear"
    if isinstance(resources, dict):
        security = resources.get("connection_security", "clear")
    remedy = (
        f"Copy {_CONNECTIONS_FILE} from a newly provisioned kit, and start the participant again."
    )
    if security != "mtls":
        return failed(
            "own connections",
            expected="connections within this machine that need the kit's certificate (mtls)",
            found=f"connection_security {security!r}: messages of a job's process are refused",
            remedy=remedy,
        )
    if settings.get("allow_adhoc_conns"):
        return warning(
            "own connections",
            expected="no ports but those of the kit",
            found=f"{_CONNECTIONS_FILE}: allow_adhoc_conns, by which cells open ports for others",
            remedy=remedy,
        )
    return done(
        "own connections",
        "a job's process and its parent show each other the kit's certificate",
    )
