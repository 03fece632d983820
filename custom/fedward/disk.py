"""Durable writes: the content is on the disk when a call returns, even if the power fails then."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


def unwritable(folder: Path) -> str:
    """Return why nothing can be written into a folder, which may have to be made first.

    The text is empty if nothing speaks against it, as far as can be seen without writing.
    """
    above = [place for place in (folder, *folder.absolute().parents) if os.path.lexists(place)]
    nearest = above[0]
    if not nearest.is_dir():
        return f"{nearest}, which is no folder"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"{nearest}, which you may not write into"
    return ""


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
def replacing(path: Path, mark: str = "") -> Iterator[Path]:
    """Yield the path of a new file, which replaces ``path`` at the end of the block.

    If the block fails, the new file is removed.

    Args:
        path: the file to replace.
        mark: what the name of the new file has before its ending ``.partial``. Processes that may
            write the same file at once have marks of their own, such as :func:`own_mark`.

    Raises:
        OSError: as :func:`replace` does.
    """
    partial = path.with_name(f"{path.name}{mark}.partial")
    # A link that somebody left there would be followed.
    partial.unlink(missing_ok=True)
    try:
        yield partial
        replace(partial, path)
    except BaseException:
        # No later process would remove a file whose name has the mark of this one.
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def own_mark() -> str:
    """Return a mark for :func:`replacing` that no other process of this machine has now."""
    return f".{os.getpid()}"


def make_new_folder(folder: Path) -> None:
    """Make an empty folder and its parents, in place of whatever is there; no link is followed."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)
    make_folder(folder)


def read_fully(file: int, buffer: memoryview, place: int) -> int:
    """Fill a buffer of bytes from an open file, and return how many there were.

    It is fewer than the buffer holds only if the file ends before. Linux reads at most 2 GiB at
    once, and less where a signal comes in between.

    Args:
        file: its descriptor, whose own place stays as it is.
        buffer: of bytes, in one dimension.
        place: of the first byte in the file.
    """
    done = 0
    while done < len(buffer):
        count = os.preadv(file, [buffer[done:]], place + done)
        if not count:
            break
        done += count
    return done


def append(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write at the end of a file; make the file with ``mode`` less the umask if there is none.

    Raises:
        OSError: ``path`` is a link, a pipe or a device. A link may come with somebody else's folder
            and lead to any file of this account.
    """
    is_new = not path.exists()
    with open(path, "ab", opener=lambda name, flags: _open_own(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync(path.parent)


def _open_own(name: str, flags: int, mode: int) -> int:
    """Open a file as :func:`os.open` does; refuse a link, and what is no file, without waiting."""
    refusal = OSError(errno.EINVAL, "it is a link, a pipe or a device, and not a file", name)
    try:
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        # ELOOP is a link, and ENXIO a pipe without a reader or a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO) and os.path.lexists(name):
            raise refusal from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refusal
    return descriptor


def save_json(path: Path, value: Any) -> None:
    """Write JSON values, all of them or nothing; make the folder if need be."""
    make_folder(path.parent)
    text = json.dumps(value, indent=1) + "\n"
    with replacing(path) as partial, partial.open("x", encoding="utf-8") as file:
        file.write(text)
