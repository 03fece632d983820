"""What a participant's own metrics say of its kit, and that they cannot disturb it."""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from prometheus_client.parser import text_string_to_metric_families

from fedward.annotation.queue import Queue, queue_folder
from fedward.client import site_log
from fedward.code_version import code_version
from fedward.flare.kits import metrics as metrics_module
from fedward.flare.kits.metrics import ANSWERS_FOLDER, KitMetrics
from fedward.security.noise_rule import Rule
from fedward.security.privacy_budget import epsilon
from fedward.security.privacy_ledger import enter
from provisioned import provisioned

SITE = "hospital-a"
SERVER = "localhost"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("workspace"))


@pytest.fixture
def kits(fresh: Path, tmp_path: Path) -> Path:
    """The kits of all participants; the server keeps its jobs beside them."""
    kits = shutil.copytree(fresh, tmp_path / "kits")
    (tmp_path / "store").mkdir()
    resources = kits / SERVER / "local" / "resources.json.default"
    text = resources.read_text()
    resources.write_text(text.replace("/var/lib/fedward/jobs", str(tmp_path / "store")))
    return kits


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "metrics"
    folder.mkdir()
    monkeypatch.setenv("FEDWARD_METRICS", str(folder))
    return folder


class Context:
    """What an event brings along: the workspace, and at the server who is connected."""

    def __init__(self, folder: Path, clients: list[Client]) -> None:
        self.folder = folder
        self.clients = clients

    def get_prop(self, name: str) -> "Context":
        assert name == FLContextKey.WORKSPACE_OBJECT
        return self

    def get_root_dir(self) -> str:
        return str(self.folder)

    def get_engine(self) -> "Context":
        return self

    def get_clients(self) -> list[Client]:
        return self.clients


def heartbeat(kit: Path, *clients: tuple[str, float]) -> None:
    """Let a participant write its metrics once."""
    connected = [Client(name, "token") for name, _ in clients]
    for client, (_, seen) in zip(connected, clients, strict=True):
        client.last_connect_time = seen
    event = EventType.CLIENT_HEARTBEAT_PROCESSED if clients else EventType.BEFORE_CLIENT_HEARTBEAT
    KitMetrics().handle_event(event, Context(kit, connected))  # type: ignore[arg-type]


