"""Durable writes: the content is on the disk when a call returns, even if the power fails then."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PRIVATE = 0o700
"""Mode of a folder that its owner alone may enter."""


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents with ``mode`` less the umask, except those that exist."""
    if not folder.is_dir():
        make_folder(folder.parent, mode)
        folder.mkdir(mode=mode, exist_ok=True)
        sync(folder.parent)


def replace(partial: Path, path: Path) -> None:
    """Replace a file by a whole new one: after a power cut there is the old one or the new one.

    Raises:
        OSError: ``path`` is a device or a pipe. Replacing it would remove it for all programs of
            the machine.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a device or a pipe, and not a file", str(path))
    sync(partial)
    os.replace(partial, path)
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces ``path`` at the end of the block.

    Raises:
        OSError: as :func:`replace` does.
    """
    partial = path.with_name(f"{path.name}.partial")
    # A link that somebody left there would be followed.
    partial.unlink(missing_ok=True)
    yield partial
    replace(partial, path)


def append(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write at the end of a file; make the file with ``mode`` less the umask if there is none."""
    is_new = not path.exists()
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync(path.parent)


def save_json(path: Path, value: Any) -> None:
    """Write JSON values, all of them or nothing; make the folder if need be."""
    make_folder(path.parent)
    with replacing(path) as partial:
        partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
