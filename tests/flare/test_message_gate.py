"""The messages that the cells of a kit accept, by every pair of neighbours.

Each request that FLARE registers has been looked at.
"""

import ast
import importlib
import io
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nvflare
import pytest
from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FedEventHeader, ReservedKey, ReturnCode, RunProcessKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.format_check import name_check
from nvflare.app_common.resource_managers.gpu_resource_manager import GPUResourceManager
from nvflare.app_opt.job_launcher.workspace_cell_transfer import make_workspace_transfer_fqcn
from nvflare.fuel.f3.cellnet import cell as flares_cell
from nvflare.fuel.f3.cellnet.core_cell import CellAgent, CoreCell, _Waiter
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessageType,
)
from nvflare.fuel.f3.cellnet.net_agent import NetAgent
from nvflare.fuel.f3.cellnet.net_manager import NetManager
from nvflare.fuel.f3.connection import ConnState
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stats_pool import StatsPoolManager
from nvflare.fuel.f3.streaming.byte_receiver import ByteReceiver, RxTask
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.fuel.f3.streaming.stream_types import BlobSizeError, StreamError
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.private.admin_defs import Message as Command
from nvflare.private.defs import ClientType, RequestHeader
from nvflare.private.fed.app.deployer.server_deployer import ServerDeployer
from nvflare.private.fed.client import admin as flares_commands
from nvflare.private.fed.client import scheduler_cmds as flares_job_commands
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.client.training_cmds import AbortAppProcessor
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.job_runner import JobRunner
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent
from nvflare.security.security import FLAuthorizer
from nvflare.widgets.fed_event import FedEventRunner, ServerFedEventRunner

from fedward.flare.gate import hooks, server_start
from fedward.flare.gate import refusals as refusal_log
from fedward.flare.gate.arrivals import Arrival, arrival_of
from fedward.flare.gate.commands import RIGHTS
from fedward.flare.gate.decisions import message_refusal
from fedward.flare.gate.lost_sites import LostSites
from fedward.flare.gate.names import is_job_id, place_of
from fedward.flare.gate.refusals import Refusals
from fedward.flare.gate.requests import REQUESTS
from fedward.flare.gate.shut_out import ShutOut
from fedward.flare.gate.streams import OpenStreams
from fedward.flare.kits.resource_check import check_requirements
from flare_requests import LOOKED_AT

JOB = "0b5e1f8e-63a4-4d0c-9a4b-5b6f1c1d9f10"
OTHER_JOB = "5c6b0f0e-0f0e-4e57-8a3e-0d6a2f1f6a11"
USER = "_admin_6f1b7a52-55f5-4f3a-8f6c-6f3e4b8f1a22"
MEMBER = "member@hospital-b.org"
SHELL = ("admin", "admin")


def arrival(receiver: str, neighbour: str, **changes: Any) -> Arrival:
    """Return a neighbour's request for the receiver, over a connection as the two have it."""
    passive = receiver == "server" or (receiver == "hospital-a" and neighbour != "server")
    known = {
        "receiver": receiver,
        "neighbour": neighbour,
        "certificate": MEMBER if neighbour == USER else "its own",
        "passive": passive,
        "origin": neighbour,
        "destination": receiver,
        "request": None,
        "foreign_address": False,
    }
    return Arrival(**{**known, **changes})


# --- names


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("server", "server"),
        (f"server.{JOB}", "server job"),
        ("hospital-a", "site"),
        (f"hospital-a.{JOB}", "site job"),
        (USER, "user"),
        ("hospital-a.x", None),
        ("server.x", None),
        (f"relay.hospital-a.{JOB}", None),
        (f"hospital-a.{JOB}.R0", None),
        ("_admin_x", "site"),
        (make_workspace_transfer_fqcn("hospital-a", JOB), "site job"),
        (make_workspace_transfer_fqcn("server", JOB), "server job"),
    ],
)
def test_a_cells_name_says_what_it_is(name, place):
    assert place_of(name) == place


@pytest.mark.parametrize(
    "text", ["fedward", "", "..", "startup", f"{JOB}/..", JOB.upper(), f" {JOB}", None, 7]
)
def test_only_flares_ids_are_jobs(text):
    assert not is_job_id(text)
    assert is_job_id(JOB)


# --- connections


@pytest.mark.parametrize(
    ("receiver", "neighbour", "changes"),
    [
        ("server", "server", {}),
        ("server", "hospital-a", {"passive": False}),
        ("server", "hospital-a", {"certificate": None}),
        ("server", "relay.x", {}),
        ("server", USER, {"certificate": None}),
        ("server", f"server.{JOB}", {"certificate": None}),
        ("hospital-a", f"hospital-a.{JOB}", {"certificate": None}),
        (f"server.{JOB}", "hospital-a", {}),
        (f"server.{JOB}", "server", {"passive": True}),
        ("hospital-a", "server", {"passive": True}),
        ("hospital-a", "hospital-b", {}),
        ("hospital-a", f"hospital-b.{JOB}", {}),
        ("hospital-a", USER, {}),
        (f"hospital-a.{JOB}", "hospital-b", {}),
        (f"hospital-a.{JOB}", f"hospital-a.{OTHER_JOB}", {}),
        (USER, "server", {"passive": False}),
    ],
)
def test_strangers_are_no_neighbours(receiver, neighbour, changes):
    assert "not that of a neighbour" in message_refusal(arrival(receiver, neighbour, **changes))


@pytest.mark.proves(
    "site",
    "a hospital's kit that opens a console",
    "refused; the server's audit log names the site",
)
def test_only_a_person_opens_a_console():
    for request in (("hci_channel", "command"), ("task", "register"), None):
        console = arrival("server", USER, certificate="hospital-b", request=request)
        assert message_refusal(console) == "only a person may open a console"


def test_people_alone_have_an_at_sign_in_their_name():
    """So the gate tells a person's certificate from that of a site or server."""
    for kind in ("client", "server", "relay"):
        assert name_check("hospital-a", kind)[0] is False
        assert name_check(MEMBER, kind)[0] is True
    assert name_check(MEMBER, "admin")[0] is False
    assert name_check("hospital-a", "admin")[0] is True


@pytest.mark.parametrize(
    ("receiver", "neighbour", "origin"),
    [
        ("server", USER, "server"),
        ("server", USER, "hospital-a"),
        ("server", USER, USER.replace("6f1b", "6f1c")),
        ("server", "hospital-b", "hospital-a"),
        ("server", "hospital-b", "server"),
        ("server", "hospital-b", f"server.{JOB}"),
        ("server", f"hospital-b.{JOB}", f"hospital-a.{JOB}"),
        ("server", f"server.{JOB}", f"server.{OTHER_JOB}"),
        ("hospital-a", "server", "hospital-b"),
        ("hospital-a", "server", USER),
        ("hospital-a", "server", "hospital-a"),
        ("hospital-a", f"hospital-a.{JOB}", "server"),
        (f"hospital-a.{JOB}", "server", f"hospital-b.{JOB}"),
        (f"hospital-a.{JOB}", "hospital-a", USER),
        (f"server.{JOB}", "server", USER),
    ],
)
def test_a_connection_speaks_for_its_own_cell(receiver, neighbour, origin):
    assert "may not speak for" in message_refusal(arrival(receiver, neighbour, origin=origin))


def test_no_message_makes_a_cell_connect_elsewhere():
    message = arrival("server", "hospital-a", foreign_address=True)
    assert message_refusal(message) == "it names an address to connect to"


# --- routes


