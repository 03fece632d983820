"""The gate: which messages FLARE's processes accept, and from whom.

It decides by the connection, before anything in a message is decoded.

FLARE 2.9 passes a message on to whichever cell its header names, once the sender has a token. A
site's process obeys everybody who reaches it, because it checks rights only if the sender's own
header asks for that. Anybody with a startup kit, of any role, can therefore have a command run at
every hospital. The gate closes both ends:

- A cell accepts a message only from the neighbours that it has in a federation of fedward: a site
  from its server and its own jobs, the server from sites, users and its own jobs. FLARE has
  compared a neighbour's name with the certificate of its connection. The headers are the sender's
  own words, and must agree with that name.
- The server forwards nothing from one site or user to another.
- A cell speaks of itself alone: it takes leave of its neighbours, and says of no other site that it
  was not reached.
- A request is accepted only if :data:`REQUESTS` names it for this receiver and this sender. FLARE's
  own network diagnostics, with which anybody could stop a cell or connect it to another server, are
  not among them.
- A site's process takes from its server only the commands in :data:`RIGHTS`, and checks itself
  whether the user has the right to each. It checks what a command hands to its resource manager.
- A server that is starting accepts no message before it knows its own certificate. Until then FLARE
  checks no token, and it would sign all its later messages to itself with a signature that it
  refuses, so that no user got an answer any more. Messages wait for the start, and are refused if
  it takes too long or fails.

A refused message gets no answer. A command from the server that a site does not obey is answered
with the reason. The participant that refused writes each refusal into its audit log, with the
sender.

:func:`install` puts all of this into a process. docs/flare_changes.md says what FLARE itself does,
in which versions.
"""

import logging
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import (
    AdminCommandNames,
    FedEventHeader,
    ReservedKey,
    ReservedTopic,
    ReturnCode,
)
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_opt.job_launcher.workspace_cell_transfer import WORKSPACE_TRANSFER_CHANNEL
from nvflare.fuel.f3.cellnet import cell as flare_cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessageType,
)
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN, FqcnInfo
from nvflare.fuel.f3.cellnet.net_manager import NetManager
from nvflare.fuel.f3.connection import Connection, ConnState
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm.conn_manager import NullConnection
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.fuel.hci.reg import CommandModuleSpec
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.sec.authz import AuthorizationService, AuthzContext, Person
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.admin_defs import Message as Command
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import (
    ERROR_MSG_PREFIX,
    CellMessageHeaderKeys,
    ClientType,
    RequestHeader,
    TrainingTopic,
    new_cell_message,
)
from nvflare.private.fed.app.deployer.server_deployer import ServerDeployer
from nvflare.private.fed.client.admin import FedAdminAgent, RequestProcessor
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent
from nvflare.private.stream_runner import TOPIC_STREAM_ABORT, TOPIC_STREAM_REQUEST
from nvflare.widgets.fed_event import FED_EVENT_TOPIC, FedEventRunner

from fedward.errors import ConfigError
from fedward.flare.jobs.configurations import METRICS_AT_SERVER
from fedward.flare.kits import resource_check
from fedward.flare.kits.app_check import check_archive
from fedward.text import count

Place = Literal["server", "server job", "site", "site job", "user"]
"""What a cell is: the process of a server or a site, the process of a job there, or a console."""

Request = tuple[str, str]
"""Channel and topic for which a callback is registered; ``*`` is every topic of the channel."""

_REGISTER: Request = (CellChannel.SERVER_MAIN, CellChannelTopic.Register)
_FAREWELL: Request = (CellChannel.CELLNET, CellChannelTopic.Bye)

_ALL_PLACES: tuple[Place, ...] = ("server", "server job", "site", "site job", "user")

_FOLLOW_UPS: Mapping[Request, tuple[Place, ...]] = {
    (STREAM_CHANNEL, STREAM_ACK_TOPIC): _ALL_PLACES,
    (STREAM_CHANNEL, STREAM_ERROR_TOPIC): _ALL_PLACES,
    (CellChannel.RETURN_ONLY, "*"): _ALL_PLACES,
}
"""Requests that follow accepted ones: acknowledgements and errors of streams, and answers.

Every place may send them. They reach nothing but the streams to their sender and the requests that
wait for its answer."""

