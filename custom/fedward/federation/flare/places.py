"""Where files lie at a server or site that FLARE runs."""

import os
from pathlib import Path

from nvflare.apis.workspace import Workspace

from fedward.errors import ConfigError

RUNS = "FEDWARD_RUNS"
"""Environment variable: the server writes ``<this folder>/<job name>`` and continues a run that lies there."""

SITES = "FEDWARD_SITES"
"""Environment variable: a further folder with site files, for the simulator."""


def site_folders(workspace: Workspace) -> list[Path]:
    """Return where a site's data file may lie: its own ``local`` folder, then the folder ``FEDWARD_SITES`` names."""
    named = _named(SITES)
    return [Path(workspace.get_site_config_dir()), *([named] if named else [])]


def site_state(workspace: Workspace) -> Path:
    """Return a site's own folder: under its workspace, where it outlives its processes and its jobs."""
    return Path(workspace.get_root_dir()) / "fedward"


def run_folder(workspace: Workspace, job_id: str, job_name: str) -> Path:
    """Return the server's run folder: in the job's results unless ``FEDWARD_RUNS`` names another place."""
    named = _named(RUNS)
    return named / job_name if named else Path(workspace.get_run_dir(job_id)) / "fedward"


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    if not Path(value).is_absolute():
        # FLARE changes the working directory, so a relative path would mean somewhere else by now.
        raise ConfigError(
            f"environment variable {variable}", expected="an absolute path", found=value, remedy="Write it in full."
        )
    return Path(value)