@pytest.mark.parametrize(
    ("receiver", "neighbour", "destination"),
    [
        ("server", USER, "hospital-a"),
        ("server", USER, f"hospital-a.{JOB}"),
        ("server", USER, f"server.{JOB}"),
        ("server", "hospital-b", "hospital-a"),
        ("server", "hospital-b", f"hospital-a.{JOB}"),
        ("server", f"hospital-b.{JOB}", f"hospital-a.{JOB}"),
        ("server", "hospital-b", "hospital-b"),
        ("server", "hospital-b", USER),
        ("server", f"server.{JOB}", USER),
        ("hospital-a", "server", "hospital-b"),
        ("hospital-a", f"hospital-a.{JOB}", "hospital-b"),
        ("hospital-a", f"hospital-a.{JOB}", f"hospital-a.{OTHER_JOB}"),
        (f"hospital-a.{JOB}", "server", "hospital-a"),
        (f"server.{JOB}", "server", f"server.{OTHER_JOB}"),
    ],
)
@pytest.mark.parametrize("request_", [SHELL, None], ids=["request", "answer"])
def test_nothing_is_passed_on_between_two_leaves(receiver, neighbour, destination, request_):
    message = arrival(receiver, neighbour, destination=destination, request=request_)
    assert message_refusal(message).startswith("nothing is passed on")


def test_a_site_takes_part_in_its_own_job_alone():
    streamed = {"request": ("server_command", "submit_update"), "destination": f"server.{JOB}"}
    own = arrival("server", f"hospital-a.{JOB}", **streamed)
    assert message_refusal(own) == ""
    foreign = arrival("server", f"hospital-a.{OTHER_JOB}", **streamed)
    assert message_refusal(foreign).startswith("it leads from one job to another")
    at_the_job = arrival(
        f"server.{JOB}", "server", origin=f"hospital-a.{OTHER_JOB}", request=streamed["request"]
    )
    assert message_refusal(at_the_job).startswith("it leads from one job to another")


ORDINARY = [
    arrival("server", "hospital-a", request=("task", "heart_beat")),
    arrival("server", USER, request=("hci_channel", "command")),
    arrival("server", f"server.{JOB}", request=("server_parent_listener", "get_clients")),
    arrival(
        "server",
        f"server.{JOB}",
        destination=f"hospital-a.{JOB}",
        request=("aux_communication", "__end_run__"),
    ),
    arrival("server", "hospital-a", origin=f"hospital-a.{JOB}", request=("sm__STREAM", "sm__ACK")),
    arrival(
        f"server.{JOB}",
        "server",
        origin=f"hospital-a.{JOB}",
        request=("server_command", "get_task"),
    ),
    arrival(f"server.{JOB}", "server", request=("server_command", "abort")),
    arrival("hospital-a", "server", request=SHELL),
    arrival("hospital-a", "server", destination=f"hospital-a.{JOB}", origin=f"server.{JOB}"),
    arrival("hospital-a", f"hospital-a.{JOB}", request=("admin", "train.notify_job_status")),
    arrival(f"hospital-a.{JOB}", "hospital-a", request=("client_command", "abort")),
    arrival(
        f"hospital-a.{JOB}",
        "server",
        origin=f"server.{JOB}",
        request=("return_only", "server_command:get_task"),
    ),
]


@pytest.mark.parametrize("message", ORDINARY, ids=str)
def test_what_a_federation_needs_passes(message):
    assert message_refusal(message) == ""


# --- requests: every one that FLARE registers


