"""Locks between processes: one writer of a run folder, and one of a ledger, at a time.

A job that was believed lost may still be writing when its successor starts.
"""

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedward.errors import ConfigError, RunError

_SECONDS_BETWEEN_TRIES = 0.2
_NO_LOCKS = {errno.ELOOP: "a link", errno.EISDIR: "a folder", errno.ENXIO: "a socket"}
"""Why a lock could not be opened -> what is in its place."""
_log = logging.getLogger(__name__)


@contextmanager
def sole_writer(folder: Path, patience: float = 60.0) -> Iterator[None]:
    """Hold a folder for this process alone; make the folder if there is none.

    The operating system releases the lock when the process dies. The log says once that this
    process waits for another one.

    Args:
        folder: the folder to hold.
        patience: seconds to wait for another process.

    Raises:
        RunError: another process still holds the folder after that time.
        ConfigError: what is in the place of the lock is none, such as a link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _lock_file(folder, os.O_RDWR | os.O_CREAT) as file:
        since = time.monotonic()
        if not _take(file):
            _log.warning(
                "run folder %s: another process writes it; waiting up to %g s for it to end",
                folder,
                patience,
            )
            while not _take(file):
                if time.monotonic() - since >= patience:
                    raise RunError(
                        f"run folder {folder}: another process has been writing it "
                        f"for {patience:g} s",
                        "Wait for its end, or stop it.",
                    )
                time.sleep(_SECONDS_BETWEEN_TRIES)
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds a file's lock, then hold it; make the folder if need be.

    The lock is a file of its own, ``.<name>.lock``: the file itself may be replaced while it is
    locked.

    Raises:
        ConfigError: what is in the place of the lock is none, such as a link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(path, os.O_RDWR | os.O_CREAT) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_held(folder: Path) -> bool:
    """Return whether a process on this machine holds a folder now; write nothing.

    Several processes may ask at once: their locks are shared ones, which a file opened for reading
    takes on a network file system, too. Where this account cannot ask, as of a colleague's run or
    where a link is in the place of the lock, the answer is yes: nobody should write into the folder
    or remove it.
    """
    try:
        with _lock_file(folder, os.O_RDONLY) as file:
            return not _take(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except (OSError, ConfigError):
        return True


@contextmanager
def _lock_file(path: Path, flags: int) -> Iterator[int]:
    """Open the lock file of a file or folder, which lies beside it.

    Whichever path leads there, such as ``.`` or a link, the lock is the same.
    """
    path = path.resolve()
    # A run may come from somebody else, and with a pipe in the place of its lock, which would hold
    # up its reader for ever.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK
    lock = path.with_name(f".{path.name}.lock")
    try:
        file = os.open(lock, flags, 0o600)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise ConfigError(
            f"lock {lock}",
            "Remove it; a new one is made when it is needed.",
            expected="a plain file",
            found=_NO_LOCKS[error.errno],
        ) from error
    try:
        yield file
    finally:
        os.close(file)


def _take(file: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Return whether this process holds a lock now, without waiting for it.

    Args:
        file: opened lock file.
        kind: ``LOCK_EX``, or ``LOCK_SH`` for a lock that several processes may hold.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
