"""Runs a module in several processes under torchrun, none of which outlives the site's process.

The site's process holds a lock on a file, which the kernel releases when the process dies. The
others wait for that and end. They meet through files in a folder that only this account can read,
because the whole network could reach torchrun's usual port, and talk over the loopback interface.
"""

import fcntl
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedward import errors, private
from fedward.errors import FedwardError, WorkError

_log = logging.getLogger(__name__)

_PREFIX = "processes-"
_LOCK = "alive"
_LOG = "log"
_POLL = 0.1
"""Seconds between two checks whether the run was aborted or the processes have ended."""
_GRACE = 10
"""Seconds in which torchrun may end its processes before it is killed. They then end themselves."""
_DEATH = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
"""What torchrun prints for each process that failed."""
_ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    # torchrun sets it too, but with a warning.
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder in ``parent`` that only this account can enter, and remove it afterwards.

    Folders that killed processes have left are removed too. Jobs of one site share ``parent``.
    """
    parent.mkdir(parents=True, exist_ok=True)
    # The processes have the folder as their own, where a relative path would lead elsewhere.
    parent = parent.resolve()
    # Another job must not sweep between the making of this folder and its lock.
    with private.locked(parent):
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = (folder / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with lock:
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove the folders that no process uses."""
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        # Its job may have removed it in the meantime.
        with suppress(FileNotFoundError), lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # A process is using the folder.
                continue
            shutil.rmtree(lock.parent, ignore_errors=True)


def launch(
    module: str, folder: Path, processes: int, site: str, aborted: Callable[[], bool]
) -> None:
    """Run ``python -m module folder`` in several processes, and wait until all have ended.

    The module calls :func:`work`.

    Args:
        module: name of the module.
        folder: a :func:`private_folder`, in which the processes find and leave files.
        processes: how many there are.
        site: the site's name, for errors.
        aborted: called several times a second; True ends the processes.

    Raises:
        WorkError: the run was aborted, or a process died. The others are ended, and what they wrote
            is in this process's log.
        FedwardError: a process raised one. It is raised again with the process's number.
    """
    with (folder / _LOG).open("wb") as log:
        torchrun = subprocess.Popen(
            _command(module, folder, processes),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT},
            # Ctrl-C then reaches this process alone, which ends the others.
            start_new_session=True,
        )
        try:
            while torchrun.poll() is None:
                if aborted():
                    raise WorkError("Training stopped: the run was aborted")
                with suppress(subprocess.TimeoutExpired):
                    torchrun.wait(_POLL)
        finally:
            # Neither does anything to a process that has ended.
            torchrun.terminate()
            with suppress(subprocess.TimeoutExpired):
                torchrun.wait(_GRACE)
            torchrun.kill()
            torchrun.wait()
    if torchrun.returncode:
        raise _failure(folder, processes, site)


def _command(module: str, folder: Path, processes: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes=1",
        f"--nproc_per_node={processes}",
        "--max_restarts=0",
        f"--monitor_interval={_POLL}",
        "--rdzv_backend=c10d",
        "--rdzv_id=site",
        f"--rdzv_endpoint={folder / 'meeting'}",
        "--rdzv_conf=store_type=file",
        "-m",
        module,
        str(folder),
    ]


def work(folder: Path, task: Callable[[int, int], None]) -> None:
    """Do one process's share of the work, and leave a note if it fails.

    This process ends at once when the site's process has ended.

    Args:
        folder: of :func:`launch`.
        task: called with the number of this process, from 0, and the number of processes.
    """
    rank = int(os.environ["RANK"])
    processes = int(os.environ["WORLD_SIZE"])
    threading.Thread(target=_end_with_the_site, args=(folder / _LOCK,), daemon=True).start()
    try:
        task(rank, processes)
    except Exception as error:
        _leave_note(folder, rank, error)
        raise
    sys.stdout.flush()
    sys.stderr.flush()
    # The work is done. torch's threads may abort an interpreter that shuts down in the usual way.
    os._exit(0)


def _leave_note(folder: Path, rank: int, error: Exception) -> None:
    note = {"rank": rank, "time": time.time(), "kind": type(error).__name__}
    if isinstance(error, FedwardError):
        note["parts"] = [error.problem, error.expected, error.found, error.remedy]
    # Renamed when it is complete, because torchrun may end this process at any moment.
    partial = folder / f"partial-{rank}"
    partial.write_text(json.dumps(note), encoding="utf-8")
    os.replace(partial, folder / f"error-{rank}.json")


def _end_with_the_site(lock: Path) -> None:
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # waits while the site's process holds it
        os._exit(1)


def _failure(folder: Path, processes: int, site: str) -> FedwardError:
    """Return the error of the process that failed first.

    A process that was killed is the cause of the others' errors, unless torchrun killed it
    (SIGTERM) because of another one.
    """
    output = (folder / _LOG).read_text(encoding="utf-8", errors="replace")
    _log.error("site %s, its %d processes wrote:\n%s", site, processes, output)
    deaths = [(int(rank), int(code)) for rank, code in _DEATH.findall(output)]
    killed = [(rank, code) for rank, code in deaths if code < 0 and code != -signal.SIGTERM]
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("error-*.json")]
    remedy = "The site's own log says more; if memory ran out, lower `processes` in its site file."
    expected = "to finish its share of the training"
    if notes and not killed:
        first = min(notes, key=lambda note: note["time"])
        where = f"site {site}, process {first['rank']} of {processes}"
        if "parts" not in first:
            return WorkError(where, remedy, expected=expected, found=first["kind"])
        problem, expected, value, remedy = first["parts"]
        # The server does not see the text of an unknown kind of error.
        kind: type[FedwardError] = getattr(errors, first["kind"], FedwardError)
        return kind(f"{where}: {problem}", remedy, expected=expected, found=value)
    if not deaths:
        return WorkError(f"site {site}", remedy, expected=expected, found="torchrun failed")
    # torchrun lists last what it takes for the cause.
    rank, code = (killed or deaths)[-1]
    death = f"ended with exit code {code}"
    if code < 0:
        death = f"killed by {signal.Signals(-code).name}"
    where = f"site {site}, process {rank} of {processes}"
    return WorkError(where, remedy, expected=expected, found=death)
