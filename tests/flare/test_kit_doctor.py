"""The doctor of startup kits.

Kits of FLARE's own provisioning are spoilt one way at a time, and small TLS servers answer them.
"""

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import get_ssl_context
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.security.security import FLAuthorizer
from nvflare.tool.cert.fingerprint import cert_fingerprint_sha256

from fedward import cli
from fedward.code_version import code_version
from fedward.errors import ConfigError
from fedward.flare.classes import (
    ALLOWED,
    CONSOLE,
    CONTROLLERS,
    METHOD_CONTROLLER,
)
from fedward.flare.jobs.export import export_job
from fedward.flare.kits import disks, doctor
from fedward.flare.kits.doctor import network
from fedward.flare.kits.doctor.job import deployed
from fedward.flare.kits.doctor.rows import Row
from fedward.jobs import load_experiment
from fedward.security.noise_rule import Rule
from fedward.security.policy import POLICY_FILE
from fedward.security.privacy_ledger import PRIVACY, enter
from foreign_jobs import CLIENT, args, bring, component, edit

ROOT = Path(__file__).parents[2]
PROJECT = """\
api_version: 3
name: tiny
participants:
  - {name: localhost, type: server, org: consortium, fed_learn_port: 8002, admin_port: 8002}
  - {name: hospital-a, type: client, org: hospital_a}
  - {name: lead@hospital-a.org, type: admin, org: hospital_a, role: lead}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {config_folder: config, scheme: http}
  - path: fedward.flare.kits.builder.SitePolicyBuilder
  - path: nvflare.lighter.impl.cert.CertBuilder
"""
RULES = "local/resources.json.default"
SHIPPED = Path(doctor.__file__).parents[1] / "templates" / POLICY_FILE
NOW = datetime.now(UTC)


# --- kits


@pytest.fixture(scope="module", autouse=True)
def _equal_keys_are_read_once():
    """Read each private key once: the check that it is prime takes longer than all other checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            serialization, "load_pem_private_key", cache(serialization.load_pem_private_key)
        )
        yield


@pytest.fixture(scope="session")
def provisioned(tmp_path_factory):
    """Return the folder with the kits of a server, a site and a user."""
    folder = tmp_path_factory.mktemp("provisioned")
    (folder / "project.yml").write_text(PROJECT)
    command = [
        sys.executable,
        "-m",
        "nvflare.cli",
        "provision",
        "-p",
        "project.yml",
        "-w",
        "workspace",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return folder / "workspace" / "tiny" / "prod_00"


@dataclass
class Kit:
    """A copy of a kit that a test may spoil."""

    folder: Path

    @property
    def startup(self):
        return self.folder / "startup"

    def rewrite(self, path, change):
        """Let ``change`` alter a JSON file's content."""
        content = json.loads((self.folder / path).read_text())
        change(content)
        (self.folder / path).write_text(json.dumps(content))

    def target(self, port, host="localhost", scheme="http", security="mtls"):
        def change(content):
            content["servers"][0]["service"] = {"target": f"{host}:{port}", "scheme": scheme}
            content["client"]["connection_security"] = security

        self.rewrite("startup/fed_client.json", change)

    def resources(self, **changes):
        content = {**json.loads((self.folder / RULES).read_text()), **changes}
        kept = {key: value for key, value in content.items() if value is not None}
        (self.folder / RULES).write_text(json.dumps(kept))

    def launcher(self, path, name="process_launcher"):
        """Put another launcher in the place of the kit's."""

        def change(content):
            content["components"] = [
                part for part in content["components"] if part["id"] != "process_launcher"
            ]
            content["components"].append({"id": name, "path": path, "args": {}})

        self.rewrite(RULES, change)

    def has_data(self, name="hospital-a.yaml", **site):
        """Write a site file; by default it names four images in an npz file beside the kit."""
        labels = np.arange(4)
        np.savez(
            self.folder.parent / "four.npz",
            train_images=np.zeros((4, 16, 16), np.uint8),
            train_labels=labels,
        )
        site = site or {"kind": "npz", "file": "../../four.npz"}
        (self.folder / "local" / name).write_text(yaml.safe_dump(site))

    def privacy(self, *scopes, default=None):
        content = {"scopes": list(scopes), **({"default_scope": default} if default else {})}
        (self.folder / "local" / "privacy.json").write_text(json.dumps(content))

    def check(self, job=None):
        """Return the rows by name."""
        return {row.name: row for row in doctor.examine(self.folder, job)[1]}

    def only_failure(self, name, *words, job=None):
        """Assert that one row failed, and that it says ``words`` and what to do."""
        rows = self.check(job)
        assert [row.name for row in rows.values() if row.status == "failed"] == [name]
        self.says(rows[name], *words)

    def warns(self, name, *words, job=None):
        rows = self.check(job)
        assert not [row for row in rows.values() if row.status == "failed"]
        assert rows[name].status == "warning"
        self.says(rows[name], *words)

    @staticmethod
    def says(row, *words):
        told = " ".join((row.found, row.expected, row.remedy))
        assert all(word in told for word in words), told
        assert row.expected
        assert row.remedy


def copy_of(kit, folder):
    shutil.copytree(kit, folder)
    return Kit(folder)


@pytest.fixture
def kit(provisioned, tmp_path, listener):
    """Return a site's kit with which all is well, and a server that listens."""
    kit = copy_of(provisioned / "hospital-a", tmp_path / "hospital-a")
    kit.target(listener.port)
    noise = {
        "path": "fedward.flare.privacy.GaussianUpdateFilter",
        "args": {"clip": 1.0, "noise_multiplier": 4.0, "delta": 1e-5, "max_epsilon": 8.0},
    }
    kit.privacy({"name": "clinical", "task_result_filters": [noise]})
    kit.has_data()
    shutil.copy(SHIPPED, kit.folder / "local")
    return kit


@pytest.fixture
def job(tmp_path):
    export_job(load_experiment("fedavg", clinical=True), tmp_path / "fedavg", clinical=True)
    return tmp_path / "fedavg"


def meta(job, change):
    edit("meta.json", change)(job)


# --- servers


