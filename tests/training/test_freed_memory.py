"""What the C library does with memory that training frees."""

import ctypes
import platform
import resource

import pytest
import torch

from fedward.training.freed_memory import keep_freed_memory

MEGABYTES = 64


def faults() -> int:
    """Return how many pages the system hands out while a tensor is made and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [torch.ones(MEGABYTES << 15) for _ in range(8)]  # an eighth each, in float32
    del parts
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting"
)
def test_freed_memory_is_used_again() -> None:
    keep_freed_memory()
    assert min(faults() for _ in range(5)) < MEGABYTES
    ctypes.CDLL(None).malloc_trim(0)
    assert faults() > 10 * MEGABYTES, "what is asked for explicitly goes back to the system as ever"


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
