"""Kits as FLARE's own command makes them of this project's description."""

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "provisioning" / "project.yml"


def provisioned(workspace: Path) -> Path:
    """Put the project's kits into a workspace and return their folder; all calls of a process give
    copies of the same kits, with the same keys.
    """
    return shutil.copytree(_kits(), workspace / "fedward" / "prod_00", symlinks=True)


@cache
def _kits() -> Path:
    workspace = Path(tempfile.mkdtemp(prefix="kits-"))
    atexit.register(shutil.rmtree, workspace)
    command = [
        sys.executable,
        "-m",
        "nvflare.cli",
        "provision",
        "--force",
        "-p",
        PROJECT,
        "-w",
        workspace,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace / "fedward" / "prod_00"