class Listener:
    """A TLS server on a free port that greets accepted clients, like FLARE's gRPC listener."""

    def __init__(self, context, greeting=b"hello"):
        self._context = context
        self._greeting = greeting
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.received = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._socket.close()

    def _serve(self):
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection):
        with suppress(OSError), self._context.wrap_socket(connection, server_side=True) as secure:
            if self._greeting:
                secure.send(self._greeting)
            self.received.append(secure.recv(100))


def flare_context(startup, security="mtls"):
    """Return the context of FLARE's own http and tcp listeners."""
    return get_ssl_context(
        {
            DriverParams.SCHEME.value: "stcp",
            DriverParams.CONNECTION_SECURITY.value: security,
            DriverParams.CA_CERT.value: str(startup / "rootCA.pem"),
            DriverParams.SERVER_CERT.value: str(startup / "server.crt"),
            DriverParams.SERVER_KEY.value: str(startup / "server.key"),
        },
        ssl_server=True,
    )


@pytest.fixture(scope="session")
def listener(provisioned):
    listener = Listener(flare_context(provisioned / "localhost" / "startup"))
    yield listener
    listener.close()


@pytest.fixture
def listen():
    """Return a function that starts a listener for the length of a test."""
    running = []

    def start(*arguments, **options):
        running.append(Listener(*arguments, **options))
        return running[-1].port

    yield start
    for listener in running:
        listener.close()


