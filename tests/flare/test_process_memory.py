"""What is imported is frozen once, and what is thrown away between two exchanges is collected."""

import gc
import sys
import types
import weakref

import pytest

from fedward.flare.process_memory import ProcessMemory


@pytest.fixture(autouse=True)
def thawed():
    gc.unfreeze()
    yield
    gc.unfreeze()


class Cycle:
    def __init__(self):
        self.itself = self


def test_modules_are_frozen_once_and_again_with_new_ones(monkeypatch):
    memory = ProcessMemory()
    memory.trim()
    frozen = gc.get_freeze_count()
    assert frozen > len(sys.modules)
    assert len(gc.get_objects()) < frozen / 10
    kept = [[] for _ in range(1000)]
    memory.trim()
    assert abs(gc.get_freeze_count() - frozen) < len(kept)
    monkeypatch.setitem(sys.modules, "new", types.ModuleType("new"))
    memory.trim()
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_what_an_exchange_leaves_is_collected():
    memory = ProcessMemory()
    memory.trim()
    left = weakref.ref(Cycle())
    memory.trim()
    assert left() is None
