"""A federation over the years: restored, renewed, upgraded, and with a site that is shut out."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from cryptography import x509
from faults import site_files
from safetensors.torch import load_file

from fedward.cli import main
from fedward.client.admission import Admission
from fedward.code_version import code_version
from fedward.config import Experiment
from fedward.errors import RunError
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.security.secret import site_secret
from fedward.seeds import Draws
from local_federation import ADMIN, HOSPITALS, LEAD, PROVISIONING, SERVER, Federation
from running import run_local
from tiny import clinical
from waiting import PATIENCE, appears

pytestmark = pytest.mark.secure
EVERYONE = sorted(HOSPITALS)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    environment = {"OMP_NUM_THREADS": "1"}
    with Federation(
        tmp_path_factory.mktemp("years"), image_size=16, environment=environment
    ) as running:
        yield running


def experiment(rounds: int) -> Experiment:
    return clinical(options={"rounds": rounds})


def command(*words: object) -> str:
    """Run a command of an administrator, with this interpreter first, and return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        list(map(str, words)),
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def connected(federation: Federation) -> set[str]:
    with session(federation.kit(ADMIN)) as flare:
        return {client.name for client in flare.get_connected_client_list()}


def restart(federation: Federation, *names: str) -> None:
    """Start participants again, each with a new log."""
    for name in names:
        federation.stop_one(name)
        (federation.kit(name) / "log.txt").unlink()
    for name in names:
        federation.start(name)


def says(federation: Federation, name: str, text: str) -> bool:
    """Return whether a participant's log comes to say something."""
    return appears(lambda: text in (federation.kit(name) / "log.txt").read_text())


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def continued(federation: Federation, job: Path, name: str, out: Path) -> Path:
    """Send a job as a run that has begun, and return its run folder at the end."""
    with session(federation.kit(LEAD)) as lead:
        return fetch(lead, wait(lead, submit(lead, job, name), PATIENCE), out)


def interrupted(federation: Federation, job: Path, name: str) -> Path:
    """Begin a run, stop everything after its second round or later, and return its run folder."""
    run = federation.kit(SERVER) / "fedward" / "runs" / LEAD / name
    with session(federation.kit(LEAD)) as lead:
        submit(lead, job, name)
        assert appears(lambda: len(rows(run)) >= 2)
    federation.stop()
    assert json.loads((run / "run.json").read_text())["status"] != "finished"
    return run


def start_all(federation: Federation) -> None:
    for name in (SERVER, *HOSPITALS):
        federation.start(name)
    federation.wait_until_ready()


def site_logs(federation: Federation, run: Path) -> list[str]:
    run_id = json.loads((run / "run.json").read_text())["id"]
    return [
        str(federation.kit(site) / "fedward" / "answers" / f"{run_id}.jsonl") for site in EVERYONE
    ]


@pytest.mark.proves(
    "faults",
    "the disks of the server and of a site are lost in a run, and restored from backups",
    "the run ends as if undisturbed, and its audit log is verified",
)
def test_a_run_goes_on_at_a_restored_server_and_site(federation, tmp_path, monkeypatch):
    """What it is compared with draws by the hospitals' secrets, one of which was restored."""
    plan = experiment(rounds=20)
    name = uuid4().hex
    export_job(plan, tmp_path / "job", clinical=True)
    interrupted(federation, tmp_path / "job", name)
    lost = federation.kit(SERVER), federation.kit("hospital-a")
    for kit in lost:
        command(PROVISIONING / "backup.sh", kit, tmp_path / f"{kit.name}.tar")
    for folder in (*lost, federation.folder / "server"):
        shutil.rmtree(folder)
    for kit in lost:
        command(
            "tar",
            "--extract",
            "--preserve-permissions",
            "--file",
            tmp_path / f"{kit.name}.tar",
            "-C",
            "/",
        )
    start_all(federation)
    run = continued(federation, tmp_path / "job", name, tmp_path / "out")
    assert [(row["round"], row["replied"]) for row in rows(run)] == [
        (number, EVERYONE) for number in range(1, 21)
    ]
    assert main(["audit", "verify", str(run), "--site", *site_logs(federation, run)]) == 0
    plain = tmp_path / "plain"
    state = {site: federation.kit(site) / "fedward" for site in EVERYONE}
    assert len({site_secret(folder) for folder in state.values()}) == len(EVERYONE)
    monkeypatch.setattr(
        Admission, "draws", lambda self: Draws(plan.seed, site_secret(state[self._site]))
    )
    run_local(
        plan, plain, sites=EVERYONE, site_folders=[site_files(federation, tmp_path / "sites")]
    )
    weights = load_file(run / "model.safetensors")
    for key, value in load_file(plain / "model.safetensors").items():
        torch.testing.assert_close(weights[key], value, rtol=0, atol=1e-6)


