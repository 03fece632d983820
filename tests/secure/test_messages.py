"""Participants who speak FLARE's cell network themselves: what reaches a hospital from them.

The tests stand in an order: first what needs a running job, then what stops a hospital.
"""

import json
import shutil
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from nvflare.apis.fl_constant import FedEventHeader, ReservedKey
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fedward.cli import main
from fedward.flare.gate.names import place_of
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.remote import RemoteSession
from fedward.flare.jobs.submit import session, submit
from flare_requests import LOOKED_AT
from intruder import Intruder, heard, intruder, is_put_out
from local_federation import HOSPITALS, LEAD, MEMBER, SERVER, Federation
from reported import progress_with
from tiny import clinical
from waiting import PATIENCE, appears

pytestmark = pytest.mark.secure

IT = "it@hospital-c.org"
OTHER_IT = "it@hospital-a.org"
ROUNDS = 900
"""More than the tests take."""
PEOPLE = {"member": MEMBER, "lead": LEAD, "org_admin": IT}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A federation whose server listens eight seconds before it knows its own certificate, and
    whose jobs pause in each round.
    """
    running = Federation(tmp_path_factory.mktemp("federation"), image_size=16)
    slow_start = str(Path(__file__).with_name("slow_start"))
    running.own_environment[SERVER] = {"PYTHONPATH": slow_start}
    with running:
        yield running


@pytest.fixture(scope="module")
def flare(federation: Federation) -> Iterator[RemoteSession]:
    with session(federation.kit(LEAD)) as opened:
        yield opened


@pytest.fixture(scope="module")
def job(
    federation: Federation, flare: RemoteSession, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """A job that runs as long as the tests need it."""
    folder = tmp_path_factory.mktemp("jobs") / "long"
    export_job(clinical(options={"rounds": ROUNDS}), folder, clinical=True)
    job_id = submit(flare, folder)
    assert appears(lambda: rounds(federation, job_id) >= 1)
    return job_id


def rounds(federation: Federation, job_id: str) -> int:
    """Return how many rounds a job has finished."""
    logs = list(federation.kit(SERVER).glob(f"fedward/runs/*/{job_id}/rounds.jsonl"))
    return sum(len(log.read_text().splitlines()) for log in logs)


def audit(federation: Federation, name: str) -> str:
    return (federation.kit(name) / "audit.log").read_text()


def all_at_once(
    sender: Intruder, targets: list[str], requests: list[tuple[str, str]]
) -> list[tuple[str, str, str]]:
    """Send every request to every cell; return those that somebody answered."""
    questions = [(target, channel, topic) for target in targets for channel, topic in requests]

    def is_answered(question: tuple[str, str, str]) -> bool:
        target, channel, topic = question
        return heard(sender.ask(target, channel, topic, payload={}))

    with ThreadPoolExecutor(64) as pool:
        answered = pool.map(is_answered, questions)
        return [question for question, heard_ in zip(questions, answered, strict=True) if heard_]


REQUESTS = sorted((channel, "anything" if topic == "*" else topic) for channel, topic in LOOKED_AT)
COMMANDS = sorted(
    topic
    for processor in ClientRequestProcessors.request_processors
    for topic in processor.get_topics()
)


@pytest.mark.proves(
    "faults",
    "sites and users come while the server starts, before it knows its own certificate",
    "they wait; FLARE alone answers no user any more until it is started again",
)
def test_nobody_comes_too_early(federation, flare):
    assert {site.name for site in flare.get_connected_client_list()} == set(HOSPITALS)
    assert "__server_config__" not in (federation.kit(SERVER) / "error_log.txt").read_text()


def test_every_user_sees_how_far_a_job_is(federation, job, capsys):
    with session(federation.kit(MEMBER)) as member:
        state = progress_with("exchange", member, job)
    assert state["status"] == "running"
    assert state["rounds"] == ROUNDS
    assert state["sites"] == len(HOSPITALS)
    assert main(["status", str(federation.kit(OTHER_IT))]) == 0
    assert f"job {job}  long\nfedavg: running, round " in capsys.readouterr().out


@pytest.mark.parametrize("role", PEOPLE)
@pytest.mark.proves(
    "member",
    "every request, command and event of FLARE past the console, with any person's kit",
    "nothing reaches a hospital or a job, and the server's audit log names the person",
)
def test_a_person_reaches_nobody_but_the_servers_console(federation, flare, job, role):
    before = rounds(federation, job)
    targets = ["server", f"server.{job}", "hospital-a", f"hospital-a.{job}"]
    with intruder(federation.kit(PEOPLE[role])) as sender:
        answered = all_at_once(sender, targets, REQUESTS)
    assert {target for target, _, _ in answered} <= {"server"}
    accepted = {
        "hci_channel",
        "task",
        "aux_communication",
        "download_service__",
        "cellnet.channel",
        "return_only",
    }
    assert {channel for _, channel, _ in answered} <= accepted
    assert f"[U:{PEOPLE[role]}][A:refused " in audit(federation, SERVER)
    assert appears(lambda: rounds(federation, job) > before + 1)
    assert str(flare.get_job_meta(job)["status"]) == "RUNNING"


@pytest.mark.parametrize("topic", COMMANDS)
@pytest.mark.proves(
    "member",
    "every request, command and event of FLARE past the console, with any person's kit",
    "nothing reaches a hospital or a job, and the server's audit log names the person",
)
def test_a_person_gives_no_orders_inside_a_hospital(federation, job, orders, topic):
    assert topic not in orders


@pytest.fixture(scope="module")
def orders(federation: Federation, job: str) -> list[str]:
    """The commands that a hospital answered: from a person, in its own name and in the server's."""
    ledger = federation.kit("hospital-c") / "fedward" / "keep.jsonl"
    ledger.parent.mkdir(exist_ok=True)
    ledger.write_text("{}\n")
    bodies = {"sys.shell": "head -n 2 startup/client.key"}
    with intruder(federation.kit(OTHER_IT)) as sender:

        def order(topic: str) -> bool:
            return heard(sender.order("hospital-c", topic, bodies.get(topic, ""), job_id="fedward"))

        with sender.posing_as("server"):
            order("train.delete_run")
        with ThreadPoolExecutor(len(COMMANDS)) as pool:
            answered = list(pool.map(order, COMMANDS))
            with sender.posing_as("server"):
                list(pool.map(order, COMMANDS))
    assert ledger.exists()
    assert federation.processes("hospital-c")
    assert "[A:refused admin:admin] its connection may not speak for 'server'" in audit(
        federation, SERVER
    )
    assert f"[U:{OTHER_IT}][A:refused admin:admin]" in audit(federation, SERVER)
    return [topic for topic, answer in zip(COMMANDS, answered, strict=True) if answer]


