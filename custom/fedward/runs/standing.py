"""Whether a run goes on, has ended or has stopped, and what continues it."""

import json
import shlex
from pathlib import Path

from fedward.storage.info import INTERRUPTED, RunInfo
from fedward.storage.lock import is_held

_UNKNOWN_FOLDER = "THE_FOLDER"
"""Stands for a folder that only the person knows."""
STOPPED = "stopped"
"""Of a run that a person or a kill has ended before its last round."""


def standing(folder: Path, info: RunInfo) -> str:
    """Return ``running``, ``finished``, ``failed`` or :data:`STOPPED`.

    A run that was killed has no process on this machine that writes it, though its run.json says
    that it is running.
    """
    killed = info.status == "running" and not is_held(folder)
    interrupted = info.status == "failed" and info.summary.reason == INTERRUPTED
    return STOPPED if killed or interrupted else info.status


def resuming(folder: Path, info: RunInfo) -> str:
    """Return the command that continues a run from its last finished round.

    In a federation it is typed by the person who began the run. On one machine it names the folder
    of the site files, as far as the run has noted it.
    """
    if info.engine != "local":
        return f"fedward submit --continue {info.id}"
    command = shlex.join(["fedward", "run", "--resume", str(folder)])
    site_files = site_files_of(folder, info)
    if site_files is not None:
        command += f" --site-files {shlex.quote(site_files or _UNKNOWN_FOLDER)}"
    return command


def unfinished(folder: Path, info: RunInfo) -> tuple[str, str]:
    """Return what is wrong with a run that has not finished, and what to do about it."""
    state = standing(folder, info)
    if state == "running":
        return "one that is running", "Wait until it has ended, or name another run."
    command = f"`{resuming(folder, info)}`"
    if state == STOPPED:
        found = "one that has stopped before its end"
        return found, f"Continue it with {command}, or name another run."
    found = f"one that has failed ({info.summary.reason or 'no reason was recorded'})"
    return found, f"Mend that and continue it with {command}, or name another run."


def site_files_of(folder: Path, info: RunInfo) -> str | None:
    """Return where the site files of a run on one machine lay when a site first took part.

    None: its images are synthetic, or no site has taken part. Empty: the place was not noted.
    """
    for file in sorted(folder.glob(f"sites/*/sources/{info.id}.json")):
        place = json.loads(file.read_text(encoding="utf-8"))["site_file"]
        if place:
            return str(Path(place).parent) if isinstance(place, str) else ""
    return None
