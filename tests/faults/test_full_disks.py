"""Sites whose file systems are really full in the middle of a run.

They are small ones in memory, which only root can mount.

One site's whole kit is on such a file system. Of another site it is the folder with what the site
keeps, such as the ledger of its privacy budget.
"""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fedward.cli import main
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.flare.jobs.supervise import Supervisor
from fedward.security.policy import OPEN
from fedward.security.privacy_ledger import PRIVACY, spent
from local_federation import HOSPITALS, LEAD, SERVER, Federation
from tiny import tiny
from waiting import PATIENCE, appears

pytestmark = [
    pytest.mark.secure,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system"),
]
EVERYONE = sorted(HOSPITALS)
WHOLE_KIT = "hospital-b"
STATE = "hospital-c"
NOISE = {"clip": 0.001, "noise_multiplier": 40.0, "delta": 1e-5, "max_epsilon": 20.0}


class CrampedFederation(Federation):
    """Two of its sites keep their files on small file systems."""

    def provision(self) -> None:
        super().provision()
        kit = self.kit(WHOLE_KIT)
        original = self.folder / "original"
        kit.rename(original)
        kit.mkdir()
        mount(kit, "64m")
        shutil.copytree(original, kit, dirs_exist_ok=True)
        self.state.mkdir()
        mount(self.state, "8m")
        self.own_environment[STATE] = {"FEDWARD_STATE": str(self.state)}
        rules = self.kit(STATE) / "local" / "privacy.json"
        content = json.loads(rules.read_text())
        noise = {"path": "fedward.flare.privacy.GaussianUpdateFilter", "args": NOISE}
        content["scopes"][0]["task_result_filters"] = [noise]
        rules.write_text(json.dumps(content))

    @property
    def state(self) -> Path:
        """The folder with what one of the sites keeps."""
        return self.folder / "state"

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.unmount()

    def unmount(self) -> None:
        """Give the file systems back."""
        for folder in (self.kit(WHOLE_KIT), self.state):
            if os.path.ismount(folder):
                subprocess.run(["umount", "--lazy", folder], check=True)


def mount(folder: Path, size: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)


def fill(folder: Path) -> Path:
    """Fill a file system to its last byte; return the file to remove."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        block = 1 << 20
        while block:
            try:
                file.write(bytes(block))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                block //= 2
    return filler


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrampedFederation]:
    policy = OPEN.model_dump(mode="json")
    folder = tmp_path_factory.mktemp("cramped")
    federation = CrampedFederation(folder, image_size=16, images=60, policy=policy)
    try:
        with federation as running:
            yield running
    finally:
        federation.unmount()


def rows(run: Path) -> list[dict[str, Any]]:
    """Return the rows of a run that goes on, or has finished."""
    info = json.loads((run / "run.json").read_text())
    assert info["status"] != "failed", info["summary"]
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def site_log(federation: CrampedFederation, site: str, run: Path) -> Path:
    state = federation.state if site == STATE else federation.kit(site) / "fedward"
    return state / "answers" / f"{json.loads((run / 'run.json').read_text())['id']}.jsonl"


@pytest.mark.parametrize(
    "site",
    [
        pytest.param(
            site,
            marks=pytest.mark.proves(
                "faults",
                f"a disk is full in the middle of a round, that of a site's {what}",
                "rounds go on without the site and have it again once there is room; its log or "
                "ledger counts every update that left",
            ),
        )
        for site, what in [
            (WHOLE_KIT, "whole kit"),
            (STATE, "ledgers and logs"),
        ]
    ],
)
def test_a_run_goes_on_while_a_sites_file_system_is_full(federation, tmp_path, site):
    name = uuid4().hex
    round_count = 30
    options = {"rounds": round_count, "participants": None, "images_per_round": 16}
    experiment = tiny("fedavg", timeout=60, synthetic=None, options=options)
    export_job(experiment, tmp_path / "job", clinical=True)
    server = federation.kit(SERVER) / "fedward" / "runs" / LEAD / name
    ledger = PRIVACY.file(federation.state, STATE)
    before = len(spent(ledger))
    with session(federation.kit(LEAD)) as lead:
        job_id = submit(lead, tmp_path / "job", name)
        assert appears(lambda: len(rows(server)) >= 2)
        filler = fill(federation.state if site == STATE else federation.kit(site))
        failed = appears(lambda: [row for row in rows(server) if site in row["failed"]][2:])
        filler.unlink()
        run = fetch(lead, wait(lead, job_id, PATIENCE), tmp_path / "out")
    assert failed
    all_rows = rows(run)
    assert [row["round"] for row in all_rows] == list(range(1, round_count + 1))
    assert all({*row["replied"], *row["failed"]} == set(EVERYONE) for row in all_rows)
    failed_rows = [row for row in all_rows if row["failed"]]
    for row in failed_rows:
        assert list(row["failed"]) == [site]
        reason = row["failed"][site]
        assert "OSError" in reason or "site's own log" in reason
    assert failed_rows[-1]["round"] < round_count
    logs = [str(site_log(federation, name, run)) for name in EVERYONE]
    assert main(["audit", "verify", str(run), "--site", *logs]) == 0
    updates_sent = sum(STATE in row["replied"] for row in all_rows)
    assert updates_sent <= len(spent(ledger)) - before <= round_count


@pytest.mark.proves(
    "faults",
    "a site's disk is full when a job arrives",
    "a supervised run goes on without the site. The next one has it without a "
    "restart, once there is room",
)
def test_a_job_comes_to_a_site_whose_file_system_is_full(federation, tmp_path):
    options = {"rounds": 2, "participants": None, "images_per_round": 16}
    experiment = tiny("fedavg", timeout=60, synthetic=None, options=options)
    export_job(experiment, tmp_path / "job", clinical=True)

    def supervised(out: str) -> Path:
        """FLARE calls the job running for 15 minutes after its end: the site does not report it."""
        supervisor = Supervisor(
            federation.kit(LEAD), tmp_path / "job", uuid4().hex, patience=60, say=print
        )
        return supervisor.finish(tmp_path / out)

    filler = fill(federation.kit(WHOLE_KIT))
    try:
        without = supervised("without")
    finally:
        filler.unlink()
    with_it = supervised("with")
    assert {tuple(row["replied"]) for row in rows(without)} == {("hospital-a", "hospital-c")}
    assert {tuple(row["replied"]) for row in rows(with_it)} == {tuple(EVERYONE)}
