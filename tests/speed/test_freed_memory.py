"""What the C library does with memory that training frees."""

import ctypes
import platform
import resource

import pytest
import torch

from fedward.speed.freed_memory import keep_freed_memory

MEGABYTES = 64


def page_faults() -> int:
    """Return how many pages the system hands out while a tensor is made and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    # Eight tensors of float32, an eighth of the megabytes each.
    parts = [torch.ones(MEGABYTES << 15) for _ in range(8)]
    del parts
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other library has the setting")
def test_freed_memory_is_used_again() -> None:
    keep_freed_memory()
    assert min(page_faults() for _ in range(5)) < MEGABYTES
    # What is asked for explicitly still goes back to the system.
    ctypes.CDLL(None).malloc_trim(0)
    assert page_faults() > 10 * MEGABYTES


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
