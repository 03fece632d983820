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

import torch

from fedward.speed.freed_memory import keep_freed_memory


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd",
        "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]


library = ctypes.CDLL(None)
library.mallinfo2.restype = Mallinfo2


def free_bytes_in_the_heap():
    # Eight tensors of float32, an eighth of the megabytes each.
    tensors = [torch.ones({MEGABYTES} << 15) for _ in range(8)]
    del tensors
    return library.mallinfo2().fordblks


print(free_bytes_in_the_heap())
keep_freed_memory()
print(free_bytes_in_the_heap())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other library has the setting")
def test_freed_memory_stays_in_the_heap() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FREED_BYTES], capture_output=True, text=True, check=True
    )
    before, after = (int(line) for line in finished.stdout.splitlines())
    # Without the setting the library hands most of it back to the system.
    assert before < MEGABYTES << 19
    assert after >= MEGABYTES << 20


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
