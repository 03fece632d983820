"""What becomes of the memory that a training step frees."""

import ctypes
import sys

_MALLOPT = {"M_MMAP_THRESHOLD": (-3, 32 << 20), "M_TRIM_THRESHOLD": (-1, 256 << 20)}
"""Numbers of glibc's parameters in malloc.h, and bytes: the largest that it takes, and about what
steps here free.
"""


def keep_freed_memory() -> None:
    """Let the C library keep what a training step frees for the next one, where it is glibc.

    After every backward pass it would return the top of its heap to the system, which then hands
    out each page anew and cleared: up to a tenth of a step. The most memory that the process needs
    stays the same.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    for parameter, value in _MALLOPT.values():
        if mallopt is not None:
            mallopt(parameter, value)
