"""Processes that are started again: which ends count as accidents, and when a launcher gives up."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs, JobReturnCode
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
from nvflare.utils.process_utils import ProcessAdapter

from fedward.flare.job_process import MODULES
from fedward.flare.launchers import (
    RestartedProcess,
    ServerJobLauncher,
    SiteJobLauncher,
    job_environment,
)

DIE = "import os, sys; os.kill(os.getpid(), int(sys.argv[1]))"
END = "import sys; sys.exit(int(sys.argv[1]))"


class Launches:
    """Starts one program after the other, and keeps the lines that are printed."""

    def __init__(self, *programs: tuple[str, int]) -> None:
        self.programs = programs
        self.started = []
        self.lines = []

    def __call__(self, restarts: int) -> ProcessHandle:
        self.started.append(restarts)
        program, argument = self.programs[restarts]
        return ProcessHandle(
            process=subprocess.Popen(
                [sys.executable, "-c", program, str(argument)], start_new_session=True
            )
        )

    def process(self) -> RestartedProcess:
        return RestartedProcess(self, self.lines.append)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_killed_process_is_started_again(number):
    launches = Launches((DIE, number), (DIE, number), (END, 0))
    process = launches.process()
    process.wait()
    assert launches.started == [0, 1, 2]
    assert process.poll() == JobReturnCode.SUCCESS
    assert [line.split("; ") for line in launches.lines] == [
        [f"its process was killed by {number.name}", f"restart {count}"] for count in (1, 2)
    ]


def test_a_real_time_signal_has_a_number_alone():
    launches = Launches((DIE, signal.SIGRTMIN + 6), (END, 0))
    launches.process().wait()
    assert launches.lines == [f"its process was killed by signal {signal.SIGRTMIN + 6}; restart 1"]


def test_after_three_restarts_within_an_hour_it_is_given_up():
    launches = Launches(*[(DIE, signal.SIGKILL)] * 4)
    process = launches.process()
    process.wait()
    assert launches.started == [0, 1, 2, 3]
    assert "given up" in launches.lines[-1]
    assert process.poll() == JobReturnCode.EXECUTION_ERROR


def test_restarts_of_earlier_hours_do_not_count(monkeypatch):
    clock = iter([0.0, 1200.0, 2400.0, 3700.0, 3710.0])
    monkeypatch.setattr(
        "fedward.flare.launchers.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    launches = Launches(*[(DIE, signal.SIGKILL)] * 5)
    launches.process().wait()
    assert launches.started == [0, 1, 2, 3, 4]
    assert "given up" in launches.lines[-1]


def test_a_restart_that_fails_ends_the_process_for_good():
    """An error would end FLARE's thread, and the job would run for ever without a process."""
    launches = Launches((DIE, signal.SIGKILL))

    def launch(restarts: int) -> ProcessHandle:
        if restarts:
            raise BlockingIOError("no more processes")
        return launches(restarts)

    process = RestartedProcess(launch, launches.lines.append)
    process.wait()
    assert launches.lines == [
        "its process was killed by SIGKILL; restart 1",
        "restart 1 failed: no more processes; it is given up",
    ]
    assert process.poll() == JobReturnCode.EXECUTION_ERROR


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_end_that_somebody_wanted_is_the_end(number):
    launches = Launches(
        ("import os, signal, sys; signal.signal(int(sys.argv[1]), signal.SIG_DFL);" + DIE, number)
    )
    launches.process().wait()
    assert launches.started == [0]
    assert launches.lines == []


@pytest.mark.parametrize("code", [0, 1, 101])
def test_an_exit_is_the_end_whatever_its_code(code):
    """FLARE's own errors end in an exit code: to repeat them helps nobody."""
    launches = Launches((END, code))
    launches.process().wait()
    assert launches.started == [0]
    assert launches.lines == []


def test_a_terminated_process_stays_down():
    """FLARE ends a job that does not end by itself with SIGKILL, too."""
    launches = Launches(("import time; time.sleep(60)", 0))
    process = launches.process()
    process.terminate()
    process.wait()
    assert launches.started == [0]
    assert launches.lines == []


def test_a_killed_process_of_a_stopped_job_stays_down():
    """FLARE stops a job in the moment in which the system kills its process."""
    launches = Launches((DIE, signal.SIGKILL), (END, 0))
    process = launches.process()
    while process.adapter.poll() is None:
        time.sleep(0.01)
    process.terminate()
    process.wait()
    assert launches.started == [0]
    assert launches.lines == []


@pytest.mark.parametrize("handle", ["process", "pid"])
def test_a_process_that_has_ended_is_not_terminated(monkeypatch, handle):
    """FLARE terminates every stopped job some seconds later, when its number may be another's."""
    program = [sys.executable, "-c", "pass"]

    def launch(_: int) -> ProcessHandle:
        started = subprocess.Popen(program, start_new_session=True)
        return ProcessHandle(**{handle: started if handle == "process" else started.pid})

    process = RestartedProcess(launch, print)
    process.wait()
    killed = []
    monkeypatch.setattr(os, "getpgid", lambda number: number)
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    process.terminate()
    assert killed == []
    assert process.poll() == JobReturnCode.SUCCESS


def launched(launcher, kit):
    """Return what FLARE waits for, of a job in a kit."""
    context = FLContext()
    context.set_prop(FLContextKey.WORKSPACE_OBJECT, SimpleNamespace(get_root_dir=lambda: str(kit)))
    context.set_prop(
        FLContextKey.JOB_PROCESS_ARGS, {JobProcessArgs.AUTH_TOKEN: ("-t", "the token")}
    )
    return launcher.launch_job({"job_id": "42"}, context)


