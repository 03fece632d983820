"""Waiting in tests: long enough for the busiest machine, so that no test depends on how busy one is."""

import time
from collections.abc import Callable
from contextlib import suppress

PATIENCE = 600
"""Seconds; only a test that fails waits so long."""


def appears(condition: Callable[[], object]) -> bool:
    """Return whether a condition comes true in time; a file that is not there yet is no error."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            if condition():
                return True
        time.sleep(0.2)
    return False