def registered() -> set[tuple[str, str]]:
    """Return channel and topic of each callback that FLARE registers, read from its source."""
    root = Path(nvflare.__file__).parent
    requests = set()
    for file in sorted(root.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if not any(name in text for name in REGISTRATIONS):
            continue
        module = importlib.import_module(
            ".".join(("nvflare", *file.relative_to(root).with_suffix("").parts))
        )
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in REGISTRATIONS:
                continue
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            positional = [*node.args, None, None]
            channel = keywords.get("channel") or positional[0]
            topic = keywords.get("topic") or positional[1]
            if is_argument(channel) or is_argument(topic):
                continue  # A wrapper of FLARE's own, which registers for its callers.
            requests.add((str(value(channel, module)), str(value(topic, module))))
    return requests


REGISTRATIONS = ("register_request_cb", "register_blob_cb")


def is_argument(expression: ast.expr) -> bool:
    """Return whether an expression is the argument ``channel`` or ``topic`` of the function."""
    return isinstance(expression, ast.Name) and expression.id in ("channel", "topic")


def value(expression: ast.expr, module: Any) -> Any:
    """Return what a name, an attribute or a literal in a module's code stands for."""
    return eval(compile(ast.Expression(expression), module.__name__, "eval"), vars(module))


@pytest.mark.proves(
    "member",
    "a request that another version of FLARE has",
    "accepted by no process; a test fails until somebody has reviewed it",
)
def test_every_request_that_flare_registers_was_looked_at():
    assert registered() == LOOKED_AT


PLACES = {
    "server": {
        "site": "hospital-a",
        "site job": f"hospital-a.{JOB}",
        "user": USER,
        "server job": f"server.{JOB}",
    },
    "server job": {"server": "server", "site": "hospital-a", "site job": f"hospital-a.{JOB}"},
    "site": {"server": "server", "server job": f"server.{JOB}", "site job": f"hospital-a.{JOB}"},
    "site job": {"server": "server", "server job": f"server.{JOB}", "site": "hospital-a"},
}
DIRECT = {
    "server": ("site", "site job", "user", "server job"),
    "server job": ("server",),
    "site": ("server", "site job"),
    "site job": ("server", "site"),
}
"""Receiver -> the neighbours that have a connection of their own with it."""
RECEIVERS = {
    "server": "server",
    "server job": f"server.{JOB}",
    "site": "hospital-a",
    "site job": f"hospital-a.{JOB}",
}


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_request_is_accepted_from_whom_the_table_names(receiver):
    for channel, topic in LOOKED_AT:
        for sender, origin in PLACES[receiver].items():
            neighbour = origin if sender in DIRECT[receiver] else "server"
            request = channel, "anything" if topic == "*" else topic
            kind = {"user": ClientType.ADMIN, "site": ClientType.REGULAR}.get(sender)
            message = arrival(
                RECEIVERS[receiver], neighbour, origin=origin, request=request, client_type=kind
            )
            table = REQUESTS[receiver]
            accepted = table.get(request) or table.get((channel, "*")) or ()
            assert (message_refusal(message) == "") == (sender in accepted), (
                channel,
                topic,
                sender,
            )


@pytest.mark.parametrize(
    ("receiver", "neighbour", "origin", "topic", "accepted"),
    [
        ("server", USER, USER, "ObjectStreamer.Request", True),
        ("server", USER, USER, "ObjectStreamer.Abort", True),
        ("server", USER, USER, "fed.event", False),
        ("server", USER, USER, "__sync_runner__", False),
        (f"server.{JOB}", "server", f"hospital-a.{JOB}", "__sync_runner__", True),
        (f"server.{JOB}", "server", f"hospital-a.{JOB}", "__job_heartbeat__", True),
        (f"server.{JOB}", "server", f"hospital-a.{JOB}", "__task_check__", True),
        (f"server.{JOB}", "server", f"hospital-a.{JOB}", "fed.event", True),
        (f"server.{JOB}", "server", f"hospital-a.{JOB}", "ObjectStreamer.Request", False),
        (f"server.{JOB}", "server", f"hospital-a.{JOB}", "RM.Request", False),
        (f"hospital-a.{JOB}", "server", f"server.{JOB}", "__end_run__", True),
        (f"hospital-a.{JOB}", "server", f"server.{JOB}", "__do_task__", False),
        (f"hospital-a.{JOB}", "server", f"server.{JOB}", "fed.event", False),
    ],
)
def test_auxiliary_messages_that_a_job_needs_pass_and_no_others(
    receiver, neighbour, origin, topic, accepted
):
    message = arrival(receiver, neighbour, origin=origin, request=("aux_communication", topic))
    assert (message_refusal(message) == "") is accepted


@pytest.mark.parametrize(
    ("neighbour", "kind", "accepted"),
    [
        (USER, ClientType.ADMIN, True),
        (USER, ClientType.REGULAR, False),
        (USER, ClientType.RELAY, False),
        (USER, None, False),
        ("hospital-a", ClientType.REGULAR, True),
        ("hospital-a", ClientType.ADMIN, False),
        ("hospital-a", ClientType.RELAY, False),
    ],
)
@pytest.mark.proves(
    "member",
    "a person's kit that registers as a site",
    "refused; the server's audit log names the person",
)
def test_a_cell_registers_as_what_it_is(neighbour, kind, accepted):
    message = arrival("server", neighbour, request=("task", "register"), client_type=kind)
    assert (message_refusal(message) == "") is accepted


@pytest.mark.parametrize(
    "topic", ["challenge", "register", "quit", "heart_beat", "report_job_failure"]
)
@pytest.mark.proves(
    "site",
    "a registration, heartbeat, metric, failure, farewell or acknowledgement in "
    "another hospital's name",
    "refused; the server's audit log names the site",
)
def test_a_site_speaks_to_the_server_of_itself(topic):
    sent = {
        "certificate": "hospital-a",
        "request": ("task", topic),
        "client_type": ClientType.REGULAR,
    }
    assert message_refusal(arrival("server", "hospital-a", client="hospital-b", **sent)).endswith(
        "speak for 'hospital-b'"
    )
    assert message_refusal(arrival("server", "hospital-a", client="hospital-a", **sent)) == ""


@pytest.mark.proves(
    "site",
    "a registration, heartbeat, metric, failure, farewell or acknowledgement in "
    "another hospital's name",
    "refused; the server's audit log names the site",
)
def test_only_a_streams_receiver_acknowledges_it(monkeypatch):
    monkeypatch.setitem(ByteStreamer.tx_task_map, 7, SimpleNamespace(target=f"hospital-a.{JOB}"))
    stream = {MessageHeaderKey.CHANNEL: STREAM_CHANNEL, MessageHeaderKey.TOPIC: STREAM_ACK_TOPIC}

    def refusal_of_ack(site: str, stream_id: int) -> str:
        headers = {
            **stream,
            MessageHeaderKey.DESTINATION: f"server.{JOB}",
            MessageHeaderKey.ORIGIN: f"{site}.{JOB}",
            StreamHeaderKey.STREAM_ID: stream_id,
        }
        beside = connection("server")
        beside.connector.mode = Mode.ACTIVE
        return message_refusal(
            arrival_of(f"server.{JOB}", Endpoint("server"), beside, message(**headers))
        )

    assert refusal_of_ack("hospital-b", 7) == f"it acknowledges a stream to 'hospital-a.{JOB}'"
    assert refusal_of_ack("hospital-a", 7) == ""
    assert refusal_of_ack("hospital-b", 8) == ""


def test_no_cell_accepts_diagnosis_bulk_or_keys():
    accepted = {channel for table in REQUESTS.values() for channel, _ in table}
    assert not accepted & {
        "_net_manager",
        "credential_manager",
        "client_api",
        "flare_agent",
        "edge_request",
        "collab",
    }
    assert not any(("cellnet.channel", "bulk") in table for table in REQUESTS.values())


# --- what a message shows


def connection(name: str = "hospital-a") -> Any:
    connector = SimpleNamespace(mode=Mode.PASSIVE)
    return SimpleNamespace(
        connector=connector,
        state=ConnState.CONNECTED,
        get_conn_properties=lambda: {"peer_cn": name},
    )


def message(**headers: Any) -> Message:
    known = {
        MessageHeaderKey.MSG_TYPE: MessageType.REQ,
        MessageHeaderKey.ORIGIN: "hospital-a",
        MessageHeaderKey.DESTINATION: "server",
        MessageHeaderKey.CHANNEL: "task",
        MessageHeaderKey.TOPIC: "heart_beat",
    }
    return Message({**known, **headers}, None)


def test_a_message_is_read_from_its_connection_and_headers():
    found = arrival_of("server", Endpoint("hospital-a"), connection(), message())
    assert found == arrival(
        "server", "hospital-a", certificate="hospital-a", request=("task", "heart_beat")
    )
    assert found.sender == "hospital-a"
    assert arrival_of("server", Endpoint("x"), connection("N/A"), message()).certificate is None
    assert arrival("hospital-a", "x", certificate=None).sender == "x, without a certificate"


def test_a_part_of_a_stream_is_the_request_that_it_carries():
    stream = {MessageHeaderKey.CHANNEL: STREAM_CHANNEL, MessageHeaderKey.TOPIC: STREAM_DATA_TOPIC}
    inner = {StreamHeaderKey.CHANNEL: "admin", StreamHeaderKey.TOPIC: "admin"}

    def request_of(part: Message) -> Any:
        return arrival_of("server", Endpoint("x"), connection(), part).request

    assert request_of(message(**stream, **inner)) == SHELL
    assert request_of(message(**stream)) == ("None", "None")
    ended = message(**stream, **inner, **{StreamHeaderKey.ERROR_MSG: "it broke"})
    assert request_of(ended) == (STREAM_CHANNEL, "sm__ERROR")


def test_an_answer_is_no_request_and_an_address_is_seen():
    answer = message(**{MessageHeaderKey.MSG_TYPE: MessageType.REPLY})
    assert arrival_of("server", Endpoint("x"), connection(), answer).request is None
    address = message(**{MessageHeaderKey.CONN_URL: "tcp://127.0.0.1:1"})
    assert arrival_of("server", Endpoint("x"), connection(), address).foreign_address


# --- put into FLARE


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The gate in this process, for one test; returns the audit log."""
    for owner, name in (
        (CoreCell, "_process_received_msg"),
        (ServerDeployer, "close"),
        (ClientManager, "set_disabled_clients_file"),
        (FederatedServer, "remove_dead_clients"),
        (FedAdminAgent, "register_processor"),
        (FedAdminAgent, "_dispatch_request"),
        (flares_commands, "secure_format_exception"),
        (flares_job_commands, "secure_format_exception"),
        (NetManager, "get_spec"),
        (FedEventRunner, "_receive"),
        (ServerCommandAgent, "_aux_communicate"),
        (flares_cell, "_is_server_job_cell"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(AuditService, "the_auditor", None)
    monkeypatch.setattr(hooks, "refusals", Refusals())
    monkeypatch.setattr(hooks, "shut_out", ShutOut())
    monkeypatch.setattr(hooks, "lost_sites", LostSites())
    monkeypatch.setattr(server_start, "started", threading.Event())
    AuditService.initialize(str(tmp_path / "audit.log"))
    hooks.install()
    hooks.install()
    ServerDeployer().close()
    return tmp_path / "audit.log"


def test_a_refused_message_is_dropped_and_audited(installed, monkeypatch):
    passed: list[Message] = []
    monkeypatch.setattr(
        hooks,
        "_ORIGINAL_PROCESS_RECEIVED",
        lambda cell, endpoint, connection, message: passed.append(message),
    )
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    good = message()
    bad = message(**{MessageHeaderKey.DESTINATION: "hospital-b"})
    for arrived in (good, bad):
        CoreCell._process_received_msg(cell, Endpoint("hospital-a"), connection(), arrived)
    assert passed == [good]
    (line,) = installed.read_text().splitlines()
    reason = "nothing is passed on from 'hospital-a' to 'hospital-b'"
    assert f"[U:hospital-a][A:refused task:heart_beat] {reason}" in line


def test_a_sender_writes_no_lines_of_its_own(installed):
    hooks.refusals.note("x\n[U:admin]", "a\x1b[2J", "b\r\nc")
    (line,) = installed.read_text().splitlines()
    assert line.endswith(r"[U:x\n[U:admin]][A:refused a\x1b[2J] b\r\nc")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The gate's clock, set by the test."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(refusal_log.time, "monotonic", lambda: clock.now)
    return clock


def test_a_flood_of_refusals_is_counted_and_not_written(installed, clock):
    for _ in range(1000):
        hooks.refusals.note("member", "admin:admin", "no")
    assert len(installed.read_text().splitlines()) == 20
    clock.now += 61
    hooks.refusals.note("member", "admin:admin", "no")
    *_, more, last = installed.read_text().splitlines()
    assert "[A:refused more] 980 further times in 60 s" in more
    assert last.endswith("[A:refused admin:admin] no")


def test_the_count_of_a_flood_is_written_with_anybodys_next_message(installed, clock, monkeypatch):
    passed: list[Message] = []
    monkeypatch.setattr(
        hooks, "_ORIGINAL_PROCESS_RECEIVED", lambda *arrived: passed.append(arrived[-1])
    )
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    heartbeat = message()

    def arrives() -> None:
        CoreCell._process_received_msg(cell, Endpoint("hospital-a"), connection(), heartbeat)

    for _ in range(21):
        hooks.refusals.note("member", "admin:admin", "no")
    clock.now += 59
    for _ in range(20):
        hooks.refusals.note("lead", "admin:admin", "no")
    arrives()
    assert "refused more" not in installed.read_text()
    clock.now += 2
    arrives()
    arrives()
    lines = installed.read_text().splitlines()
    assert len(lines) == 41
    assert lines[-1].endswith("[U:member][A:refused more] 1 further time in 60 s")
    clock.now += 60
    arrives()
    assert len(installed.read_text().splitlines()) == 41
    assert passed == [heartbeat] * 4


def test_a_count_that_cannot_be_written_stops_no_message(installed, clock, monkeypatch):
    passed: list[Message] = []
    monkeypatch.setattr(
        hooks, "_ORIGINAL_PROCESS_RECEIVED", lambda *arrived: passed.append(arrived[-1])
    )
    for _ in range(21):
        hooks.refusals.note("member", "admin:admin", "no")
    clock.now += 61

    def full_disk(**event: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AuditService, "add_event", full_disk)
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    CoreCell._process_received_msg(cell, Endpoint("hospital-a"), connection(), message())
    assert len(passed) == 1


def test_a_message_waits_until_the_server_knows_its_certificate(installed, monkeypatch):
    server_start.started.clear()
    events: list[str] = []
    waits = threading.Event()
    wait_for_start = server_start.started.wait

    def wait(seconds: float) -> bool:
        events.append("waits")
        waits.set()
        return wait_for_start(seconds)

    monkeypatch.setattr(server_start.started, "wait", wait)
    monkeypatch.setattr(hooks, "_ORIGINAL_PROCESS_RECEIVED", lambda *_: events.append("passes"))
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    arrives = threading.Thread(
        target=CoreCell._process_received_msg,
        args=(cell, Endpoint("hospital-a"), connection(), message()),
    )
    arrives.start()
    waits.wait()
    events.append("starts")
    ServerDeployer().close()
    arrives.join()
    assert events == ["waits", "starts", "passes"]


def test_a_server_that_has_not_started_in_time_accepts_nothing(installed, monkeypatch):
    server_start.started.clear()
    waits: list[float] = []
    monkeypatch.setattr(server_start.started, "wait", lambda seconds: bool(waits.append(seconds)))
    monkeypatch.setattr(hooks, "_ORIGINAL_PROCESS_RECEIVED", lambda *_: pytest.fail("passed"))
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    CoreCell._process_received_msg(cell, Endpoint("hospital-a"), connection(), message())
    assert waits == [30]
    assert installed.read_text().endswith(
        "[U:hospital-a][A:refused task:heart_beat] the server has not started within 30 s\n"
    )


def test_a_start_that_fails_opens_nothing(installed):
    server_start.started.clear()

    def starts() -> None:
        try:
            raise RuntimeError("Unsafe component")
        finally:  # As FLARE's server does.
            ServerDeployer().close()

    with pytest.raises(RuntimeError, match="Unsafe component"):
        starts()
    assert not server_start.started.is_set()


def test_a_farewell_from_before_the_start_does_not_cut_off_its_senders_next_process(
    installed, monkeypatch
):
    server_start.started.clear()
    ended = connection()

    def wait(_: float) -> bool:
        ended.state = ConnState.CLOSED
        ServerDeployer().close()
        return True

    passed: list[Message] = []
    monkeypatch.setattr(server_start.started, "wait", wait)
    monkeypatch.setattr(
        hooks, "_ORIGINAL_PROCESS_RECEIVED", lambda *arrived: passed.append(arrived[-1])
    )
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    farewell = message(
        **{
            MessageHeaderKey.CHANNEL: CellChannel.CELLNET,
            MessageHeaderKey.TOPIC: CellChannelTopic.Bye,
        }
    )
    CoreCell._process_received_msg(cell, Endpoint("hospital-a"), ended, farewell)
    assert passed == []
    assert "its connection ended before the server had started" in installed.read_text()
    # Once the server has started, the last message of a process counts although it has ended.
    CoreCell._process_received_msg(cell, Endpoint("hospital-a"), ended, message())
    assert len(passed) == 1


def test_only_the_servers_own_process_waits_for_its_start(installed, monkeypatch):
    server_start.started.clear()
    passed: list[Message] = []
    monkeypatch.setattr(
        hooks, "_ORIGINAL_PROCESS_RECEIVED", lambda *arrived: passed.append(arrived[-1])
    )
    monkeypatch.setattr(server_start.started, "wait", lambda _: pytest.fail("waited"))
    to_server = connection("server")
    to_server.connector.mode = Mode.ACTIVE
    for receiver in (f"server.{JOB}", "hospital-a"):
        cell = SimpleNamespace(get_fqcn=lambda receiver=receiver: receiver)
        answer = message(
            **{
                MessageHeaderKey.MSG_TYPE: MessageType.REPLY,
                MessageHeaderKey.ORIGIN: "server",
                MessageHeaderKey.DESTINATION: receiver,
            }
        )
        CoreCell._process_received_msg(cell, Endpoint("server"), to_server, answer)
    assert len(passed) == 2


def test_names_that_a_sender_invents_are_one_flood(installed):
    for number in range(1000):
        hooks.refusals.note("server", "train.deploy", "no", user=f"user {number}")
    assert len(installed.read_text().splitlines()) == 20
    assert "[U:server for user 0]" in installed.read_text()


@pytest.mark.proves(
    "member",
    "a flood of messages with headers of 64 KB past the console",
    "refused; the audit log has a short line for each of the first twenty, and a number",
)
def test_a_refusal_is_one_short_line(installed):
    hooks.refusals.note("x" * 60_000, "y" * 60_000, "\x00" * 60_000)
    (line,) = installed.read_text().splitlines()
    assert len(line) < 1000
    assert line.endswith("...")


def test_what_the_gate_cannot_read_does_not_pass(installed, monkeypatch):
    monkeypatch.setattr(hooks, "_ORIGINAL_PROCESS_RECEIVED", lambda *_: pytest.fail("passed"))
    stream = {MessageHeaderKey.CHANNEL: STREAM_CHANNEL, MessageHeaderKey.TOPIC: STREAM_ACK_TOPIC}
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    for odd in (message(**stream, **{StreamHeaderKey.STREAM_ID: [1]}), Message([1], None)):
        CoreCell._process_received_msg(cell, Endpoint("hospital-a"), connection(), odd)
    assert installed.read_text().count("[U:hospital-a][A:refused message] it cannot be read") == 2


def test_what_cannot_be_read_from_a_persons_many_consoles_is_one_flood(installed):
    """The name of a console is its own choice; that of its certificate is not."""
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    console = connection(MEMBER)
    for number in range(30):
        name = f"_admin_{number}"
        CoreCell._process_received_msg(cell, Endpoint(name), console, Message([1], None))
    lines = installed.read_text().splitlines()
    assert len(lines) == 20
    assert all(f"[U:{MEMBER}][A:refused message] it cannot be read" in line for line in lines)


@pytest.mark.parametrize(
    "event", ["_fatal_system_error", "_system_bootstrap", "fed.x", "", None, ["fed.x"]]
)
@pytest.mark.proves(
    "site",
    "an event of FLARE's own in the server's job process, such as a fatal error",
    "ignored; the run goes on, and the audit log reports it",
)
def test_a_site_causes_no_events_but_metrics(installed, monkeypatch, event):
    happened: list[Shareable] = []
    monkeypatch.setattr(
        hooks,
        "_ORIGINAL_RECEIVE_EVENT",
        lambda runner, topic, request, context: happened.append(request),
    )
    asked = Shareable()
    metrics = Shareable()
    asked.set_header(FedEventHeader.EVENT_TYPE, event)
    metrics.set_header(FedEventHeader.EVENT_TYPE, "fed.analytix_log_stats")
    runner = ServerFedEventRunner()
    answer = runner._receive("fed.event", asked, FLContext())
    assert answer.get_return_code() == ReturnCode.BAD_REQUEST_DATA
    runner._receive("fed.event", metrics, FLContext())
    assert happened == [metrics]
    assert "[A:refused fed.event] no site makes" in installed.read_text()


@pytest.mark.parametrize("name", ["hospital-a", "../hospital-a", "", None, ["hospital-b"]])
@pytest.mark.proves(
    "site",
    "a registration, heartbeat, metric, failure, farewell or acknowledgement in "
    "another hospital's name",
    "refused; the server's audit log names the site",
)
def test_a_site_speaks_to_the_servers_job_of_itself(servers_job, installed, name):
    servers_job.say("hospital-b", name)
    servers_job.agent.aux_communicate(
        Message({MessageHeaderKey.ORIGIN: f"hospital-b.{JOB}"}, b"no shareable")
    )
    assert servers_job.heard == []
    assert "[U:hospital-b][A:refused fed.event] it calls itself" in installed.read_text()
    own = servers_job.say("hospital-b", "hospital-b")
    assert servers_job.heard == [own]


@pytest.mark.proves(
    "site",
    "a metric or a sign of life in a job that the hospital does not take part in",
    "refused; the audit log of the server names the site",
)
def test_a_site_speaks_to_no_job_of_others(servers_job, installed):
    servers_job.say("hospital-c", "hospital-c")
    assert servers_job.heard == []
    refused = "[U:hospital-c][A:refused fed.event] it takes no part in this job"
    assert refused in installed.read_text()


def test_a_site_that_comes_before_the_job_knows_its_sites_may_ask_again(servers_job, installed):
    """FLARE's process for the job tells it so itself."""
    servers_job.sites.clear()
    early = servers_job.say("hospital-b", "hospital-b")
    assert servers_job.heard == [early]
    assert installed.read_text() == ""


class ServersJob:
    """The server's process of a job in which hospitals A and B take part."""

    def __init__(self, heard: list[Message]) -> None:
        self.heard = heard
        self.sites = [SimpleNamespace(name="hospital-a"), SimpleNamespace(name="hospital-b")]
        engine = SimpleNamespace(get_clients=lambda: self.sites)
        self.agent = ServerCommandAgent(engine, None)

    def say(self, site: str, claimed_name: object) -> Message:
        """Let a site's process of the job send a metric under a name; return its message."""
        said = Shareable()
        said.set_peer_props({ReservedKey.IDENTITY_NAME: claimed_name})
        headers = {
            MessageHeaderKey.ORIGIN: f"{site}.{JOB}",
            MessageHeaderKey.TOPIC: "fed.event",
        }
        sent = Message(headers, said)
        self.agent.aux_communicate(sent)
        return sent


@pytest.fixture
def servers_job(installed: Path, monkeypatch: pytest.MonkeyPatch) -> ServersJob:
    heard: list[Message] = []
    monkeypatch.setattr(
        hooks, "_ORIGINAL_AUX_COMMUNICATE", lambda agent, request: heard.append(request)
    )
    return ServersJob(heard)


@pytest.mark.proves(
    "site",
    "an undecodable answer, or the report that a message is too large",
    "that message is lost, and the process goes on",
)
def test_no_message_ends_a_jobs_process_at_the_server(installed, monkeypatch):
    monkeypatch.setattr(flares_cell.os, "_exit", lambda code: pytest.fail("the process ended"))
    server_job = SimpleNamespace(fqcn=f"server.{JOB}")
    cell = SimpleNamespace(
        decode_pass_through_channels=set(),
        decode_pass_through_topics=set(),
        get_fobs_context=lambda props: {},
    )
    headers = {
        StreamHeaderKey.CHANNEL: "server_command",
        StreamHeaderKey.TOPIC: "submit_update",
        StreamHeaderKey.PAYLOAD_ENCODING: "fobs",
    }
    adapter = flares_cell.Adapter(lambda request: pytest.fail("called"), server_job, cell)
    with pytest.raises(RuntimeError, match="expect main"):
        adapter.call(
            SimpleNamespace(headers=headers, result=lambda: b"\x00 nothing that FLARE encodes")
        )
    adapter._handle_reply_stream_done(SimpleNamespace(exception=lambda: BlobSizeError("too large")))


@pytest.mark.proves(
    "site",
    "a site shut out with `nvflare system disable-client` that goes on in a running job",
    "the server passes nothing on from it any more; its audit log names the site",
)
def test_a_site_that_was_shut_out_is_not_heard(installed, tmp_path, monkeypatch):
    server = FederatedServer("fedward", args=SimpleNamespace(workspace=str(tmp_path), set=[]))
    manager = server.client_manager
    cell = SimpleNamespace(get_fqcn=lambda: "server")
    passed: list[tuple[str, str]] = []

    def note(*arrived: Any) -> None:
        sent = arrived[-1]
        origin = sent.get_header(MessageHeaderKey.ORIGIN)
        passed.append((origin, sent.get_header(MessageHeaderKey.TOPIC)))

    monkeypatch.setattr(hooks, "_ORIGINAL_PROCESS_RECEIVED", note)

    def send_all() -> list[tuple[str, str]]:
        passed.clear()
        for name in ("hospital-a", "hospital-b"):
            question = {
                MessageHeaderKey.ORIGIN: f"{name}.{JOB}",
                MessageHeaderKey.DESTINATION: f"server.{JOB}",
                MessageHeaderKey.CHANNEL: "server_command",
                MessageHeaderKey.TOPIC: "get_task",
            }
            heartbeat = {MessageHeaderKey.ORIGIN: name}
            for headers in (question, heartbeat):
                CoreCell._process_received_msg(
                    cell, Endpoint(name), connection(name), message(**headers)
                )
        return list(passed)

    questions = [(f"hospital-{letter}.{JOB}", "get_task") for letter in "ab"]
    heartbeats = [(f"hospital-{letter}", "heart_beat") for letter in "ab"]
    everything = [questions[0], heartbeats[0], questions[1], heartbeats[1]]
    assert send_all() == everything
    manager.disable_client("hospital-b")
    assert send_all() == [questions[0], *heartbeats]
    refused = "[U:hospital-b][A:refused server_command:get_task] an administrator has shut it out"
    assert refused in installed.read_text()
    manager.enable_client("hospital-b")
    assert send_all() == everything


def test_a_job_is_told_which_of_its_sites_have_left_it(installed, tmp_path, monkeypatch, clock):
    """Shut out, or registered with another token. It is told again after a minute.

    The server does not wait for their reports when the job has ended.
    """
    server = FederatedServer("fedward", args=SimpleNamespace(workspace=str(tmp_path), set=[]))
    manager = server.client_manager
    told: list[tuple[str, str]] = []

    def note(job: str, site: str, _reason: str) -> None:
        told.append((job, site))

    monkeypatch.setattr(server.engine, "notify_dead_job", note)
    sites = {name: just_heard(name, f"first token of {name}") for name in "abc"}
    participants = {site.token: site for site in sites.values()}
    manager.set_clients(dict(participants))
    server.engine.run_processes = {JOB: {RunProcessKey.PARTICIPANTS: participants}}
    server.engine.job_runner = runner = JobRunner(workspace_root=str(tmp_path))
    runner._pending_client_outcomes[JOB] = set(sites)

    def look() -> list[tuple[str, str]]:
        told.clear()
        server.remove_dead_clients()
        return list(told)

    assert look() == []
    manager.disable_client("b")
    again = just_heard("c", "second token of c")
    manager.set_clients({site.token: site for site in (sites["a"], again)})
    assert look() == [(JOB, "b"), (JOB, "c")]
    assert [name for name in sites if runner.is_client_outcome_pending(JOB, name)] == ["a"]
    assert look() == []
    clock.now += 60
    assert look() == [(JOB, "b"), (JOB, "c")]
    clock.now += 60
    manager.set_clients(dict(participants))  # They are back with their tokens, as after a gap.
    assert look() == []


@pytest.mark.parametrize("dead", [False, True], ids=["shut out", "silent"])
def test_a_job_that_ends_meanwhile_ends_no_look_at_lost_sites(
    installed, tmp_path, monkeypatch, dead
):
    """One thread looks for lost sites. Its next look notifies jobs that the first missed."""
    server = FederatedServer("fedward", args=SimpleNamespace(workspace=str(tmp_path), set=[]))
    other_job = "1" + JOB[1:]
    notified: list[tuple[str, str]] = []

    def end(job: str, site: str, _reason: str) -> None:
        notified.append((job, site))
        server.engine.run_processes.pop(JOB, None)

    monkeypatch.setattr(server.engine, "notify_dead_job", end)
    site = just_heard("b", "token of b")
    server.engine.run_processes = {
        job: {RunProcessKey.PARTICIPANTS: {site.token: site}} for job in (JOB, other_job)
    }
    server.engine.job_runner = JobRunner(workspace_root=str(tmp_path))
    if dead:
        site.last_connect_time = 0.0
        server.client_manager.set_clients({site.token: site})
    server.remove_dead_clients()
    assert notified == [(JOB, "b")]
    server.remove_dead_clients()
    assert notified == [(JOB, "b"), (other_job, "b")]
    assert server.client_manager.get_clients() == {}


def just_heard(name: str, token: str) -> Client:
    """Return a site that FLARE's server has just heard of."""
    site = Client(name, token)
    site.last_connect_time = time.time()
    return site


# --- what reaches more than its sender, in FLARE's own cells


@pytest.fixture
def open_cell(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], CoreCell]:
    """Makes FLARE's own cells, with the gate; they open no connection."""
    monkeypatch.setattr(CoreCell, "ALL_CELLS", {})
    monkeypatch.setattr(StatsPoolManager, "pools", {})
    url = "tcp://localhost:1"
    return lambda name: CoreCell(name, root_url=url, secure=False, credentials={}, parent_url=url)


