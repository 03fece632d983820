"""One writer at a time: a job that was believed lost may still be writing when its successor starts."""

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
    """Hold a folder for this process, which must end with it: the operating system lets go when a process dies.

    The log says once that it waits.

    Args:
        folder: created if it does not exist.
        patience: seconds to wait for another process to let go.

    Raises:
        RunError: it did not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not _taken(file):
            _wait(folder, file, patience)
        yield
    finally:
        os.close(file)


def is_held(folder: Path) -> bool:
    """Return whether a process on this machine holds a folder now; nothing is written."""
    try:
        file = os.open(_lock_file(folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _taken(file)
    finally:
        os.close(file)


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


def _wait(folder: Path, file: int, patience: float) -> None:
    _log.warning("run folder %s: another process writes it; waiting up to %g s for it to end", folder, patience)
    since = time.monotonic()
    while not _taken(file):
        if time.monotonic() - since >= patience:
            raise RunError(
                f"run folder {folder}",
                expected="to be its only writer",
                found=f"another process that writes it, for {patience:g} s",
                remedy="Wait for that process to end, or stop it.",
            )
        time.sleep(_TICK)


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
