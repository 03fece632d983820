"""What can be removed of old runs and kits, and its removal.

Where something lies decides what it is; no path comes out of a file. Its age is the time of the
newest write in it, not a date inside a file.
"""

import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from fedward.errors import ConfigError
from fedward.flare.kits.kit import Kit, job_store, open_kit
from fedward.flare.places import RUNS, named_folder
from fedward.operation.folders import run_folders
from fedward.storage.lock import is_held, sole_writer

_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Name of a folder that FLARE makes for a job."""
_RUN = re.compile(r"[0-9a-f]{32}")
"""Name of a folder that a site makes for a run."""
_OF_A_RUN = {
    "models": "models of single sites",
    "rounds": "saved states",
    "server": "the server's decoded images",
    "sites/*/cache": "a site's decoded images",
    "sites/*/memory": "a site's memory",
}
"""Folders of a run that serve only to continue it."""


class Item(NamedTuple):
    """Something that can be removed."""

    path: Path
    about: str
    bytes: int
    root: Path
    """A folder that somebody has named, in which it lies; no link leads from there to it."""
    run: Path | None = None
    """The run folder it belongs to, which nobody may write while it is removed."""


class Kept(NamedTuple):
    """Something that is old and is kept."""

    path: Path
    reason: str


class Found(NamedTuple):
    """What can be removed, and what is kept for a reason."""

    items: list[Item]
    kept: list[Kept]


def find(folder: Path, days: int, models: bool = False) -> Found:
    """Return what can be removed from a kit, a run folder, or a folder with runs, and what is left
    for a reason.

    Args:
        folder: of a site's or the server's kit; of a run; or with runs below it. Links in it are
            not followed.
        days: what was written within so many days stays; at least 1.
        models: also the models of finished runs. Their audit logs then verify no longer.

    Raises:
        ConfigError: the folder is not one of these; or jobs of this kit run in containers, and
            nothing names where the participant keeps its state.
    """
    before = time.time() - days * 24 * 3600
    if (folder / "startup").is_dir():
        old = list(_in_kit(open_kit(folder), before, models))
    elif runs := list(run_folders(folder)):
        old = list(_in_runs(folder, runs, before, models))
    else:
        expected = "a startup kit, a run folder, or a folder with runs"
        remedy = "Name the folder of a kit, or fedward/runs of the server's."
        raise ConfigError(str(folder), expected=expected, found="none of them", remedy=remedy)
    return Found(
        [each for each in old if isinstance(each, Item)],
        [each for each in old if isinstance(each, Kept)],
    )


def remove(item: Item) -> None:
    """Remove an item for good. A link in its place is removed itself; what it leads to stays.

    Raises:
        RunError: a process has begun to write its run.
        OSError: it cannot be removed, or a folder on the way to it has become a link.
    """
    unwritten = sole_writer(item.run, patience=0) if item.run else nullcontext()
    with _opened(item.root, item.path.parent) as folder, unwritten:
        name = item.path.name
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


@contextmanager
def _opened(root: Path, folder: Path) -> Iterator[int]:
    """Open a folder step by step from ``root``: whatever is exchanged meanwhile, what is opened
    stays the same.
    """
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for step in folder.relative_to(root).parts:
            below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
            os.close(opened)
            opened = below
        yield opened
    except NotADirectoryError as error:
        error.filename = str(folder)
        raise
    finally:
        os.close(opened)


def _in_runs(
    root: Path, runs: Iterable[Path], before: float, models: bool
) -> Iterator[Item | Kept]:
    wanted = _OF_A_RUN | ({"*.safetensors": "model"} if models else {})
    for run in runs:
        if _newest(run) >= before:
            continue
        if is_held(run):
            yield Kept(run, "a process writes this run")
            continue
        for pattern, about in wanted.items():
            for path in sorted(run.glob(pattern)):
                yield _item(path, about, root, run)


def _in_kit(kit: Kit, before: float, models: bool) -> Iterator[Item | Kept]:
    if kit.role == "user":
        expected = "the kit of a site or of the server"
        found = f"that of {kit.name}, who keeps no runs in it"
        remedy = "Name the folder that `fedward submit --out` was given."
        raise ConfigError(f"kit {kit.folder}", expected=expected, found=found, remedy=remedy)
    busy = _job_processes(kit.folder)
    running = {word for words in busy for word in words}
    yield from _jobs(kit.folder, "FLARE's folder of a job", before, running)
    if kit.role == "server":
        runs = named_folder(RUNS) or kit.state / "runs"
        yield from _in_runs(runs, run_folders(runs), before, models)
        yield from _jobs(job_store(kit), "FLARE's copy of a job and its results", before, running)
        return
    memories = sorted(
        path for path in (kit.state / "memory").glob("*") if _RUN.fullmatch(path.name)
    )
    for path, about in [
        (kit.state / "cache", "decoded images"),
        *((path, "memory of a run") for path in memories),
    ]:
        if path.exists() and _newest(path) < before:
            yield (
                Kept(path, "a job runs with this kit")
                if busy
                else _item(path, about, kit.state.parent)
            )


def _jobs(folder: Path, about: str, before: float, running: Set[str]) -> Iterator[Item | Kept]:
    """Yield FLARE's folders of jobs that lie in a folder."""
    for path in sorted(folder.glob("*")):
        if not _JOB.fullmatch(path.name) or not path.is_dir() or _newest(path) >= before:
            continue
        if path.name in running:
            yield Kept(path, "the job runs")
        elif _waits(path / "meta"):
            yield Kept(path, "the job has not begun")
        else:
            yield _item(path, about, folder)


def _item(path: Path, about: str, root: Path, run: Path | None = None) -> Item | Kept:
    """Return what lies at a path below ``root``, as kept if a link leads there."""
    steps = [path, *path.parents][: len(path.relative_to(root).parts)]
    if any(step.is_symlink() for step in steps):
        return Kept(path, "a link, which is not followed")
    return Item(path, about, sum(file.st_size for file in _files(path)), root, run)


def _waits(meta: Path) -> bool:
    """Return whether FLARE has yet to start a job of its store; also if that cannot be read."""
    if not meta.is_file():
        return False
    try:
        return str(json.loads(meta.read_bytes())["status"]).startswith(("SUBMITTED", "APPROVED"))
    except (ValueError, KeyError, TypeError):
        return True


def _job_processes(kit: Path) -> list[list[str]]:
    """Return the command line of each process on this machine that works on a job with a kit."""
    found = []
    kit = kit.resolve()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []  # none if it has ended since
        works = any(re.search(r"(worker|runner)_process", word) for word in words)
        if works and any(word[:1] == "/" and Path(word).resolve() == kit for word in words):
            found.append(words)
    return found


def _files(path: Path) -> Iterator[os.stat_result]:
    """Yield what is known of each file and link in a folder, or of a file; links are not followed."""
    if not path.is_dir() or path.is_symlink():
        yield path.lstat()
        return
    for folder, _, names in os.walk(path, followlinks=False):
        for name in names:
            with suppress(FileNotFoundError):
                yield (Path(folder) / name).lstat()


def _newest(path: Path) -> float:
    return max((file.st_mtime for file in _files(path)), default=path.lstat().st_mtime)