@pytest.fixture(scope="session")
def grpc_port(provisioned):
    """Return the port of a gRPC server with the credentials of FLARE's."""
    startup = provisioned / "localhost" / "startup"
    key, certificate, root = (
        (startup / name).read_bytes() for name in ("server.key", "server.crt", "rootCA.pem")
    )
    server = grpc.server(futures.ThreadPoolExecutor(2))
    credentials = grpc.ssl_server_credentials([(key, certificate)], root, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield port
    server.stop(None)


# --- certificates


class Authority:
    """A certificate authority made for a test."""

    def __init__(self, name="another project", days=1000):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.root = self._sign(self._name, self._key.public_key(), -2000, days, authority=True)

    def issue(self, folder, stem, name, start=-1, days=1000, alternative=None):
        """Write a key, its certificate and the root into a startup folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(
            subject, key.public_key(), start, days, alternative=alternative or name
        )
        form = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        folder.mkdir(exist_ok=True)
        (folder / f"{stem}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        (folder / f"{stem}.key").chmod(0o600)
        (folder / f"{stem}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / "rootCA.pem").write_bytes(self.root.public_bytes(serialization.Encoding.PEM))

    def _sign(self, subject, key, start, days, alternative=None, authority=False):
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(NOW + timedelta(start)).not_valid_after(
            NOW + timedelta(days)
        )
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
        if alternative:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(alternative)]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


# --- all is well


def test_a_good_kit_and_a_clinical_job(kit, job, capsys):
    assert doctor.run(kit.folder, job) == 0
    text = capsys.readouterr().out
    assert text.startswith("Kit of site hospital-a, project tiny, server localhost:")
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[-1] == "All well."
    statuses = {row.name: row.status for row in kit.check(job).values()}
    assert set(statuses.values()) == {"ok"}
    assert set(statuses) >= {
        "layout",
        "private key",
        "key pair",
        "certificate",
        "owner",
        "validity",
        "root CA",
        "clock",
    }
    assert set(statuses) >= {
        "server name",
        "port",
        "TLS",
        "mutual TLS",
        "allow list",
        "app check",
        "launcher",
        "logs",
        "privacy",
        "data",
        "versions",
    }
    assert set(statuses) >= {"job", "job scope", "job app", "own code", "job classes"}
    assert f"fedward {code_version()}, nvflare 2." in text, "what other machines compare"
    assert "clinical: GaussianUpdateFilter (result out)" in text.replace("\n" + " " * 25, " ")


def test_fingerprints_are_those_of_flares_commands(kit):
    rows = kit.check()
    for row, file in (("certificate", "client.crt"), ("root CA", "rootCA.pem")):
        certificate = x509.load_pem_x509_certificate((kit.startup / file).read_bytes())
        fingerprint = cert_fingerprint_sha256(certificate)
        assert rows[row].found.endswith("\n" + fingerprint)
        # People compare it by telephone: its halves are one below the other.
        halves = [line.strip() for line in rows[row].lines()[-2:]]
        assert "".join(halves) == fingerprint
        assert [half.count(":") for half in halves] == [17, 15]


def test_nothing_is_sent_but_handshakes(kit, provisioned, monkeypatch):
    monkeypatch.setattr(network, "_ANSWER", 0.2)
    silent = Listener(flare_context(provisioned / "localhost" / "startup"), greeting=b"")
    kit.target(silent.port)
    before = {path: path.read_bytes() for path in kit.folder.rglob("*") if path.is_file()}
    assert kit.check()["TLS"].status == "ok"
    silent.close()
    assert set(silent.received) <= {b""}
    assert {path: path.read_bytes() for path in kit.folder.rglob("*") if path.is_file()} == before


def test_the_command_knows_a_kit_from_a_site_file(kit, job, tmp_path, capsys):
    assert cli.main(["doctor", str(kit.folder), "--job", str(job)]) == 0
    assert "job classes" in capsys.readouterr().out
    (kit.folder / "startup" / "rootCA.pem").unlink()
    assert cli.main(["doctor", str(kit.folder)]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert cli.main(["doctor", str(tmp_path / "site.yaml"), "--job", str(job)]) == 1
    assert "site.yaml" in capsys.readouterr().out.replace("\n", "")
    assert cli.main(["status", str(tmp_path), "1234"]) == 2
    assert "a startup kit" in capsys.readouterr().err


def test_kits_of_servers_and_users(provisioned, tmp_path, listener, job):
    server = copy_of(provisioned / "localhost", tmp_path / "server")
    server.rewrite(
        "startup/fed_server.json",
        lambda c: c["servers"][0]["service"].update(target=f"localhost:{free_port()}"),
    )
    rows = server.check(job)
    assert rows["port"].status == "warning"
    assert {row.status for row in rows.values() if row.name not in ("port", "TLS")} == {"ok"}
    assert "privacy" not in rows
    assert "MethodController" in rows["job classes"].found

    user = copy_of(provisioned / "lead@hospital-a.org", tmp_path / "lead")
    user.rewrite(
        "startup/fed_admin.json", lambda content: content["admin"].update(port=listener.port)
    )
    rows = user.check(job)
    assert {row.status for row in rows.values() if row.name != "job"} == {"ok"}
    assert rows["job"].status == "skipped"
    assert "allow list" not in rows
    script = user.startup / "fl_admin.sh"
    script.write_text(script.read_text().replace(CONSOLE, "nvflare.fuel.hci.tools.admin"))
    row = user.check()["console"]
    assert row.status == "warning"
    assert row.found == "FLARE's own console, in which the server chooses files of yours"


# --- files, key and certificates


@pytest.fixture
def no_room(monkeypatch):
    monkeypatch.setattr(disks.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))


@pytest.mark.usefixtures("no_room")
def test_a_full_disk(kit):
    kit.only_failure("disk", f"no room in {kit.folder}", f"fedward prune {kit.folder}")


@pytest.mark.usefixtures("no_room")
def test_a_server_that_cannot_write_is_not_taken_for_another_process(
    provisioned, tmp_path, listener
):
    """It holds its port, and could write so last before its disk was full."""
    server = copy_of(provisioned / "localhost", tmp_path / "server")
    server.rewrite(
        "startup/fed_server.json",
        lambda content: content["servers"][0]["service"].update(
            target=f"localhost:{listener.port}"
        ),
    )
    (server.folder / "fedward").mkdir()
    last = {"written": time.time() - 90, "port": listener.port, "sites": {}}
    (server.folder / "fedward" / "presence.json").write_text(json.dumps(last))
    rows = server.check()
    assert rows["disk"].status == rows["port"].status == "failed"
    assert "its disk is full, and it could write nothing for 90 s" in rows["port"].found
    assert rows["port"].remedy.startswith("Make room")


@pytest.mark.parametrize("name", ["client.key", "client.crt", "rootCA.pem", "start.sh"])
def test_a_missing_file(kit, name):
    (kit.startup / name).unlink()
    kit.only_failure("layout", f"startup/{name}")
    assert kit.check()["TLS"].status == "skipped"


def test_no_local_folder(kit, job):
    shutil.rmtree(kit.folder / "local")
    kit.only_failure("layout", "local/", job=job)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "fed_client.json"),
        ("[]", "a list"),
        ("{}", "no 'servers'"),
        ('{"servers": [], "client": {}}', "an empty list"),
        (
            '{"servers": [{"name": "tiny", "service": {"target": "a:70000"}}], '
            '"client": {"fqsn": "a"}}',
            "the port 70000",
        ),
        (
            '{"servers": [{"name": null, "service": {"target": "a:8002"}}], '
            '"client": {"fqsn": "a"}}',
            "a value of another kind",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read(kit, text, found):
    (kit.startup / "fed_client.json").write_text(text)
    kit.only_failure("layout", found)


def test_a_folder_without_a_configuration_or_with_two(kit):
    shutil.copy(kit.startup / "fed_client.json", kit.startup / "fed_server.json")
    kit.only_failure("layout", "fed_client.json, fed_server.json")
    for name in ("fed_client.json", "fed_server.json"):
        (kit.startup / name).unlink()
    kit.only_failure("layout", "none")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_can_read(kit, mode):
    (kit.startup / "client.key").chmod(mode)
    kit.only_failure("private key", f"startup/client.key, mode {mode:04o}", "chmod 600")


def test_a_key_of_encryption_that_others_can_read(kit):
    """All hospitals share it, and it decrypts every update."""
    file = kit.startup / "client_context.tenseal"
    file.write_bytes(b"secret")
    file.chmod(0o600)
    assert kit.check()["private key"].status == "ok"
    file.chmod(0o644)
    kit.only_failure("private key", "startup/client_context.tenseal, mode 0644")


@pytest.mark.parametrize(
    ("places", "sites"),
    [
        ("@all", {"@ALL"}),
        (["@all"], {"@ALL"}),
        (["server", "a", "b"], {"server", "a", "b"}),
        ({"sites": ["a", "b"]}, {"a", "b"}),
        ({"targets": ["a"]}, {"a"}),
        ([{"sites": ["a"]}, "b"], {"a", "b"}),
    ],
)
def test_a_job_goes_where_flare_sends_it(places, sites):
    assert deployed({"deploy_map": {"app": places}}) == {"app": sites}


@pytest.mark.parametrize("places", [3, None, {"site": ["a"]}, [{"sites": "a"}]])
def test_a_deploy_map_that_flare_does_not_read_is_refused(places):
    with pytest.raises(ConfigError, match="a deploy_map that names sites for each app"):
        deployed({"deploy_map": {"app": places}})


def test_the_key_of_somebody_else(kit, provisioned):
    shutil.copy(
        provisioned / "lead@hospital-a.org" / "startup" / "client.key", kit.startup / "client.key"
    )
    kit.only_failure("key pair", "the key of another certificate")
    assert kit.check()["TLS"].status == "skipped"


@pytest.mark.parametrize(
    ("file", "row"), [("client.key", "key pair"), ("client.crt", "certificate")]
)
def test_a_file_that_is_no_pem(kit, file, row):
    (kit.startup / file).write_text("nonsense")
    kit.only_failure(row, "a PEM file")


def test_a_certificate_of_a_foreign_authority(kit, provisioned):
    Authority().issue(kit.startup, "client", "hospital-a")
    shutil.copy(provisioned / "hospital-a" / "startup" / "rootCA.pem", kit.startup)
    kit.only_failure("certificate", "signed by another, named another project", "root CA, tiny")


def test_a_certificate_made_out_to_another(kit, provisioned):
    for name in ("client.key", "client.crt"):
        shutil.copy(provisioned / "lead@hospital-a.org" / "startup" / name, kit.startup)
    kit.only_failure("owner", "made out to hospital-a", "lead@hospital-a.org")


@pytest.fixture
def reissued(kit, tmp_path, listen):
    """Return a function that gives the kit, and a server, certificates of a new authority."""

    def issue(root_days=1000, **validity):
        authority = Authority("tiny", root_days)
        authority.issue(kit.startup, "client", "hospital-a", **validity)
        authority.issue(tmp_path / "server", "server", "localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            tmp_path / "server" / "server.crt", tmp_path / "server" / "server.key"
        )
        context.load_verify_locations(tmp_path / "server" / "rootCA.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        kit.target(listen(context))
        return kit

    return issue


def test_an_expired_certificate(reissued):
    rows = reissued(start=-100, days=-3).check()
    assert rows["validity"].status == "failed"
    Kit.says(rows["validity"], "expired on", f"{NOW - timedelta(3):%Y-%m-%d}", "new certificate")
    assert rows["TLS"].status == "failed"  # the server sees it too
    assert rows["certificate"].status == rows["key pair"].status == "ok"


def test_a_certificate_that_expires_soon(reissued):
    reissued(days=12).warns("validity", "11 days, until", "30 days or more")
    reissued(days=2).warns("validity", "1 day, until", "30 days or more")
    assert reissued(days=32).check()["validity"].status == "ok"


def test_an_authority_that_expires(reissued):
    reissued(root_days=10).warns("root validity", "9 days")
    assert reissued(root_days=-1).check()["root validity"].status == "failed"


def test_a_clock_that_is_behind(reissued):
    rows = reissued(start=2).check()
    assert rows["clock"].status == "failed"
    Kit.says(rows["clock"], f"{NOW + timedelta(2):%Y-%m-%d}", "Set the clock")


def test_the_clock_is_not_claimed_to_be_measured(kit):
    row = kit.check()["clock"]
    assert row.status == "ok"
    assert "cannot be measured" in row.found


# --- the way to the server


def test_a_name_without_an_address(kit):
    kit.target(8002, host="server.invalid")
    kit.only_failure("server name", "server.invalid", "DNS")
    assert kit.check()["port"].status == kit.check()["TLS"].status == "skipped"


def test_a_closed_port(kit):
    port = free_port()
    kit.target(port)
    kit.only_failure("port", f"localhost:{port}", "refused")


def test_flares_grpc_server(kit, grpc_port):
    kit.target(grpc_port, scheme="grpc")
    rows = kit.check()
    assert rows["TLS"].status == rows["mutual TLS"].status == "ok"
    assert "TLSv1.3 with localhost\nSHA256:" in rows["TLS"].found


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_refuses_our_certificate(kit, scheme, grpc_port, listener, provisioned):
    """The handshake itself succeeds with TLS 1.3; the refusal comes after it."""
    Authority().issue(kit.startup, "client", "hospital-a")
    authority = (kit.startup / "rootCA.pem").read_bytes()
    theirs = (provisioned / "hospital-a" / "startup" / "rootCA.pem").read_bytes()
    (kit.startup / "rootCA.pem").write_bytes(authority + theirs)  # so that we accept the server
    kit.target(grpc_port if scheme == "grpc" else listener.port, scheme=scheme)
    kit.only_failure("TLS", "accepts the kit's certificate", "another provisioning")


def server_context(authority, folder, name="localhost", demand=True, **validity):
    authority.issue(folder, "server", name, **validity)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    if demand:
        context.load_verify_locations(folder / "rootCA.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_server_of_another_project(kit, tmp_path, listen):
    kit.target(listen(server_context(Authority(), tmp_path / "server")))
    kit.only_failure("TLS", "a certificate that rootCA.pem did not sign")


@pytest.mark.parametrize(
    ("scheme", "changes", "found", "remedy"),
    [
        (
            "http",
            {"start": -9, "days": -1},
            "an expired certificate",
            "administrator has to renew it",
        ),
        ("http", {"start": 1}, "not valid yet", "Compare this machine's clock"),
        (
            "grpc",
            {"alternative": "elsewhere"},
            "for another name",
            "Another service or project answers, or a proxy",
        ),
        ("http", {"name": "hospital-b"}, "the server localhost", "Correct the address"),
    ],
)
def test_a_server_with_the_wrong_certificate(kit, tmp_path, listen, scheme, changes, found, remedy):
    authority = Authority("tiny")
    authority.issue(kit.startup, "client", "hospital-a")
    kit.target(listen(server_context(authority, tmp_path / "server", **changes)), scheme=scheme)
    kit.only_failure("TLS", found, remedy)


def test_other_transports_do_not_compare_the_host_name(kit, tmp_path, listen):
    authority = Authority("tiny")
    authority.issue(kit.startup, "client", "hospital-a")
    kit.target(
        listen(server_context(authority, tmp_path / "server", alternative="elsewhere")),
        scheme="tcp",
    )
    assert kit.check()["TLS"].status == "ok"


def test_a_server_that_accepts_everybody(kit, provisioned, listen):
    kit.target(listen(flare_context(provisioned / "localhost" / "startup", security="tls")))
    kit.warns("mutual TLS", "accepts everybody")


def test_a_kit_for_one_sided_tls(kit, provisioned, tmp_path, listen):
    kit.target(
        listen(flare_context(provisioned / "localhost" / "startup", security="tls")), security="tls"
    )
    rows = kit.check()
    assert rows["TLS"].status == "ok"
    assert "mutual TLS" not in rows
    proxy = Authority("proxy")
    port = listen(server_context(proxy, tmp_path / "server", demand=False))
    shutil.copy(tmp_path / "server" / "rootCA.pem", kit.startup / "customRootCA.pem")
    kit.target(port, security="tls")
    assert kit.check()["TLS"].status == "ok"


def test_a_kit_without_tls(kit, listener):
    kit.target(listener.port, security="clear")
    kit.warns("TLS", "nothing is encrypted")


def test_a_port_that_speaks_no_tls(kit):
    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(
            target=lambda: [plain.accept()[0].close() for _ in range(2)], daemon=True
        ).start()
        kit.target(plain.getsockname()[1])
        kit.only_failure("TLS", "check that a FLARE server listens")


# --- the site's rules


SITE_LIST = list(ALLOWED["site"])


@pytest.mark.parametrize("listed", [None, [], ["fedwardx.Executor"], SITE_LIST[:1], SITE_LIST[1:]])
def test_an_allow_list_that_lacks_a_class(kit, listed):
    kit.resources(class_allow_list=listed)
    kit.only_failure("allow list", RULES, "MonaiTrainerExecutor")


def test_a_servers_list_from_before_a_method_had_its_controller(provisioned, tmp_path):
    """It serves all other jobs; without the controller of most methods it does not."""
    folder = tmp_path / "localhost"
    shutil.copytree(provisioned / "localhost", folder)

    def row_without(controller: str) -> Row:
        content = json.loads((folder / RULES).read_text())
        content["class_allow_list"].remove(controller)
        (folder / RULES).write_text(json.dumps(content))
        return {row.name: row for row in doctor.examine(folder)[1]}["allow list"]

    older = row_without(CONTROLLERS["fedirm"])
    assert older.status == "warning"
    assert older.found == f"{RULES} without {CONTROLLERS['fedirm']}"
    assert "class_allow_list from a newly provisioned kit" in older.remedy
    assert row_without(METHOD_CONTROLLER).status == "failed"


def test_a_sites_own_copy_of_the_rules_counts(kit):
    (kit.folder / "local" / "resources.json").write_text((kit.folder / RULES).read_text())
    kit.resources(class_allow_list=[])
    assert kit.check()["allow list"].status == "ok"
    (kit.folder / "local" / "resources.json").write_text("{")
    kit.only_failure("allow list", "local/resources.json", "a JSON object")


@pytest.mark.parametrize(
    "changes", [{"class_allow_list": "fedward."}, {"class_allow_list": [*SITE_LIST, "short"]}]
)
def test_an_allow_list_flare_cannot_read(kit, changes):
    kit.resources(**changes)
    kit.only_failure("allow list", "allow_list")


@pytest.mark.parametrize(
    "entry",
    [
        "*",
        "fedward.",
        "fedward.flare.executor",
        "fedward.cli.main",
        "fedward.flare.privacy.GaussianUpdateFilter",
        "nvflare.app_common.workflows.fedavg.FedAvg",
        "json.decoder",
        "nibabel.",
    ],
)
def test_an_entry_that_admits_more_than_single_classes_fails(kit, entry):
    kit.resources(class_allow_list=[*SITE_LIST, entry])
    kit.only_failure("allow list", entry, "of single classes")


def test_an_enforcement_mode_that_only_warns(kit):
    kit.resources(class_list_enforcement_mode="warn")
    kit.only_failure("allow list", "every installed class", '"enforce"')


def test_a_class_of_the_sites_own_is_said(kit):
    kit.resources(class_allow_list=[*SITE_LIST, "our_hospital.methods.Ours"])
    kit.warns("allow list", "our_hospital.methods.Ours", "app check")


@pytest.mark.parametrize(
    "check",
    [
        None,
        {"path": "nvflare.private.fed.app.default_app_validator.DefaultAppValidator", "args": {}},
        {"path": "fedward.flare.kits.apps.AppCheck", "args": {"role": "server"}},
        {"path": "fedward.flare.kits.apps.AppCheck", "args": {"role": "site"}, "disabled": True},
    ],
)
def test_a_kit_that_does_not_check_apps(kit, check):
    kit.resources(app_validator=check)
    kit.only_failure("app check", "AppCheck", "any file")


def test_launchers(kit):
    kit.launcher("nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher")
    kit.only_failure("launcher", "SiteJobLauncher", "import from the kit")
    kit.launcher("nvflare.app_opt.job_launcher.docker_launcher.ClientDockerJobLauncher")
    kit.warns("launcher", "ClientDockerJobLauncher", "--supervise")
    kit.resources(components=[])
    kit.only_failure("launcher", "none")


def test_a_second_launcher_beside_the_kits_own_fails(kit):
    """FLARE then starts no job."""
    second = {"id": "docker_launcher", "path": "our_hospital.Launcher", "args": {}}
    kit.rewrite(RULES, lambda content: content["components"].append(second))
    kit.only_failure("launcher", "SiteJobLauncher, our_hospital.Launcher")


SAFE = 'export PYTHONPATH="${PYTHONPATH:-}" PYTHONSAFEPATH=1'
START = "python3 -u -m nvflare"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SAFE, "export PYTHONPATH=/local/custom:$PYTHONPATH"),
        (SAFE, SAFE.removesuffix(" PYTHONSAFEPATH=1")),
        (SAFE, SAFE.replace("PYTHONSAFEPATH=1", "PYTHONSAFEPATH=")),
        (SAFE, SAFE.replace(':-}"', ':-}:/srv/extra"')),
        (SAFE, f"# {SAFE}"),
        (SAFE, f"if false; then\n  {SAFE}\nfi"),
        (SAFE, f"{SAFE}\nunset PYTHONSAFEPATH"),
        (SAFE, f"{SAFE}\nexport PYTHONPATH=$WORKSPACE:$PYTHONPATH"),
        (START, "python3 -E -u -m nvflare"),
        (START, f"env -u PYTHONSAFEPATH {START}"),
        (START, START.replace("python3", "/opt/python3.11")),
    ],
)
def test_a_start_script_that_imports_from_elsewhere(provisioned, tmp_path, old, new):
    kit = copy_of(provisioned / "hospital-a", tmp_path / "kit")
    assert kit.check()["start script"].status == "ok"
    script = kit.startup / "sub_start.sh"
    assert script.read_text().count(old) == 1
    script.write_text(script.read_text().replace(old, new))
    row = kit.check()["start script"]
    assert row.status == "failed"
    Kit.says(row, "PYTHONSAFEPATH=1", "as provisioning writes it", "Restore the script")


def test_a_missing_or_late_line_in_the_start_script_fails(kit):
    script = kit.startup / "sub_start.sh"
    script.write_text(script.read_text().replace(f"{SAFE}\n", "") + f"{SAFE}\n")
    kit.only_failure("start script", "in another place")
    script.unlink()
    kit.only_failure("start script", "no such line")


@pytest.mark.parametrize(
    ("permissions", "granted"),
    [
        ({"lead": {"byoc": "any"}}, "lead"),
        ({"lead": {" BYOC ": "All"}}, "lead"),
        ({"Lead": "any", "member": {"byoc": "none"}}, "lead"),
        (
            {"lead": {"byoc": ["o:site", "none"]}, "org_admin": {"byoc": "n:a@b"}},
            "lead (o:site), org_admin (n:a@b)",
        ),
        ({"lead": {"byoc": "not n:a@b"}}, "lead (not n:a@b)"),
        ({"lead": {"byoc": ["any", "not o:x"]}}, "lead (any, not o:x)"),
        ({"lead": {"byoc": "not none"}}, "lead"),
        ({"lead": {"byoc": ["none", "not n:a@b"]}}, ""),
        ({"lead": {"byoc": ["any", "not any"]}}, ""),
        ({"lead": {"submit_job": "any"}, "member": "none"}, ""),
    ],
)
def test_rules_that_let_somebody_bring_code_are_reported(kit, permissions, granted):
    """The doctor says that somebody may where, and only where, FLARE lets one of two people."""
    rules = {"format_version": "1.0", "permissions": permissions}
    (kit.folder / "local" / "authorization.json").write_text(json.dumps(rules))
    people = [
        Person(name, "site", role)
        for name in ("a@b", "c@d")
        for role in ("lead", "org_admin", "member")
    ]
    authorizer = FLAuthorizer("site", rules)
    assert bool(granted) is any(
        authorizer.evaluate(AuthzContext("byoc", who, who))[0] for who in people
    )
    if granted:
        kit.warns("code rights", f"grants byoc to {granted}", '"byoc": "none"')
    else:
        assert kit.check()["code rights"].found == "authorization.json: nobody may bring code"


def test_code_rights_of_a_server_and_of_flares_own_rules(kit, provisioned, tmp_path):
    assert kit.check()["code rights"].status == "ok"
    server = copy_of(provisioned / "localhost", tmp_path / "server")
    server.rewrite(
        "local/authorization.json", lambda c: c["permissions"]["lead"].update(byoc="any")
    )
    row = server.check()["code rights"]
    assert row.status == "warning"
    assert row.found == "authorization.json grants byoc to lead"
    (kit.folder / "local" / "authorization.json").unlink()
    kit.warns("code rights", "authorization.json.default grants byoc to project_admin, lead")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{",
        "{}",
        '{"format_version": "1.0", "permissions": {"lead": {"byoc": 1}}}',
        '{"format_version": "1.0", "permissions": {"lead": {"byoc": [null]}}}',
    ],
)
def test_code_rights_that_flare_cannot_read(kit, text):
    (kit.folder / "local" / "authorization.json.default").unlink()
    (kit.folder / "local" / "authorization.json").unlink()
    if text:
        (kit.folder / "local" / "authorization.json").write_text(text)
    kit.only_failure("code rights", "authorization.json")


@pytest.mark.parametrize("allowed", [True, None])
def test_logs_that_leave_the_site(kit, allowed):
    kit.resources(allow_log_streaming=allowed)
    kit.warns("logs", '"allow_log_streaming": false')


@pytest.mark.parametrize("sent", [None, {"cameras": 3}])
def test_a_configuration_that_leaves_the_site(kit, sent):
    def change(content):
        content["client"].pop("site_config")
        if sent:
            content["client"]["site_config"] = sent

    kit.rewrite("startup/fed_client.json", change)
    kit.only_failure("registration", "site_config")


def test_no_file_about_the_data(kit):
    (kit.folder / "local" / "hospital-a.yaml").rename(kit.folder / "local" / "fedward_site.yaml")
    assert kit.check()["data"].status == "ok"
    (kit.folder / "local" / "fedward_site.yaml").unlink()
    kit.warns("data", "fedward_site.yaml", "clinical jobs fail")


def test_what_a_site_file_names_is_opened(kit):
    """Relative paths start at the site file's own folder, wherever the doctor is called."""
    row = kit.check()["data"]
    file = kit.folder.parent.resolve() / "four.npz"
    assert row.found.splitlines()[0] == f"local/hospital-a.yaml: 4 labels, {file}"


MANIFEST = {"kind": "manifest", "folder": "../images"}


def images(kit, listed, there):
    """Write a CSV into the kit's folder of images; some of the files that it lists exist."""
    folder = kit.folder / "images"
    folder.mkdir()
    rows = [f"s{index},{index}.png,MEL,g{index}" for index in range(listed)]
    (folder / "manifest.csv").write_text("\n".join(["sample_id,image,label,group", *rows]))
    for index in range(there):
        (folder / f"{index}.png").write_bytes(b"looked for, not opened")
    return folder.resolve()


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (
            {"kind": "npz", "file": "../data/a.npz"},
            ["field file", "an npz file", "none at {kit}/data/a.npz"],
        ),
        ({"kind": "npz", "file": "../local"}, ["field file", "another kind at {kit}/local"]),
        ({"kind": "npz", "file": "privacy.json"}, ["{kit}/local/privacy.json", "an npz file"]),
        (
            {"kind": "npz", "file": "../../empty.npz"},
            ["empty.npz", "train_labels or labels", "none"],
        ),
        ({"kind": "npz"}, ["field file", "a value"]),
        (
            {"kind": "manifest", "folder": "../imags"},
            ["none at {kit}/imags (did you mean images?)"],
        ),
        (
            {**MANIFEST, "manifest": "a.csv"},
            ["field manifest", "a CSV file", "none at {kit}/local/a.csv"],
        ),
        (
            {**MANIFEST, "columns": {"label": "diagnosis"}},
            ["{kit}/images/manifest.csv", "missing: diagnosis"],
        ),
        (MANIFEST, ["images lie in {kit}/images", "1 of 10 that do not; line 11", "field folder"]),
        ({"kind": "manifest"}, ["field folder"]),
    ],
)
def test_a_site_file_whose_data_is_not_where_it_says(kit, site, words):
    images(kit, listed=10, there=9)
    np.savez(kit.folder.parent / "empty.npz", train_images=np.zeros((4, 16, 16), np.uint8))
    kit.has_data(**site)
    kit.only_failure("data", *(word.format(kit=kit.folder.resolve()) for word in words))


