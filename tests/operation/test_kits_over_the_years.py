"""Renewal, revocation and backup of provisioned kits.

What a running federation makes of them is in tests/secure.
"""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.fuel.sec.security_content_service import LoadResult, SecurityContentManager
from nvflare.security.security import FLAuthorizer
from nvflare.tool.cert.fingerprint import cert_fingerprint_sha256

from fedward.cli import main
from fedward.flare.kits import doctor
from fedward.flare.kits.reading import read_json
from fedward.operation import revoke

PROVISIONING = Path(__file__).parents[2] / "provisioning"
PROJECT = PROVISIONING / "project.yml"
SERVER = "localhost"
SITE = "hospital-a"
LEAD = "lead@hospital-a.org"
OTHER = "lead@hospital-b.org"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as an administrator would; it finds these tests' ``python3`` and ``nvflare``."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, **environment}
    return subprocess.run(
        list(map(str, command)), env=variables, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("built") / "workspace"
    assert run(PROVISIONING / "build.sh", workspace).returncode == 0
    return workspace


@pytest.fixture
def workspace(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "workspace")


def kit(workspace: Path, name: str) -> Path:
    return workspace / "fedward" / "prod_00" / name


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# --- renewal

ENCRYPTED = """\
  - {path: nvflare.lighter.impl.he.HEBuilder}
  - {path: nvflare.lighter.impl.signature.SignatureBuilder}
"""
"""The lines that docs/encryption.md adds to the project."""


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def renewed(workspace: Path) -> Path:
    (folder,) = workspace.glob("renewed-*")
    return folder


def test_renewal_changes_certificates_and_nothing_else_in_kits(workspace):
    kits = contents(workspace / "fedward" / "prod_00")
    state = workspace / "fedward" / "state" / "cert.json"
    before = json.loads(state.read_text())
    done = run(PROVISIONING / "renew.sh", workspace, PROJECT)
    assert done.returncode == 0, done.stderr
    after = json.loads(state.read_text())
    assert contents(workspace / "fedward" / "prod_00") == kits
    assert {key: after[key] for key in ("root_cert", "root_pri_key")} == {
        key: before[key] for key in ("root_cert", "root_pri_key")
    }
    names = {path.name for path in renewed(workspace).iterdir()}
    assert names == {key for key in before if isinstance(before[key], dict)}
    root = x509.load_pem_x509_certificate(before["root_cert"].encode())
    for name in names:
        kind = "server" if name == SERVER else "client"
        new, old = (
            folder / f"{kind}.crt"
            for folder in (renewed(workspace) / name, kit(workspace, name) / "startup")
        )
        certificate(new).verify_directly_issued_by(root)
        assert certificate(new).subject == certificate(old).subject
        assert certificate(new).serial_number != certificate(old).serial_number
        assert certificate(new).not_valid_after_utc >= certificate(old).not_valid_after_utc
        assert (renewed(workspace) / name / f"{kind}.key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in workspace.iterdir()) == ["fedward", renewed(workspace).name]


def test_one_participant_is_renewed_and_the_others_keep_theirs(workspace):
    state = workspace / "fedward" / "state" / "cert.json"
    before = json.loads(state.read_text())
    assert run(PROVISIONING / "renew.sh", workspace, PROJECT, SITE).returncode == 0
    after = json.loads(state.read_text())
    assert {name for name in before if before[name] != after[name]} == {SITE}
    assert sorted(contents(renewed(workspace))) == [f"{SITE}/client.crt", f"{SITE}/client.key"]


@pytest.mark.parametrize(
    "case", ["an unknown name", "a broken project", "kits without its signatures", "no authority"]
)
def test_a_renewal_that_cannot_work_changes_nothing(workspace, tmp_path, case):
    project = tmp_path / "project.yml"
    names = []
    where = workspace
    shutil.copy(PROJECT, project)
    if case == "an unknown name":
        names = ["hospital-z"]
    elif case == "a broken project":
        project.write_text("api_version: 3\n")
    elif case == "kits without its signatures":
        project.write_text(PROJECT.read_text() + ENCRYPTED)
    else:
        where = tmp_path / "empty"
        where.mkdir()
    before = contents(tmp_path)
    assert run(PROVISIONING / "renew.sh", where, project, *names).returncode == 1
    assert contents(tmp_path) == before


def spoken(server: Path, client: Path, root: Path) -> bytes:
    """Return what a client hears from a server, each with its certificate, both sides verified."""
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(server / "server.crt", server / "server.key")
    here.load_verify_locations(root)
    here.verify_mode = ssl.CERT_REQUIRED
    there = ssl.create_default_context(cafile=root)
    there.load_cert_chain(client / "client.crt", client / "client.key")

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as plain, here.wrap_socket(plain, server_side=True) as tls:
            tls.sendall(b"welcome")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        with (
            socket.create_connection(listener.getsockname(), timeout=10) as plain,
            there.wrap_socket(plain, server_hostname=SERVER) as tls,
        ):
            said = tls.recv(16)
        thread.join()
    return said


def test_old_and_new_certificates_work_side_by_side(workspace):
    assert run(PROVISIONING / "renew.sh", workspace, PROJECT, SERVER, SITE).returncode == 0
    root = kit(workspace, SITE) / "startup" / "rootCA.pem"
    for server in (kit(workspace, SERVER) / "startup", renewed(workspace) / SERVER):
        for client in (kit(workspace, SITE) / "startup", renewed(workspace) / SITE):
            assert spoken(server, client, root) == b"welcome"


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose kits hold an encryption key and are signed; its project is beside it."""
    workspace = tmp_path_factory.mktemp("encrypted") / "workspace"
    project = workspace.with_name("project.yml")
    project.write_text(PROJECT.read_text() + ENCRYPTED)
    done = run(PROVISIONING / "build.sh", workspace, project)
    assert done.returncode == 0, done.stderr
    return workspace


def believed(startup: Path) -> dict[str, LoadResult]:
    """Return what FLARE finds of each file, read as a participant reads it."""
    manager = SecurityContentManager(str(startup))
    names = [path.name for path in startup.iterdir() if path.name != "signature.json"]
    return {name: manager.load_content(name)[1] for name in names}


def test_kits_with_an_encryption_key_are_renewed_and_keep_it(encrypted, tmp_path):
    """Also a second time; a participant that is not renewed with the others keeps its key."""
    workspace = shutil.copytree(encrypted, tmp_path / "workspace")
    startups = {name: kit(workspace, name) / "startup" for name in (SERVER, SITE, "hospital-b")}
    keys = {
        name: next(startup.glob("*.tenseal")).read_bytes() for name, startup in startups.items()
    }
    for names in ([SITE], []):
        done = run(PROVISIONING / "renew.sh", workspace, encrypted.with_name("project.yml"), *names)
        assert done.returncode == 0, done.stderr
        folder = renewed(workspace)
        assert sorted(path.name for path in (folder / SITE).iterdir()) == [
            "client.crt",
            "client.key",
            "signature.json",
        ]
        for name, startup in startups.items():
            if (folder / name).exists():
                before = certificate(next(startup.glob("*.crt"))).serial_number
                shutil.copytree(folder / name, startup, dirs_exist_ok=True)
                assert certificate(next(startup.glob("*.crt"))).serial_number != before
            assert set(believed(startup).values()) == {LoadResult.OK}, name
        shutil.rmtree(folder)
    assert {
        name: next(startup.glob("*.tenseal")).read_bytes() for name, startup in startups.items()
    } == keys


def test_a_renewed_certificate_needs_its_signature(encrypted, tmp_path):
    workspace = shutil.copytree(encrypted, tmp_path / "workspace")
    assert (
        run(
            PROVISIONING / "renew.sh", workspace, encrypted.with_name("project.yml"), SITE
        ).returncode
        == 0
    )
    startup = kit(workspace, SITE) / "startup"
    shutil.copy(renewed(workspace) / SITE / "client.crt", startup)
    assert believed(startup)["client.crt"] == LoadResult.INVALID_SIGNATURE


def test_a_new_authority_trusts_nobody_of_the_old_one(workspace, tmp_path):
    """The steps of docs/certificates.md: ``startup/`` is replaced as a whole, all else stays."""
    assert run(PROVISIONING / "build.sh", tmp_path / "new").returncode == 0
    old = tmp_path / "old"
    root = kit(tmp_path / "new", SITE) / "startup" / "rootCA.pem"
    kept = kit(workspace, SITE) / "fedward" / "privacy-hospital-a.jsonl"
    kept.parent.mkdir()
    kept.write_text("x")
    before = contents(kit(workspace, SITE))
    for name in (SERVER, SITE):
        shutil.move(kit(workspace, name) / "startup", old / name)
        shutil.copytree(kit(tmp_path / "new", name) / "startup", kit(workspace, name) / "startup")
    server, site = (kit(workspace, name) / "startup" for name in (SERVER, SITE))
    assert spoken(server, site, root) == b"welcome"
    with pytest.raises(InvalidSignature):
        certificate(old / SITE / "client.crt").verify_directly_issued_by(certificate(root))
    after = contents(kit(workspace, SITE))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"startup/client.crt", "startup/client.key", "startup/rootCA.pem"}
    rows = {row.name: row for row in doctor.examine(kit(workspace, SITE))[1]}
    assert {
        rows[name].status for name in ("layout", "key pair", "certificate", "owner", "root CA")
    } == {"ok"}
    assert rows["root CA"].found.endswith(cert_fingerprint_sha256(certificate(root)))


# --- revocation


def may(participant: Path, name: str, right: str, role: str = "lead") -> bool:
    rules = json.loads((participant / "local" / "authorization.json").read_text())
    authorizer = FLAuthorizer("consortium", rules)
    assert not authorizer.load_policy(rules)
    person = Person(name, "consortium", role)
    return bool(authorizer.evaluate(AuthzContext(right, person, person))[0])


@pytest.mark.parametrize("participant", [SERVER, SITE])
def test_revocation_takes_all_rights_of_one_person_alone(workspace, participant):
    here = kit(workspace, participant)
    rules = here / "local" / "authorization.json"
    rights = json.loads(rules.read_text())["permissions"]["lead"]
    assert may(here, LEAD, "submit_job")
    assert main(["revoke", str(here), LEAD]) == 0
    for role in ("lead", "project_admin", "org_admin", "member"):
        assert not any(
            may(here, name, right, role) for right in rights for name in (LEAD, LEAD.upper())
        )
    assert may(here, OTHER, "submit_job")
    assert not may(here, OTHER, "byoc")
    once = rules.read_bytes()
    assert main(["revoke", str(here), LEAD]) == 0
    assert rules.read_bytes() == once


def test_a_participant_can_still_read_its_rules_after_a_revocation(workspace, monkeypatch):
    """Whoever calls the command: the file keeps its mode, and its owner where that is allowed."""
    here = kit(workspace, SERVER)
    rules = here / "local" / "authorization.json"
    rules.chmod(0o640)
    before = rules.stat()
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(revoke.os, "chown", lambda _, user, group: given.append((user, group)))
    assert main(["revoke", str(here), LEAD]) == 0
    assert rules.stat().st_mode == before.st_mode
    assert given == [(before.st_uid, before.st_gid)]


def test_two_revocations_at_once_lose_no_name(workspace, monkeypatch):
    here = kit(workspace, SERVER)
    both_have_read = threading.Barrier(2)

    def read(file: Path, *remedy: str) -> dict[str, Any]:
        rules = read_json(file, *remedy)
        if file.name == "authorization.json":
            with suppress(threading.BrokenBarrierError):
                both_have_read.wait(0.5)
        return rules

    monkeypatch.setattr(revoke, "read_json", read)
    revocations = [
        threading.Thread(target=revoke.revoke, args=[here, [name]]) for name in (LEAD, OTHER)
    ]
    for thread in revocations:
        thread.start()
    for thread in revocations:
        thread.join()
    assert not any(may(here, name, "submit_job") for name in (LEAD, OTHER))


@pytest.mark.parametrize("name", ["", "a b@c", "n:x@y", "any@x\n", 'x"@y', "any"])
def test_a_name_that_rules_cannot_hold_is_refused(workspace, name, capsys):
    before = contents(kit(workspace, SERVER))
    assert main(["revoke", str(kit(workspace, SERVER)), name]) == 2
    assert contents(kit(workspace, SERVER)) == before
    assert "expected names of users" in capsys.readouterr().err


def test_the_name_of_a_site_is_refused_and_its_own_command_named(workspace, capsys):
    """The server's rules are about people: they would not keep the site out."""
    assert main(["revoke", str(kit(workspace, SERVER)), SITE]) == 2
    assert "nvflare system disable-client" in capsys.readouterr().err


def test_a_persons_kit_has_no_rules_to_revoke_in(workspace, capsys):
    assert main(["revoke", str(kit(workspace, OTHER)), LEAD]) == 2
    assert "expected the kit of the server or of a site" in capsys.readouterr().err


# --- backup


def test_a_backup_restores_a_site_without_its_cache(workspace, tmp_path):
    site = kit(workspace, SITE)
    job = "307ea00f-f801-4015-adca-91a7dc031996"
    for name in (
        "fedward/privacy-hospital-a.jsonl",
        "fedward/cache/a.npy",
        f"{job}/log.txt",
        "fedward-2026-07-01-before-upgrade/privacy-hospital-a.jsonl",
        "local/annotation/a/b",
    ):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("x")
    before = contents(site)
    out = tmp_path / "backup.tar"
    done = run(PROVISIONING / "backup.sh", site, out)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(site)
    assert (
        run(
            "tar", "--extract", "--preserve-permissions", "--file", out, "--directory", "/"
        ).returncode
        == 0
    )
    assert set(before) - set(contents(site)) == {"fedward/cache/a.npy", f"{job}/log.txt"}
    assert contents(site).items() <= before.items()
    assert (site / "startup" / "client.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("where", ["state", "workspace/fedward/prod_00/hospital-a/fedward"])
def test_state_outside_the_kit_is_backed_up_once(workspace, tmp_path, where):
    state = tmp_path / where
    for name in ("privacy-hospital-a.jsonl", "cache/a.npy"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text("x")
    out = tmp_path / "backup.tar"
    done = run(PROVISIONING / "backup.sh", kit(workspace, SITE), out, FEDWARD_STATE=str(state))
    assert done.returncode == 0, done.stderr
    names = run("tar", "--list", "--file", out).stdout.splitlines()
    assert names.count(str(state / "privacy-hospital-a.jsonl")[1:]) == 1
    assert names.count(str(kit(workspace, SITE) / "startup" / "client.key")[1:]) == 1
    assert not [name for name in names if name.endswith("cache/a.npy")]


def test_a_state_that_is_named_and_not_there_is_no_backup(workspace, tmp_path):
    done = run(
        PROVISIONING / "backup.sh",
        kit(workspace, SITE),
        tmp_path / "b.tar",
        FEDWARD_STATE="/no/such/state",
    )
    assert done.returncode != 0


def test_the_servers_backup_holds_jobs_and_runs(workspace, tmp_path):
    server = kit(workspace, SERVER)
    store = tmp_path / "store" / "jobs"
    runs = tmp_path / "runs"
    resources = server / "local" / "resources.json.default"
    resources.write_text(resources.read_text().replace("/var/lib/fedward/jobs", str(store)))
    for file in (
        store / "a" / "meta",
        runs / "lead" / "a" / "run.json",
        server / "disabled_clients.json",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    out = tmp_path / "backup.tar"
    assert run(PROVISIONING / "backup.sh", server, out, FEDWARD_RUNS=str(runs)).returncode == 0
    names = run("tar", "--list", "--file", out).stdout.splitlines()
    for file in (
        store / "a" / "meta",
        runs / "lead" / "a" / "run.json",
        server / "disabled_clients.json",
    ):
        assert str(file)[1:] in names


def test_the_authority_is_backed_up_too(workspace, tmp_path):
    done = run(PROVISIONING / "backup.sh", workspace, "-")
    assert done.returncode == 0
    out = tmp_path / "backup.tar"
    assert run(PROVISIONING / "backup.sh", workspace, out).returncode == 0
    assert (
        f"{str(workspace)[1:]}/fedward/state/cert.json"
        in run("tar", "--list", "--file", out).stdout.splitlines()
    )


@pytest.mark.parametrize(
    ("folder", "started_by"), [("kit", "kit"), ("kit", "link"), ("workspace", "kit")]
)
def test_a_participant_that_runs_is_not_backed_up(workspace, tmp_path, folder, started_by):
    site = kit(workspace, SITE)
    started = site
    if started_by == "link":
        started = tmp_path / "link"
        started.symlink_to(site)
    code = "print(flush=True); input()"
    command = [
        sys.executable,
        "-c",
        code,
        "nvflare.private.fed.app.client.client_train",
        "-m",
        f"{started}/startup/..",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        packed = workspace if folder == "workspace" else site
        done = run(PROVISIONING / "backup.sh", packed, tmp_path / "backup.tar")
        process.communicate(b"\n")
    assert done.returncode == 1
    assert f"found process {process.pid}" in done.stderr
    assert not (tmp_path / "backup.tar").exists()


def test_a_folder_of_something_else_is_not_backed_up(tmp_path):
    done = run(PROVISIONING / "backup.sh", tmp_path, tmp_path / "backup.tar")
    assert done.returncode == 1
    assert "expected a kit with startup/" in done.stderr