def deliver(cell: CoreCell, neighbour: str, certificate: str | None = None, **headers: Any) -> None:
    """Let a message for the cell arrive from a neighbour, over a connection as the two have it."""
    came_from = connection(certificate or neighbour)
    if neighbour == "server":
        came_from.connector.mode = Mode.ACTIVE
    known = {MessageHeaderKey.ORIGIN: neighbour, MessageHeaderKey.DESTINATION: cell.get_fqcn()}
    cell.process_message(Endpoint(neighbour), came_from, 1, message(**{**known, **headers}))


FAREWELL = {
    MessageHeaderKey.CHANNEL: CellChannel.CELLNET,
    MessageHeaderKey.TOPIC: CellChannelTopic.Bye,
}


@pytest.mark.parametrize("origin", ["hospital-b", f"hospital-b.{JOB}"])
@pytest.mark.proves(
    "site",
    "a farewell to a job's process at the server, which would cut it off from the server",
    "refused; a farewell is its sender's own, and goes no further than to a neighbour",
)
def test_a_farewell_cuts_off_nobody_but_its_sender(open_cell, origin):
    job = open_cell(f"server.{JOB}")
    job.agents["server"] = CellAgent("server", Endpoint("server"))
    deliver(job, "server", **FAREWELL, **{MessageHeaderKey.ORIGIN: origin})
    assert set(job.agents) == {"server"}
    request = (CellChannel.CELLNET, CellChannelTopic.Bye)
    to_job = arrival("server", "hospital-b", destination=f"server.{JOB}", request=request)
    assert message_refusal(to_job).startswith("no server job accepts 'bye'")
    of_job = arrival("server", "hospital-b", origin=f"hospital-b.{JOB}", request=request)
    assert message_refusal(of_job) == "a farewell is not passed on"
    assert message_refusal(arrival("server", "hospital-b", request=request)) == ""
    deliver(job, "server", **FAREWELL)
    assert set(job.agents) == set()


