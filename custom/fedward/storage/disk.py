"""Writes that last: what was written is on the disk when a call returns, even if the power fails
right after.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = 0o700
"""Mode of a folder that is its owner's alone."""


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and those it lies in, with ``mode`` less the umask; one that is there stays as
    it is.
    """
    if not folder.is_dir():
        make_folder(folder.parent, mode)
        folder.mkdir(mode=mode, exist_ok=True)
        sync(folder.parent)


def replace(partial: Path, path: Path) -> None:
    """Put a whole file in the place of another: who reads, or loses power, has the old one or the
    new one.

    Raises:
        OSError: there is a device or a pipe in that place, which would be gone for all programs of
            the machine.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, and not a file", str(path))
    sync(partial)
    os.replace(partial, path)
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write a file that takes the place of ``path`` at the end of the block, as
    :func:`replace` does.
    """
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)  # a link would be followed
    yield partial
    replace(partial, path)


def append(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write at the end of a file, which is made if there is none, with ``mode`` less the umask."""
    new = not path.exists()
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync(path.parent)
