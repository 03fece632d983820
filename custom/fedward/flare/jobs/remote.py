"""FLARE's session in a process of its own, which is killed if the server does not answer in time.

FLARE's threads wait for ever for a server that stands still, even while a session is being closed,
and nothing in the same process can end them. Questions and answers go through pipes, as one line of
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
from fedward.runs.standing import continuing
from fedward.terminal import one_line

PROCESS_MODULE = "fedward.flare.jobs.session_process"
"""Module that the session's process runs."""

CONNECT_SECONDS = 10.0
"""Seconds in which the session's process has to reach the server."""

LOGIN_SECONDS = 45.0
"""The most seconds for a login: the start of its process, and :data:`CONNECT_SECONDS`."""

ANSWER_SECONDS = 30.0
"""The most seconds for an answer; FLARE gives up after 5."""

UPLOAD_SECONDS = 300.0
"""The most seconds for the upload of a job to the server."""

STANDSTILL_SECONDS = 60.0
"""Seconds without a further byte after which a download is given up.

The server also needs this time to pack the results."""

LOGOUT_SECONDS = 2.0
"""Seconds from the end of the process's input to its own end."""

_KILL_SECONDS = LOGOUT_SECONDS + 1.0
"""Seconds from the end of the process's input to when it is killed."""

_UNREACHABLE_EXCEPTIONS = {"NoConnection", "SessionClosed", "InternalError", "FLCommunicationError"}
"""Names of FLARE's exceptions for a server that cannot be reached or has been restarted."""

_LOGIN_QUESTION = "the login"
"""What errors call the process's first answer, which it gives without a question."""


class UnreachableError(RunError):
    """The server does not answer; its jobs may go on."""


class NotTakenError(RunError):
    """This machine does not take what the server sends: it is unsafe, or there is no room for it.

    Another job would end no better.
    """


class UnsafeAnswerError(Exception):
    """The server's answer is one that no server of FLARE gives; the session's process raises it."""


class NoRoomError(Exception):
    """The disk has no room for results; the session's process raises it."""


