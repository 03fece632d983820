"""Starting a module in several processes under torchrun, and leaving none of them behind, whatever
happens.

The processes live as long as the site's process holds a lock on a file, which the kernel releases
when it dies. They meet through files in a folder that only this account can read, not at torchrun's
usual port, which the whole network could reach, and talk over the loopback interface.
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

from fedward import errors
from fedward.errors import FedwardError, WorkError

_log = logging.getLogger(__name__)

_PREFIX = "processes-"
_LOCK = "alive"
_LOG = "log"
_POLL = 0.1
"""Seconds between two looks for an abort or the end."""
_GRACE = 10
"""Seconds torchrun has to end its processes before it is killed; they then end by themselves."""
_DEATH = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
"""In torchrun's own words, once for each process that failed."""
_ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",  # as torchrun does, but without a warning
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder in ``parent`` that only this account can enter, and remove it afterwards.

    What a killed process left behind is removed too.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # in use
        shutil.rmtree(lock.parent, ignore_errors=True)


def launch(
    module: str, folder: Path, processes: int, site: str, aborted: Callable[[], bool]
) -> None:
    """Run ``python -m module folder`` in several processes, and wait until all have ended, or
    ``aborted`` says True.

    The module calls :func:`work`. In the folder, a :func:`private_folder`, it finds and leaves what
    it needs and makes.

    Raises:
        WorkError: aborted, or a process died; the others are ended then. What they wrote is in this
            process's log.
        FedwardError: a process raised one, which is raised here again, with the process's number.
    """
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes=1",
        f"--nproc_per_node={processes}",
    ]
    command += [
        "--max_restarts=0",
        f"--monitor_interval={_POLL}",
        "--rdzv_backend=c10d",
        "--rdzv_id=site",
    ]
    command += [
        f"--rdzv_endpoint={folder / 'meeting'}",
        "--rdzv_conf=store_type=file",
        "-m",
        module,
        str(folder),
    ]
    environment = {**os.environ, **_ENVIRONMENT}
    nothing = subprocess.DEVNULL
    with (folder / _LOG).open("wb") as log:
        # In a session of its own: Ctrl-C reaches this process alone, which ends the others.
        torchrun = subprocess.Popen(
            command,
            stdin=nothing,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            while torchrun.poll() is None:
                if aborted():
                    remedy = "The run was stopped."
                    raise WorkError(
                        "training", expected="to finish the round", found="an abort", remedy=remedy
                    )
                with suppress(subprocess.TimeoutExpired):
                    torchrun.wait(_POLL)
        finally:
            torchrun.terminate()  # does nothing if it has ended
            with suppress(subprocess.TimeoutExpired):
                torchrun.wait(_GRACE)
            torchrun.kill()
            torchrun.wait()
    if torchrun.returncode:
        raise _failure(folder, processes, site)


def work(folder: Path, task: Callable[[int, int], None]) -> None:
    """Do a process's share: call ``task`` with its number, from 0, and the number of processes;
    note its error.

    This process ends at once when the site's process has gone.
    """
    rank = int(os.environ["RANK"])
    processes = int(os.environ["WORLD_SIZE"])
    threading.Thread(target=_end_with_the_site, args=(folder / _LOCK,), daemon=True).start()
    try:
        task(rank, processes)
    except Exception as error:
        note = {"rank": rank, "time": time.time(), "kind": type(error).__name__}
        if isinstance(error, FedwardError):
            note["parts"] = [error.problem, error.expected, error.found, error.remedy]
        partial = folder / f"partial-{rank}"
        partial.write_text(json.dumps(note), encoding="utf-8")
        os.replace(
            partial, folder / f"error-{rank}.json"
        )  # torchrun may end this process at any moment
        raise
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(
        0
    )  # what is done is done: torch's threads may abort an interpreter that shuts down in its own order


def _end_with_the_site(lock: Path) -> None:
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # waits while the site's process holds it
        os._exit(1)


def _failure(folder: Path, processes: int, site: str) -> FedwardError:
    """Return the error of the process that failed first.

    A killed one is the cause of what the others say, unless torchrun ended it (SIGTERM) because of
    another.
    """
    said = (folder / _LOG).read_text(encoding="utf-8", errors="replace")
    _log.error("site %s, its %d processes wrote:\n%s", site, processes, said)
    deaths = [
        (int(rank), int(code)) for rank, code in _DEATH.findall(said)
    ]  # the cause, torchrun thinks, comes last
    killed = [death for death in deaths if death[1] < 0 and death[1] != -signal.SIGTERM]
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("error-*.json")]
    where = f"site {site}"
    if notes and not killed:
        first = min(notes, key=lambda note: note["time"])
        where = f"{where}, process {first['rank']} of {processes}"
        found = first["kind"]
        if "parts" in first:
            inner, expected, found, remedy = first["parts"]
            kind = getattr(
                errors, first["kind"], FedwardError
            )  # one not known keeps its text from the server
            error: FedwardError = kind(
                f"{where}: {inner}", expected=expected, found=found, remedy=remedy
            )
            return error
    elif deaths:
        rank, code = (killed or deaths)[-1]
        where = f"{where}, process {rank} of {processes}"
        found = (
            f"killed by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
    else:
        found = "torchrun failed"
    remedy = "The site's own log says more; if memory ran out, lower `processes` in its site file."
    return WorkError(
        where, expected="to finish its share of the training", found=found, remedy=remedy
    )
