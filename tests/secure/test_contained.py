"""A federation whose participants are started by the image's entry point, with its account.

No engine is needed: home, ``startup/`` and ``local/`` are read-only by their rights instead of by a
mount.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedward.errors import RunError
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.flare.kits import health
from local_federation import HOSPITALS, LEAD, SERVER, Federation
from tiny import tiny

pytestmark = [pytest.mark.secure, pytest.mark.slow]
ENTRY = Path(__file__).parents[2] / "provisioning" / "containers" / "participant"
ACCOUNT = 10001
ROOT = os.getuid() == 0
AS_ACCOUNT = [
    "setpriv",
    f"--reuid={ACCOUNT}",
    f"--regid={ACCOUNT}",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
]
"""The image's account. It may read everything, so that it finds Python wherever that lies, and
write only its own.
"""

TINI = '#!/bin/sh\n[ "$1 $2" = "-s --" ] && shift 2 && exec "$@"\n'


class Contained(Federation):
    """Starts each participant by the entry point."""

    def start(self, name: str, kit: Path | None = None) -> subprocess.Popen[bytes]:
        folder = kit or self.kit(name)
        self._give(folder)
        # The account may not write into a kit.
        self._logs[name] = self.folder / f"{name}.log"
        with self._logs[name].open("ab") as log:
            process = subprocess.Popen(
                [*(AS_ACCOUNT if ROOT else []), self.folder / "participant"],
                cwd="/",
                env=self._image(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o022,
            )
        self._processes[name] = process
        return process

    def _give(self, kit: Path) -> None:
        if ROOT:
            for path in (self.folder, kit, *kit.rglob("*")):
                os.chown(path, ACCOUNT, ACCOUNT)
        # As with a mount that is read-only: no single file is writable.
        for folder in (kit / "startup", kit / "local"):
            for path in (folder, *folder.rglob("*")):
                path.chmod(path.stat().st_mode & 0o555)

    def _image(self, kit: Path) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        home.chmod(0o555)
        path = os.pathsep.join([str(self.folder), "/usr/bin", "/bin"])
        return {
            "PATH": path,
            "FEDWARD_KIT": str(kit),
            "HOME": str(home),
            "LOGNAME": "fedward",
            "PYTHONSAFEPATH": "1",
        }


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("contained")
    # pytest's own folders are closed to other accounts.
    own = (parent for parent in folder.parents if parent.name.startswith(("pytest-", "popen-")))
    for parent in (folder, *own):
        parent.chmod(0o755)
    shutil.copy(ENTRY, folder)
    # A script, because bash does not find a Python in a folder that only capabilities open.
    python3 = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    for name, script in {"tini": TINI, "python3": python3}.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    with Contained(folder, image_size=16, images=60) as running:
        yield running


def test_all_join_without_rights(federation):
    for name in (SERVER, *HOSPITALS):
        kit = federation.kit(name)
        assert health.main([str(kit)]) == 0
        written = [path for path in kit.rglob("*") if path.is_file() and path.parent == kit]
        assert {"log.txt", "audit.log"} <= {path.name for path in written}
        assert not any(path.stat().st_mode & 0o077 for path in written)
        assert all(process.uids().effective != 0 for process in federation.processes(name))


@pytest.mark.proves(
    "lead",
    "a container image or a Python of the job's own",
    "refused by the server as own code",
)
@pytest.mark.parametrize(
    ("runtime", "spec"),
    [
        ("docker", {"image": "evil:1"}),
        ("k8s", {"image": "evil:1"}),
        ("slurm", {"image": "/tmp/evil.sif"}),
        ("docker", {"python_path": "/data/evil"}),
    ],
)
def test_a_job_cannot_choose_its_image(federation, tmp_path, runtime, spec):
    job = tmp_path / "job"
    export_job(
        tiny("fedavg", timeout=60, options={"rounds": 1, "participants": None}), job, clinical=True
    )
    meta = json.loads((job / "meta.json").read_text())
    (job / "meta.json").write_text(
        json.dumps({**meta, "launcher_spec": {"default": {runtime: spec}}})
    )
    with session(federation.kit(LEAD)) as lead, pytest.raises(RunError, match="BYOC not permitted"):
        fetch(lead, wait(lead, submit(lead, job), 60), tmp_path / "out")