REQUESTS: Mapping[Place, Mapping[Request, tuple[Place, ...]]] = {
    "server": {
        **_FOLLOW_UPS,
        _FAREWELL: ("site", "site job", "user", "server job"),
        (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge): ("site", "user"),
        (CellChannel.SERVER_MAIN, CellChannelTopic.Register): ("site", "user"),
        (CellChannel.SERVER_MAIN, CellChannelTopic.Quit): ("site", "user"),
        (CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT): ("site",),
        (CellChannel.SERVER_MAIN, CellChannelTopic.REPORT_JOB_FAILURE): ("site",),
        (CellChannel.HCI, "*"): ("user",),
        (CellChannel.AUX_COMMUNICATION, TOPIC_STREAM_REQUEST): ("user",),
        (CellChannel.AUX_COMMUNICATION, TOPIC_STREAM_ABORT): ("user",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("user", "server job"),
        (CellChannel.SERVER_PARENT_LISTENER, "*"): ("server job",),
        (WORKSPACE_TRANSFER_CHANNEL, "*"): ("server job",),
    },
    "server job": {
        **_FOLLOW_UPS,
        _FAREWELL: ("server",),
        (CellChannel.SERVER_COMMAND, "get_task"): ("site job",),
        (CellChannel.SERVER_COMMAND, "submit_update"): ("site job",),
        (CellChannel.SERVER_COMMAND, "*"): ("server",),
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.SYNC_RUNNER): ("site job",),
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.JOB_HEART_BEAT): ("site job",),
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.TASK_CHECK): ("site job",),
        (CellChannel.AUX_COMMUNICATION, FED_EVENT_TOPIC): ("site job",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("site job", "server"),
    },
    "site": {
        **_FOLLOW_UPS,
        _FAREWELL: ("server", "site job"),
        (CellChannel.CLIENT_MAIN, "admin"): ("server",),
        (CellChannel.CLIENT_MAIN, TrainingTopic.NOTIFY_JOB_STATUS): ("site job",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("site job",),
        (WORKSPACE_TRANSFER_CHANNEL, "*"): ("site job",),
    },
    "site job": {
        **_FOLLOW_UPS,
        _FAREWELL: ("server", "site"),
        (CellChannel.CLIENT_COMMAND, "*"): ("site",),
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.END_RUN): ("server job",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("server job", "site"),
    },
}
"""Receiver -> the requests that it accepts -> the places that may send them.

A topic's own entry takes precedence over that of its channel.

A console sends the files of jobs as streams of FLARE's own kind. A job's process at a site asks
whether the job's process at the server is ready and still runs, and sends its metrics there as
events (:data:`EVENTS`). The process at the server says when the run has ended.

Models travel as downloads. The address of a download is a secret that an earlier request carried.
Where FLARE starts a container for each job, the job's process fetches its files from its own site
or server over the workspace channel."""

RIGHTS: Mapping[str, str | None] = {
    TrainingTopic.CHECK_RESOURCE: None,
    TrainingTopic.CANCEL_RESOURCE: None,
    TrainingTopic.DEPLOY: None,
    TrainingTopic.START_JOB: None,
    TrainingTopic.ABORT: None,
    TrainingTopic.NOTIFY_JOB_STATUS: None,
    TrainingTopic.CHECK_STATUS: AdminCommandNames.CHECK_STATUS,
    TrainingTopic.SHUTDOWN: AdminCommandNames.SHUTDOWN,
    TrainingTopic.RESTART: AdminCommandNames.RESTART,
}
"""Command to a site's process -> the right that its user needs in the site's authorization.json.

None means that no right is needed: the server gives the command by itself in the course of a job,
which the site has checked at its deployment. FLARE's other commands (a shell, deletion of folders,
logging, statistics of processes) do not exist at a site."""

EVENTS = frozenset({METRICS_AT_SERVER})
"""Events that a site may fire in the server's process of its job.

FLARE would admit any event, such as the one with which a component ends the run, or the one that
starts the server."""

_CLIENT_TYPES: Mapping[Place, str] = {"site": ClientType.REGULAR, "user": ClientType.ADMIN}
"""Sender -> the type as which it may register at the server.

FLARE would also register a person as a site that takes part in jobs."""

