"""The systemd unit: how much it exposes, and that systemd understands it."""

import ctypes.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import tiny

PROVISIONING = Path(__file__).parents[2] / "provisioning"
UNIT = PROVISIONING / "fedward.service"
GPU = PROVISIONING / "fedward-gpu.conf"
MOST = 3
"""Of the exposure that systemd computes, from 0 to 10."""


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A folder of units with ours, which starts a program that there is."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed; it is in Debian's package systemd")
    text = UNIT.read_text().replace("/srv/fedward/kit/startup/sub_start.sh --once", "/bin/true")
    (tmp_path / UNIT.name).write_text(text)
    return tmp_path


def analyze(units: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *words, UNIT.name]
    environment = {"SYSTEMD_UNIT_PATH": f"{units}:", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def with_gpu(units: Path) -> None:
    (units / f"{UNIT.name}.d").mkdir()
    shutil.copy(GPU, units / f"{UNIT.name}.d" / "gpu.conf")


@pytest.mark.parametrize("gpu", [False, True])
def test_the_unit_exposes_little(units, gpu):
    if gpu:
        with_gpu(units)
    done = analyze(units, "security", "--offline=true", f"--threshold={MOST * 10}", "--no-pager")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("gpu", [False, True])
def test_systemd_understands_every_line(units, gpu):
    if gpu:
        with_gpu(units)
    done = analyze(units, "verify")
    assert UNIT.name not in done.stderr


def test_torch_may_make_programs_while_it_runs():
    """With MemoryDenyWriteExecute its convolutions fail: "could not create a primitive"."""
    settings = [line for line in UNIT.read_text().splitlines() if not line.startswith("#")]
    assert not [line for line in settings if line.startswith("MemoryDenyWriteExecute")]


@pytest.mark.slow
@pytest.mark.skipif(not ctypes.util.find_library("seccomp"), reason="libseccomp is not installed")
def test_a_run_needs_no_system_call_that_the_unit_forbids(units, tmp_path):
    confined = [sys.executable, Path(__file__).with_name("confined.py"), UNIT]
    code = "import os\ntry: os.chroot('/')\nexcept PermissionError: print('confined')"
    done = subprocess.run(
        [*confined, sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "confined\n"
    job = tmp_path / "job.json"
    job.write_text(tiny("fedavg", net="resnet10t", options={"rounds": 1}).model_dump_json())
    code = "import sys; from fedward.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [
        *confined,
        sys.executable,
        "-c",
        code,
        "run",
        job,
        "--out",
        tmp_path / "run",
        "--sites",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.safetensors").exists()