def test_each_process_knows_how_often_it_was_started_again(monkeypatch, tmp_path):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    seen = []

    class Launcher(SiteJobLauncher):
        def get_command(self, job_meta, fl_ctx):
            return ""

    def spawn(argv, environment):
        seen.append((environment["FEDWARD_RESTARTS"], environment["MALLOC_ARENA_MAX"]))
        process = subprocess.Popen(
            [sys.executable, "-c", DIE if len(seen) < 3 else END, "9" if len(seen) < 3 else "0"]
        )
        return ProcessAdapter(process=process)

    monkeypatch.setattr("fedward.flare.launchers.spawn_process", spawn)
    launched(Launcher(), tmp_path).wait()
    assert seen == [("0", "2"), ("1", "2"), ("2", "2")]


TELL = """\
import importlib, json, os, sys
found = []
for name in ["evil", "job.app_hospital.config.evil", "inner.evil"]:
    try:
        importlib.import_module(name)
        found.append(name)
    except ImportError:
        pass
token = os.environ["NVFLARE_JOB_AUTH_TOKEN"]
with open(sys.argv[1], "w") as file:
    json.dump({"found": found, "path": sys.path, "token": token}, file)
"""


@pytest.mark.proves(
    "lead",
    "packages in `custom` that torch, MONAI and FLARE look for, or a Python file in a kit or job",
    "not imported, also by a restarted process",
)
@pytest.mark.parametrize("given", ["", "{kit}", ":", ".", "{kit}/local/custom::{outside}"])
def test_a_jobs_process_imports_nothing_from_its_kit(monkeypatch, tmp_path, given):
    kit = tmp_path / "kit"
    outside = tmp_path / "outside"
    for folder in (kit, kit / "job" / "app_hospital" / "config", kit / "inner"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "evil.py").write_text("")
    outside.mkdir()
    tell = tmp_path / "program" / "tell.py"
    tell.parent.mkdir()
    tell.write_text(TELL)
    monkeypatch.setenv("PYTHONPATH", given.format(kit=kit, outside=outside))
    # As in the parent's process, whose path FLARE would hand over.
    monkeypatch.syspath_prepend(str(kit))
    monkeypatch.chdir(kit)

    class Launcher(SiteJobLauncher):
        def get_command(self, job_meta, fl_ctx):
            return f"{sys.executable} {tell} {tmp_path}/report.json"

    launched(Launcher(), kit).wait()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["found"] == []
    assert not [
        folder for folder in report["path"] if folder == "" or Path(folder).is_relative_to(kit)
    ]
    assert (str(outside) in report["path"]) is ("{outside}" in given)
    assert report["token"] == "the token"


# --- downloads

NETWORK = "from fedward.nets import build; build('resnet18', 3, pretrained=True)"
"""Makes a network with timm's weights, which are missing."""
HUB = "from huggingface_hub import hf_hub_download; hf_hub_download('timm/resnet18', 'a')"
"""Asks the hub as timm does, in a tenth of the time."""


def connects(code: str, folder: Path, environment: dict[str, str]) -> tuple[bool, str]:
    """Return whether a program connects to anything, at which it is ended, and its errors."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        place = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), place)
        caches = {
            "HF_HOME": str(folder / "hub"),
            "TORCH_HOME": str(folder / "torch"),
            "NO_PROXY": "",
            "no_proxy": "",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**environment, **proxies, **caches},
            stderr=subprocess.PIPE,
            text=True,
        )
        proxy.settimeout(0.2)
        connected = False
        while process.poll() is None and not connected:
            with suppress(TimeoutError):
                proxy.accept()[0].close()
                connected = True
        process.kill()
        return connected, process.communicate()[1]


def test_a_job_lets_nobody_download_weights(tmp_path):
    """The lead names them; a hospital that wants them from the hub says so."""
    outside = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    closed = job_environment(outside, tmp_path / "kit")
    connected, errors = connects(NETWORK, tmp_path / "closed", closed)
    assert not connected
    assert "Put weights of resnet18 into timm's cache on this machine first" in errors
    wanted = job_environment({**outside, "HF_HUB_OFFLINE": "0"}, tmp_path / "kit")
    assert connects(HUB, tmp_path / "wanted", wanted)[0]


@pytest.mark.parametrize("name", ["a b", "a#b", "o'k", "röntgen 50%"])
@pytest.mark.parametrize("launcher", [SiteJobLauncher, ServerJobLauncher])
def test_a_kits_path_stays_whole_in_the_command(monkeypatch, name, launcher):
    python = f"/{name}/bin/python"
    monkeypatch.setattr(sys, "executable", python)
    arguments = {
        JobProcessArgs.EXE_MODULE: ("-m", MODULES[0]),
        JobProcessArgs.WORKSPACE: ("-m", f"/kits/{name}"),
        JobProcessArgs.STARTUP_DIR: ("-w", f"/kits/{name}/startup"),
        JobProcessArgs.APP_ROOT: ("-r", f"/kits/{name}/42/app"),
        JobProcessArgs.OPTIONS: ("--set", "secure_train=true org=hospital_a"),
    }
    words = launcher()._words({}, arguments)
    ours = "-w" if launcher is SiteJobLauncher else "-r"
    folder = "startup" if launcher is SiteJobLauncher else "42/app"
    assert words == [
        *(python, "-m", MODULES[0], "-m", f"/kits/{name}", ours, f"/kits/{name}/{folder}"),
        *("--set", "secure_train=true", "org=hospital_a"),
    ]
