"""The disks on which a participant keeps what it writes."""

import shutil
from pathlib import Path

from fedward.flare.kits.kit import Kit, job_store
from fedward.flare.places import RUNS_VARIABLE, STATE_VARIABLE, named_folder

_ROOM = 1 << 20
"""Bytes below which a disk counts as full: logs and ledgers need that much at once."""


def written_folders(kit: Kit) -> dict[str, Path]:
    """Return the folders that a participant fills, by what they are for.

    Raises:
        ConfigError: a variable names no absolute path, or a server's rules no folder of jobs.
    """
    state = named_folder(STATE_VARIABLE)
    folders = {"kit": kit.folder}
    if state:
        folders["state"] = state
    if kit.role == "server":
        folders["runs"] = named_folder(RUNS_VARIABLE) or state or kit.folder
        folders["jobs"] = job_store(kit)
    return folders


def is_full(folder: Path) -> bool:
    """Return whether a folder's disk has no room left.

    The answer is no for a folder that does not exist, or that this account may not look at.
    """
    try:
        return shutil.disk_usage(folder).free < _ROOM
    except OSError:
        return False
