"""Kits of an earlier commit of this project, used with the present code, as after an upgrade."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedward.cli import main
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.flare.kits import doctor
from local_federation import HOSPITALS, LEAD, SERVER, Federation
from tiny import clinical
from waiting import PATIENCE

pytestmark = [pytest.mark.secure, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]
EARLIER = "31ed88cb"
"""The commit whose kits are upgraded from."""
EVERYONE = sorted(HOSPITALS)


class OlderFederation(Federation):
    """A federation whose kits are provisioned by another commit's code."""

    def provision(self) -> None:
        command = ["git", "-C", str(REPOSITORY), "archive", EARLIER, "custom", "provisioning"]
        archive = subprocess.run(command, capture_output=True, check=False)
        if archive.returncode:
            pytest.skip(f"this checkout has no commit {EARLIER}")
        before = self.folder / "before"
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(before, filter="data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("local_federation.PROVISIONING", before / "provisioning")
            patch.setenv("PYTHONPATH", str(before / "custom"))
            super().provision()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with OlderFederation(tmp_path_factory.mktemp("older"), image_size=16) as running:
        yield running


def test_the_older_code_provisions(tmp_path):
    """Else the other tests would say nothing: PYTHONPATH comes before the installed package."""
    (tmp_path / "fedward").mkdir()
    (tmp_path / "fedward" / "__init__.py").touch()
    code = "import fedward; print(fedward.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "fedward" / "__init__.py")


@pytest.mark.proves(
    "faults",
    "server and sites are upgraded and keep kits of an earlier version with the same rules",
    "a job runs with all sites, and nothing fails",
)
def test_a_job_runs_with_the_kits_from_before_an_upgrade(federation, tmp_path):
    export_job(clinical(options={"rounds": 2}), tmp_path / "job", clinical=True)
    for name in (SERVER, *EVERYONE, LEAD):
        _, rows = doctor.examine(federation.kit(name), None if name == LEAD else tmp_path / "job")
        told = {row.name: row.status for row in rows if row.status not in ("ok", "skipped")}
        assert told == {}
    with session(federation.kit(LEAD)) as lead:
        run = fetch(lead, wait(lead, submit(lead, tmp_path / "job"), PATIENCE), tmp_path / "out")
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [row["replied"] for row in rounds] == [EVERYONE, EVERYONE]
    assert main(["audit", "verify", str(run)]) == 0