@pytest.mark.proves(
    "site",
    "the news that another hospital was not reached, in place of its answer",
    "refused; the answer of the other hospital counts",
)
def test_a_site_says_only_of_itself_that_nothing_was_delivered(open_cell):
    server = open_cell("server")
    asked = _Waiter(["hospital-a", "hospital-b"])
    server.waiters[asked.id] = asked

    def return_message(destination: str) -> None:
        returned = {MessageHeaderKey.DESTINATION: destination}
        deliver(
            server,
            "hospital-b",
            **{
                MessageHeaderKey.MSG_TYPE: MessageType.RETURN,
                MessageHeaderKey.REQ_ID: asked.id,
                MessageHeaderKey.ORIGINAL_HEADERS: returned,
            },
        )

    return_message("hospital-a")
    assert asked.received_replies == {}
    return_message("hospital-b")
    assert set(asked.received_replies) == {"hospital-b"}


@pytest.mark.parametrize(
    ("origin", "lost", "accepted"),
    [
        (f"hospital-b.{JOB}", f"hospital-a.{JOB}", False),
        ("hospital-b", f"hospital-b.{JOB}", True),
        ("server", f"hospital-a.{JOB}", True),
    ],
)
def test_a_stream_is_called_lost_by_its_receiver_or_the_server(origin, lost, accepted):
    headers = {
        MessageHeaderKey.CHANNEL: STREAM_CHANNEL,
        MessageHeaderKey.TOPIC: STREAM_ERROR_TOPIC,
        MessageHeaderKey.ORIGIN: origin,
        MessageHeaderKey.DESTINATION: f"server.{JOB}",
        StreamHeaderKey.FAILED_DESTINATION: lost,
    }
    beside = connection("server")
    beside.connector.mode = Mode.ACTIVE
    found = arrival_of(f"server.{JOB}", Endpoint("server"), beside, message(**headers))
    expected = "" if accepted else f"its connection may not speak for {lost!r}"
    assert message_refusal(found) == expected