_COMMAND_WITHOUT_JOB_ID = TrainingTopic.CANCEL_RESOURCE
"""The only command about a job that does not carry the job's id.

It releases what a check of resources has reserved, and names that check's token instead."""

_WITH_RESOURCES = frozenset(
    {TrainingTopic.CHECK_RESOURCE, TrainingTopic.CANCEL_RESOURCE, TrainingTopic.START_JOB}
)
"""Commands whose body FLARE hands to the site's resource manager."""

_FETCHING_PREFIX = "ws_transfer_"
"""Beginning of the name of a job's cell while it fetches its files."""

_LONGEST_START = 30.0
"""Seconds that a message waits for the server to start: as long as a site waits for an answer."""

_WINDOW_SECONDS = 60.0
"""How long refusals of one sender are counted together."""

_WRITTEN_IN_FULL = 20
"""Refusals of one sender in a window that are written one by one.

The rest are only counted, because a flood must not fill the disk."""

_LONGEST_NAME = 80
"""The most characters of a sender's name, and of an action, in the log."""

_LONGEST_REASON = 400
"""The most characters of a reason in the log.

A reason quotes headers, whose length the sender chooses."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arrival:
    """A message that a cell has just received: what its connection shows, and what its headers say.

    The connection can be trusted; the headers are the sender's own words.
    """

    receiver: str
    """Name of the cell that received it."""
    neighbour: str
    """Name of the cell at the other end, which FLARE has compared with its certificate."""
    certificate: str | None
    """The common name in that certificate; None if the connection shows no certificate."""
    passive: bool
    """Whether the neighbour opened the connection."""
    origin: str
    """Name of the cell that sent the message, by its header."""
    destination: str
    """Name of the cell that the message is for, by its header."""
    request: Request | None
    """Channel and topic; None for an answer, which reaches only the request that waits for it."""
    foreign_address: bool
    """Whether the message asks the receiver to connect to an address in it."""
    encrypted: bool = False
    """Whether it is encrypted between two cells, within the encryption of their connections."""
    not_reached: str | None = None
    """Cell to which, by this message, an earlier one was not delivered; None if it says none."""
    client: str | None = None
    """Name under which the sender registers, leaves or sends heartbeats; None if it gives none."""
    client_type: str | None = None
    """Type as which the sender registers."""
    stream_receiver: str | None = None
    """Cell that receives the stream that the message acknowledges.

    None if it acknowledges none, or one that has ended."""

    @property
    def sender(self) -> str:
        """The sender's name for the logs: that in its certificate, or else the name of its cell."""
        return self.certificate or f"{self.neighbour}, without a certificate"


def place_of(name: str) -> Place | None:
    """Return what kind of cell a name belongs to.

    None for a cell that no federation of fedward has, such as a relay.
    """
    if is_valid_admin_client_name(name):
        return "user"
    path = FQCN.split(name)
    on_server = path[0] == FQCN.ROOT_SERVER
    if len(path) == 1:
        return "server" if on_server else "site"
    if len(path) == 2 and is_job_id(path[1].removeprefix(_FETCHING_PREFIX)):
        return "server job" if on_server else "site job"
    return None


