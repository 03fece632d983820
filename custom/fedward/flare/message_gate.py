"""The gate: which messages FLARE's processes accept, and from whom.

It decides by the connection, before anything in a message is decoded.

FLARE 2.9 passes a message on to whichever cell its header names, once the sender has a token. A
site's process obeys everybody who reaches it, because it checks rights only if the sender's own
header asks for that. Anybody with a startup kit, of any role, can therefore have a command run at
every hospital. The gate closes both ends:

- A cell accepts a message only from the neighbours that a federation of fedward has: a site from
  its server and its own jobs, the server from sites, users and its own jobs. FLARE has compared a
  neighbour's name with the certificate of its connection. The headers are the sender's own words,
  and must agree with that name.
- The server forwards nothing from one site or user to another.
- A request is accepted only if :data:`REQUESTS` names it for this receiver and this sender. FLARE's
  own diagnosis of networks, with which anybody could stop a cell or give it another server, is not
  among them.
- A site's process takes :data:`RIGHTS` from its server and no others, and checks the user's right
  to each itself.

A refused message gets no answer. A command of the server that a site does not obey is answered with
the reason. The participant that refused writes each refusal into its audit log, with the sender.
:func:`install` puts all of this into a process. docs/flare_changes.md says what FLARE itself does,
in which versions.
"""

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from nvflare.apis.fl_constant import (
    AdminCommandNames,
    ConnectionSecurity,
    FedEventHeader,
    ReservedKey,
    ReservedTopic,
    ReturnCode,
)
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_opt.job_launcher.workspace_cell_transfer import WORKSPACE_TRANSFER_CHANNEL
from nvflare.fuel.f3.cellnet import cell as flares_cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessageType,
)
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN, FqcnInfo
from nvflare.fuel.f3.cellnet.identity import get_param
from nvflare.fuel.f3.cellnet.net_manager import NetManager
from nvflare.fuel.f3.connection import Connection
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
from nvflare.private.fed.client.admin import FedAdminAgent, RequestProcessor
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent
from nvflare.private.stream_runner import TOPIC_STREAM_ABORT, TOPIC_STREAM_REQUEST
from nvflare.widgets.fed_event import FED_EVENT_TOPIC, FedEventRunner

from fedward.errors import ConfigError
from fedward.flare.jobs.configurations import METRICS_AT_SERVER
from fedward.flare.kits.app_check import check_archive

Place = Literal["server", "server job", "site", "site job", "user"]
"""What a cell is: the process of a server or a site, the process of a job there, or a console."""

Request = tuple[str, str]
"""Channel and topic for which a callback is registered; ``*`` is every topic of the channel."""

_EVERYBODY: tuple[Place, ...] = ("server", "server job", "site", "site job", "user")

_ALWAYS: Mapping[Request, tuple[Place, ...]] = {
    (STREAM_CHANNEL, STREAM_ACK_TOPIC): _EVERYBODY,
    (STREAM_CHANNEL, STREAM_ERROR_TOPIC): _EVERYBODY,
    (CellChannel.RETURN_ONLY, "*"): _EVERYBODY,
    (CellChannel.CELLNET, CellChannelTopic.Bye): _EVERYBODY,
}
"""What follows accepted messages: acknowledgements, errors and answers of streams, and farewells.

Every neighbour may send them. They reach nothing but the sender's own streams and requests that
wait for an answer."""

