"""What the C library does with memory that training frees."""

import ctypes
import platform
import subprocess
import sys

import pytest

from fedward.speed.freed_memory import keep_freed_memory

MEGABYTES = 64

FREED_BYTES = f"""
import ctypes
import sys

import torch

from fedward.speed.freed_memory import keep_freed_memory


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd",
        "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]


if sys.argv[1] == "keep":
    keep_freed_memory()
# Eight tensors of float32, an eighth of the megabytes each.
tensors = [torch.ones({MEGABYTES} << 15) for _ in range(8)]
del tensors
library = ctypes.CDLL(None)
library.mallinfo2.restype = Mallinfo2
print(library.mallinfo2().fordblks)
"""


def freed_bytes_in_the_heap(setting: str) -> int:
    """Return how many free bytes glibc keeps in its heap after a process made and freed tensors."""
    finished = subprocess.run(
        [sys.executable, "-c", FREED_BYTES, setting], capture_output=True, text=True, check=True
    )
    return int(finished.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other library has the setting")
def test_freed_memory_stays_in_the_heap() -> None:
    assert freed_bytes_in_the_heap("keep") >= MEGABYTES << 20
    # Without the setting the library hands most of it back to the system.
    assert freed_bytes_in_the_heap("default") < MEGABYTES << 19


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