def is_job_id(value: Any) -> bool:
    """Return whether a value is a job's id as FLARE writes it, and so may name a job's folder."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def refusal(arrival: Arrival) -> str:
    """Return why a message is refused; empty if it is accepted."""
    for check in (_connection_refusal, _route_refusal, _request_refusal, _claim_refusal):
        reason = check(arrival)
        if reason:
            return reason
    return ""


def _connection_refusal(arrival: Arrival) -> str:
    if arrival.foreign_address:
        return "it names an address to connect to"
    if arrival.encrypted:
        # FLARE would ask the sender for its certificate, and wait an hour for the answer.
        return "it is encrypted between cells"
    if not _is_neighbour(arrival):
        return f"its connection is not that of a neighbour of {arrival.receiver}"
    if place_of(arrival.neighbour) == "user" and not _is_person(arrival.certificate):
        return "only a person may open a console"
    if not _may_speak_for(arrival):
        return f"its connection may not speak for {arrival.origin!r}"
    return ""


def _route_refusal(arrival: Arrival) -> str:
    route = f"from {arrival.origin!r} to {arrival.destination!r}"
    if arrival.destination != arrival.receiver and not _is_on_the_way(arrival):
        return f"nothing is passed on {route}"
    jobs = {job for job in (_job_id_of(arrival.origin), _job_id_of(arrival.destination)) if job}
    if len(jobs) > 1:
        return f"it leads from one job to another, {route}"
    return ""


def _request_refusal(arrival: Arrival) -> str:
    if arrival.request is None:
        return ""
    origin_place = place_of(arrival.origin)
    destination_place = place_of(arrival.destination)
    if (
        origin_place is None
        or destination_place is None
        or origin_place not in _senders(destination_place, arrival.request)
    ):
        channel, topic = arrival.request
        return (
            f"no {destination_place} accepts {topic!r} on channel {channel!r} from a {origin_place}"
        )
    return ""


def _claim_refusal(arrival: Arrival) -> str:
    """Return why what a message says of its sender, or of another cell, is refused."""
    if arrival.not_reached and not _may_miss(arrival.origin, arrival.not_reached):
        return f"its connection may not speak for {arrival.not_reached!r}"
    if arrival.stream_receiver not in (None, arrival.origin):
        return f"it acknowledges a stream to {arrival.stream_receiver!r}"
    is_direct = (arrival.origin, arrival.destination) == (arrival.neighbour, arrival.receiver)
    if arrival.request == _FAREWELL and not is_direct:
        # FLARE would cut off the neighbour that has passed it on.
        return "a farewell is not passed on"
    return _registration_refusal(arrival)


def _registration_refusal(arrival: Arrival) -> str:
    """Return why a message by which a participant registers, leaves or stays is refused."""
    if arrival.request is None or arrival.request[0] != CellChannel.SERVER_MAIN:
        return ""
    if arrival.client and arrival.client != arrival.certificate:
        return f"its connection may not speak for {arrival.client!r}"
    place = place_of(arrival.origin)
    if arrival.request == _REGISTER and (
        place is None or arrival.client_type != _CLIENT_TYPES.get(place)
    ):
        return f"a {place} may not register as {arrival.client_type!r}"
    return ""


def _is_neighbour(arrival: Arrival) -> bool:
    """Return whether the cell at the other end is one that the receiver has a connection with."""
    receiver_place = place_of(arrival.receiver)
    neighbour_place = place_of(arrival.neighbour)
    if arrival.passive and not arrival.certificate:
        return False
    if receiver_place == "server":
        return arrival.passive and neighbour_place in ("site", "site job", "user", "server job")
    if receiver_place == "server job":
        return not arrival.passive and neighbour_place == "server"
    if receiver_place == "site":
        own_job = neighbour_place == "site job" and _owner_of(arrival.neighbour) == arrival.receiver
        return own_job if arrival.passive else neighbour_place == "server"
    if receiver_place == "site job":
        own_site = arrival.neighbour == _owner_of(arrival.receiver)
        return not arrival.passive and (neighbour_place == "server" or own_site)
    return False


def _may_speak_for(arrival: Arrival) -> bool:
    """Return whether the neighbour may pass on messages of the cell that sent this one."""
    receiver_place = place_of(arrival.receiver)
    neighbour_place = place_of(arrival.neighbour)
    if receiver_place == "server":
        if neighbour_place in ("user", "server job"):
            return arrival.origin == arrival.neighbour
        same_site = _owner_of(arrival.origin) == _owner_of(arrival.neighbour)
        return same_site and place_of(arrival.origin) in ("site", "site job")
    if receiver_place == "server job":
        return place_of(arrival.origin) in ("server", "site", "site job")
    # The receiver is a site or its job.
    if neighbour_place == "site job":
        return arrival.origin == arrival.neighbour
    if neighbour_place == "site" and arrival.origin == arrival.neighbour:
        return True
    # The server, and to its own job a site, pass on what the server sends.
    return place_of(arrival.origin) in ("server", "server job")


def _is_person(certificate: str | None) -> bool:
    """Return whether a certificate is a person's, by its common name.

    FLARE's tools certify persons by their e-mail address, and no server and no site with an ``@``.
    FLARE itself lets any certificate open a console's cell.
    """
    return certificate is not None and "@" in certificate


def _may_miss(origin: str, not_reached: str) -> bool:
    """Return whether a cell may say that a message was not delivered to another one.

    The server says so of any cell, and a site of its own. FLARE takes such a message for the answer
    of the cell that was not reached.
    """
    on_server = place_of(origin) in ("server", "server job")
    return on_server or _owner_of(not_reached) == _owner_of(origin)


def _is_on_the_way(arrival: Arrival) -> bool:
    """Return whether the receiver lies between origin and destination of the message.

    One of the two is always on the server's side: nothing goes from site to site.
    """
    receiver_place = place_of(arrival.receiver)
    origin_place = place_of(arrival.origin)
    destination_place = place_of(arrival.destination)
    sites = ("site", "site job")
    servers = ("server", "server job")
    if receiver_place == "server":
        to_server_job = origin_place in sites and destination_place == "server job"
        from_server_job = origin_place == "server job" and destination_place in sites
        return to_server_job or from_server_job
    if receiver_place == "site":
        to_own_job = origin_place in servers and _owner_of(arrival.destination) == arrival.receiver
        from_own_job = (
            _owner_of(arrival.origin) == arrival.receiver and destination_place in servers
        )
        return to_own_job or from_own_job
    return False


def _owner_of(name: str) -> str:
    """Return the name of the site, server or user that a cell belongs to."""
    return str(FQCN.split(name)[0])


def _job_id_of(name: str) -> str | None:
    """Return the id of the job that a cell belongs to; None unless it is a job's cell."""
    if place_of(name) not in ("server job", "site job"):
        return None
    return str(FQCN.split(name)[1]).removeprefix(_FETCHING_PREFIX)


