"""FLARE's session in a process of its own, which is killed if the server does not answer in time.

FLARE's threads wait for ever for a server that stands still, even while a session is being closed,
and nothing in the same process can end them. Questions and answers go through pipes, one line of
JSON each. What FLARE prints goes into a log of that process. If the process dies, the error quotes
the end of this log.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from nvflare.fuel.flare_api import api_spec
from nvflare.fuel.flare_api.api_spec import ClientInfo, JobInfo, ServerInfo, SystemInfo

from fedward.errors import RunError
from fedward.flare.kits.kit import open_kit

PROCESS = "fedward.flare.jobs.session_process"
"""Module of the process."""

LOGIN = 45.0
"""Seconds for a login, the start of its process included. FLARE itself gives up after 10."""

ANSWER = 30.0
"""Seconds for an answer. FLARE itself gives up after 5."""

UPLOAD = 300.0
"""Seconds for a job on its way to the server."""

STANDSTILL = 60.0
"""Seconds without a further byte after which a download is given up.

The server also needs this time to pack the results."""

_GOODBYE = 3.0
"""Seconds for a logout and the end of the process."""

_UNREACHED = {"NoConnection", "SessionClosed", "InternalError", "FLCommunicationError"}
"""FLARE's exceptions if the server cannot be reached, or was started again in the meantime."""

_LOGIN_ANSWER = "the login"
"""Name of the process's first answer, for which there is no question."""


class UnreachableError(RunError):
    """The server does not answer; its jobs may go on."""


