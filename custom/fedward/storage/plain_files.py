"""A check of a run folder before it is read: it may come from somebody else."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedward.errors import RunError


def require_plain_files(folder: Path) -> None:
    """Refuse a run folder that holds anything but files and folders, at whatever depth.

    A pipe or a socket would hold up its reader for ever, and a device fill the memory. A link leads
    to what is no part of the run. The path of the folder itself may be or hold a link.

    What vanishes meanwhile is passed over, as the run may go on. So is a folder that this account
    can neither list nor enter: it can open nothing in there.

    Raises:
        RunError: names the first of them.
    """
    for path in _strange(folder):
        raise _refusal(folder, path)


def require_plain(folder: Path, path: Path) -> None:
    """Refuse a path in a run folder that is there and is neither a file nor a folder.

    Raises:
        RunError: names it.
    """
    if _is_strange(os.fspath(path)):
        raise _refusal(folder, path)


def _refusal(folder: Path, path: Path) -> RunError:
    found = f"{path.relative_to(folder)}, which is neither"
    remedy = "Remove it, or fetch the run again."
    if path.is_symlink():
        found += ": it is a link"
        remedy = (
            "If you made the link, put what it leads to in its place. Otherwise remove it, or "
            "fetch the run again."
        )
    elif path.is_dir():
        found = f"{path.relative_to(folder)}, which cannot be listed"
        remedy = "Let this account read it, or fetch the run again."
    return RunError(f"run folder {folder}", remedy, expected="files and folders", found=found)


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
