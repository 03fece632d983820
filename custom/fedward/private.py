"""Files for their owner alone, whatever the umask, and folders for one process at a time.

It also says when a file that decides something for a site may be relied on.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fedward import disk

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700

_LINK = "a link"


@dataclass(frozen=True)
class Standard:
    """What a file must be so that a site relies on it."""

    expected: str
    """Such a file, in words."""
    forbidden: int
    """Rights that it must not give: bits of a file's mode."""
    owners: bool
    """Whether it must belong to this account or to root."""


SECRET = Standard(
    "a file that only its owner may read or write",
    stat.S_IRWXG | stat.S_IRWXO,
    # Only its owner can open such a file, and root, who examines the kits of other accounts.
    owners=False,
)
"""The standard of keys and secrets."""

RECORD = Standard(
    "a file of this account, or of root, that nobody else may write to",
    stat.S_IWGRP | stat.S_IWOTH,
    owners=True,
)
"""The standard of what a site's own process writes for itself, and of the folder it is in."""

RULES = Standard(
    "a file that not everybody may write to",
    # Several people of a hospital may look after its rules, and a cluster mounts them for a group.
    stat.S_IWOTH,
    # Beside them lie files that say which code starts, whoever owns them: FLARE does not look.
    owners=False,
)
"""The standard of rules that people write."""


def fault(status: os.stat_result, standard: Standard) -> str:
    """Return how a file or folder departs from a standard, as a noun phrase; empty if it does not.

    Args:
        status: what the operating system says of it. That of an opened file belongs to the content
            that is then read, whatever somebody puts in its place meanwhile.
        standard: what it must be.
    """
    if stat.S_ISLNK(status.st_mode):
        return _LINK
    if standard.owners and status.st_uid not in (0, os.geteuid()):
        return f"one of account {status.st_uid}"
    mode = stat.S_IMODE(status.st_mode)
    return f"mode {mode:04o}" if mode & standard.forbidden else ""


def read(path: Path, standard: Standard) -> bytes:
    """Return the content of a plain file that meets a standard; no link is followed.

    Raises:
        OSError: it cannot be read, is no plain file, or does not meet the standard.
    """
    try:
        with open(path, "rb", opener=_open_without_links) as file:
            status = os.fstat(file.fileno())
            problem = fault(status, standard)
            if not stat.S_ISREG(status.st_mode):
                problem = "a pipe or a device"
            if problem:
                raise OSError(errno.EPERM, problem, str(path))
            return file.read()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, _LINK, str(path)) from error
        raise


def _open_without_links(name: str, flags: int) -> int:
    # A named pipe in the place of the file would block the site for ever without O_NONBLOCK.
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def opener(path: str, flags: int) -> int:
    """Open a file with mode 0600, for ``open(path, "wb", opener=opener)``.

    A file that exists with another mode gets this one.
    """
    descriptor = os.open(path, flags, _FILE_MODE)
    os.fchmod(descriptor, _FILE_MODE)
    return descriptor


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file with mode 0600, which replaces ``path`` at the end of the block.

    A link in the place of either is not followed, and whoever has the old file open does not see
    what is written. Of several processes that do this at once, the last one's file stays.

    Raises:
        OSError: as :func:`fedward.disk.replacing` does.
    """
    with (
        disk.replacing(path, disk.own_mark()) as partial,
        open(partial, "xb", opener=opener) as file,
    ):
        yield file


def shut(path: Path) -> None:
    """Give a file mode 0600; a folder and all folders in it 0700, and the files in them 0600."""
    paths = [path, *path.rglob("*")] if path.is_dir() else [path]
    for entry in paths:
        entry.chmod(_FOLDER_MODE if entry.is_dir() else _FILE_MODE)


@contextmanager
def locked(path: Path, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of a file or folder that exists; it leaves no file.

    The operating system releases the lock when the process dies.

    Args:
        path: what to lock.
        kind: of ``fcntl.flock``. By default only one process at a time holds the lock.

    Raises:
        OSError: the lock cannot be had without waiting, where ``kind`` says not to wait.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)
