"""A folder of arrays that can be made again: it keeps the newest files, and those in use.

Jobs choose the size of images, and each size makes another file. A file is whole or not there, and
never changes. Locks are the operating system's (flock) and end with the process that holds them.
"""

import fcntl
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fedward import private
from fedward.errors import UnreadableJsonError
from fedward.json_text import read_json_file

KEPT = 3
"""Files that stay besides those in use, so that jobs of a few sizes may take turns."""
BUILDING = ".building-"
"""Prefix of a folder in which a file is being made."""
_BLOCK = 256
"""Rows of an array that are copied at a time for its checksum."""

T = TypeVar("T", bound=np.generic)


class Cache(NamedTuple):
    """Where arrays are kept."""

    folder: Path
    kept: int | None = KEPT
    """Files that stay besides those in use; None: all, where something else empties the folder."""


def read(target: Path, dtype: type[T]) -> tuple[npt.NDArray[T], dict[str, Any]] | None:
    """Return the array and the notes that :func:`write` wrote; None if missing or damaged.

    The array is a read-only memmap, which keeps the file from being removed by :func:`keep_newest`.
    """
    try:
        notes = read_json_file(target.with_suffix(".json"))
        array = _map(target, dtype)
        if _checksum(array) != notes["crc32"]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return array, notes


def read_notes(target: Path) -> dict[str, Any] | None:
    """Return the notes that :func:`write` wrote, without the array; None if missing or damaged."""
    try:
        notes = read_json_file(target.with_suffix(".json"))
    except (OSError, UnreadableJsonError):
        return None
    return notes if isinstance(notes, dict) else None


def write(
    target: Path,
    rows: Iterable[npt.NDArray[T]],
    shape: tuple[int, ...],
    dtype: type[T],
    notes: Callable[[], Mapping[str, Any]],
) -> npt.NDArray[T]:
    """Write arrays one after the other into one file, and return it as a memmap.

    Processes that write the same file at the same time end with one whole file.

    Args:
        target: the file, which ends in ``.npy``.
        rows: arrays (n, *shape).
        shape: of one row.
        dtype: of the arrays.
        notes: returns what to know of the array; called once all rows are written.

    Raises:
        OSError: the file cannot be written.
    """
    with (
        building(target.parent),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=BUILDING) as folder,
    ):
        whole = Path(folder) / "array.npy"
        about = Path(folder) / "notes.json"
        count = 0
        with whole.open("wb") as file:
            _header(file, (0, *shape), dtype)
            for block in rows:
                file.write(block.tobytes())
                count += len(block)
            file.seek(0)
            # This header is as long as the first: numpy leaves room for more rows.
            _header(file, (count, *shape), dtype)
        # The file is mapped before other processes see it, so that they do not remove it.
        array = _map(whole, dtype)
        about.write_text(json.dumps({"crc32": _checksum(array), **notes()}))
        private.shut(Path(folder))
        # The notes go first, so that whoever sees the array finds them.
        os.replace(about, target.with_suffix(".json"))
        os.replace(whole, target)
    return array


def _header(file: IO[bytes], shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    """Write the header of an array in NumPy's format."""
    about = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)


def _checksum(array: npt.NDArray[Any]) -> int:
    crc = 0
    for start in range(0, len(array), _BLOCK):
        crc = zlib.crc32(array[start : start + _BLOCK].tobytes(), crc)
    return crc


def _map(file: Path, dtype: type[T]) -> npt.NDArray[T]:
    """Return a file as a memmap that holds a lock on it."""
    with file.open("rb") as opened:
        # The mapping duplicates the descriptor, and so holds the lock until it ends.
        fcntl.flock(opened, fcntl.LOCK_SH)
        np.lib.format.read_magic(opened)
        shape, _, file_dtype = np.lib.format.read_array_header_1_0(opened)
        if file_dtype != dtype:
            raise ValueError(f"{file}: expected {np.dtype(dtype)}, found {file_dtype}")
        return np.memmap(opened, dtype, "r", opened.tell(), shape)


@contextmanager
def building(folder: Path) -> Iterator[None]:
    """Protect what this process makes in a folder from another's :func:`keep_newest`."""
    with private.locked(folder, fcntl.LOCK_SH):
        yield


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Let one process at a time make a file; the others wait.

    The lock's file is removed at the end. A process that opened it before, and one that opens a new
    one, may both be let in. They then make the same file twice, and end with one.

    Raises:
        OSError: the lock cannot be made.
    """
    lock = target.with_suffix(".lock")
    with open(lock, "wb", opener=private.opener) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def keep_newest(folder: Path, kept: int | None = KEPT) -> None:
    """Remove old files, and folders that killed processes have left.

    Files that a process has mapped stay, and so does what cannot be removed. A process that opens a
    file in the moment of its removal reads it to the end, or makes it again.

    Args:
        folder: of the cache.
        kept: how many files stay, those last passed to :func:`touch`; None: all.
    """
    old_files = [] if kept is None else newest_first(folder)[kept:]
    for file in old_files:
        with suppress(OSError), private.locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
            file.unlink()
            file.with_suffix(".json").unlink(missing_ok=True)
    with suppress(OSError), private.locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for unfinished in folder.glob(f"{BUILDING}*"):
            shutil.rmtree(unfinished, ignore_errors=True)


def newest_first(folder: Path) -> list[Path]:
    """Return the arrays in a folder, beginning with the one last passed to :func:`touch`."""
    return sorted(folder.glob("*.npy"), key=_age)


def touch(file: Path) -> None:
    """Note that a file is used now."""
    now = time.time_ns()  # finer than the time that the kernel writes by itself
    with suppress(OSError):  # a file of another account keeps its time
        os.utime(file, ns=(now, now))


def _age(file: Path) -> int:
    """Return a key that sorts the newest file first."""
    try:
        return -file.stat().st_mtime_ns
    except FileNotFoundError:  # removed by another process
        return 0