@pytest.mark.parametrize(
    ("there", "site"),
    [
        (10, {}),
        (9, {"max_rejected": 0.1}),
    ],
)
def test_a_site_file_whose_images_are_there(kit, there, site):
    folder = images(kit, listed=10, there=there)
    kit.has_data(**MANIFEST, **site)
    row = kit.check()["data"]
    assert row.status == "ok"
    assert row.found.splitlines()[0] == f"local/hospital-a.yaml: {there} images listed, {folder}"


def test_a_csv_without_rows_is_told(kit):
    images(kit, listed=0, there=0)
    kit.has_data(**MANIFEST)
    kit.only_failure("data", "0 of 0 that do not")


def test_the_servers_own_images_are_looked_for(provisioned, tmp_path):
    server = copy_of(provisioned / "localhost", tmp_path / "server")
    assert "data" not in server.check(), "few jobs need them"
    server.has_data("server.yaml")
    assert server.check()["data"].status == "ok"
    (tmp_path / "four.npz").unlink()
    row = server.check()["data"]
    assert row.status == "failed"
    assert row.found == f"site server, field file: none at {tmp_path.resolve()}/four.npz"


def test_paths_of_a_container_are_not_those_of_the_machine(kit):
    kit.has_data(kind="npz", file="/mounted/images.npz")
    kit.only_failure("data", "none at /mounted/images.npz")
    kit.launcher(
        "nvflare.app_opt.job_launcher.docker_launcher.ClientDockerJobLauncher", "docker_launcher"
    )
    row = kit.check()["data"]
    assert row.status == "warning"
    assert row.found == "site hospital-a, field file: none at /mounted/images.npz"
    assert "whether they are mounted" in row.remedy