class RemoteSession:
    """A FLARE session with the methods, answers and exceptions of FLARE's own.

    A context manager: when it ends, its process has ended, whatever FLARE waits for.

    Args:
        kit: startup kit of a user.

    Raises:
        ConfigError: the folder is not the kit of a user.
        UnreachableError: the server does not answer in time, or does not accept the kit. Every
            method raises it too if the server cannot be reached, and the session cannot be used
            after that.
    """

    def __init__(self, kit: Path) -> None:
        self._where = f"startup kit {kit}"
        self._kit = kit
        user = open_kit(kit, "user").name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._answers, writing_end = os.pipe()
        self._unread = b""  # What has come after the last whole line.
        self._process: subprocess.Popen[bytes] | None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROCESS, user, str(kit), str(writing_end)],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[writing_end],
                # The process imports nothing from the working directory.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                # Ctrl-C does not reach the process, and all its children can be killed at once.
                start_new_session=True,
            )
        finally:
            os.close(writing_end)
        try:
            self._answer(_LOGIN_ANSWER, self._within(LOGIN))
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> "RemoteSession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Log out if that is quick, and end the process."""
        if not self._process:
            return
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()  # At the end of its input the process logs out.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GOODBYE)
        self._kill()

    def get_job_meta(self, job_id: str) -> dict[str, Any]:
        """Return what FLARE knows of a job."""
        return dict(self._ask("get_job_meta", job_id))

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return all jobs of the server's store, each with id, name and status."""
        return list(self._ask("list_jobs"))

    def get_system_info(self) -> SystemInfo:
        """Return the server's start, the connected sites and the jobs that run."""
        info = self._ask("get_system_info")
        server = ServerInfo(info["status"], info["start_time"])
        clients = [ClientInfo(row["name"], row["last_connect_time"]) for row in info["clients"]]
        jobs = [JobInfo(row["job_id"], row["app_name"]) for row in info["jobs"]]
        return SystemInfo(server, clients, jobs)

    def get_connected_client_list(self) -> list[ClientInfo]:
        """Return the connected sites."""
        return list(self.get_system_info().client_info)

    def get_client_job_status(self) -> list[dict[str, Any]] | None:
        """Return a row for each job of each site that answers; None if none does."""
        rows = self._ask("get_client_job_status")
        return None if rows is None else list(rows)

    def show_stats(self, job_id: str, target_type: str) -> dict[str, Any]:
        """Return the statistics of a running job, by target."""
        return dict(self._ask("show_stats", job_id, target_type) or {})

    def submit_job(self, folder: str) -> str:
        """Submit a job folder and return the job's id."""
        return str(self._ask("submit_job", str(Path(folder).resolve()), within=UPLOAD))

    def clone_job(self, job_id: str) -> str:
        """Submit a job of the server's store once more and return the new job's id."""
        return str(self._ask("clone_job", job_id))

    def abort_job(self, job_id: str) -> None:
        """Stop a job."""
        self._ask("abort_job", job_id)

    def delete_job(self, job_id: str) -> None:
        """Remove a job from the server's store."""
        self._ask("delete_job", job_id)

    def download_job_result(self, job_id: str, out: str) -> str:
        """Fetch a job's results into the folder ``out`` and return the folder that they are in."""
        growing = _GrowingFiles([self._kit / "transfer", Path(out) / job_id])
        self._send("download_job_result", job_id, str(Path(out).resolve()))
        return str(self._answer(f"results of job {job_id}", growing))

    def _ask(self, name: str, *arguments: str, within: float | None = None) -> Any:
        self._send(name, *arguments)
        return self._answer(name, self._within(within or ANSWER))

    def _send(self, name: str, *arguments: str) -> None:
        if not self._process:
            raise self._unreachable("an open session", "one that was given up")
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._died(name) from error

    def _answer(self, name: str, seconds_left: Callable[[], float]) -> Any:
        """Return the answer to the last question.

        Args:
            name: the question's, for errors.
            seconds_left: returns how much longer to wait.

        Raises:
            UnreachableError: the answer does not come in time, or is that there is no server.
            Exception: FLARE's own, for any other error.
        """
        answer = json.loads(self._line(name, seconds_left))
        if "error" not in answer:
            return answer["answer"]
        kind, text = answer["error"]
        if name == _LOGIN_ANSWER and kind in {*_UNREACHED, "AuthenticationError"}:
            raise self._unreachable("a server that accepts it", text)
        if kind in _UNREACHED:
            raise self._unreachable("an answer from the server", f"{kind}: {text}")
        raise _exception(kind, text)

    def _line(self, name: str, seconds_left: Callable[[], float]) -> bytes:
        """Return the next whole line of the process; kill the process if none comes in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = seconds_left()
                if left <= 0:
                    self._kill()
                    problem = f"none to {name} in time; it may stand still"
                    raise self._unreachable("an answer from the server", problem)
                if selector.select(min(left, 1.0)):
                    received = os.read(self._answers, 1 << 16)
                    if not received:
                        raise self._died(name)
                    self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    @staticmethod
    def _within(seconds: float) -> Callable[[], float]:
        """Return a function that returns how many seconds of a period from now are left."""
        end = time.monotonic() + seconds
        return lambda: end - time.monotonic()

    def _died(self, name: str) -> UnreachableError:
        """Return the error about a process that has ended by itself, with the end of its log."""
        self._log.seek(0)
        end_of_log = self._log.read()[-1000:].decode(errors="replace").strip()
        last_lines = " ".join(end_of_log.splitlines()[-3:])
        self._kill()
        problem = f"its process ended at {name}: {last_lines or 'no word'}"
        return self._unreachable("an answer from FLARE", problem)

    def _unreachable(self, expected: str, found: str) -> UnreachableError:
        remedy = (
            "Check that the server runs, and the kit with `fedward doctor KIT`. "
            "Jobs at the server may go on."
        )
        return UnreachableError(self._where, expected=expected, found=found, remedy=remedy)

    def _kill(self) -> None:
        """End the process and all that it started, at once."""
        process = self._process
        if not process:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdin
        with suppress(OSError):
            process.stdin.close()
        os.close(self._answers)
        self._log.close()
        self._process = None


class _GrowingFiles:
    """Returns how many seconds longer to wait for files that are arriving.

    That is ``STANDSTILL`` from when they last grew.

    Args:
        folders: where they arrive; need not exist.
    """

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._bytes = -1
        self._since = time.monotonic()

    def __call__(self) -> float:
        total_bytes = sum(_size(path) for folder in self._folders for path in folder.rglob("*"))
        if total_bytes != self._bytes:
            self._bytes = total_bytes
            self._since = time.monotonic()
        return self._since + STANDSTILL - time.monotonic()


def _size(path: Path) -> int:
    with suppress(OSError):  # It has been moved in the meantime.
        return path.lstat().st_size
    return 0


def _exception(kind: str, text: str) -> Exception:
    """Return FLARE's exception of that name; a RuntimeError if sessions have no such one."""
    exception = getattr(api_spec, kind, None)
    if isinstance(exception, type) and issubclass(exception, Exception):
        return exception(text)
    return RuntimeError(text if kind == "RuntimeError" else f"{kind}: {text}")
