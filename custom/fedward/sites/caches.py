"""Arrays that can be made again, in a folder that stays small: the newest files are kept, and those
in use.

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

KEPT = 3
"""Files that stay, those in use besides: jobs of a few sizes may take turns without decoding again.
"""

BUILDING = ".building-"
"""How the name of a folder begins in which a file is being made."""


T = TypeVar("T", bound=np.generic)


class Cache(NamedTuple):
    """A folder, and how many files stay in it, those in use besides; None: all, where others empty
    it.
    """

    folder: Path
    kept: int | None = KEPT


def read(target: Path, dtype: type[T]) -> tuple[npt.NDArray[T], dict[str, Any]] | None:
    """Return what :func:`write` wrote; None where it is not there or damaged.

    The array is a read-only memmap, which keeps the file from :func:`keep_newest`.
    """
    try:
        notes = json.loads(target.with_suffix(".json").read_text())
        array = _map(target, dtype)
        return (array, notes) if _checksum(array) == notes["crc32"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(
    target: Path,
    rows: Iterable[npt.NDArray[T]],
    shape: tuple[int, ...],
    dtype: type[T],
    notes: Callable[[], Mapping[str, Any]],
) -> npt.NDArray[T]:
    """Stream arrays (n, *shape) to the file ``target`` (``.npy``), one after the other, and return
    it as a memmap.

    ``notes``: what is to be known of it, asked for once all is written. They go first, so that
    whoever sees the array finds them. Processes that write the same file at the same time end with
    one whole file. Raises OSError.
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
            _header(
                file, (count, *shape), dtype
            )  # as long as the first: numpy leaves room for more rows
        array = _map(whole, dtype)  # before others see the file, and might remove it
        about.write_text(json.dumps({"crc32": _checksum(array), **notes()}))
        private.shut(Path(folder))
        os.replace(about, target.with_suffix(".json"))
        os.replace(whole, target)
    return array


def _header(file: IO[bytes], shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    about = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)


def _checksum(array: npt.NDArray[Any], block: int = 256) -> int:
    crc = 0
    for start in range(0, len(array), block):
        crc = zlib.crc32(array[start : start + block].tobytes(), crc)
    return crc


def _map(file: Path, dtype: type[T]) -> npt.NDArray[T]:
    with file.open("rb") as opened:
        fcntl.flock(
            opened, fcntl.LOCK_SH
        )  # the mapping duplicates the descriptor, and so holds the lock until it ends
        np.lib.format.read_magic(opened)
        shape, _, found = np.lib.format.read_array_header_1_0(opened)
        if found != dtype:
            raise ValueError(f"{file}: expected {np.dtype(dtype)}, found {found}")
        return np.memmap(opened, dtype, "r", opened.tell(), shape)


@contextmanager
def building(folder: Path) -> Iterator[None]:
    """Keep what this process is making in a folder from :func:`keep_newest` of another."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Keep other processes from making the file ``target`` until this one has, or wait for them.
    Raises OSError.

    The lock's file is removed at the end. Two that are let in all the same make the file twice, and
    end with one.
    """
    lock = target.with_suffix(".lock")
    with open(lock, "wb", opener=private.opener) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def keep_newest(folder: Path, kept: int | None = KEPT) -> None:
    """Remove all but the newest ``kept`` files and those that a process has mapped, and what a
    killed process has left.

    The newest is the one last passed to :func:`touch`. None keeps all. What cannot be removed is
    left. Whoever opens a file in the moment of its removal reads it to the end, or makes it anew.
    """
    old = [] if kept is None else sorted(folder.glob("*.npy"), key=_age)[kept:]
    for file in old:
        with suppress(OSError), _locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
            file.unlink()
            file.with_suffix(".json").unlink(missing_ok=True)
    with suppress(OSError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for left in folder.glob(f"{BUILDING}*"):
            shutil.rmtree(left, ignore_errors=True)


def touch(file: Path) -> None:
    """Note that a file is used now."""
    with suppress(OSError):  # of another account: it keeps its time
        now = time.time_ns()  # finer than the time that the kernel writes by itself
        os.utime(file, ns=(now, now))


def _age(file: Path) -> int:
    try:
        return -file.stat().st_mtime_ns
    except FileNotFoundError:  # removed by another process
        return 0


@contextmanager
def _locked(path: Path, operation: int) -> Iterator[None]:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, operation)
        yield
    finally:
        os.close(opened)