def test_no_privacy_rules(kit, job):
    (kit.folder / "local" / "privacy.json").unlink()
    kit.warns("privacy", "nothing is filtered")
    kit.warns("job scope", "'clinical'", "without filters", job=job)


def test_privacy_rules_that_cannot_be_built(kit, job, capsys):
    shutil.copy(kit.folder / "local" / "privacy.json.sample", kit.folder / "local" / "privacy.json")
    kit.only_failure("privacy", "AddNoiseToMinMax", job=job)
    assert kit.check(job)["job scope"].status == "skipped"
    kit.privacy({"name": "clinical", "task_result_filters": [{"path": "fedward.nothing.Here"}]})
    kit.only_failure("privacy", "fedward.nothing")
    noise = {"path": "fedward.flare.privacy.GaussianUpdateFilter", "args": {"clip": 0}}
    kit.privacy({"name": "clinical", "task_result_filters": [noise]})
    kit.only_failure("privacy", "GaussianUpdateFilter", "max_epsilon")
    assert capsys.readouterr().out == ""


# --- noise


def test_the_noise_of_a_site_is_reported_with_its_spent_budget(kit):
    row = kit.check()["noise"]
    assert row.status == "ok"
    assert (
        row.found == "clinical: one release costs epsilon 1.99; "
        "0 releases spent 0 of 8 at delta 1e-05; releases left: 11"
    )
    ledger = PRIVACY.file(kit.folder / "fedward", "hospital-a")
    rule = Rule(1.0, 4.0, 1e-5, 8.0)
    for _ in range(11):
        enter(ledger, {}, rule)
    kit.warns(
        "noise",
        "11 releases spent 7.955 of 8",
        "left: 0",
        "raise max_epsilon in local/privacy.json",
    )
    ledger.write_bytes(ledger.read_bytes()[:-1])
    kit.only_failure("noise", "the log was cut at the end")