def _senders(receiver: Place, request: Request) -> tuple[Place, ...]:
    """Return the places from which a receiver accepts a request; none if it does not accept it."""
    accepted = REQUESTS.get(receiver, {})
    channel, _ = request
    return accepted.get(request) or accepted.get((channel, "*")) or ()


def arrival_of(
    receiver: str, endpoint: Endpoint, connection: Connection, message: Message
) -> Arrival:
    """Return what the gate needs to know of a message that came over a connection."""
    properties = connection.get_conn_properties() or {}
    certificate = properties.get(DriverParams.PEER_CN.value)
    destination = str(message.get_header(MessageHeaderKey.DESTINATION, ""))
    channel = str(message.get_header(MessageHeaderKey.CHANNEL, ""))
    topic = str(message.get_header(MessageHeaderKey.TOPIC, ""))
    request: Request | None = (channel, topic)
    if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        request = None
    elif request == (STREAM_CHANNEL, STREAM_DATA_TOPIC):
        request = _request_of_stream(message)
    acknowledged = request == (STREAM_CHANNEL, STREAM_ACK_TOPIC) and destination == receiver
    return Arrival(
        receiver=receiver,
        neighbour=endpoint.name,
        certificate=certificate if certificate != "N/A" else None,
        passive=connection.connector.mode == Mode.PASSIVE,
        origin=str(message.get_header(MessageHeaderKey.ORIGIN, "")),
        destination=destination,
        request=request,
        foreign_address=message.get_header(MessageHeaderKey.CONN_URL) is not None,
        encrypted=bool(message.get_header(MessageHeaderKey.SECURE)),
        not_reached=_text_or_none(_cell_not_reached(message)),
        client=_text_or_none(message.get_header(CellMessageHeaderKeys.CLIENT_NAME)),
        client_type=_text_or_none(message.get_header(CellMessageHeaderKeys.CLIENT_TYPE)),
        stream_receiver=_receiver_of_stream(message) if acknowledged else None,
    )


def _text_or_none(header: Any) -> str | None:
    return None if header is None else str(header)


def _cell_not_reached(message: Message) -> Any:
    """Return the cell to which, by this message, an earlier one was not delivered.

    None if it says no such thing.
    """
    if message.get_header(MessageHeaderKey.MSG_TYPE) == MessageType.RETURN:
        returned = message.get_header(MessageHeaderKey.ORIGINAL_HEADERS) or {}
        return returned.get(MessageHeaderKey.DESTINATION)
    return message.get_header(StreamHeaderKey.FAILED_DESTINATION)


