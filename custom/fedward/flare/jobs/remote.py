"""FLARE's session in a process of its own: each question to the server is answered in time, or the
process is killed.

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
"""Seconds without a further byte after which a download is given up. The server packs the results
in that time, too.
"""

_GOODBYE = 3.0
"""Seconds for a logout and the end of the process."""

_UNREACHED = {"NoConnection", "SessionClosed", "InternalError", "FLCommunicationError"}
"""What FLARE raises where the server cannot be reached, or was started again meanwhile."""

_FIRST_ANSWER = "the login"
"""What the process answers first, without a question."""


class UnreachableError(RunError):
    """The server does not answer; its jobs may go on."""


class RemoteSession:
    """A FLARE session; its methods are those of FLARE's own, with the same answers and exceptions.

    A context manager: at its end its process is gone, whatever FLARE waits for.

    Args:
        kit: startup kit of a user.

    Raises:
        ConfigError: the folder is not the kit of a user.
        UnreachableError: the server does not answer in time, or does not accept the kit. Every
            method raises it too if the server cannot be reached. The session is then of no further
            use.
    """

    def __init__(self, kit: Path) -> None:
        self._where = f"startup kit {kit}"
        self._kit = kit
        user = open_kit(kit, "user").name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._answers, theirs = os.pipe()
        self._rest = b""  # what has come after the last whole line
        self._process: subprocess.Popen[bytes] | None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROCESS, user, str(kit), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs],
                env={
                    **os.environ,
                    "PYTHONSAFEPATH": "1",
                },  # it imports nothing from the working directory
                start_new_session=True,  # Ctrl-C does not reach it, and all its children can be killed at once
            )
        finally:
            os.close(theirs)
        try:
            self._answer(_FIRST_ANSWER, self._within(LOGIN))
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
            self._process.stdin.close()  # which tells it to log out
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
        found = self._ask("get_system_info")
        clients = [ClientInfo(one["name"], one["last_connect_time"]) for one in found["clients"]]
        jobs = [JobInfo(one["job_id"], one["app_name"]) for one in found["jobs"]]
        return SystemInfo(ServerInfo(found["status"], found["start_time"]), clients, jobs)

    def get_connected_client_list(self) -> list[ClientInfo]:
        """Return the connected sites."""
        return list(self.get_system_info().client_info)

    def get_client_job_status(self) -> list[dict[str, Any]] | None:
        """Return a row for each job of each site that answers; None if none does."""
        rows = self._ask("get_client_job_status")
        return None if rows is None else list(rows)

    def show_stats(self, job_id: str, target_type: str) -> dict[str, Any]:
        """Return what a running job tells about itself, by target."""
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
        growing = _Growing([self._kit / "transfer", Path(out) / job_id])
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

    def _answer(self, name: str, waiting: Callable[[], float]) -> Any:
        """Return the answer to the last question; ``waiting`` returns how many seconds longer to
        wait for it.
        """
        answer = json.loads(self._line(name, waiting))
        if "error" not in answer:
            return answer["answer"]
        kind, text = answer["error"]
        if name == _FIRST_ANSWER and kind in {*_UNREACHED, "AuthenticationError"}:
            raise self._unreachable("a server that accepts it", text)
        if kind in _UNREACHED:
            raise self._unreachable("an answer from the server", f"{kind}: {text}")
        raise _exception(kind, text)

    def _line(self, name: str, waiting: Callable[[], float]) -> bytes:
        """Return the next whole line of the process; kill the process where none comes in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = waiting()
                if left <= 0:
                    self._kill()
                    raise self._unreachable(
                        "an answer from the server", f"none to {name} in time; it may stand still"
                    )
                if selector.select(min(left, 1.0)):
                    found = os.read(self._answers, 1 << 16)
                    if not found:
                        raise self._died(name)
                    self._rest += found
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    @staticmethod
    def _within(seconds: float) -> Callable[[], float]:
        """Return what tells how much of a time that begins now is left, in seconds."""
        end = time.monotonic() + seconds
        return lambda: end - time.monotonic()

    def _died(self, name: str) -> UnreachableError:
        """Return the error about a process that has ended by itself; it quotes the last lines of
        the log.
        """
        self._log.seek(0)
        last = self._log.read()[-1000:].decode(errors="replace").strip().splitlines()[-3:]
        self._kill()
        return self._unreachable(
            "an answer from FLARE", f"its process ended at {name}: {' '.join(last) or 'no word'}"
        )

    def _unreachable(self, expected: str, found: str) -> UnreachableError:
        remedy = "Check that the server runs, and the kit with `fedward doctor KIT`. Jobs at the server may go on."
        return UnreachableError(self._where, expected=expected, found=found, remedy=remedy)

    def _kill(self) -> None:
        """End the process and all that it started, at once."""
        process = self._process
        if process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            assert process.stdin
            with suppress(OSError):
                process.stdin.close()
            os.close(self._answers)
            self._log.close()
            self._process = None


class _Growing:
    """How many seconds longer to wait for files that are arriving: ``STANDSTILL`` from when they
    last grew.
    """

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._bytes = -1
        self._since = time.monotonic()

    def __call__(self) -> float:
        found = sum(_size(path) for folder in self._folders for path in folder.rglob("*"))
        if found != self._bytes:
            self._bytes = found
            self._since = time.monotonic()
        return self._since + STANDSTILL - time.monotonic()


def _size(path: Path) -> int:
    with suppress(OSError):  # it has been moved meanwhile
        return path.lstat().st_size
    return 0


def _exception(kind: str, text: str) -> Exception:
    """Return FLARE's exception of that name; a RuntimeError where FLARE's session has none."""
    found = getattr(api_spec, kind, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(text)
    return RuntimeError(text if kind == "RuntimeError" else f"{kind}: {text}")
