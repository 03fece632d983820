"""FLARE's simulator in a process of its own, and what its run must be equal to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

SITES = ["site-1", "site-2", "site-3"]


def start(job: Path, workspace: Path, threads: int = 3, **environment: str) -> subprocess.Popen:
    """Start the simulator on three sites, its output in ``<workspace>.log``."""
    command = [
        Path(sys.executable).with_name("nvflare"),
        "simulator",
        job,
        "-w",
        workspace,
        "-n",
        "3",
        "-t",
        str(threads),
    ]
    with workspace.with_suffix(".log").open("w") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def assert_same_run(flare: Path, local: Path) -> None:
    ours = load_file(local / "model.safetensors")
    theirs = load_file(flare / "model.safetensors")
    assert list(ours) == list(theirs)
    for key in ours:
        torch.testing.assert_close(theirs[key], ours[key], rtol=0, atol=1e-6, msg=key)
    assert {path.name for path in local.glob("*.jsonl")} == {
        path.name for path in flare.glob("*.jsonl")
    }
    for log in {"metrics", "binned", "peers", "bytes"} & {
        path.stem for path in local.glob("*.jsonl")
    }:
        rows = [
            [
                row
                for row in map(json.loads, (folder / f"{log}.jsonl").read_text().splitlines())
                if row.get("name") != "seconds"
            ]
            for folder in (flare, local)
        ]
        assert rows[0] == rows[1]


def assert_same_memory(flare: Path, local: Path) -> None:
    """Compare the newest models that a site keeps for itself, in its folders of both runs."""
    newest = []
    for folder in (flare, local):
        files = sorted(folder.glob("memory/*/*.safetensors"), key=lambda file: file.name)
        newest.append(load_file(files[-1]))
    theirs, ours = newest
    assert list(ours) == list(theirs)
    for key in ours:
        torch.testing.assert_close(theirs[key], ours[key], rtol=0, atol=1e-6, msg=key)