def _request_of_stream(message: Message) -> Request:
    """Return the request that a part of a stream belongs to.

    Each part of a stream carries the channel and topic of the callback that gets the whole stream.
    A part that ends its stream with an error counts as an error of the stream: it reaches no
    callback.
    """
    if message.get_header(StreamHeaderKey.ERROR_MSG):
        return STREAM_CHANNEL, STREAM_ERROR_TOPIC
    channel = str(message.get_header(StreamHeaderKey.CHANNEL))
    topic = str(message.get_header(StreamHeaderKey.TOPIC))
    return channel, topic


def _receiver_of_stream(message: Message) -> str | None:
    """Return the cell to which this process sends the stream that a message acknowledges.

    FLARE numbers its streams consecutively and accepts an acknowledgement, or an error in it, from
    anybody: a site that knows the number of its own stream could end those to other sites.
    """
    stream = ByteStreamer.tx_task_map.get(message.get_header(StreamHeaderKey.STREAM_ID))
    return str(stream.target) if stream else None


class Refusals:
    """Writes refusals into the log and the audit log, with their sender.

    Of a flood only the first refusals are written. The number of the rest is written once the
    window has ended and any message arrives: heartbeats do every ten seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}
        """Sender -> its window, the oldest first. A window that has ended is removed."""

    def note(self, sender: str, action: str, reason: str, user: str = "") -> None:
        """Write a refusal.

        Args:
            sender: as :attr:`Arrival.sender`. Refusals of one sender are counted together.
            action: what was asked for.
            reason: why it is refused.
            user: the user for whom the sender claims to ask. Refusals are not counted by this name,
                because a sender could invent many.
        """
        self.write_counts()
        with self._lock:
            window = self._windows.setdefault(sender, _Window(time.monotonic()))
            window.count += 1
            if window.count > _WRITTEN_IN_FULL:
                return
        _write(f"{sender} for {user}" if user else sender, action, reason)

    def write_counts(self) -> None:
        """Write, for each window that has ended, how many of its refusals were not written."""
        for sender, window in self._ended_windows():
            unwritten = window.count - _WRITTEN_IN_FULL
            if unwritten > 0:
                # A full disk must not stop the message at hand, which may be another sender's.
                with suppress(OSError):
                    times = count(unwritten, "further time")
                    _write(sender, "more", f"{times} in {_WINDOW_SECONDS:.0f} s")

    def _ended_windows(self) -> list[tuple[str, "_Window"]]:
        """Remove the windows that have ended, and return them with their senders."""
        ended: list[tuple[str, _Window]] = []
        with self._lock:
            now = time.monotonic()
            for sender, window in self._windows.items():
                if now - window.start <= _WINDOW_SECONDS:
                    break  # All windows after this one began later.
                ended.append((sender, window))
            for sender, _ in ended:
                del self._windows[sender]
        return ended


@dataclass
class _Window:
    """The refusals of one sender that are counted together."""

    start: float
    """Time of the first refusal, by the monotonic clock, in seconds."""
    count: int = 0
    """Number of refusals so far, whether written or not."""


def _printable(text: str) -> str:
    """Return a sender's text without characters that start a new line or control a terminal."""
    return text.encode("unicode_escape").decode("ascii")


def _write(sender: str, action: str, reason: str) -> None:
    sender_name = _printable(sender)[:_LONGEST_NAME]
    # FLARE's audit log omits actions of certain names. A prefix of our own keeps all of them.
    event = f"refused {_printable(action)[:_LONGEST_NAME]}"
    text = _printable(reason)
    if len(text) > _LONGEST_REASON:
        text = f"{text[:_LONGEST_REASON]}..."
    _log.warning("%s from %s: %s", event, sender_name, text)
    AuditService.add_event(user=sender_name, action=event, msg=f" {text}")


refusals = Refusals()
"""The refusals of this process."""

_server_started = threading.Event()
"""Whether the server of this process knows its own certificate."""


def install() -> None:
    """Put the gate into this process, for all its cells; a second call changes nothing.

    The app check of a kit calls it (:mod:`fedward.flare.kits.apps`): FLARE builds the app check in
    every process of a kit, those of jobs too, before the process opens a connection. Only a job in
    a container fetches its files before that. The simulator has no app check, and so no gate.
    """
    if CoreCell._process_received_msg is _process_received_msg:
        return
    CoreCell._process_received_msg = _process_received_msg
    ServerDeployer.close = _close_deployer
    FedAdminAgent.register_processor = _register_processor
    FedAdminAgent._dispatch_request = _dispatch_request
    NetManager.get_spec = _get_spec
    FedEventRunner._receive = _receive_event
    ServerCommandAgent._aux_communicate = _aux_communicate
    flare_cell._is_server_job_cell = _is_server_job_cell