@pytest.mark.proves(
    "member",
    "a message that its receiver would decrypt with a certificate that the sender never sends",
    "refused at once; FLARE alone lets a thread wait for an hour, and has a hundred",
)
def test_no_message_lets_its_receiver_wait_for_a_certificate(open_cell, installed, monkeypatch):
    server = open_cell("server")
    monkeypatch.setattr(
        server.cert_ex, "get_certificate", lambda name: pytest.fail(f"waited for {name}")
    )
    for encrypted in (True, False):
        deliver(
            server,
            "hospital-b",
            **FAREWELL,
            **{MessageHeaderKey.SECURE: True, MessageHeaderKey.ENCRYPTED: encrypted},
        )
    refused = "[U:hospital-b][A:refused cellnet.channel:bye] it is encrypted between cells"
    assert installed.read_text().count(refused) == 2


@pytest.fixture
def open_streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Any, RxTask]]:
    """FLARE's unfinished streams of one test, which are ended after it."""
    unfinished: dict[Any, RxTask] = {}
    monkeypatch.setattr(RxTask, "rx_task_map", unfinished)
    monkeypatch.setattr(hooks, "streams", OpenStreams())
    yield unfinished
    for task in list(unfinished.values()):
        task.stop(StreamError("the test is over"), notify=False)


