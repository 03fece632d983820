"""Shared fixtures: the folder of real data."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images; the test is skipped, and says so, where FEDWARD_DATA names none."""
    folder = os.environ.get("FEDWARD_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDWARD_DATA names no folder with real images")
    return Path(folder)