def test_half_a_line_of_the_ledger_is_reported_and_does_not_count(kit):
    ledger = PRIVACY.file(kit.folder / "fedward", "hospital-a")
    rule = Rule(1.0, 4.0, 1e-5, 8.0)
    enter(ledger, {}, rule)
    ledger.write_bytes(ledger.read_bytes() + b'{"clip":1.0,')
    kit.warns("ledger", "half a line of 12 bytes", "does not count")
    assert "1 release spent 1.993 of 8" in kit.check()["noise"].found
    enter(ledger, {}, rule)
    assert "ledger" not in kit.check()


def test_a_ledger_that_nothing_names_is_not_guessed(kit, tmp_path, monkeypatch):
    """Jobs in containers keep it in a folder of their own."""
    content = json.loads((kit.folder / RULES).read_text())
    kit.resources(components=[*content["components"], {"id": "docker_launcher"}])
    row = kit.check()["noise"]
    assert row.status == "skipped"
    assert "FEDWARD_STATE" in row.found
    monkeypatch.setenv("FEDWARD_STATE", str(tmp_path / "state"))
    enter(PRIVACY.file(tmp_path / "state", "hospital-a"), {}, Rule(1.0, 4.0, 1e-5, 8.0))
    assert "1 release spent 1.993 of 8" in kit.check()["noise"].found