@pytest.mark.proves(
    "lead",
    "another lead's job is aborted, cloned, deleted or downloaded, also past the console",
    "not authorised; the job goes on",
)
def test_another_lead_cannot_stop_a_job_past_the_console(federation, job):
    before = rounds(federation, job)
    with intruder(federation.kit("lead@hospital-b.org")) as sender:
        answers = [
            sender.ask(f"server.{job}", CellChannel.SERVER_COMMAND, "abort", {}),
            sender.ask(f"hospital-a.{job}", CellChannel.CLIENT_COMMAND, "abort", {}),
            sender.order("hospital-a", "train.abort", job_id=job),
        ]
    assert not any(map(heard, answers))
    assert appears(lambda: rounds(federation, job) > before + 1)


@pytest.mark.parametrize("event", ["_system_bootstrap", "_system_end"])
@pytest.mark.proves(
    "member",
    "every request, command and event of FLARE past the console, with any person's kit",
    "nothing reaches a hospital or a job, and the server's audit log names the person",
)
def test_a_member_causes_no_event_in_the_server(federation, flare, job, event):
    before = rounds(federation, job)
    with intruder(federation.kit(MEMBER)) as sender:
        assert not heard(
            sender.ask("server", CellChannel.AUX_COMMUNICATION, "fed.event", happening(event))
        )
    assert f"[U:{MEMBER}][A:refused aux_communication:fed.event]" in audit(federation, SERVER)
    assert str(flare.get_job_meta(job)["status"]) == "RUNNING"
    assert appears(lambda: rounds(federation, job) > before + 1)


def happening(event: str) -> Shareable:
    """Return what one component of FLARE sends to others to let an event happen there."""
    sent = Shareable()
    sent.set_header(FedEventHeader.EVENT_TYPE, event)
    sent.set_header(FedEventHeader.TIMESTAMP, 0.0)
    sent.set_peer_props({ReservedKey.IDENTITY_NAME: MEMBER})
    return sent


