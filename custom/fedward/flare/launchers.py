"""Launchers that start a job's process again when something kills it.

FLARE fails the whole job when one of its processes dies. A kit's resources name these launchers in
place of FLARE's own; they start the same command again. FLARE then sends a site the task that it
did not answer once more, and the server's process continues its run folder, so that the weights are
those of an undisturbed run.
"""

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle, ProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.utils.job_launcher_utils import get_credential_env
from nvflare.utils.process_utils import spawn_process

from fedward.flare.job_process import guarded

RESTARTS = "FEDWARD_RESTARTS"
"""Environment variable of a job process: how often it was started again."""

ARENAS = ("MALLOC_ARENA_MAX", "2")
"""Name and default of an environment variable that limits the arenas of the C library.

FLARE's hundreds of threads would spread freed memory over many arenas, and the library keeps it:
the server then grows for hours (docs/results/performance.md)."""

OFFLINE = ("HF_HUB_OFFLINE", "1")
"""Name and default of an environment variable that keeps processes from the hub of models.

A job may name a network of timm with its weights. They come from timm's cache."""

JobArguments = Mapping[str, tuple[str, str]]
"""FLARE's name of an argument of a job's process -> its option, and its value."""

_PATHS = (JobProcessArgs.WORKSPACE, JobProcessArgs.STARTUP_DIR, JobProcessArgs.APP_ROOT)
"""The arguments that are paths below a kit."""

_MOST_RESTARTS = 3
_RESTART_PERIOD = 3600.0
"""A process is started again so often within so many seconds.

One that dies more often dies for a reason that a restart does not remove."""

_ENDED_ON_PURPOSE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which people and service managers end a process.

FLARE reports SIGHUP for a process that it lost track of."""


class _Restarting(ProcessJobLauncher):  # type: ignore[misc]
    """The part that the launchers of a site and of the server have in common."""

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> "RestartedProcess":
        """Start a job's process; FLARE calls this once for each job."""
        arguments = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {}
        command = guarded(self._words(job_meta, arguments))
        kit = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())
        credentials = get_credential_env(arguments)
        environment = job_environment(os.environ, kit) | credentials

        def launch(restarts: int) -> ProcessHandle:
            adapter = spawn_process(command, {**environment, RESTARTS: str(restarts)})
            return ProcessHandle(process_adapter=adapter)

        def say(text: str) -> None:
            self.logger.error(f"job {job_meta.get('job_id')}: {text}")

        return RestartedProcess(launch, say)

    def _words(self, job_meta: dict[str, Any], arguments: JobArguments) -> list[str]:
        """Return the words of FLARE's command, each path as one word.

        FLARE writes the command as one text without quotes, which a path with a space would break.
        """
        quoted = dict(arguments)
        for name in _PATHS:
            if name in quoted:
                option, path = quoted[name]
                quoted[name] = (option, shlex.quote(path))
        context = FLContext()
        context.set_prop(FLContextKey.JOB_PROCESS_ARGS, quoted)
        command = self.get_command(job_meta, context)
        return [sys.executable, *shlex.split(command.removeprefix(sys.executable))]


def job_environment(environment: Mapping[str, str], kit: Path) -> dict[str, str]:
    """Return the environment of a job's process.

    The process imports nothing from its working directory or its kit, and downloads no weights
    (:data:`OFFLINE`). FLARE's own launchers hand over the parent's ``sys.path``, and with it the
    kit, where the files of all jobs lie.

    Args:
        environment: the parent's. Of its PYTHONPATH, absolute folders outside the kit remain. Its
            values of :data:`ARENAS` and :data:`OFFLINE` take precedence over ours.
        kit: the kit's folder.
    """
    kit = kit.resolve()
    safe_folders = []
    for name in environment.get("PYTHONPATH", "").split(os.pathsep):
        folder = Path(name)
        if folder.is_absolute() and not folder.resolve().is_relative_to(kit):
            safe_folders.append(str(folder))
    return {
        **dict([ARENAS, OFFLINE]),
        **environment,
        "PYTHONPATH": os.pathsep.join(safe_folders),
        "PYTHONSAFEPATH": "1",
    }


class SiteJobLauncher(_Restarting, ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a site's processes."""


class ServerJobLauncher(_Restarting, ServerProcessJobLauncher):  # type: ignore[misc]
    """Starts the server's processes."""


def _signal_name(number: int) -> str:
    """Return what a signal is called; real-time signals have numbers alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class RestartedProcess(ProcessHandle):  # type: ignore[misc]
    """A process that is started again when a signal kills it that nobody sends on purpose.

    Args:
        launch: starts the process and returns its handle; its argument is the number of restarts.
        say: receives a line for each restart.
    """

    adapter: Any
    """FLARE's view of the process that runs now."""

    def __init__(self, launch: Callable[[int], ProcessHandle], say: Callable[[str], None]) -> None:
        self._launch = launch
        self._say = say
        self._changing = threading.Lock()
        self._terminated = False
        self._restart_times: list[float] = []
        super().__init__(process_adapter=launch(0).adapter)

    def terminate(self) -> None:
        """End the process for good."""
        with self._changing:
            self._terminated = True
            # FLARE also calls this after the end. The number may be another process's by then.
            if self.adapter.poll() is None:
                super().terminate()

    def wait(self) -> None:
        """Wait until the process has ended and is not started again."""
        super().wait()
        while self._restarted():
            super().wait()

    def _restarted(self) -> bool:
        """Start the process again if a signal killed it; return whether it was started."""
        code = self.adapter.poll()
        with self._changing:
            was_killed = code is not None and code < 0
            if self._terminated or not was_killed or -code in _ENDED_ON_PURPOSE:
                return False
            name = _signal_name(-code)
            now = time.monotonic()
            recent_restarts = sum(now - then < _RESTART_PERIOD for then in self._restart_times)
            if recent_restarts == _MOST_RESTARTS:
                self._say(
                    f"its process was killed by {name} again, after {_MOST_RESTARTS} restarts; "
                    "it is given up"
                )
                return False
            self._restart_times.append(now)
            restarts = len(self._restart_times)
            self._say(f"its process was killed by {name}; restart {restarts}")
            try:
                self.adapter = self._launch(restarts).adapter
            except OSError as error:
                # FLARE would wait for this job for ever if the error ended its thread.
                self._say(f"restart {restarts} failed: {error}; it is given up")
                return False
        return True