# --- certificates


RENEWED = {SERVER: "server", "hospital-b": "client"}
"""Participant -> how its certificate's file is called."""


@pytest.fixture(scope="module")
def old(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Renew the certificates of the server and a site; return a folder with the old ``startup``."""
    folder = tmp_path_factory.mktemp("old")
    workspace = federation.folder / "workspace"
    project = federation.folder / "project.yml"
    command(PROVISIONING / "renew.sh", workspace, project, *RENEWED)
    (made,) = workspace.glob("renewed-*")
    for name in RENEWED:
        startup = federation.kit(name) / "startup"
        shutil.copytree(startup, folder / name)
        for file in (made / name).iterdir():
            shutil.copy(file, startup)
    restart(federation, SERVER, *HOSPITALS)  # the server's key has changed, and with it all tokens
    federation.wait_until_ready()
    return folder


def serial(certificate: bytes) -> int:
    return x509.load_pem_x509_certificate(certificate).serial_number


def test_renewed_certificates_are_taken_beside_old_ones(federation, old):
    """The other two sites keep the ones they have."""
    assert appears(lambda: connected(federation) == set(EVERYONE))
    state = json.loads(
        (federation.folder / "workspace" / "fedward" / "state" / "cert.json").read_text()
    )
    for name, kind in RENEWED.items():
        new = serial((federation.kit(name) / "startup" / f"{kind}.crt").read_bytes())
        assert (
            new
            == serial(state[name]["cert"].encode())
            != serial((old / name / f"{kind}.crt").read_bytes())
        )


@pytest.mark.proves(
    "outsider",
    "a renewed certificate whose old key was stolen",
    "**not covered**: valid until it expires, as FLARE has no revocation list. Shut "
    "its name out with `disable-client` or `fedward revoke`, or make a new authority",
)
def test_the_certificate_from_before_a_renewal_is_still_taken(federation, old):
    startup = federation.kit("hospital-b") / "startup"
    new = {name: (startup / name).read_bytes() for name in ("client.crt", "client.key")}
    for name in new:
        shutil.copy(old / "hospital-b" / name, startup)
    restart(federation, "hospital-b")
    assert says(federation, "hospital-b", "Successfully registered client:hospital-b")
    for name, content in new.items():
        (startup / name).write_bytes(content)


@pytest.mark.proves(
    "site",
    "a site shut out with `nvflare system disable-client` that returns",
    "refused at registration, also after a restart of the server",
)
def test_a_site_that_was_shut_out_does_not_come_back(federation):
    site = "hospital-c"
    admin = "--startup-kit", federation.kit(ADMIN), "--force"
    command("nvflare", "system", "disable-client", site, *admin)
    restart(federation, SERVER, site)
    assert says(federation, site, f"registration rejected: Client '{site}' is disabled")
    assert appears(lambda: connected(federation) == {"hospital-a", "hospital-b"})
    command("nvflare", "system", "enable-client", site, *admin)
    restart(federation, site)
    assert appears(lambda: connected(federation) == set(EVERYONE))


# --- versions

NEW = "9.9.9"
PRETENDING = {
    "PYTHONPATH": str(Path(__file__).with_name("another_version")),
    "FEDWARD_PRETENDED": NEW,
}


@pytest.mark.proves(
    "faults",
    "server and sites are upgraded in a run, except one site",
    "the site refuses and names both versions. The run ends, and continues once the "
    "site is upgraded",
)
def test_a_run_goes_on_once_every_site_is_upgraded(federation, tmp_path):
    name = uuid4().hex
    export_job(experiment(rounds=20), tmp_path / "job", clinical=True)
    before = len(rows(interrupted(federation, tmp_path / "job", name)))
    federation.own_environment = dict.fromkeys((SERVER, "hospital-a", "hospital-b"), PRETENDING)
    start_all(federation)
    with pytest.raises(
        RunError, match=rf"hospital-c.*{re.escape(code_version())}, as here, found {re.escape(NEW)}"
    ):
        continued(federation, tmp_path / "job", name, tmp_path / "without")
    federation.own_environment["hospital-c"] = PRETENDING
    restart(federation, "hospital-c")
    assert appears(lambda: connected(federation) == set(EVERYONE))
    run = continued(federation, tmp_path / "job", name, tmp_path / "with")
    found = rows(run)
    assert [row["round"] for row in found] == list(range(1, 21))
    refused = [row for row in found if "hospital-c" in row["failed"]]
    assert 0 < len(refused) <= 3
    assert all(row["round"] > before for row in refused)
    assert all(row["replied"] == EVERYONE for row in found if row not in refused)
    assert main(["audit", "verify", str(run), "--site", *site_logs(federation, run)]) == 0
