"""The folders and files of a server or site that FLARE runs."""

import os
import re
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from nvflare.apis.job_def import JobMetaKey, get_custom_props
from nvflare.apis.workspace import Workspace
from nvflare.private.fed.simulator.simulator_const import SimulatorConstants

from fedward.errors import ConfigError
from fedward.flare.kits.resources import runs_in_containers
from fedward.sites import named_sites
from fedward.terminal import reason

RUNS_VARIABLE = "FEDWARD_RUNS"
"""Environment variable: the server keeps its runs here, and continues a run that it finds."""

RUN_PROPERTY = "fedward_run"
"""Custom property of a job's meta: which run it begins or continues."""

ERROR_FILE = "error.txt"
"""File in the results of a job whose run did not begin: why."""

METRICS_VARIABLE = "FEDWARD_METRICS"
"""Environment variable: server and sites write metrics for Prometheus into this folder."""

STATE_VARIABLE = "FEDWARD_STATE"
"""Environment variable: a participant's own folder.

It is needed where a job runs in a container that sees only that job's files."""

OWN_FOLDER = "fedward"
"""Folder in a kit with what the participant keeps, unless that variable names another."""

SITES_VARIABLE = "FEDWARD_SITES"
"""Environment variable: a further folder with site files, for the simulator."""


def site_folders(workspace: Workspace) -> list[Path]:
    """Return the folders that may hold a site's data file, in the order of their precedence.

    They are the site's own ``local`` folder and the one that ``FEDWARD_SITES`` names.

    Raises:
        ConfigError: the variable names no absolute path, or no folder with a site's file.
    """
    folders = [Path(workspace.get_site_config_dir())]
    further = named_folder(SITES_VARIABLE)
    if further:
        named_sites(further)  # Raises if there is no site's file.
        folders.append(further)
    return folders


def own_folder(kit: Path) -> Path:
    """Return a participant's own folder, as its own process sees it.

    It is ``FEDWARD_STATE``, by default ``fedward`` in the kit.
    """
    return named_folder(STATE_VARIABLE) or kit / OWN_FOLDER


def state_folder(kit: Path) -> Path:
    """Return a participant's own folder for what its jobs keep, which outlives all processes.

    Raises:
        ConfigError: each job has a container of its own and the variable is not set: the privacy
            budget and all else that a site keeps would be lost with the container.
    """
    if not named_folder(STATE_VARIABLE) and runs_in_containers(kit):
        raise ConfigError(
            f"environment variable {STATE_VARIABLE}",
            expected="a mounted folder, since each job runs in a container of its own",
            found="none",
            remedy=(
                "Mount one in local/study_runtime.yaml; for a command, name it. "
                "See docs/containers.md."
            ),
        )
    return own_folder(kit)


def run_folder(workspace: Workspace, job_id: str, job: Mapping[str, Any]) -> Path:
    """Return the server's folder of a job's run.

    It is ``<runs>/<submitter>/<run>``: only the user who began a run can read and continue it. A
    job that names no run is a run of its own, by its id. Where ``FEDWARD_RUNS`` is set, jobs of one
    name are attempts at one run. The folder never lies in the job's results, which FLARE hands to
    the submitter: an unfinished run holds the models of single sites.

    In the simulator, which has one user, it is ``<runs>/<run>``. Without ``FEDWARD_RUNS`` it lies
    in the results: the simulator deletes its workspace when it starts, and could not continue it.

    Args:
        workspace: the server's.
        job_id: FLARE's; the simulator's is a constant that no server gives to a job.
        job: the job's meta.

    Returns:
        The folder, where ``<runs>`` is ``FEDWARD_RUNS``, or ``runs`` in :func:`state_folder`.

    Raises:
        ConfigError: a run, a submitter or a job whose name could lead out of the folder.
    """
    runs = named_folder(RUNS_VARIABLE)
    simulated = job_id == SimulatorConstants.JOB_NAME
    if simulated and not runs:
        return results_folder(workspace, job_id)
    run = get_custom_props(job, {}).get(RUN_PROPERTY)
    if run is not None:
        name = _safe_name("run", run)
    elif runs:
        name = _safe_name("name", job.get(JobMetaKey.JOB_NAME))
    else:
        name = job_id
    if not runs:
        runs = state_folder(Path(workspace.get_root_dir())) / "runs"
    if simulated:
        return runs / name
    return runs / _safe_name("submitter", job.get(JobMetaKey.SUBMITTER_NAME)) / name


def new_run(user: str) -> str:
    """Return a name for a user's new run: 32 hexadecimal digits.

    The last 16 follow from the first 16 and the user's name, see :func:`run_id`.
    """
    first_half = uuid4().hex[:16]
    return first_half + _second_half(first_half, user)


def run_id(job: Mapping[str, Any]) -> str | None:
    """Return the id of a job's run, if its sender has given it one of :func:`new_run`.

    None otherwise, and the run gets a new id. Sites keep what they know of a run by its id, so
    nobody may give the id of another user's run to a run.

    Args:
        job: the job's meta, in which the server has written the submitter.
    """
    run = get_custom_props(job, {}).get(RUN_PROPERTY)
    if not isinstance(run, str) or not re.fullmatch("[0-9a-f]{32}", run):
        return None
    user = str(job.get(JobMetaKey.SUBMITTER_NAME))
    return run if run[16:] == _second_half(run[:16], user) else None


def _second_half(first_half: str, user: str) -> str:
    return sha256(f"{first_half} {user}".encode()).hexdigest()[:16]


def results_folder(workspace: Workspace, job_id: str) -> Path:
    """Return where a run lies in a job's results, which its submitter downloads."""
    return Path(workspace.get_run_dir(job_id)) / "fedward"


def put_into_results(run: Path, results: Path) -> None:
    """Copy a run into a job's results, unless it lies there, without what only continues it."""
    if run == results:
        return
    only_to_continue = shutil.ignore_patterns("models", "rounds", "server")
    shutil.copytree(run, results, ignore=only_to_continue, dirs_exist_ok=True)


def put_reason(error: Exception, results: Path) -> None:
    """Write into a job's results why its run did not begin."""
    text = reason(str(error) or type(error).__name__)
    results.mkdir(parents=True, exist_ok=True)
    (results / ERROR_FILE).write_text(f"{text}\n", encoding="utf-8")


def _safe_name(kind: str, name: Any) -> str:
    """Return a name that may be that of a folder."""
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]*", name):
        return name
    raise ConfigError(
        f"job's {kind}",
        expected="a name of letters, digits, '.', '_', '@' and '-'",
        found=repr(name),
        remedy="Rename it, and use `fedward submit`.",
    )


def named_folder(variable: str) -> Path | None:
    """Return the folder that an environment variable names, None if it is not set.

    Raises:
        ConfigError: the variable holds no absolute path.
    """
    value = os.environ.get(variable)
    if not value:
        return None
    # FLARE changes the working directory, so that a relative path would name another folder.
    if not Path(value).is_absolute():
        raise ConfigError(
            f"environment variable {variable}",
            expected="an absolute path",
            found=value,
            remedy="Write it in full.",
        )
    return Path(value)
