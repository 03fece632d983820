"""What a folder is: a run, a startup kit, or one with runs below it. Links are never followed."""

import os
from collections.abc import Iterator
from pathlib import Path

from fedward.errors import UnreadableJsonError
from fedward.json_text import read_json_file

_DEPTH = 5
"""Levels of folders in which runs are looked for.

A kit needs four: ``fedward/runs/SUBMITTER/RUN``."""


def run_folders(folder: Path) -> Iterator[Path]:
    """Yield the folder itself if it is a run's, else the run folders below it, sorted by name."""
    for path, names, files in os.walk(folder, followlinks=False):
        here = Path(path)
        if "run.json" in files and is_run(here):
            names.clear()
            yield here
        elif len(here.relative_to(folder).parts) == _DEPTH:
            names.clear()
        names.sort()


def is_kit(folder: Path) -> bool:
    """Return whether a folder is a FLARE startup kit."""
    return (folder / "startup").is_dir()


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run of this package, not another file called run.json."""
    file = folder / "run.json"
    if not file.is_file() or file.is_symlink():
        return False
    try:
        content = read_json_file(file)
    except (OSError, UnreadableJsonError):
        return False
    return isinstance(content, dict) and {"format", "id", "experiment", "status"} <= set(content)
