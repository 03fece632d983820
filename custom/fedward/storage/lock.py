"""One writer at a time: a job that was believed lost may still be writing when its successor
starts.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedward.errors import RunError

_TICK = 0.2
_log = logging.getLogger(__name__)


@contextmanager
def sole_writer(folder: Path, patience: float = 60.0) -> Iterator[None]:
    """Hold a folder, made if there is none, for this process; the operating system lets go when the
    process dies.

    Raises RunError if another process holds it for ``patience`` seconds; the log says once that
    this one waits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _opened(folder, os.O_RDWR | os.O_CREAT) as file:
        since = time.monotonic()
        taken = _taken(file)
        if not taken:
            _log.warning(
                "run folder %s: another process writes it; waiting up to %g s for it to end",
                folder,
                patience,
            )
        while not taken:
            if time.monotonic() - since >= patience:
                found = f"another process that writes it, for {patience:g} s"
                remedy = "Wait for its end, or stop it."
                raise RunError(
                    f"run folder {folder}",
                    expected="to be its only writer",
                    found=found,
                    remedy=remedy,
                )
            time.sleep(_TICK)
            taken = _taken(file)
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process is within a file's lock, then hold it; its folder is made if
    there is none.

    The lock is a file of its own, ``.<name>.lock``: a chain is replaced where a crash has left half
    a line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _opened(path, os.O_RDWR | os.O_CREAT) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_held(folder: Path) -> bool:
    """Return whether a process on this machine holds a folder now; nothing is written."""
    try:
        with _opened(folder, os.O_RDONLY) as file:
            return not _taken(file)
    except FileNotFoundError:
        return False


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open the lock file of a file or folder, which lies beside it."""
    file = os.open(path.with_name(f".{path.name}.lock"), flags | os.O_NOFOLLOW, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