@pytest.mark.parametrize(
    ("receiver", "neighbour", "origins", "sender"),
    [
        (f"server.{JOB}", "server", ["hospital-b"], "hospital-b"),
        (f"server.{JOB}", "server", [f"hospital-b.{JOB}", "hospital-b"], "hospital-b"),
        ("server", USER, [USER], MEMBER),
    ],
)
@pytest.mark.proves(
    "site",
    "the beginnings of hundreds of streams, to the server or to a job of others",
    "sixteen are read, further ones refused; the server's audit log names the site",
)
def test_nobody_occupies_all_threads_by_streams_that_do_not_end(
    open_cell, open_streams, installed, receiver, neighbour, origins, sender
):
    cell = open_cell(receiver)
    ByteReceiver(cell).register_callback(
        CellChannel.RETURN_ONLY, "*", lambda future, stream, resume: stream.read(1)
    )

    def begin(origin: str, number: int, **changes: Any) -> None:
        part = {
            MessageHeaderKey.CHANNEL: STREAM_CHANNEL,
            MessageHeaderKey.TOPIC: STREAM_DATA_TOPIC,
            MessageHeaderKey.ORIGIN: origin,
            StreamHeaderKey.CHANNEL: CellChannel.RETURN_ONLY,
            StreamHeaderKey.TOPIC: "x",
            StreamHeaderKey.STREAM_ID: number,
            StreamHeaderKey.SEQUENCE: 0,
            StreamHeaderKey.DATA_TYPE: StreamDataType.CHUNK,
            **changes,
        }
        certificate = MEMBER if neighbour == USER else None
        deliver(cell, neighbour, certificate, **part)

    for number in range(200):
        begin(origins[number % len(origins)], number)
    assert {number for _, number in open_streams} == set(range(16))
    assert (
        f"[U:{sender}][A:refused return_only:x] it begins a further stream besides 16"
        in installed.read_text()
    )
    # A stream of one part is read at once, and one that ends makes room.
    begin(origins[0], 300, **{StreamHeaderKey.DATA_TYPE: StreamDataType.FINAL})
    assert (origins[0], 300) not in open_streams
    last_part = {StreamHeaderKey.SEQUENCE: 1, StreamHeaderKey.DATA_TYPE: StreamDataType.FINAL}
    begin(origins[0], 0, **last_part)
    begin(origins[0], 400)
    assert (origins[0], 400) in open_streams


def test_the_streams_of_one_site_take_no_room_from_another():
    streams = OpenStreams()
    assert [streams.begin(("hospital-b", number), "hospital-b") for number in range(16)] == [
        ""
    ] * 16
    assert streams.begin(("hospital-b", 16), "hospital-b") != ""
    assert streams.begin(("hospital-a", 0), "hospital-a") == ""
    # A part that comes twice begins no further stream.
    assert streams.begin(("hospital-b", 7), "hospital-b") == ""


# --- a site's commands


class Agent(FedAdminAgent):
    """A site's process as far as its commands are concerned."""

    def __init__(self) -> None:
        self.name = "admin_agent"
        self.processors = {}


@pytest.mark.usefixtures("installed")
def test_a_site_has_the_commands_of_the_table_and_no_others():
    agent = Agent()
    flares_commands = set()
    for processor in ClientRequestProcessors.request_processors:
        flares_commands |= set(processor.get_topics())
    assert flares_commands == {
        *RIGHTS,
        "info.reset_errors",
        "info.show_errors",
        "info.show_stats",
        "resource_manager.report_resources",
        "sys.configure_site_log",
        "sys.info",
        "sys.report_env",
        "sys.report_version",
        "sys.shell",
        "train.abort_task",
        "train.configure_job_log",
        "train.delete_run",
        "train.get_scopes",
    }
    for processor in ClientRequestProcessors.request_processors:
        agent.register_processor(processor)
    assert set(agent.processors) == set(RIGHTS)


