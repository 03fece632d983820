"""A check of a folder of a run or a job before it is read: it may come from somebody else."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from fedward.errors import RunError

Kind: TypeAlias = Literal["run", "job"]
"""What a folder is of."""
_AGAIN: dict[Kind, str] = {"run": "fetch the run again", "job": "export the job again"}
"""Kind of a folder -> how to get another one."""


def require_plain_files(folder: Path, kind: Kind = "run") -> None:
    """Refuse a folder of a run or a job that holds anything but files and folders, at any depth.

    A pipe or a socket would hold up its reader for ever, and a device fill the memory. A link leads
    to what is no part of the run or job. The path of the folder itself may be or hold a link.

    What vanishes meanwhile is passed over, as the run may go on. So is a folder that this account
    can neither list nor enter: it can open nothing in there.

    Raises:
        RunError: names the first of them.
    """
    for path in _strange(folder):
        raise _refusal(folder, path, kind)


def require_plain(folder: Path, path: Path) -> None:
    """Refuse a path in a run folder that is there and is neither a file nor a folder.

    Raises:
        RunError: names it.
    """
    if _is_strange(os.fspath(path)):
        raise _refusal(folder, path)


def _refusal(folder: Path, path: Path, kind: Kind = "run") -> RunError:
    found = f"{path.relative_to(folder)}, which is neither"
    remedy = f"Remove it, or {_AGAIN[kind]}."
    if path.is_symlink():
        found += ": it is a link"
        remedy = (
            "If you made the link, put what it leads to in its place. Otherwise remove it, or "
            f"{_AGAIN[kind]}."
        )
    elif path.is_dir():
        found = f"{path.relative_to(folder)}, which cannot be listed"
        remedy = f"Let this account read it, or {_AGAIN[kind]}."
    return RunError(f"{kind} folder {folder}", remedy, expected="files and folders", found=found)


def _strange(folder: Path) -> Iterator[Path]:
    """Yield what is neither a file nor a folder, and folders that can be entered but not listed."""
    # With os.walk and a status of each path, a folder of 20,000 files takes three times as long.
    waiting = [os.fspath(folder)]
    while waiting:
        path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and _is_strange(entry.path):
                        yield Path(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            if os.access(path, os.X_OK):
                yield Path(path)


def _is_strange(path: str) -> bool:
    """Return whether a path is neither a file nor a folder; False if it cannot be found."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