REQUESTS: Mapping[Place, Mapping[Request, tuple[Place, ...]]] = {
    "server": {
        **_ALWAYS,
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
        **_ALWAYS,
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
        **_ALWAYS,
        (CellChannel.CLIENT_MAIN, "admin"): ("server",),
        (CellChannel.CLIENT_MAIN, TrainingTopic.NOTIFY_JOB_STATUS): ("site job",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("site job",),
        (WORKSPACE_TRANSFER_CHANNEL, "*"): ("site job",),
    },
    "site job": {
        **_ALWAYS,
        (CellChannel.CLIENT_COMMAND, "*"): ("site",),
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.END_RUN): ("server job",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("server job", "site"),
    },
}
"""Receiver -> the requests that it accepts -> the places that may send them.

A topic's own entry takes precedence over that of its channel.

A console sends the files of jobs as streams of FLARE's own kind. A job's process at a site asks
whether the server's is ready and still runs, and sends its metrics there as events
(:data:`EVENTS`). The server's says when the run has ended.

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

None: the server gives the command by itself in the course of a job, which the site has checked at
its deployment. FLARE's other commands (a shell, deletion of folders, logging, statistics of
processes) do not exist at a site."""

EVENTS = frozenset({METRICS_AT_SERVER})
"""Events that a site may fire in the server's process of its job.

FLARE would admit any event, such as the one by which a component ends the run, or the one that
starts the server."""

_CLIENT_TYPES: Mapping[Place, str] = {"site": ClientType.REGULAR, "user": ClientType.ADMIN}
"""Sender -> the type as which it may register at the server.

FLARE would also register a person as a site that takes part in jobs."""

_REGISTER: Request = (CellChannel.SERVER_MAIN, CellChannelTopic.Register)

_NAMES_NO_JOB = TrainingTopic.CANCEL_RESOURCE
"""The one command of a job without the job's id.

It gives back what a check of resources has reserved, by that check's token."""

_FETCHING_PREFIX = "ws_transfer_"
"""Beginning of the name of a job's cell while it fetches its files."""

_LOOPBACK = ("127.", "localhost:", "::1", "[::1]")
"""Beginnings of this machine's own addresses."""

_WINDOW_SECONDS = 60.0
"""How long refusals of one sender are counted together."""

_WRITTEN_IN_FULL = 20
"""Refusals of one sender in a window that are written singly: a flood must not fill the disk."""

_LONGEST_NAME = 80
"""Characters of a sender's name and of an action in the log."""

_LONGEST_REASON = 400
"""Characters of a reason in the log: the sender chose what the reason repeats."""

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
    clear: bool
    """Whether it stays in the machine and is not encrypted, as with kits of earlier versions."""
    origin: str
    """Name of the cell that sent the message, by its header."""
    destination: str
    """Name of the cell that it is for, by its header."""
    request: Request | None
    """Channel and topic; None for an answer, which reaches only the request that waits for it."""
    foreign_address: bool
    """Whether the message asks the receiver to connect to an address in it."""
    client: str | None = None
    """Name as which the sender registers, leaves or sends its heartbeat; None if it gives none."""
    client_type: str | None = None
    """Type as which the sender registers."""
    stream_to: str | None = None
    """Cell that gets the stream that is acknowledged; None if no such stream goes on."""

    @property
    def sender(self) -> str:
        """The sender's name for people: from the certificate, else the cell's own name."""
        return self.certificate or f"{self.neighbour}, without a certificate"


def place_of(name: str) -> Place | None:
    """Return what the cell of that name is.

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


def is_job_id(text: Any) -> bool:
    """Return whether a text is a job's id as FLARE makes them, and may name a job's folder."""
    try:
        return isinstance(text, str) and str(uuid.UUID(text)) == text
    except ValueError:
        return False


def refusal(message: Arrival) -> str:
    """Return why a message is refused; empty if it is accepted."""
    for check in (_connection_refused, _route_refused, _request_refused):
        reason = check(message)
        if reason:
            return reason
    return ""


def _connection_refused(message: Arrival) -> str:
    if message.foreign_address:
        return "it names an address to connect to"
    if not _is_neighbour(message):
        return f"its connection is not that of a neighbour of {message.receiver}"
    if not _may_speak_for(message):
        return f"its connection may not speak for {message.origin!r}"
    return ""


def _route_refused(message: Arrival) -> str:
    between = f"from {message.origin!r} to {message.destination!r}"
    if message.destination != message.receiver and not _is_on_the_way(message):
        return f"nothing is passed on {between}"
    jobs = {job for job in (_job(message.origin), _job(message.destination)) if job}
    if len(jobs) > 1:
        return f"it leads from one job to another, {between}"
    return ""


def _request_refused(message: Arrival) -> str:
    if message.request is None:
        return ""
    origin = place_of(message.origin)
    target = place_of(message.destination)
    if origin is None or target is None or origin not in _senders(target, message.request):
        channel, topic = message.request
        return f"no {target} accepts {topic!r} on channel {channel!r} from a {origin}"
    if message.stream_to not in (None, message.origin):
        return f"it acknowledges a stream to {message.stream_to!r}"
    named_another = bool(message.client) and message.client != message.certificate
    if message.request[0] == CellChannel.SERVER_MAIN and named_another:
        return f"its connection may not speak for {message.client!r}"
    if message.request == _REGISTER and message.client_type != _CLIENT_TYPES.get(origin):
        return f"a {origin} may not register as {message.client_type!r}"
    return ""


def _is_neighbour(message: Arrival) -> bool:
    """Return whether the cell at the other end is one that the receiver has a connection with."""
    here = place_of(message.receiver)
    beside = place_of(message.neighbour)
    job_within_machine = message.clear and beside in ("server job", "site job")
    if message.passive and not message.certificate and not job_within_machine:
        return False
    if here == "server":
        return message.passive and beside in ("site", "site job", "user", "server job")
    if here == "server job":
        return not message.passive and beside == "server"
    if here == "site":
        own_job = beside == "site job" and _family(message.neighbour) == message.receiver
        return own_job if message.passive else beside == "server"
    if here == "site job":
        own_site = message.neighbour == _family(message.receiver)
        return not message.passive and (beside == "server" or own_site)
    return False


def _may_speak_for(message: Arrival) -> bool:
    """Return whether the neighbour may pass on messages of the cell that sent this one."""
    here = place_of(message.receiver)
    beside = place_of(message.neighbour)
    if here == "server":
        if beside in ("user", "server job"):
            return message.origin == message.neighbour
        same_site = _family(message.origin) == _family(message.neighbour)
        return same_site and place_of(message.origin) in ("site", "site job")
    if here == "server job":
        return place_of(message.origin) in ("server", "site", "site job")
    if beside == "site" and message.origin == message.neighbour:
        return True
    if beside == "site job":
        return message.origin == message.neighbour
    return place_of(message.origin) in ("server", "server job")


def _is_on_the_way(message: Arrival) -> bool:
    """Return whether the receiver lies between origin and destination of the message.

    One of the two is always on the server's side: nothing goes from site to site.
    """
    here = place_of(message.receiver)
    origin = place_of(message.origin)
    target = place_of(message.destination)
    sites = ("site", "site job")
    servers = ("server", "server job")
    if here == "server":
        to_server_job = origin in sites and target == "server job"
        from_server_job = origin == "server job" and target in sites
        return to_server_job or from_server_job
    if here == "site":
        to_own_job = origin in servers and _family(message.destination) == message.receiver
        from_own_job = _family(message.origin) == message.receiver and target in servers
        return to_own_job or from_own_job
    return False


def _family(name: str) -> str:
    """Return the name of the site, server or user that the cell belongs to."""
    return str(FQCN.split(name)[0])


def _job(name: str) -> str | None:
    """Return the job's id in the name of a job's cell; None for other cells."""
    if place_of(name) not in ("server job", "site job"):
        return None
    return str(FQCN.split(name)[1]).removeprefix(_FETCHING_PREFIX)


def _senders(receiver: Place, request: Request) -> tuple[Place, ...]:
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
        request = _streamed(message)
    acknowledged = request == (STREAM_CHANNEL, STREAM_ACK_TOPIC) and destination == receiver
    return Arrival(
        receiver=receiver,
        neighbour=endpoint.name,
        certificate=certificate if certificate != "N/A" else None,
        passive=connection.connector.mode == Mode.PASSIVE,
        clear=_within_machine(connection),
        origin=str(message.get_header(MessageHeaderKey.ORIGIN, "")),
        destination=destination,
        request=request,
        foreign_address=message.get_header(MessageHeaderKey.CONN_URL) is not None,
        client=_text(message.get_header(CellMessageHeaderKeys.CLIENT_NAME)),
        client_type=_text(message.get_header(CellMessageHeaderKeys.CLIENT_TYPE)),
        stream_to=_stream_to(message) if acknowledged else None,
    )


def _text(header: Any) -> str | None:
    return None if header is None else str(header)


def _within_machine(connection: Connection) -> bool:
    """Return whether both ends of a connection without encryption lie on this machine."""
    security = get_param(connection.connector.params, DriverParams.CONNECTION_SECURITY)
    properties = connection.get_conn_properties() or {}
    local_address = str(properties.get(DriverParams.LOCAL_ADDR.value, ""))
    peer_address = str(properties.get(DriverParams.PEER_ADDR.value, ""))
    return (
        security == ConnectionSecurity.CLEAR
        and local_address.startswith(_LOOPBACK)
        and peer_address.startswith(_LOOPBACK)
    )


def _streamed(message: Message) -> Request:
    """Return the request that a part of a stream belongs to.

    A part that ends a stream with an error is an error of the stream, and calls nothing else.
    """
    if message.get_header(StreamHeaderKey.ERROR_MSG):
        return STREAM_CHANNEL, STREAM_ERROR_TOPIC
    channel = str(message.get_header(StreamHeaderKey.CHANNEL))
    topic = str(message.get_header(StreamHeaderKey.TOPIC))
    return channel, topic


def _stream_to(message: Message) -> str | None:
    """Return the cell to which this process sends the stream that a message acknowledges.

    FLARE numbers its streams one after another and accepts an acknowledgement, or an error in it,
    from anybody: a site that knows the number of its own stream could end those to other sites.
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
        """Sender -> its window, oldest first. One that has ended is removed."""

    def note(self, sender: str, action: str, reason: str, user: str = "") -> None:
        """Write a refusal.

        Args:
            sender: as :attr:`Arrival.sender`. Refusals of one sender are counted together.
            action: what was asked for.
            reason: why it is refused.
            user: the user for whom the sender says that it asks. It may invent many names.
        """
        self.write_counts()
        with self._lock:
            window = self._windows.setdefault(sender, _Window(time.monotonic()))
            window.count += 1
            if window.count > _WRITTEN_IN_FULL:
                return
        _write(f"{sender} for {user}" if user else sender, action, reason)

    def write_counts(self) -> None:
        """Write how many refusals were left out, of each window that has ended."""
        for sender, window in self._ended_windows():
            unwritten = window.count - _WRITTEN_IN_FULL
            if unwritten > 0:
                # A full disk must not stop the message at hand, which may be another sender's.
                with suppress(OSError):
                    _write(sender, "more", f"{unwritten} further times in {_WINDOW_SECONDS:.0f} s")

    def _ended_windows(self) -> list[tuple[str, "_Window"]]:
        """Remove the windows that have ended, and return them with their senders."""
        ended: list[tuple[str, _Window]] = []
        with self._lock:
            now = time.monotonic()
            for sender, window in self._windows.items():
                if now - window.start <= _WINDOW_SECONDS:
                    break  # All further ones began later.
                ended.append((sender, window))
            for sender, _ in ended:
                del self._windows[sender]
        return ended


@dataclass
class _Window:
    """The refusals of one sender that are counted together."""

    start: float
    """Time of the first, by the monotonic clock, in seconds."""
    count: int = 0


def _printable(text: str) -> str:
    """Return a sender's text without characters that start a new line or control a terminal."""
    return text.encode("unicode_escape").decode("ascii")


def _write(sender: str, action: str, reason: str) -> None:
    user = _printable(sender)[:_LONGEST_NAME]
    # FLARE's audit log omits some actions by their names, so each gets a name of ours.
    event = f"refused {_printable(action)[:_LONGEST_NAME]}"
    text = _printable(reason)
    if len(text) > _LONGEST_REASON:
        text = f"{text[:_LONGEST_REASON]}..."
    _log.warning("%s from %s: %s", event, user, text)
    AuditService.add_event(user=user, action=event, msg=f" {text}")


refusals = Refusals()
"""Those of this process."""


def install() -> None:
    """Put the gate into this process, for all its cells; a second call changes nothing.

    The app check of a kit does so (:mod:`fedward.flare.kits.apps`): FLARE builds it in every
    process of a kit, those of jobs too, before it opens a connection. The simulator has no app
    check.
    """
    if CoreCell._process_received_msg is _process_received_msg:
        return
    CoreCell._process_received_msg = _process_received_msg
    FedAdminAgent.register_processor = _register_processor
    FedAdminAgent._dispatch_request = _dispatch_request
    NetManager.get_spec = _get_spec
    FedEventRunner._receive = _receive_event
    ServerCommandAgent._aux_communicate = _aux_communicate
    flares_cell._is_server_job_cell = _is_server_job_cell


_FLARES_PROCESS_RECEIVED = CoreCell._process_received_msg
_FLARES_REGISTER = FedAdminAgent.register_processor
_FLARES_DISPATCH = FedAdminAgent._dispatch_request
_FLARES_RECEIVE_EVENT = FedEventRunner._receive
_FLARES_AUX_COMMUNICATE = ServerCommandAgent._aux_communicate


def _process_received_msg(
    cell: CoreCell, endpoint: Endpoint, connection: Connection, message: Message
) -> None:
    """Replace ``CoreCell._process_received_msg``: FLARE calls it before it decodes a message."""
    refusals.write_counts()
    if not isinstance(connection, NullConnection):  # That is a cell's message to itself.
        try:
            arrival = arrival_of(cell.get_fqcn(), endpoint, connection, message)
        except Exception as error:
            # The sender may have written anything. What the gate cannot read does not pass.
            refusals.note(endpoint.name, "message", f"it cannot be read: {type(error).__name__}")
            return
        reason = refusal(arrival)
        if reason:
            action = ":".join(arrival.request) if arrival.request else "answer"
            refusals.note(arrival.sender, action, reason)
            return
    _FLARES_PROCESS_RECEIVED(cell, endpoint, connection, message)


def _register_processor(agent: FedAdminAgent, processor: RequestProcessor) -> None:
    """Replace ``FedAdminAgent.register_processor``: a site has only the commands of RIGHTS."""
    if set(processor.get_topics()) <= set(RIGHTS):
        _FLARES_REGISTER(agent, processor)


def _dispatch_request(agent: FedAdminAgent, request: Message) -> Message:
    """Replace ``FedAdminAgent._dispatch_request``, which checks rights only if the sender asks."""
    command = request.payload
    reason = _command_refused(command)
    if not reason:
        return _FLARES_DISPATCH(agent, request)
    topic = type(command).__name__
    user = ""
    if isinstance(command, Command):
        topic = str(command.topic)
        user = str(_person(command, "USER").name or "nobody")
    refusals.note("server", topic, reason, user)
    return new_cell_message({}, error_reply(f"{ERROR_MSG_PREFIX}: {reason}"))


def _command_refused(command: Any) -> str:
    """Return why a site does not obey a command; empty if it does."""
    if not isinstance(command, Command) or command.topic not in RIGHTS:
        return "no such command exists at a site"
    right = RIGHTS[command.topic]
    if right is not None:
        return _not_entitled(command, right)
    if command.topic != _NAMES_NO_JOB and not is_job_id(command.get_header(RequestHeader.JOB_ID)):
        return "it names no job"
    if command.topic == TrainingTopic.DEPLOY:
        return _app_refused(command.body)
    return ""


def _not_entitled(command: Command, right: str) -> str:
    """Return why a command's user does not have a right at this site; empty if the user has it."""
    user = _person(command, "USER")
    context = AuthzContext(user=user, submitter=_person(command, "SUBMITTER"), right=right)
    authorized, error = AuthorizationService.authorize(context)
    if error:
        return str(error)
    if not authorized:
        return f"this site's authorization.json does not give {user.name!r} the right to {right}"
    return ""


def _app_refused(app: Any) -> str:
    """Return why an app's list of files is refused; empty if it is not.

    FLARE unpacks an app, to check its signature, before any other check.
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

    A site could say under another site's name that this one is still there, and send metrics as
    its own.
    """
    site = _family(str(request.get_header(MessageHeaderKey.ORIGIN, "")))
    payload = request.payload
    name = None
    if isinstance(payload, Shareable):
        name = payload.get_peer_prop(ReservedKey.IDENTITY_NAME, None)
    if name == site:
        return _FLARES_AUX_COMMUNICATE(agent, request)
    topic = str(request.get_header(MessageHeaderKey.TOPIC))
    refusals.note(site, topic, f"it calls itself {name!r}")
    return new_cell_message({MessageHeaderKey.RETURN_CODE: CellReturnCode.INVALID_REQUEST}, None)


def _receive_event(
    runner: FedEventRunner, topic: str, request: Shareable, fl_ctx: FLContext
) -> Shareable:
    """Replace ``FedEventRunner._receive``: a site fires no events but those of :data:`EVENTS`."""
    event = request.get_header(FedEventHeader.EVENT_TYPE)
    if isinstance(event, str) and event in EVENTS:
        return _FLARES_RECEIVE_EVENT(runner, topic, request, fl_ctx)
    refusals.note("a site of this job", topic, f"no site makes {event!r} happen here")
    return make_reply(ReturnCode.BAD_REQUEST_DATA)


def _is_server_job_cell(_: FqcnInfo) -> bool:
    """Replace ``_is_server_job_cell``, by which FLARE picks the processes that a message may end.

    The server's process of a job would end itself for an answer that cannot be decoded, from any
    site, and for one site's statement that a message is too large for it. With this replacement
    that message is lost, and nothing else.
    """
    return False


def _get_spec(_: NetManager) -> CommandModuleSpec:
    """Replace ``NetManager.get_spec``: the console cannot list, stop or redirect cells."""
    return CommandModuleSpec(name="cellnet", cmd_specs=[])
