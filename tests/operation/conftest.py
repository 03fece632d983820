"""Runs as they lie at a server after some time."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from finished_run import finished_run, new_run
from tiny import tiny

Age = Callable[[Path, int], None]


@pytest.fixture
def age() -> Age:
    """Let all files below a folder be that many days old."""

    def make(folder: Path, days: int) -> None:
        then = time.time() - days * 24 * 3600
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (then, then), follow_symlinks=False)

    return make


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A finished run with what serves only to continue it; below ``runs``, as at a server."""
    folder = finished_run(tmp_path / "runs" / "lead" / "ended", tiny(), {"weight": torch.ones(2)})
    for name in (
        "models/hospital-a/00001.safetensors",
        "rounds/00001/state.safetensors",
        "server/images.npy",
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(bytes(1000))
    return folder


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A run that says that it is running."""
    run = new_run(
        tmp_path / "runs" / "lead" / "interrupted", tiny("fedavg"), ["site-1", "site-2"], "local"
    )
    (run.path / "rounds").mkdir()
    return run.path
