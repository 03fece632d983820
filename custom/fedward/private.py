"""Files for their owner alone, whatever the umask, and folders for one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


def opener(path: str, flags: int) -> int:
    """Open a file with mode 0600, for ``open(path, "wb", opener=opener)``.

    A file that exists with another mode gets this one.
    """
    descriptor = os.open(path, flags, _FILE_MODE)
    os.fchmod(descriptor, _FILE_MODE)
    return descriptor


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700; folders that exist stay as they are."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


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
