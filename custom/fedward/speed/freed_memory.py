"""Memory that a training step frees stays with the process for the next step.

What: sets two parameters of glibc's allocator with ``mallopt``. The most memory that the process
needs stays the same, and so do all numbers. Another C library is left as it is.

Why: torch has no cache for the CPU's memory. By default glibc returns the top of its heap to the
system after every backward pass, which then hands out each page again, and cleared: 750,000 page
faults in a short run, in place of 110,000.

Versions: glibc 2.36. The parameters are part of its public interface.

Ratio, by CPU time of two pairs of runs of the job ``fedperl`` with six sites and four rounds: 1.07
and 1.09, beside other work. That is below the limit of this package. It stays because without it
jobs took more than 5 % longer than they did before other shortcuts were removed; ``python
benchmarks/tricks.py freed_memory``.
"""

import ctypes
import sys

_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
"""Numbers of the parameters in glibc's ``malloc.h``."""

_LARGEST_KEPT_BLOCK = 32 << 20
"""Bytes of the largest block that comes from the heap: the largest number that glibc takes."""

_LARGEST_KEPT_TOP = 256 << 20
"""Unused bytes at the top of the heap that stay: about what a step of the shipped jobs frees."""


def keep_freed_memory() -> None:
    """Let the C library keep what a training step frees, where it is glibc."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BLOCK)
    mallopt(_TRIM_THRESHOLD, _LARGEST_KEPT_TOP)
