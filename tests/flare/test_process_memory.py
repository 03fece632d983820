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


def is_walked(thing: object) -> bool:
    """Whether the collector still walks `thing`; it lists no frozen object."""
    return any(found is thing for found in gc.get_objects())


def test_modules_are_frozen_once_and_again_with_new_ones(monkeypatch):
    memory = ProcessMemory()
    memory.trim()
    frozen = gc.get_freeze_count()
    assert frozen > len(sys.modules)
    assert len(gc.get_objects()) < frozen / 10
    made_later = [[]]
    memory.trim()
    assert is_walked(made_later)
    monkeypatch.setitem(sys.modules, "new", types.ModuleType("new"))
    memory.trim()
    assert not is_walked(made_later)


def test_what_an_exchange_leaves_is_collected():
    memory = ProcessMemory()
    memory.trim()
    left = weakref.ref(Cycle())
    memory.trim()
    assert left() is None