# FLARE's own functions, which :func:`install` replaces and the replacements call.
_ORIGINAL_PROCESS_RECEIVED = CoreCell._process_received_msg
_ORIGINAL_CLOSE_DEPLOYER = ServerDeployer.close
_ORIGINAL_REGISTER = FedAdminAgent.register_processor
_ORIGINAL_DISPATCH = FedAdminAgent._dispatch_request
_ORIGINAL_RECEIVE_EVENT = FedEventRunner._receive
_ORIGINAL_AUX_COMMUNICATE = ServerCommandAgent._aux_communicate


def _process_received_msg(
    cell: CoreCell, endpoint: Endpoint, connection: Connection, message: Message
) -> None:
    """Replace ``CoreCell._process_received_msg``: FLARE calls it before it decodes a message."""
    refusals.write_counts()
    if not isinstance(connection, NullConnection):  # FLARE's connection of a cell to itself.
        try:
            arrival = arrival_of(cell.get_fqcn(), endpoint, connection, message)
        except Exception as error:
            # The sender may have written anything. A message that cannot be read does not pass.
            refusals.note(endpoint.name, "message", f"it cannot be read: {type(error).__name__}")
            return
        reason = refusal(arrival)
        if not reason and arrival.receiver == FQCN.ROOT_SERVER:
            reason = _start_refusal(connection)
        if reason:
            action = ":".join(arrival.request) if arrival.request else "answer"
            refusals.note(arrival.sender, action, reason)
            return
    _ORIGINAL_PROCESS_RECEIVED(cell, endpoint, connection, message)


def _start_refusal(connection: Connection) -> str:
    """Return why a message that came too early is refused; empty once the server has started.

    It waits for the start. FLARE has a hundred threads for messages, so further messages wait for a
    free thread.
    """
    if _server_started.is_set():
        return ""
    if not _server_started.wait(_LONGEST_START):
        return f"the server has not started within {_LONGEST_START:.0f} s"
    if connection.state == ConnState.CLOSED:
        # Nobody waits for the answer. A farewell would even cut off its sender, if that has
        # connected again: FLARE removes whoever bears the name.
        return "its connection ended before the server had started"
    return ""


def _close_deployer(deployer: ServerDeployer) -> None:
    """Replace ``ServerDeployer.close``: FLARE calls it once its server knows its certificate.

    FLARE also calls it after a start that failed, and its server listens for some seconds more. The
    server then accepts no message.
    """
    _ORIGINAL_CLOSE_DEPLOYER(deployer)
    if sys.exc_info()[0] is None:
        _server_started.set()


def _register_processor(agent: FedAdminAgent, processor: RequestProcessor) -> None:
    """Replace ``FedAdminAgent.register_processor``: a site has only the commands in RIGHTS."""
    topics = sorted(processor.get_topics())
    if set(topics) <= set(RIGHTS):
        _ORIGINAL_REGISTER(agent, processor)
    else:
        # Of FLARE's own this leaves out shell commands and the like.
        _log.info("commands that a hospital does not take: %s", ", ".join(topics))


def _dispatch_request(agent: FedAdminAgent, request: Message) -> Message:
    """Replace ``FedAdminAgent._dispatch_request``, which checks rights only if the sender asks."""
    command = request.payload
    reason = _command_refusal(command)
    if not reason:
        return _ORIGINAL_DISPATCH(agent, request)
    topic = type(command).__name__
    user = ""
    if isinstance(command, Command):
        topic = str(command.topic)
        user = str(_person(command, "USER").name or "nobody")
    refusals.note("server", topic, reason, user)
    return new_cell_message({}, error_reply(f"{ERROR_MSG_PREFIX}: {reason}"))