def samples(file: Path) -> dict[tuple[str, ...], float]:
    """Return (name, values of the labels, sorted by their names) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


NOISE = {"clip": 1.0, "noise_multiplier": 50.0, "delta": 1e-5, "max_epsilon": 8.0}


def add_noise(kit: Path) -> None:
    """Let a site add noise to what it sends."""
    rules = json.loads((kit / "local" / "privacy.json").read_text())
    path = "fedward.flare.privacy.GaussianUpdateFilter"
    rules["scopes"][0]["task_result_filters"] = [{"path": path, "args": NOISE}]
    (kit / "local" / "privacy.json").write_text(json.dumps(rules))


def expiry(file: Path) -> float:
    return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()


def test_a_sites_metrics_hold_all_that_is_watched(kits, metrics):
    kit = kits / SITE
    site_file = kit / "local" / "fedward_site.yaml"
    site_file.write_text("kind: npz\nfile: /data.npz\n")
    Queue(queue_folder(site_file)).request("a" * 32, 1, "entropy", ["x", "y"])
    add_noise(kit)
    ledger = kit / "fedward" / f"privacy-{SITE}.jsonl"
    rule = Rule(**NOISE)
    for round_ in (1, 2):
        enter(ledger, {"round": round_}, rule)
    answers = kit / "fedward" / "answers" / f"{'a' * 32}.jsonl"
    answers.parent.mkdir(parents=True)
    answers.write_text("")
    os.utime(answers, (1000, 1000))

    heartbeat(kit)
    found = samples(metrics / f"fedward_kit_{SITE}.prom")
    assert found["fedward_info", SITE, code_version()] == 1
    assert found["fedward_certificate_expiry_timestamp_seconds", "own", SITE] == expiry(
        kit / "startup" / "client.crt"
    )
    root = kit / "startup" / "rootCA.pem"
    assert found["fedward_certificate_expiry_timestamp_seconds", "authority", SITE] == expiry(root)
    assert found["fedward_waiting_questions", SITE] == 2
    assert found["fedward_epsilon", SITE] == epsilon([50.0, 50.0], 1e-5)
    assert found["fedward_epsilon_budget", SITE] == 8
    assert found["fedward_last_request_timestamp_seconds", SITE] == 1000
    disk_size = found["fedward_disk_size_bytes", "kit", SITE]
    assert 0 < found["fedward_disk_free_bytes", "kit", SITE] <= disk_size
    age = datetime.now(UTC).timestamp() - found["fedward_written_timestamp_seconds", SITE]
    assert 0 <= age < 600
    assert not [key for key in found if key[0] == "fedward_last_contact_timestamp_seconds"]


def test_the_server_remembers_a_site_that_is_away(kits, metrics):
    """Also after a restart: otherwise the alert about a silent site would end with the server."""
    heartbeat(kits / SERVER, ("hospital-a", 1000.0), ("hospital-b", 1001.0))
    heartbeat(kits / SERVER, ("hospital-b", 2000.0))
    found = samples(metrics / f"fedward_kit_{SERVER}.prom")
    assert found["fedward_last_contact_timestamp_seconds", "hospital-a"] == 1000
    assert found["fedward_last_contact_timestamp_seconds", "hospital-b"] == 2000
    places = {key[1] for key in found if key[0] == "fedward_disk_free_bytes"}
    assert places == {"kit", "runs", "jobs"}


def test_an_unreadable_file_is_named_and_hides_nothing_else(kits, metrics, caplog):
    kit = kits / SITE
    add_noise(kit)
    (kit / "fedward").mkdir()
    (kit / "fedward" / f"privacy-{SITE}.jsonl").write_text("no ledger\n")
    with caplog.at_level(logging.WARNING):
        heartbeat(kit)
    found = samples(metrics / f"fedward_kit_{SITE}.prom")
    assert found["fedward_unreadable", "privacy", SITE] == 1
    assert found["fedward_unreadable", "certificate", SITE] == 0
    assert ("fedward_certificate_expiry_timestamp_seconds", "own", SITE) in found
    assert "privacy" in caplog.text


CONTAINERS = {
    "components": [{"id": "docker_launcher"}, {"id": "job_manager", "args": {"uri_root": "/"}}]
}


def test_state_is_looked_for_where_it_is_kept(kits, metrics, tmp_path, monkeypatch):
    """What an old ``fedward`` in the kit says counts no longer."""
    kit = kits / SITE
    state = tmp_path / "state"
    monkeypatch.setenv("FEDWARD_STATE", str(state))
    (kit / "local" / "resources.json").write_text(json.dumps(CONTAINERS))
    add_noise(kit)
    for folder, releases, asked in ((kit / "fedward", 1, 1000), (state, 3, 2000)):
        for round_ in range(releases):
            enter(folder / f"privacy-{SITE}.jsonl", {"round": round_}, Rule(**NOISE))
        answers = folder / "answers" / f"{'a' * 32}.jsonl"
        answers.parent.mkdir()
        answers.write_text("")
        os.utime(answers, (asked, asked))
    heartbeat(kit)
    found = samples(metrics / f"fedward_kit_{SITE}.prom")
    assert found["fedward_epsilon", SITE] == epsilon([50.0] * 3, 1e-5)
    assert found["fedward_last_request_timestamp_seconds", SITE] == 2000
    assert {key[1] for key in found if key[0] == "fedward_disk_free_bytes"} == {"kit", "state"}


def test_the_server_remembers_in_its_state(kits, metrics, tmp_path, monkeypatch):
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("FEDWARD_STATE", str(tmp_path / "state"))
    heartbeat(kits / SERVER, ("hospital-a", 1000.0))
    assert json.loads((tmp_path / "state" / "contacts.json").read_text()) == {"hospital-a": 1000.0}
    assert not (kits / SERVER / "fedward").exists()
    found = samples(metrics / f"fedward_kit_{SERVER}.prom")
    assert {key[1] for key in found if key[0] == "fedward_disk_free_bytes"} == {
        "kit",
        "state",
        "runs",
        "jobs",
    }


def test_a_state_folder_that_nothing_names_is_reported_as_unreadable(kits, metrics, caplog):
    """Jobs in containers keep it in a folder that the participant does not know."""
    kit = kits / SITE
    (kit / "local" / "resources.json").write_text(json.dumps(CONTAINERS))
    add_noise(kit)
    with caplog.at_level(logging.WARNING):
        heartbeat(kit)
    found = samples(metrics / f"fedward_kit_{SITE}.prom")
    unreadable = {
        key[1] for key, value in found.items() if key[0] == "fedward_unreadable" and value
    }
    assert unreadable == {"privacy", "requests"}
    assert "FEDWARD_STATE" in caplog.text


@pytest.mark.parametrize("whole", [0, 2])
def test_half_a_ledger_line_is_named_and_hides_no_epsilon(kits, metrics, caplog, whole):
    kit = kits / SITE
    add_noise(kit)
    ledger = kit / "fedward" / f"privacy-{SITE}.jsonl"
    for round_ in range(whole + 1):
        enter(ledger, {"round": round_}, Rule(**NOISE))
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:whole]) + lines[whole][:40])
    end = {
        "lines": whole,
        "last_hash": json.loads(lines[whole - 1])["hash"] if whole else ledger.name,
    }
    ledger.with_suffix(".end.json").write_text(json.dumps(end))
    with caplog.at_level(logging.WARNING):
        heartbeat(kit)
    found = samples(metrics / f"fedward_kit_{SITE}.prom")
    assert found["fedward_epsilon", SITE] == epsilon([50.0] * whole, 1e-5)
    assert found["fedward_unreadable", "privacy", SITE] == 0
    assert f"{ledger} ends in half a line" in caplog.text


@pytest.mark.parametrize("folder", ["/no/such/folder", "relative"])
def test_a_wrong_folder_is_logged_and_ends_nothing(kits, monkeypatch, caplog, folder):
    monkeypatch.setenv("FEDWARD_METRICS", folder)
    with caplog.at_level(logging.WARNING):
        heartbeat(kits / SITE)
    assert "FEDWARD_METRICS" in caplog.text


def test_nothing_is_written_unless_a_folder_is_named(kits, monkeypatch):
    monkeypatch.delenv("FEDWARD_METRICS", raising=False)
    before = sorted(kits.rglob("*"))
    heartbeat(kits / SITE)
    assert sorted(kits.rglob("*")) == before


def test_heartbeats_in_a_row_write_one_file(kits, metrics):
    component = KitMetrics()
    context = Context(kits / SITE, [])
    component.handle_event(EventType.BEFORE_CLIENT_HEARTBEAT, context)  # type: ignore[arg-type]
    (file,) = metrics.iterdir()
    file.unlink()
    component.handle_event(EventType.BEFORE_CLIENT_HEARTBEAT, context)  # type: ignore[arg-type]
    assert not list(metrics.iterdir())


def test_heartbeats_at_once_write_one_file(kits, metrics, monkeypatch):
    """FLARE's server answers the heartbeats of several sites at once, each in its own thread."""
    both_look = Barrier(2)

    def now() -> float:
        with suppress(BrokenBarrierError):
            both_look.wait(0.5)
        return 100.0

    monkeypatch.setattr(metrics_module, "time", SimpleNamespace(monotonic=now, time=time.time))
    written: list[str] = []
    monkeypatch.setattr(
        metrics_module, "families", lambda kit, contacts: written.append(kit.name) or []
    )
    component = KitMetrics()
    heartbeats = [
        Thread(
            target=component.handle_event,
            args=(EventType.CLIENT_HEARTBEAT_PROCESSED, Context(kits / SERVER, [])),
        )
        for _ in range(2)
    ]
    for thread in heartbeats:
        thread.start()
    for thread in heartbeats:
        thread.join()
    assert len(written) == 1


@pytest.mark.parametrize("name", [SITE, SERVER])
def test_every_kit_names_the_component(kits, name):
    components: list[Any] = json.loads(
        (kits / name / "local" / "resources.json.default").read_text()
    )["components"]
    paths = [part["path"] for part in components]
    assert paths.count("fedward.flare.kits.metrics.KitMetrics") == 1


@pytest.mark.parametrize("name", [SITE, SERVER])
def test_a_participants_metrics_import_no_torch(kits, name):
    """The component lives in the participant's own process, which is idle most of the time."""
    add_noise(kits / SITE)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedward.flare.kits.kit import open_kit\n"
        "from fedward.flare.kits.metrics import KitMetrics, families\n"
        "KitMetrics()\n"
        "families(open_kit(Path(sys.argv[1])), {})\n"
        "print(sorted({'torch', 'monai', 'timm'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code, str(kits / name)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"


def test_the_folder_of_answers_is_that_of_the_site_log():
    assert ANSWERS_FOLDER == site_log.ANSWERS_FOLDER
