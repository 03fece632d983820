"""Job processes that are started again when something kills them.

FLARE fails the whole job when one of its processes dies. These launchers stand in a kit's resources
in place of FLARE's own, and start the same command again. A site is then sent the task again that
it did not answer, and the server's process continues its run folder, so that the weights are those
of an undisturbed run.
"""

import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle, ProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.utils.job_launcher_utils import get_credential_env
from nvflare.utils.process_utils import spawn_process

from fedward.flare.job_process import guarded

RESTARTS = "FEDWARD_RESTARTS"
"""Environment variable of a job process: how often it was started again."""

ARENAS = ("MALLOC_ARENA_MAX", "2")
"""FLARE's hundreds of threads would spread freed memory over many arenas of the C library, which
keeps it: the server then grows for hours (docs/results/performance.md). A value that is set already
stands."""

OFFLINE = ("HF_HUB_OFFLINE", "1")
"""A job may name a network of timm with its weights: they come from timm's cache, and no process
connects to the hub. A value that is set already stands."""

_MOST = 3
_WITHIN = 3600.0
"""Restarts of a process within so many seconds; what dies more often dies for a reason that a
restart does not fix.
"""

_WANTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which people and service managers end a process; FLARE reports SIGHUP for one it lost
track of.
"""


class _Restarting(ProcessJobLauncher):  # type: ignore[misc]
    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> "RestartedProcess":
        """Start a job's process; FLARE calls this once for each job."""
        command = guarded(shlex.split(self.get_command(job_meta, fl_ctx)))
        kit = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())
        credentials = get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})
        environment = job_environment(os.environ, kit) | credentials

        def launch(restarts: int) -> ProcessHandle:
            return ProcessHandle(
                process_adapter=spawn_process(command, {**environment, RESTARTS: str(restarts)})
            )

        def say(text: str) -> None:
            self.logger.error(f"job {job_meta.get('job_id')}: {text}")

        return RestartedProcess(launch, say)


def job_environment(environment: Mapping[str, str], kit: Path) -> dict[str, str]:
    """Return the environment of a job's process, which imports nothing from its working directory
    or its kit.

    Nor does it download weights (:data:`OFFLINE`).

    FLARE's own launchers hand over the parent's ``sys.path``, and with it the kit, where the files
    of all jobs lie.

    Args:
        environment: the parent's; of its PYTHONPATH remain the absolute folders outside the kit.
        kit: the kit's folder.
    """
    folders = [Path(folder) for folder in environment.get("PYTHONPATH", "").split(os.pathsep)]
    kept = [
        path
        for path in folders
        if path.is_absolute() and not path.resolve().is_relative_to(kit.resolve())
    ]
    own = {"PYTHONPATH": os.pathsep.join(map(str, kept)), "PYTHONSAFEPATH": "1"}
    return {**dict([ARENAS, OFFLINE]), **environment, **own}


class SiteJobLauncher(_Restarting, ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a site's processes."""


class ServerJobLauncher(_Restarting, ServerProcessJobLauncher):  # type: ignore[misc]
    """Starts the server's processes."""


class RestartedProcess(ProcessHandle):  # type: ignore[misc]
    """A process that is started again when a signal kills it that nobody sends on purpose.

    Args:
        launch: starts the process, given how often that was done before, and returns its handle.
        say: receives a line for each restart.
    """

    adapter: Any
    """FLARE's view of the process that runs now."""

    def __init__(self, launch: Callable[[int], ProcessHandle], say: Callable[[str], None]) -> None:
        self._launch = launch
        self._say = say
        self._changing = threading.Lock()
        self._unwanted = False
        self._restarts: list[float] = []
        super().__init__(process_adapter=launch(0).adapter)

    def terminate(self) -> None:
        """End the process for good."""
        with self._changing:
            self._unwanted = True
            super().terminate()

    def wait(self) -> None:
        """Wait until the process has ended and is not started again."""
        super().wait()
        while self._restarted():
            super().wait()

    def _restarted(self) -> bool:
        code = self.adapter.poll()
        with self._changing:
            if self._unwanted or code is None or code >= 0 or -code in _WANTED:
                return False
            name = signal.Signals(-code).name
            now = time.monotonic()
            if sum(now - earlier < _WITHIN for earlier in self._restarts) == _MOST:
                self._say(
                    f"its process was killed by {name} again, after {_MOST} restarts; it is given up"
                )
                return False
            self._restarts.append(now)
            self._say(f"its process was killed by {name}; restart {len(self._restarts)}")
            self.adapter = self._launch(len(self._restarts)).adapter
        return True
