"""Whether a run goes on, has ended or has stopped, and what continues it."""

import re
import shlex
from pathlib import Path

from fedward.errors import UnreadableJsonError
from fedward.json_text import read_json
from fedward.storage.info import INTERRUPTED, SIMULATED_JOB, RunInfo
from fedward.storage.lock import is_held

_ID = re.compile(r"[0-9a-f]{32}")
"""An id of a run, which names files."""
_LONGEST_NOTE = 100_000
"""Bytes of a site's note that are read."""
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
    """Return the command that continues a run from its last finished round; empty if none does.

    In a federation it is typed by the person who began the run. On one machine it names the folder
    of the site files, if the run has any. A run of FLARE's simulator goes on where ``FEDWARD_RUNS``
    named its parent.
    """
    if info.engine == "flare":
        return continuing(info.id)
    runs = folder.absolute().parent
    if info.engine == "simulator":
        again = f"FEDWARD_RUNS={shlex.quote(str(runs))} nvflare simulator JOB"
        return "" if runs.name == SIMULATED_JOB else again
    words = ["fedward", "run", "--resume", str(folder.absolute())]
    site_files = site_files_of(folder, info)
    if site_files is not None:
        words += ["--site-files", site_files]
    return shlex.join(words)


def continuing(run: str, kit: str = "KIT", job: str = "JOB") -> str:
    """Return the command that continues a run of a federation, or fetches a finished one.

    Args:
        run: the run's name or id, which may be the server's word.
        kit: folder of the startup kit of the person who began the run.
        job: the job that was submitted.
    """
    named = [word if word in ("KIT", "JOB") else shlex.quote(word) for word in (kit, job)]
    return f"fedward submit {' '.join(named)} --continue {shlex.quote(run)}"


def unfinished(folder: Path, info: RunInfo) -> tuple[str, str]:
    """Return what is wrong with a run that has not finished, and what to do about it."""
    state = standing(folder, info)
    if state == "running":
        return "one that is running", "Wait until it has ended, or name another run."
    command = resuming(folder, info)
    going_on = f"continue it with `{command}`" if command else "start its job again"
    if state == STOPPED:
        found = "one that has stopped before its end"
        return found, f"{going_on[0].upper()}{going_on[1:]}, or name another run."
    found = f"one that has failed ({info.summary.reason or 'no reason was recorded'})"
    return found, f"Mend that and {going_on}, or name another run."


def site_files_of(folder: Path, info: RunInfo) -> str | None:
    """Return where the site files of a run on one machine lay when a site first took part.

    None: its images are synthetic, or no site has taken part.
    """
    if not _ID.fullmatch(info.id):
        return None
    for site in sorted(folder.glob("sites/*")):
        place = _noted_place(site / "sources" / f"{info.id}.json")
        if place and isinstance(place, str):
            return str(Path(place).parent)
    return None


def _noted_place(file: Path) -> object:
    """Return what a simulated site noted of its file; None if there is no note, or no readable one.

    A run folder may come from somebody else, so nothing is taken for granted.
    """
    try:
        with file.open("rb") as stream:
            note = read_json(stream.read(_LONGEST_NOTE))
    except (OSError, UnreadableJsonError):
        return None
    return note.get("site_file") if isinstance(note, dict) else None
