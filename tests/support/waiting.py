"""Waiting in tests, long enough for the busiest machine."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from fedward.errors import RunError

PATIENCE = 600
"""Seconds; only a test that fails waits so long."""

T = TypeVar("T")


def appears(look: Callable[[], T]) -> T | None:
    """Return the first true value, None if none comes in time; a missing file is no error."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError, RunError):
            found = look()
            if found:
                return found
        time.sleep(0.2)
    return None
