"""Run folders below a folder; links are never followed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

_DEPTH = 5
"""Folders from the one that is named down to a run: ``fedward/runs/SUBMITTER/RUN`` of a kit needs
four.
"""


def run_folders(folder: Path) -> Iterator[Path]:
    """Yield the folder itself if it is a run's, else the runs' folders below it, in the order of
    their names.
    """
    for path, names, files in os.walk(folder, followlinks=False):
        here = Path(path)
        if "run.json" in files and is_run(here):
            names.clear()
            yield here
        elif len(here.relative_to(folder).parts) == _DEPTH:
            names.clear()
        names.sort()


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run of this package: what else is called run.json is not
    touched.
    """
    file = folder / "run.json"
    try:
        content = (
            json.loads(file.read_text(encoding="utf-8"))
            if file.is_file() and not file.is_symlink()
            else None
        )
    except (OSError, ValueError, RecursionError):
        content = None
    return isinstance(content, dict) and {"format", "id", "experiment", "status"} <= set(content)