def test_the_documented_noise_works_as_it_is_written(kit):
    text = (ROOT / "docs" / "noise.md").read_text()
    (block,) = (
        block
        for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)
        if "GaussianUpdateFilter" in block
    )
    (kit.folder / "local" / "privacy.json").write_text(block)
    assert "releases left: 1734" in kit.check()["noise"].found
    assert "1734 releases" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise_multiplier", 1e-6), ("delta", 0.5), ("clip", 1e9), ("max_epsilon", 1e6)],
)
def test_absurd_noise_fails(kit, name, value):
    args = {"clip": 1.0, "noise_multiplier": 4.0, "delta": 1e-5, "max_epsilon": 8.0, name: value}
    noise = {"path": "fedward.flare.privacy.GaussianUpdateFilter", "args": args}
    kit.privacy({"name": "clinical", "task_result_filters": [noise]})
    kit.only_failure("privacy", f"GaussianUpdateFilter, {name}: expected")


# --- files that cannot be read


def written(content):
    def write(path):
        path.write_bytes(content)
        path.chmod(0o600)

    return write


BROKEN = {
    "empty": written(b""),
    "no JSON": written(b"{a"),
    "a list": written(b"[]"),
    "null": written(b"null"),
    "not UTF-8": written(b"\xff\xfe"),
    "lists without end": written(b"[" * 100_000),
    "a folder": Path.mkdir,
}


def broken_ways(path, harmless):
    """Put something else in a file's place, one way after the other."""
    path.parent.mkdir(exist_ok=True)
    for way, write in BROKEN.items():
        if way in harmless:
            continue
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        write(path)
        yield way


@pytest.mark.parametrize(
    ("file", "row", "harmless"),
    [
        ("startup/fed_client.json", "layout", ["a folder"]),
        ("startup/client.crt", "certificate", ["a folder"]),
        (RULES, "allow list", []),
        ("local/resources.json", "allow list", []),
        ("local/log_config.json", "log files", ["a folder"]),
        ("local/privacy.json", "privacy", ["a folder"]),
        ("local/authorization.json", "code rights", ["a folder"]),
        ("local/comm_config.json", "own connections", []),
        ("local/hospital-a.yaml", "data", ["a folder"]),
        (f"local/{POLICY_FILE}", "policy", ["empty", "null"]),
        ("fedward/draws.secret", "draws", []),
        ("fedward/privacy-hospital-a.end.json", "noise", []),
    ],
)
def test_a_file_that_cannot_be_read_is_named_in_its_row(kit, file, row, harmless):
    for way in broken_ways(kit.folder / file, harmless):
        found = kit.check()
        failed = {name for name, each in found.items() if each.status == "failed"}
        assert failed == {row}, way
        Kit.says(found[row])
        said = " ".join((found[row].found, found[row].expected, found[row].remedy))
        assert Path(file).name in said or row == "certificate", (way, said)
        assert "Error:" not in said, (way, said)