class RemoteSession:
    """A FLARE session with the methods, answers and exceptions of FLARE's own session.

    It is a context manager. At the end of the ``with`` block its process has ended, whatever FLARE
    still waits for.

    Args:
        kit: startup kit of a user.

    Raises:
        ConfigError: the folder is not the kit of a user.
        UnreachableError: the server does not answer in time, or does not accept the kit. Every
            method raises it too if the server cannot be reached, and the session cannot be used
            after that.
    """

    def __init__(self, kit: Path) -> None:
        self._kit_description = f"startup kit {kit}"
        self._kit = kit
        user = open_kit(kit, "user").name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._answer_pipe, writing_end = os.pipe()
        self._received = b""  # Bytes that came after the last whole line.
        self._process: subprocess.Popen[bytes] | None  # None once the session has ended.
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROCESS_MODULE, user, str(kit), str(writing_end)],
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
            # Only the process holds this end now, so that reading ends when the process does.
            os.close(writing_end)
        try:
            self._answer(_LOGIN_QUESTION, self._countdown(LOGIN_SECONDS))
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> "RemoteSession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
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
            self._process.wait(_KILL_SECONDS)
        self._kill()

    def get_job_meta(self, job_id: str) -> dict[str, Any]:
        """Return what FLARE knows about a job."""
        return dict(self._ask("get_job_meta", job_id))

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return all jobs of the server's store, each with id, name and status."""
        return list(self._ask("list_jobs"))

    def get_system_info(self) -> SystemInfo:
        """Return when the server started, the connected sites and the running jobs."""
        info = self._ask("get_system_info")
        server = ServerInfo(info["status"], info["start_time"])
        clients = [ClientInfo(row["name"], row["last_connect_time"]) for row in info["clients"]]
        jobs = [JobInfo(row["job_id"], row["app_name"]) for row in info["jobs"]]
        return SystemInfo(server, clients, jobs)

    def get_connected_client_list(self) -> list[ClientInfo]:
        """Return the connected sites."""
        return list(self.get_system_info().client_info)

    def get_client_job_status(self) -> list[dict[str, Any]] | None:
        """Return a row for each job of each site that answers; None if no site does."""
        rows = self._ask("get_client_job_status")
        return None if rows is None else list(rows)

    def show_stats(self, job_id: str, target_type: str) -> dict[str, Any]:
        """Return the statistics of a running job, by target."""
        return dict(self._ask("show_stats", job_id, target_type) or {})

    def submit_job(self, folder: str) -> str:
        """Submit a job folder and return the job's id."""
        return str(self._ask("submit_job", str(Path(folder).resolve()), within=UPLOAD_SECONDS))

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
        """Fetch a job's results into the folder ``out``, and return the folder that holds them."""
        # Files arrive in one or the other of these folders.
        seconds_left = _DownloadTimeout([self._kit / "transfer", Path(out) / job_id])
        self._send("download_job_result", job_id, str(Path(out).resolve()))
        return str(self._answer(f"results of job {job_id}", seconds_left))

    def _ask(self, name: str, *arguments: str, within: float | None = None) -> Any:
        """Call a method of FLARE's session, and return its answer."""
        self._send(name, *arguments)
        return self._answer(name, self._countdown(within or ANSWER_SECONDS))

    def _send(self, name: str, *arguments: str) -> None:
        """Send the process a question: a method of FLARE's session, with its arguments."""
        if not self._process:
            raise self._unreachable("an open session", "one that was given up")
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._process_died(name) from error

    def _answer(self, name: str, seconds_left: Callable[[], float]) -> Any:
        """Return the answer to the last question.

        Args:
            name: what errors call the question.
            seconds_left: returns how much longer to wait.

        Raises:
            UnreachableError: the answer does not come in time, or says that FLARE cannot reach the
                server.
            NotTakenError: the answer is one that no server of FLARE gives, or the disk has no room
                for results.
            Exception: FLARE's own exception, for any other error.
        """
        answer = json.loads(self._next_line(name, seconds_left))
        if "error" not in answer:
            return answer["answer"]
        kind, words = answer["error"]  # Name and text of FLARE's exception.
        text = one_line(words)  # The server may have chosen it.
        if name == _LOGIN_QUESTION and kind in {*_UNREACHABLE_EXCEPTIONS, "AuthenticationError"}:
            raise self._unreachable("a server that accepts it", text)
        if kind == UnsafeAnswerError.__name__:
            raise self._unsafe(name, text)
        if kind == NoRoomError.__name__:
            raise NotTakenError(
                f"disk of {self._kit_description}",
                f"Make room there, and fetch the results again with `{continuing('RUN')}`.",
                expected=f"room for {name}, and a gibibyte besides",
                found=text,
            )
        if kind in _UNREACHABLE_EXCEPTIONS:
            raise self._unreachable("an answer from the server", f"{kind}: {text}")
        raise _exception(kind, text)

    def _next_line(self, name: str, seconds_left: Callable[[], float]) -> bytes:
        """Return the next whole line of the process; kill the process if none comes in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer_pipe, selectors.EVENT_READ)
            while b"\n" not in self._received:
                remaining = seconds_left()
                if remaining <= 0:
                    self._kill()
                    problem = f"none to {name} in time; it may stand still"
                    raise self._unreachable("an answer from the server", problem)
                # At least once a second, because the time left of a download grows with its files.
                if selector.select(min(remaining, 1.0)):
                    chunk = os.read(self._answer_pipe, 1 << 16)
                    if not chunk:
                        raise self._process_died(name)
                    self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line

    @staticmethod
    def _countdown(seconds: float) -> Callable[[], float]:
        """Return a function that says how many seconds are left of a period that begins now."""
        end = time.monotonic() + seconds
        return lambda: end - time.monotonic()

    def _process_died(self, name: str) -> UnreachableError:
        """Return the error for a process that ended by itself; it quotes the end of the log."""
        self._log.seek(0)
        end_of_log = self._log.read()[-1000:].decode(errors="replace").strip()
        last_lines = " ".join(end_of_log.splitlines()[-3:])
        self._kill()
        problem = f"its process ended at {name}: {last_lines or 'no word'}"
        return self._unreachable("an answer from FLARE", problem)

    def _unreachable(self, expected: str, found: str) -> UnreachableError:
        """Return the error for a server or a process that does not answer."""
        remedy = (
            "Check that the server runs, and the kit with `fedward doctor KIT`. "
            "Jobs at the server may go on."
        )
        return UnreachableError(
            self._kit_description, expected=expected, found=found, remedy=remedy
        )

    def _unsafe(self, name: str, found: str) -> NotTakenError:
        """Return the error for an answer by which the server would act on this machine."""
        return NotTakenError(
            f"{self._kit_description}, answer to {name}",
            "No file outside of a job and its results was read or written. Do not use this server, "
            "and tell the consortium.",
            expected="an answer as a server of FLARE gives it",
            found=found,
        )

    def _kill(self) -> None:
        """Kill the process and all that it started, and close what belongs to it."""
        process = self._process
        if not process:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdin
        with suppress(OSError):
            process.stdin.close()
        os.close(self._answer_pipe)
        self._log.close()
        self._process = None


class _DownloadTimeout:
    """Says, when called, how many seconds longer to wait for files that are arriving.

    The time is over ``STANDSTILL_SECONDS`` after the files last changed in size.

    Args:
        folders: folders in which the files arrive; they need not exist.
    """

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._total_bytes = -1
        self._last_change = time.monotonic()

    def __call__(self) -> float:
        total_bytes = 0
        for folder in self._folders:
            # Unlike Path.rglob, it goes on where FLARE removes a folder in the meantime.
            for parent, _, names in os.walk(folder):
                total_bytes += sum(_size(Path(parent, name)) for name in names)
        if total_bytes != self._total_bytes:
            self._total_bytes = total_bytes
            self._last_change = time.monotonic()
        return self._last_change + STANDSTILL_SECONDS - time.monotonic()


def _size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it is gone."""
    with suppress(OSError):  # FLARE may have moved it in the meantime.
        return path.lstat().st_size
    return 0


def _exception(kind: str, text: str) -> Exception:
    """Return FLARE's exception of that name; a RuntimeError if its sessions raise none such."""
    exception = getattr(api_spec, kind, None)
    if isinstance(exception, type) and issubclass(exception, Exception):
        return exception(text)
    return RuntimeError(text if kind == "RuntimeError" else f"{kind}: {text}")
