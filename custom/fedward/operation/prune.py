"""Search for what old runs and kits no longer need, and its removal.

The place of a file or folder decides what it is; no path is read from a file. Its age is the time
of the newest write in it, not a date inside a file.
"""

import math
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

from fedward.errors import ConfigError, UnreadableJsonError
from fedward.flare.kits.kit import Kit, job_store, open_kit
from fedward.flare.places import RUNS_VARIABLE, named_folder
from fedward.json_text import read_json_file
from fedward.operation.folders import is_kit, run_folders
from fedward.storage.lock import is_held, sole_writer

_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Name of a folder that FLARE makes for a job."""

_RUN = re.compile(r"[0-9a-f]{32}")
"""Name of a folder that a site makes for a run."""

_ONLY_TO_CONTINUE = {
    "models": "models of single sites",
    "rounds": "saved states",
    "server": "the server's decoded images",
    "sites/*/cache": "a site's decoded images",
    "sites/*/memory": "a site's memory",
}
"""Folders of a run that serve only to continue it -> what they hold."""


class Item(NamedTuple):
    """Something that can be removed."""

    path: Path
    about: str
    """What it is, for people."""
    bytes: int
    root: Path
    """The named folder that it lies in; no link leads from there to it."""
    run: Path | None = None
    """The run folder that it belongs to; nobody may write that while this is removed."""


class Kept(NamedTuple):
    """Something that is old but must stay."""

    path: Path
    reason: str


class Found(NamedTuple):
    """The result of a search: what can be removed, and what is old but must stay."""

    items: list[Item]
    kept: list[Kept]


def find(folder: Path, days: int, models: bool = False) -> Found:
    """Return what can be removed from a kit, a run folder, or a folder with runs.

    Args:
        folder: of a site's or the server's kit; of a run; or with runs below it. Links in it are
            not followed.
        days: what was written within this number of days stays; at least 1.
        models: whether to remove also the models of old runs, whether they have finished or not.
            Their audit logs can then no longer be verified.

    Raises:
        ConfigError: the folder is not one of these; or jobs of this kit run in containers, and
            nothing names the folder that the participant keeps.
    """
    before = time.time() - days * 24 * 3600
    if is_kit(folder):
        old = list(_in_kit(open_kit(folder), before, models))
    else:
        runs = list(run_folders(folder))
        if not runs:
            raise ConfigError(
                str(folder),
                expected="a startup kit, a run folder, or a folder with runs",
                found="none of them",
                remedy="Name the folder of a kit, or fedward/runs of the server's.",
            )
        old = list(_in_runs(folder, runs, before, models))
    items = [entry for entry in old if isinstance(entry, Item)]
    kept = [entry for entry in old if isinstance(entry, Kept)]
    return Found(items, kept)


def remove(item: Item) -> None:
    """Remove an item for good.

    If a link has taken its place, the link itself is removed and its target stays.

    Raises:
        RunError: a process has begun to write its run.
        OSError: it cannot be removed, or a folder on the way to it has become a link.
    """
    no_writer = sole_writer(item.run, patience=0) if item.run else nullcontext()
    with _opened(item.root, item.path.parent) as folder, no_writer:
        name = item.path.name
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


@contextmanager
def _opened(root: Path, folder: Path) -> Iterator[int]:
    """Open a folder step by step from ``root``, and close it at the end.

    What is opened stays the same, even if somebody puts a link on the path in the meantime.
    """
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.relative_to(root).parts:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
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
    patterns = dict(_ONLY_TO_CONTINUE)
    if models:
        patterns["*.safetensors"] = "model"
    for run in runs:
        if _newest(run) >= before:
            continue
        if is_held(run):
            yield Kept(run, "a process writes this run")
            continue
        for pattern, about in patterns.items():
            for path in sorted(run.glob(pattern)):
                yield _item(path, about, root, run)


def _in_kit(kit: Kit, before: float, models: bool) -> Iterator[Item | Kept]:
    if kit.role == "user":
        raise ConfigError(
            f"kit {kit.folder}",
            expected="the kit of a site or of the server",
            found=f"that of {kit.name}, who keeps no runs in it",
            remedy="Name the folder that `fedward submit --out` was given.",
        )
    command_lines = _job_processes(kit.folder)
    running = {word for words in command_lines for word in words}
    yield from _jobs(kit.folder, "FLARE's folder of a job", before, running)
    if kit.role == "server":
        runs = named_folder(RUNS_VARIABLE) or kit.state / "runs"
        yield from _in_runs(runs, run_folders(runs), before, models)
        yield from _jobs(job_store(kit), "FLARE's copy of a job and its results", before, running)
        return
    folders = {kit.state / "cache": "decoded images"}
    for path in sorted((kit.state / "memory").glob("*")):
        if _RUN.fullmatch(path.name):
            folders[path] = "memory of a run"
    for path, about in folders.items():
        if not path.exists() or _newest(path) >= before:
            continue
        if command_lines:
            yield Kept(path, "a job runs with this kit")
        else:
            yield _item(path, about, kit.state.parent)


def _jobs(folder: Path, about: str, before: float, running: Set[str]) -> Iterator[Item | Kept]:
    """Yield FLARE's folders of jobs that lie in a folder.

    Args:
        folder: the folder.
        about: what the folders of jobs hold.
        before: those written at this time or later are left out, in seconds since 1970.
        running: words of the command lines of processes that work on jobs, with the jobs' ids.
    """
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
    """Return the entry of a path below ``root``, which must stay if a link leads there."""
    depth = len(path.relative_to(root).parts)
    way_from_root = [path, *path.parents][:depth]
    if any(step.is_symlink() for step in way_from_root):
        return Kept(path, "a link, which is not followed")
    size = sum(file.st_size for file in _files(path))
    return Item(path, about, size, root, run)


def _waits(meta: Path) -> bool:
    """Return whether FLARE has yet to start a job of its store; True if that cannot be read."""
    if not meta.is_file():
        return False
    try:
        status = str(read_json_file(meta)["status"])
    except (OSError, UnreadableJsonError, KeyError, TypeError):
        return True
    return status.startswith(("SUBMITTED", "APPROVED"))


def _job_processes(kit: Path) -> list[list[str]]:
    """Return the command line of each process on this machine that works on a job with a kit."""
    command_lines = []
    kit = kit.resolve()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []  # None if the process has ended in the meantime.
        is_of_a_job = any(re.search(r"(worker|runner)_process", word) for word in words)
        absolute_paths = [Path(word) for word in words if word.startswith("/")]
        if is_of_a_job and any(path.resolve() == kit for path in absolute_paths):
            command_lines.append(words)
    return command_lines


def _files(path: Path) -> Iterator[os.stat_result]:
    """Yield the status of each file and link in a folder, or of a file; links are not followed.

    What is removed in the meantime is omitted.
    """
    if not path.is_dir() or path.is_symlink():
        with suppress(FileNotFoundError):
            yield path.lstat()
        return
    for folder, _, names in os.walk(path, followlinks=False):
        for name in names:
            with suppress(FileNotFoundError):
                yield (Path(folder) / name).lstat()


def _newest(path: Path) -> float:
    """Return the time of the newest write, in seconds since 1970; infinity if nothing is there."""
    try:
        return max((file.st_mtime for file in _files(path)), default=path.lstat().st_mtime)
    except FileNotFoundError:
        return math.inf  # FLARE has removed it, as it does when a job ends.
