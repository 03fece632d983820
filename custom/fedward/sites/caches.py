"""A folder of decoded images that stays small: only the newest files are kept, and those that a process uses.

Jobs choose the size of images, and each size makes another file. Locks are the operating system's (flock) and end with
the process that holds them.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

KEPT = 3
"""Files that stay, those in use besides: jobs of a few sizes may take turns without decoding again."""

BUILDING = ".building-"
"""How the name of a folder begins in which a file is being made."""


def map_pixels(file: Path) -> npt.NDArray[np.uint8]:
    """Return a ``.npy`` file of uint8 as a read-only memmap, which keeps the file from :func:`keep_newest`.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is no such file.
    """
    with file.open("rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_SH)  # the mapping duplicates the descriptor, and so holds the lock until it ends
        np.lib.format.read_magic(opened)
        shape, _, dtype = np.lib.format.read_array_header_1_0(opened)
        if dtype != np.uint8:
            raise ValueError(f"{file}: expected uint8, found {dtype}")
        return np.memmap(opened, np.uint8, "r", opened.tell(), shape)


@contextmanager
def building(folder: Path) -> Iterator[None]:
    """Keep what this process is making in a folder from :func:`keep_newest` of another."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


def keep_newest(folder: Path) -> None:
    """Remove all but the newest files and those that a process has mapped, and what a killed process has left.

    The newest is the one last passed to :func:`touch`. What cannot be removed is left. Whoever opens a file in the
    moment of its removal reads it to the end, or makes it anew.
    """
    for file in sorted(folder.glob("*.npy"), key=_age)[KEPT:]:
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