def _command_refusal(command: Any) -> str:
    """Return why a site does not obey a command; empty if it does."""
    if not isinstance(command, Command) or command.topic not in RIGHTS:
        return "no such command exists at a site"
    right = RIGHTS[command.topic]
    if right is not None:
        return _right_refusal(command, right)
    if command.topic != _COMMAND_WITHOUT_JOB_ID and not is_job_id(
        command.get_header(RequestHeader.JOB_ID)
    ):
        return "it names no job"
    if command.topic == TrainingTopic.DEPLOY:
        return _app_refusal(command.body)
    if command.topic in _WITH_RESOURCES:
        return resource_check.problem_with(command.body)
    return ""


def _right_refusal(command: Command, right: str) -> str:
    """Return why a command's user does not have a right at this site; empty if the user has it."""
    user = _person(command, "USER")
    context = AuthzContext(user=user, submitter=_person(command, "SUBMITTER"), right=right)
    authorized, error = AuthorizationService.authorize(context)
    if error:
        return str(error)
    if not authorized:
        return f"this site's authorization.json does not give {user.name!r} the right to {right}"
    return ""


def _app_refusal(app: Any) -> str:
    """Return why an app's list of files is refused; empty if it is accepted.

    The list is checked here, because FLARE unpacks an app before it checks anything else.
    """
    try:
        check_archive(app, "site")
    except ConfigError as error:
        return str(error)
    return ""


def _person(command: Command, kind: Literal["USER", "SUBMITTER"]) -> Person:
    """Return the user of a command, or the submitter of its job, as the server names them.

    The server has checked their certificates.
    """
    name = command.get_header(getattr(RequestHeader, f"{kind}_NAME"), "")
    org = command.get_header(getattr(RequestHeader, f"{kind}_ORG"), "")
    role = command.get_header(getattr(RequestHeader, f"{kind}_ROLE"), "")
    return Person(name, org, role)


def _aux_communicate(agent: ServerCommandAgent, request: Message) -> Message:
    """Replace ``ServerCommandAgent._aux_communicate``, which believes the name a site gives itself.

    Without it, a site could report under another site's name that the other site is still there,
    and send metrics as if they were that site's. It could also do so in a job that it takes no part
    in, since a cell may bear the id of any job.
    """
    site = _owner_of(str(request.get_header(MessageHeaderKey.ORIGIN, "")))
    reason = _speaker_refusal(site, request.payload, agent.engine.get_clients())
    if not reason:
        return _ORIGINAL_AUX_COMMUNICATE(agent, request)
    refusals.note(site, str(request.get_header(MessageHeaderKey.TOPIC)), reason)
    return new_cell_message({MessageHeaderKey.RETURN_CODE: CellReturnCode.INVALID_REQUEST}, None)


def _speaker_refusal(site: str, payload: Any, participants: Sequence[Client]) -> str:
    """Return why a site is not heard in the server's process of a job; empty if it is.

    As long as the process does not know the participants, FLARE itself tells every site to ask
    again.
    """
    claimed_name = None
    if isinstance(payload, Shareable):
        claimed_name = payload.get_peer_prop(ReservedKey.IDENTITY_NAME, None)
    if claimed_name != site:
        return f"it calls itself {claimed_name!r}"
    if participants and site not in {client.name for client in participants}:
        return "it takes no part in this job"
    return ""


def _receive_event(
    runner: FedEventRunner, topic: str, request: Shareable, fl_ctx: FLContext
) -> Shareable:
    """Replace ``FedEventRunner._receive``: a site fires no events but those of :data:`EVENTS`."""
    event = request.get_header(FedEventHeader.EVENT_TYPE)
    if isinstance(event, str) and event in EVENTS:
        return _ORIGINAL_RECEIVE_EVENT(runner, topic, request, fl_ctx)
    refusals.note("a site of this job", topic, f"no site makes {event!r} happen here")
    return make_reply(ReturnCode.BAD_REQUEST_DATA)


def _is_server_job_cell(_: FqcnInfo) -> bool:
    """Replace ``_is_server_job_cell``, by which FLARE picks the processes that a message may end.

    In FLARE, a job's process at the server ends itself when any site sends an answer that cannot be
    decoded, or states that a message is too large for it. With this replacement only the message is
    lost.
    """
    return False


def _get_spec(_: NetManager) -> CommandModuleSpec:
    """Replace ``NetManager.get_spec``: the console cannot list, stop or redirect cells."""
    return CommandModuleSpec(name="cellnet", cmd_specs=[])