NAMES = [
    f"server.{uuid.uuid4()}",
    "server.x",
    "hospital-a",
    f"hospital-a.{uuid.uuid4()}",
    "relay.hospital-a",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: str(place_of(name)))
@pytest.mark.parametrize("kit", [MEMBER, "hospital-b"])
@pytest.mark.proves(
    "site",
    "a connection in the name of the server, of a job or of another hospital",
    "refused by its certificate; the server's log names both",
)
def test_a_connection_bears_its_certificates_name(federation, kit, name):
    assert is_put_out(federation.kit(kit), name, PATIENCE)


@pytest.mark.proves(
    "site",
    "a connection in the name of the server, of a job or of another hospital",
    "refused by its certificate; the server's log names both",
)
def test_nobody_is_the_server_itself(federation):
    is_put_out(federation.kit("hospital-b"), "server", seconds=3)
    log = federation.kit(SERVER) / "log.txt"
    assert appears(lambda: "Duplicate endpoint name server" in log.read_text())


def test_a_site_may_connect_under_its_own_name(federation):
    assert not is_put_out(federation.kit("hospital-b"), f"hospital-b.{uuid.uuid4()}", seconds=3)


@pytest.mark.proves(
    "outsider",
    "another account of a hospital's machine at the port between a site's processes",
    "refused without the kit's certificate",
)
def test_ports_within_a_machine_need_a_certificate(federation, job):
    ports = [
        connection.laddr.port
        for name in (SERVER, *HOSPITALS)
        for process in federation.processes(name)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port != federation.port
    ]
    assert len(ports) >= 1 + len(HOSPITALS)
    for port in ports:
        assert shows_certificate_first(port), port


def shows_certificate_first(port: int) -> bool:
    """Return whether a local port ends a connection without TLS, and one without a certificate."""
    import socket
    import ssl

    with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        plain.sendall(b"\x00" * 64)
        with ExitStack() as stack:
            stack.enter_context(pytest.raises((ConnectionError, TimeoutError, AssertionError)))
            answer = plain.recv(1024)
            assert not answer or answer[0] == 0x15, answer  # an alert of TLS, or the end
            raise ConnectionError("closed")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
            context.wrap_socket(raw) as nobody,
        ):
            nobody.sendall(b"\x00" * 64)
            return not nobody.recv(1024)
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.proves(
    "lead",
    "packages in `custom` that torch, MONAI and FLARE look for, or a Python file in a kit or job",
    "not imported, also by a restarted process",
)
def test_a_restarted_process_imports_nothing_from_the_job(federation, job):
    kit = federation.kit("hospital-b")
    custom = kit / job / "app_hospital-b" / "custom"
    mark = federation.folder / "imported"
    custom.mkdir()
    for name in ("pynvml", "triton", "tensorrt", "cupy", "itk"):
        (custom / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    (process,) = [
        each
        for each in federation.processes("hospital-b")
        if "worker_process" in " ".join(each.cmdline())
    ]
    before = rounds(federation, job)
    process.send_signal(signal.SIGKILL)
    assert appears(lambda: "killed by SIGKILL; restart 1" in (kit / "log.txt").read_text())
    assert appears(lambda: rounds(federation, job) > before + 2)
    (again,) = [
        each
        for each in federation.processes("hospital-b")
        if "worker_process" in " ".join(each.cmdline())
    ]
    assert again.pid != process.pid
    assert not mark.exists()
    shutil.rmtree(custom)


def test_the_owner_of_the_job_still_rules_it(federation, flare, job):
    flare.abort_job(job)
    assert appears(lambda: "FINISHED" in str(flare.get_job_meta(job)["status"]))


# --- a hospital's kit: this is the last test, because it stops the hospital


@pytest.mark.proves(
    "site",
    "every request and command of FLARE, to another hospital or the server",
    "no hospital answers; the server's audit log names the site",
)
def test_a_site_reaches_no_other_hospital(federation):
    federation.stop_one("hospital-c")
    with intruder(federation.kit("hospital-c")) as sender:
        answered = all_at_once(sender, ["hospital-a", "hospital-b"], REQUESTS)
        with ThreadPoolExecutor(len(COMMANDS)) as pool:
            ordered = list(
                pool.map(lambda topic: heard(sender.order("hospital-a", topic)), COMMANDS)
            )
        console = sender.ask("server", CellChannel.HCI, "command", json.dumps({}))
    assert answered == []
    assert not any(ordered)
    assert not heard(console)
    assert "[U:hospital-c][A:refused" in audit(federation, SERVER)
