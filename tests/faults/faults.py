"""Faults at exact points of a real federation, and the restart of what died.

See inject/sitecustomize.py.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from fedward.security.policy import OPEN
from local_federation import HOSPITALS, SERVER, Federation

INJECT = Path(__file__).with_name("inject")

POINTS = {
    "send": ("server", "before", "fedward.flare.transport", "FlareTransport._send"),
    "train": ("site", "before", "fedward.methods.supervised", "supervised_loss"),
    "upload": (
        "site",
        "before",
        "nvflare.private.fed.client.client_runner",
        "ClientRunner._try_send_result_once",
    ),
    "aggregate": ("server", "before", "fedward.methods.aggregation", "weighted_average"),
    "save": ("server", "before", "fedward.disk", "save_json"),
}
"""Point of a round -> whose process passes it, and the function."""


@dataclass(frozen=True)
class Fault:
    """What happens, in which process, at which call of which function."""

    process: str
    """Pattern of the command line of the process that passes the point."""
    module: str
    function: str
    when: str
    """``before`` or ``after`` the function."""
    call: int
    """Number of the call, from 1."""
    action: str
    victims: Sequence[str] = ()
    """Patterns of the command lines of processes to kill."""
    errno: int = 0
    """Error that the function raises."""
    delay: float = 0.0
    """Seconds for which the process stands still, and can be observed, before it is killed."""


def job_process(name: str) -> str:
    """Return the pattern of the command line of a participant's job process."""
    return r"runner_process.* -n " if name == SERVER else rf"worker_process.* -c {name} "


def parent_process(name: str) -> str:
    """Return the pattern of the command line of a participant's process that outlives its jobs."""
    return "server_train" if name == SERVER else rf"client_train.*uid={name}( |$)"


def fault(
    point: str,
    victims: Sequence[str],
    site: str,
    call: int,
    action: str = "kill",
    number: int = 0,
    delay: float = 0.0,
) -> Fault:
    """Return a fault at a point of the round; ``site``: whose process passes a point at a site."""
    where, when, module, function = POINTS[point]
    process = job_process(SERVER if where == "server" else site)
    return Fault(process, module, function, when, call, action, list(victims), number, delay)


class FaultyFederation(Federation):
    """A federation whose processes follow a plan of faults, once there is one."""

    def __init__(self, folder: Path) -> None:
        self.faults = folder / "faults"
        variables = {
            "FEDWARD_FAULTS": str(self.faults),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(INJECT), os.getenv("PYTHONPATH")])),
            "OMP_NUM_THREADS": "1",
        }
        # The default policy would refuse small jobs that go on with two sites, or one.
        policy = OPEN.model_dump(mode="json")
        super().__init__(folder, image_size=16, images=60, environment=variables, policy=policy)

    def plan(self, faults: Sequence[Fault]) -> None:
        """Let these happen to the processes that start from now on, one after the other."""
        self.faults.mkdir(exist_ok=True)
        for path in self.faults.iterdir():
            path.unlink()
        (self.faults / "plan.json").write_text(json.dumps([asdict(item) for item in faults]))

    def happened(self) -> int:
        """Return how many faults of the plan have happened."""
        return len(list(self.faults.glob("*.happened")))

    @contextmanager
    def kept_alive(self) -> Iterator[list[str]]:
        """Start participants that die again, like a service manager; yields a list of names."""
        revived: list[str] = []
        with _repeated(lambda: revived.extend(self.revive())):
            yield revived

    @contextmanager
    def started_once_it_happened(self, name: str) -> Iterator[None]:
        """Start a participant as soon as the first fault of the plan has happened."""
        waiting = [name]
        with _repeated(lambda: self.start(waiting.pop()) if waiting and self.happened() else None):
            yield


@contextmanager
def _repeated(action: Callable[[], object]) -> Iterator[None]:
    """Do something over and over in a thread of its own."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.2):
            action()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def site_files(federation: Federation, folder: Path) -> Path:
    """Return a folder with all hospitals' site files, for a run of them in one process."""
    folder.mkdir()
    for hospital in HOSPITALS:
        text = (federation.kit(hospital) / "local" / "fedward_site.yaml").read_text()
        (folder / f"{hospital}.yaml").write_text(text)
    return folder