@pytest.mark.parametrize("listed", [None, {}, 3, [None], ["process_launcher"]])
def test_components_that_are_no_list_of_components_are_told(kit, job, listed):
    kit.rewrite(RULES, lambda content: content.update(components=listed))
    kit.only_failure("launcher", "resources.json.default", "a list of components", job=job)


@pytest.mark.parametrize("content", [None, 3, {"sites": None}, {"written": None, "sites": {}}])
def test_a_servers_presence_that_cannot_be_read_is_told(provisioned, tmp_path, listener, content):
    server = copy_of(provisioned / "localhost", tmp_path / "server")
    server.rewrite(
        "startup/fed_server.json",
        lambda c: c["servers"][0]["service"].update(target=f"localhost:{listener.port}"),
    )
    (server.folder / "fedward").mkdir()
    (server.folder / "fedward" / "presence.json").write_text(json.dumps(content))
    server.only_failure("port", "presence.json", "a participant that runs writes it again")


# --- a job


def failures(kit, job):
    return {row.name: row for row in kit.check(job).values() if row.status == "failed"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("os.path.join", "'os.path.join'"),
        ("fedward.report.template.PackageLoader", "'fedward.report.template.PackageLoader'"),
    ],
)
def test_a_job_with_a_class_that_is_not_listed(kit, job, path, name):
    component(CLIENT, path)(job / "app")
    found = failures(kit, job)
    assert list(found) == ["job app", "job classes"]
    Kit.says(found["job classes"], name)
    Kit.says(found["job app"], path)


def test_a_class_hidden_in_the_arguments_of_another(kit, job):
    change = {"path": "subprocess.Popen", "args": {}}
    edit(CLIENT, lambda content: args(CLIENT)(content).update(helper=change))(job / "app")
    found = failures(kit, job)
    assert list(found) == ["job app", "job classes"]
    Kit.says(found["job classes"], "'subprocess.Popen'")


def test_a_part_without_a_path(kit, job):
    part = {"id": "odd", "name": "TBAnalyticsReceiver"}
    edit(CLIENT, lambda content: content["components"].append(part))(job / "app")
    found = failures(kit, job)
    assert list(found) == ["job app", "job classes"]
    Kit.says(found["job classes"], "name is not allowed")


@pytest.mark.parametrize(
    "name", ["custom/mine.py", "config/evil.py", "config/notes.txt", "data/x.json"]
)
def test_a_job_with_an_unknown_file(kit, job, name):
    bring(name)(job / "app")
    kit.only_failure("job app", repr(name), "fedward jobs", job=job)


def test_a_job_says_what_it_runs(kit, job):
    found = kit.check(job)["job classes"].found
    assert found == f"it runs {', '.join(ALLOWED['site'])}, and no other"


def test_a_job_with_an_image_of_its_own(kit, job):
    image = {"default": {"docker": {"image": "theirs:latest"}}}
    meta(job, lambda content: content.update(launcher_spec=image))
    kit.only_failure("own code", "let nobody", "--clinical", job=job)
    kit.rewrite(
        "local/authorization.json",
        lambda c: c["permissions"]["lead"].update(byoc=["o:site", "none"]),
    )
    kit.warns("own code", "lead (o:site)", job=job)
    (kit.folder / "local" / "authorization.json").unlink()
    kit.warns("own code", "project_admin, lead", "could do anything", job=job)


def test_a_scope_that_is_not_here(kit, job):
    kit.privacy({"name": "public"}, {"name": "private"})
    kit.only_failure("job scope", "one of public, private", "'clinical'", job=job)
    meta(job, lambda content: content.pop("scope"))
    kit.only_failure("job scope", "none", job=job)
    kit.privacy({"name": "public"}, default="public")
    assert kit.check(job)["job scope"].found == "none named, so the default, public"


def test_a_job_for_other_sites(kit, job):
    for places in (["server", "site-1"], {"sites": ["server", "site-1"]}):
        meta(job, lambda content, places=places: content.update(deploy_map={"app": places}))
        kit.warns("job", "one for other sites", job=job)
    for places in (["server", "hospital-a"], {"targets": ["hospital-a"]}, ["@all"]):
        meta(job, lambda content, places=places: content.update(deploy_map={"app": places}))
        assert kit.check(job)["job"].status == "ok"


@pytest.mark.parametrize("deploy_map", [None, [], {"app": 3}])
def test_a_job_without_a_map_of_sites(kit, job, deploy_map):
    meta(job, lambda content: content.update(deploy_map=deploy_map))
    kit.only_failure("job", "a deploy_map", job=job)


def test_a_folder_that_is_no_job(kit, job, tmp_path):
    kit.only_failure("job", "meta.json", job=tmp_path)
    (job / "app" / "config" / "config_fed_client.json").unlink()
    kit.only_failure("job", "config_fed_client.json", job=job)


# --- connections within the machine


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "connection_security 'clear'"),
        ({}, "connection_security 'clear'"),
        ({"internal": {"scheme": "tcp", "resources": {"connection_security": "clear"}}}, "'clear'"),
        ({"internal": {"scheme": "tcp", "resources": {"connection_security": "tls"}}}, "'tls'"),
    ],
)
def test_processes_of_one_machine_show_certificates(kit, content, found):
    file = kit.folder / "local" / "comm_config.json"
    assert json.loads(file.read_text())["internal"]["resources"]["connection_security"] == "mtls"
    file.unlink()
    if content is not None:
        file.write_text(json.dumps(content))
    kit.only_failure("own connections", found, "newly provisioned kit")


def test_cells_that_open_ports_for_others_are_told(kit):
    file = kit.folder / "local" / "comm_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"allow_adhoc_conns": True}))
    kit.warns("own connections", "allow_adhoc_conns", "newly provisioned kit")
