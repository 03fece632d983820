"""A job's process imports nothing from the job, though libraries look for optional packages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedward.flare.job_process import MODULES, guarded

LOOKS_IN_VAIN = """
import importlib.abc, json, sys

class Missing(importlib.abc.MetaPathFinder):
    names = set()
    def find_spec(self, name, path, target=None):
        if path is None:
            self.names.add(name)

sys.meta_path.append(Missing())
import torch, monai
import nvflare.private.fed.app.client.worker_process
import fedward.flare.executor, fedward.flare.launchers
torch.cuda.is_available(), torch.cuda.device_count()
print(json.dumps(sorted(Missing.names)))
"""
"""Prints the names of missing packages that a site's job process tries to import."""

STARTED = """
import sys
from nvflare.utils.job_launcher_utils import refresh_custom_dir_import_path
refresh_custom_dir_import_path(sys.argv[1])
import torch, monai
import nvflare.private.fed.app.client.worker_process
import fedward.flare.executor, fedward.flare.launchers
torch.cuda.is_available(), torch.cuda.device_count()
print(sys.argv[1] in sys.path)
"""
"""Begins as FLARE's processes do: the first argument is the app's folder ``custom``."""


@pytest.fixture(scope="module")
def optional() -> list[str]:
    return json.loads(python("-c", LOOKS_IN_VAIN).splitlines()[-1])


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def planted(folder: Path, names: list[str]) -> tuple[Path, Path]:
    """Put a package of each name into a folder ``custom``; each leaves a mark if imported."""
    custom = folder / "custom"
    marks = folder / "marks"
    marks.mkdir()
    for name in names:
        (custom / name).mkdir(parents=True)
        (custom / name / "__init__.py").write_text(
            f"open({str(marks / name)!r}, 'w').close()\nraise ModuleNotFoundError\n"
        )
    return custom, marks


@pytest.mark.slow
@pytest.mark.proves(
    "lead",
    "packages in `custom` that torch, MONAI and FLARE look for, or a Python file in a kit or job",
    "not imported, also by a restarted process",
)
def test_no_optional_package_comes_from_the_job(optional, tmp_path):
    assert {"pynvml"} <= set(optional)
    program = tmp_path / "fedward_test_started.py"
    program.write_text(STARTED)
    custom, marks = planted(tmp_path, optional)
    # The planted packages may well break the process.
    subprocess.run([sys.executable, program, custom], capture_output=True, check=False)
    assert {"pynvml"} <= {mark.name for mark in marks.iterdir()}
    for mark in marks.iterdir():
        mark.unlink()
    start = (
        "import sys; from fedward.flare import job_process; "
        f"sys.path.insert(0, {str(tmp_path)!r}); "
        f"sys.argv = ['', 'fedward_test_started', {str(custom)!r}]; "
        "job_process.MODULES = ('fedward_test_started',); job_process.main()"
    )
    assert python("-c", start).splitlines()[-1] == "False"
    assert list(marks.iterdir()) == []


def test_a_launcher_puts_the_guard_before_flares_module():
    command = ["python3", "-u", "-m", MODULES[0], "-m", "/kit", "-n", "job"]
    assert guarded(command) == ["python3", "-u", "-m", "fedward.flare.job_process", *command[3:]]
    assert guarded(["true"]) == ["true"]


@pytest.mark.proves(
    "server",
    "messages to a job's process in a pod while it fetches its files",
    "refused as later ones: the gate is there before the process opens a connection",
)
def test_the_gate_is_there_before_flares_module_runs(tmp_path):
    (tmp_path / "fedward_test_gated.py").write_text(
        "from nvflare.fuel.f3.cellnet.core_cell import CoreCell\n"
        "print(CoreCell._process_received_msg.__module__)\n"
    )
    start = (
        "import sys; from fedward.flare import job_process; "
        f"sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['', 'fedward_test_gated']; "
        "assert not set(job_process.MODULES) & set(sys.modules); "
        "job_process.MODULES = ('fedward_test_gated',); job_process.main()"
    )
    assert python("-c", start).splitlines()[-1] == "fedward.flare.gate.hooks"


def test_another_module_is_not_started():
    done = subprocess.run(
        [sys.executable, "-m", "fedward.flare.job_process", "http.server"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "found 'http.server'" in done.stderr