def command(topic: str, body: Any = "", role: str = "project_admin", **headers: Any) -> Message:
    made = Command(topic=topic, body=body)
    person = {"NAME": "ann@hospital-a.org", "ORG": "hospital_a", "ROLE": role}
    for kind in ("USER", "SUBMITTER"):
        for part, text in person.items():
            made.set_header(getattr(RequestHeader, f"{kind}_{part}"), text)
    for name, text in headers.items():
        made.set_header(name, text)
    return Message({}, made)


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights that kits come with, at hospital B."""
    templates = Path(hooks.__file__).parents[1] / "kits" / "templates"
    rules = json.loads((templates / "authorization.json").read_text())
    monkeypatch.setattr(AuthorizationService, "the_authorizer", None)
    AuthorizationService.initialize(FLAuthorizer("hospital_b", rules))


@pytest.mark.parametrize(
    ("topic", "role", "allowed"),
    [
        ("train.check_status", "member", True),
        ("train.check_status", "nobody", False),
        ("train.shutdown", "member", False),
        ("train.shutdown", "lead", False),
        ("train.shutdown", "org_admin", False),
        ("train.shutdown", "project_admin", True),
        ("train.restart", "project_admin", True),
        ("train.restart", "lead", False),
        ("sys.shell", "project_admin", False),
        ("train.delete_run", "project_admin", False),
        ("sys.configure_site_log", "project_admin", False),
    ],
)
@pytest.mark.usefixtures("policy")
def test_a_site_checks_a_users_right_itself(installed, monkeypatch, topic, role, allowed):
    """Whatever the headers ask for: FLARE checks only if the sender says so."""
    obeyed: list[str] = []
    monkeypatch.setattr(
        hooks, "_ORIGINAL_DISPATCH", lambda agent, request: obeyed.append(request.payload.topic)
    )
    told = {RequestHeader.REQUIRE_AUTHZ: "false", RequestHeader.ADMIN_COMMAND: "check_status"}
    sent = command(topic, role=role, **told)
    Agent()._dispatch_request(sent)
    assert obeyed == ([topic] if allowed else [])
    assert ("server for ann@hospital-a.org" in installed.read_text()) is not allowed


@pytest.mark.parametrize("topic", ["train.start_job", "train.abort"])
@pytest.mark.usefixtures("installed", "policy")
def test_an_error_of_a_command_names_no_folder_of_the_site(monkeypatch, caplog, topic):
    """An error of the operating system has the path at which it happened."""
    kit = "/srv/fedward/kit/startup"

    def fail(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files", kit)

    manager = SimpleNamespace(allocate_resources=fail)
    monkeypatch.setattr(flares_job_commands, "_get_resource_manager", lambda _: manager)
    monkeypatch.setattr(AbortAppProcessor, "process", fail)
    agent = Agent()
    agent.auditor = None
    agent.app_ctx = SimpleNamespace(new_context=FLContext, fire_event=lambda *_: None)
    for processor in ClientRequestProcessors.request_processors:
        agent.register_processor(processor)
    answer = agent._dispatch_request(command(topic, {}, job_id=JOB))
    assert "OSError; the details are in the site's own log" in answer.payload.body
    assert kit not in answer.payload.body
    assert kit in caplog.text


OF_A_JOB = sorted(
    topic
    for topic, right in RIGHTS.items()
    if right is None and topic != "scheduler.cancel_resource"
)


@pytest.mark.parametrize("topic", OF_A_JOB)
@pytest.mark.parametrize("job", ["fedward", "startup", "../hospital-b", "", None])
def test_a_command_about_no_job_is_not_obeyed(installed, monkeypatch, topic, job):
    monkeypatch.setattr(hooks, "_ORIGINAL_DISPATCH", lambda agent, request: pytest.fail("obeyed"))
    answer = Agent()._dispatch_request(command(topic, b"", job_id=job))
    assert "it names no job" in answer.payload.body
    assert "it names no job" in installed.read_text()


@pytest.mark.usefixtures("installed")
def test_reserved_resources_are_given_back_without_a_job(monkeypatch):
    obeyed: list[Message] = []
    monkeypatch.setattr(hooks, "_ORIGINAL_DISPATCH", lambda agent, request: obeyed.append(request))
    sent = command("scheduler.cancel_resource", {}, resource_reserve_token="a token")
    Agent()._dispatch_request(sent)
    assert obeyed == [sent]


HONEST: list[dict[str, Any]] = [
    {},
    {"num_of_gpus": 0},
    {"num_of_gpus": 1},
    {"num_of_gpus": 2, "mem_per_gpu_in_GiB": 8},
    {"num_of_gpus": 1, "mem_per_gpu_in_GiB": 7.5},
    {"num_of_gpus": 1, "mem_per_gpu_in_GiB": 0.0},
    {"gpu": 1, "licences": 3},
]
HOSTILE: list[Any] = [
    *(
        {"num_of_gpus": 1, "mem_per_gpu_in_GiB": amount}
        for amount in (
            -1e999,
            1e999,
            float("nan"),
            -1e18,
            -1,
            1e308,
            10**400,
            0.1,
            True,
            "8",
            None,
            [8],
        )
    ),
    *({"num_of_gpus": amount} for amount in (-1, 0.5, 1.5, 1.0, True, "1", None, {}, float("nan"))),
    {"num_of_gpus": 1, "mem_per_gpu_in_GiB": 10**400},
    {"num_of_gpus": 1, "gpu": 0.5},
    {"num_of_gpus": 1, "process": {"num_of_gpus": 1}},
    {"num_of_gpus": 1, 7: 1},
    [1],
    "1",
    b"",
    None,
    1,
]
RESOURCES = ["scheduler.check_resource", "scheduler.cancel_resource", "train.start_job"]


@pytest.mark.parametrize("topic", RESOURCES)
@pytest.mark.parametrize("asked", HONEST, ids=str)
@pytest.mark.usefixtures("installed")
def test_amounts_from_0_on_reach_the_resource_manager(monkeypatch, topic, asked):
    obeyed: list[Message] = []
    monkeypatch.setattr(hooks, "_ORIGINAL_DISPATCH", lambda agent, request: obeyed.append(request))
    sent = command(topic, asked, job_id=JOB)
    Agent()._dispatch_request(sent)
    assert obeyed == [sent]


@pytest.mark.proves(
    "lead",
    "resources for a job that are no amounts, such as minus infinity of a GPU's memory",
    "refused by the server when the job is submitted, and by each site",
)
@pytest.mark.parametrize("topic", RESOURCES)
@pytest.mark.parametrize("asked", HOSTILE, ids=str)
def test_what_is_no_amount_reaches_no_resource_manager(installed, monkeypatch, topic, asked):
    monkeypatch.setattr(hooks, "_ORIGINAL_DISPATCH", lambda agent, request: pytest.fail("obeyed"))
    answer = Agent()._dispatch_request(command(topic, asked, job_id=JOB))
    assert answer.payload.body.startswith("NVFLARE_ERROR: resource_spec of the job: expected ")
    assert f"[A:refused {topic}]" in installed.read_text()


@pytest.mark.parametrize("memory", [0.0, 1 / 1024, 7.5, 8, 16])
def test_flares_manager_gives_back_what_the_gate_lets_through(memory):
    """Whichever job ends first, as much is free afterwards as before."""
    manager = GPUResourceManager(2, 79.6, ignore_host=True)
    context = FLContext()
    reserved = []
    for further in (0.0, 1 / 1024, 3.25):
        asked = {"num_of_gpus": 1, "mem_per_gpu_in_GiB": memory + further}
        check_requirements(asked)
        enough, token = manager.check_resources(asked, context)
        assert enough
        reserved.append((asked, token))
    for asked, token in reserved:
        manager.cancel_resources(asked, token, context)
    assert [gpu.memory for gpu in manager.resources.values()] == [79.6, 79.6]


@pytest.mark.parametrize("name", ["custom/pynvml.py", "config/model.safetensors"])
def test_an_app_is_refused_before_flare_unpacks_it(installed, monkeypatch, name):
    """Also one with weights: their file may have any size, and only the server gets it."""
    monkeypatch.setattr(hooks, "_ORIGINAL_DISPATCH", lambda agent, request: pytest.fail("obeyed"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "")
    answer = Agent()._dispatch_request(command("train.deploy", packed.getvalue(), job_id=JOB))
    assert answer.payload.body.startswith(
        "NVFLARE_ERROR: app: expected nothing but config/config_fed_client.json"
    )
    assert name in installed.read_text()


def test_the_console_has_no_commands_for_cells(installed):
    assert NetManager(NetAgent.__new__(NetAgent)).get_spec().cmd_specs == []
