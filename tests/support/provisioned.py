"""Kits as FLARE's own command makes them of this project's description."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "provisioning" / "project.yml"


def provisioned(workspace: Path) -> Path:
    """Provision the project in a workspace; return the folder of the kits."""
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
