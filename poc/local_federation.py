"""The federation of provisioning/project.yml on this machine, with real certificates.

Each participant has its own process. The proof of concept and tests/secure use it. Everything lies
in one folder. The hospitals' data are small synthetic images in files, which site files name as at
any hospital.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from fedward.config import DataSpec, SyntheticData
from fedward.flare.jobs.remote import UnreachableError
from fedward.flare.jobs.submit import session
from fedward.lab.synthetic import synthetic_site
from fedward.security.policy import POLICY_FILE

PROVISIONING = Path(__file__).resolve().parents[1] / "provisioning"
SERVER = "localhost"
ADMIN = "admin@consortium.org"
LEAD = "lead@hospital-a.org"
MEMBER = "member@hospital-b.org"
HOSPITALS = {"hospital-a": "site-1", "hospital-b": "site-6", "hospital-c": "site-9"}
"""Hospital -> the synthetic site whose camera and patients it has."""

_READY = 300
"""Seconds in which all hospitals must connect; a busy machine has needed more than 100."""
_RESTARTS = 2
"""How often a participant that ends before all are connected is started again."""
_END_OF_LOG = 3000
"""Characters of a log that an error shows."""
_STOP = 20
"""Seconds in which all processes must end once asked."""


class Federation:
    """One server and three hospitals; a context manager that ends all their processes.

    Args:
        folder: new folder for the workspace, as an absolute path.
        image_size: width and height of the synthetic images, in pixels.
        images: number of images of a full-size hospital.
        environment: further environment variables of all participants.
        policy: rules of all hospitals that differ from the default rules.
    """

    def __init__(
        self,
        folder: Path,
        image_size: int = 32,
        images: int = 200,
        environment: Mapping[str, str] | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self._policy = policy
        self.port = _free_port()
        self._environment = {**_environment(), **(environment or {})}
        self.spec = DataSpec(image_size=image_size)
        self.images = images
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}
        self.own_environment: dict[str, Mapping[str, str]] = {}
        """Participant -> its further environment variables, which apply from its next start."""

    def __enter__(self) -> "Federation":
        """Provision, give each hospital its data, start everything, and wait until all connect."""
        self.provision()
        for hospital in HOSPITALS:
            self.give_data(hospital)
            if self._policy:
                self.give_policy(hospital, **self._policy)
        try:
            for name in (SERVER, *HOSPITALS):
                self.start(name)
            self.wait_until_ready()
        except BaseException:  # Also Ctrl-C.
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kit(self, name: str) -> Path:
        """Return the startup kit of a participant."""
        return self.folder / "workspace" / "fedward" / "prod_00" / name

    def provision(self) -> None:
        """Make all kits with the shipped script; the server uses a free port and stores its jobs
        in the folder.
        """
        project = yaml.safe_load((PROVISIONING / "project.yml").read_text(encoding="utf-8"))
        (server,) = (person for person in project["participants"] if person["type"] == "server")
        server["fed_learn_port"] = server["admin_port"] = self.port
        (policy,) = (
            part for part in project["builders"] if part["path"].endswith("SitePolicyBuilder")
        )
        policy["args"]["server_storage"] = str(self.folder / "server")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "project.yml").write_text(
            yaml.safe_dump(project, sort_keys=False), encoding="utf-8"
        )
        command = [
            PROVISIONING / "build.sh",
            self.folder / "workspace",
            self.folder / "project.yml",
        ]
        with (self.folder / "provision.log").open("wb") as log:
            subprocess.run(command, env=_environment(), stdout=log, stderr=log, check=True)

    def give_data(self, hospital: str) -> None:
        """Write a hospital's images beside its kit, and the site file that names them into it."""
        synthetic = SyntheticData(labelled=1.0, images=self.images)
        data = synthetic_site(HOSPITALS[hospital], self.spec, synthetic, seed=1)
        arrays: dict[str, Any] = {}
        for split, images in {"train": data.labelled, "val": data.val, "test": data.test}.items():
            arrays[f"{split}_images"] = images.pixels
            arrays[f"{split}_labels"] = images.labels
        file = self.folder / "data" / f"{hospital}.npz"
        file.parent.mkdir(exist_ok=True)
        np.savez(file, **arrays)
        labels = dict(enumerate(self.spec.classes))
        text = yaml.safe_dump({"kind": "npz", "file": str(file), "labels": labels, "labelled": 0.5})
        (self.kit(hospital) / "local" / "fedward_site.yaml").write_text(text, encoding="utf-8")

    def give_policy(self, hospital: str, **rules: Any) -> None:
        """Give a hospital a policy with these rules; the others have their defaults."""
        (self.kit(hospital) / "local" / POLICY_FILE).write_text(
            yaml.safe_dump(rules), encoding="utf-8"
        )

    def start(self, name: str, kit: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a participant's process, with its log in its kit; ``kit`` replaces its own kit."""
        folder = kit or self.kit(name)
        self._logs[name] = folder / "console.log"
        with self._logs[name].open("ab") as log:
            process = subprocess.Popen(
                [folder / "startup" / "sub_start.sh", "--once"],
                cwd=folder,
                env={**self._environment, **self.own_environment.get(name, {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
            )
        self._processes[name] = process
        return process

    def revive(self) -> list[str]:
        """Start ended participants again, as a service manager would; return their names."""
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        for name in ended:
            self.start(name)
        return ended

    def wait_until_ready(self) -> None:
        """Wait until every hospital is connected to the server."""
        deadline = time.monotonic() + _READY
        missing = set(HOSPITALS)
        starts_left = dict.fromkeys(self._processes, _RESTARTS)
        while missing:
            self._revive_or_fail(starts_left)
            if time.monotonic() > deadline:
                names = ", ".join(sorted(missing))
                logs = "\n".join(self._end_of_log(name) for name in (SERVER, *sorted(missing)))
                raise RuntimeError(f"not connected after {_READY} s: {names}\n{logs}")
            time.sleep(0.5)
            if self._listens():
                # The server may still be starting.
                with suppress(UnreachableError), session(self.kit(ADMIN)) as flare:
                    connected = {client.name for client in flare.get_connected_client_list()}
                    missing = set(HOSPITALS) - connected

    def _revive_or_fail(self, starts_left: dict[str, int]) -> None:
        """Start ended participants again, each only so many times.

        FLARE gives up if the server answers its first message late, as on a busy machine.

        Raises:
            RuntimeError: a participant has ended once more; the text has the end of its log.
        """
        for name, process in list(self._processes.items()):
            if process.poll() is None:
                continue
            if not starts_left[name]:
                log = self._end_of_log(name)
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{log}")
            starts_left[name] -= 1
            self.start(name)

    def _end_of_log(self, name: str) -> str:
        log = self._logs[name].read_text(encoding="utf-8", errors="replace")
        return log[-_END_OF_LOG:]

    def stop(self) -> None:
        """End every process.

        Those of jobs have sessions of their own: they are found as children.
        """
        # A second Ctrl-C would leave processes running.
        handler_before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            everyone = [
                process for name in list(self._processes) for process in self.processes(name)
            ]
            for process in everyone:
                with suppress(psutil.NoSuchProcess):
                    process.terminate()
            _, alive = psutil.wait_procs(everyone, timeout=_STOP)
            for process in alive:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(alive, timeout=_STOP)
            self._processes.clear()
        finally:
            signal.signal(signal.SIGINT, handler_before)

    def stop_one(self, name: str) -> None:
        """End one participant at once, as a power cut would."""
        for process in self.processes(name):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._processes.pop(name).wait()

    def processes(self, name: str) -> list[psutil.Process]:
        """Return a participant's process and all that it started; empty if it has ended."""
        try:
            parent = psutil.Process(self._processes[name].pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((SERVER, self.port)) == 0


def _environment() -> dict[str, str]:
    """Return this process's environment with its interpreter first on the path.

    The start scripts call ``python3``.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((SERVER, 0))
        return int(probe.getsockname()[1])
