"""Which messages FLARE's processes accept, and from whom: decided by the connection, before
anything is decoded.

FLARE 2.9 passes a message on to whichever cell its header names, once the sender has a token. A
site's process obeys whoever reaches it, because it checks rights only if the sender's own header
asks for that. Whoever holds a startup kit, of any role, can therefore have a command run at every
hospital. Both ends are closed here:

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
the reason. Each refusal stands in the audit log of the participant that refused, with its sender.
:func:`install` puts all of this into a process. docs/threat_model.md says what FLARE does by
itself, in which versions.
"""

import logging
import threading
import time
import uuid
from collections.abc import Mapping
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
"""What a cell is: the process of a server or a site, the process of one of its jobs, or somebody's
console.
"""

Request = tuple[str, str]
"""Channel and topic, as a callback is registered for; the topic ``*`` stands for every topic of its
channel.
"""

_ALWAYS: Mapping[Request, tuple[Place, ...]] = {
    (STREAM_CHANNEL, STREAM_ACK_TOPIC): ("server", "server job", "site", "site job", "user"),
    (STREAM_CHANNEL, STREAM_ERROR_TOPIC): ("server", "server job", "site", "site job", "user"),
    (CellChannel.RETURN_ONLY, "*"): ("server", "server job", "site", "site job", "user"),
    (CellChannel.CELLNET, CellChannelTopic.Bye): (
        "server",
        "server job",
        "site",
        "site job",
        "user",
    ),
}
"""What belongs to messages that were accepted: acknowledgements, errors and answers of streams, and
leave-taking. Each neighbour may send them; they reach nothing but the sender's own streams and
requests that wait for an answer."""

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
"""Receiver -> the requests that it accepts -> from whom. A topic's own entry takes precedence over
that of its channel.

A console sends the files of jobs as streams of FLARE's own kind. A job's process at a site asks
whether the server's is ready and still runs, and sends its metrics there as events
(:data:`EVENTS`). The server's says when the run has ended.

Models travel as downloads. The address of a download is a secret that an earlier request has told.
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
"""What a site's process does for its server -> the right that a user needs by the site's own
``authorization.json``.

None: the server does it by itself in the course of a job, which the site has checked at its
deployment. FLARE's other commands (a shell, deletion of folders, logging, statistics of processes)
do not exist at a site."""

EVENTS = frozenset({METRICS_AT_SERVER})
"""What a site may let happen in the server's process of its job. FLARE would let it be any event,
such as the one by which a component ends the run, or the one that the server's start consists
of."""

_CLIENT_TYPES: Mapping[Place, str] = {"site": ClientType.REGULAR, "user": ClientType.ADMIN}
"""As what each may register at the server: FLARE would take a person for a site that takes part in
jobs.
"""

_REGISTER: Request = (CellChannel.SERVER_MAIN, CellChannelTopic.Register)

_NAMES_NO_JOB = TrainingTopic.CANCEL_RESOURCE
"""Gives back what a check of resources has reserved, by that check's token: FLARE's server names no
job with it.
"""

_FETCHING_PREFIX = "ws_transfer_"
"""Beginning of the name of a job's cell while it fetches its files."""

_LOOPBACK = ("127.", "localhost:", "::1", "[::1]")
"""Beginnings of this machine's own addresses."""

_WINDOW_SECONDS = 60.0
"""How long refusals of one sender are counted together."""

_WRITTEN_IN_FULL = 20
"""Refusals of one sender in a window that are written one by one: a flood must not fill the disk.
"""

_LONGEST_NAME = 80
"""Characters of a sender's name and of an action in the log."""

_LONGEST_REASON = 400
"""Characters of a reason in the log: the sender chose what the reason repeats."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arrival:
    """A message at the cell that has just received it: what the connection shows, and what the
    headers say.
    """

    receiver: str
    """Name of the cell."""
    neighbour: str
    """Name of the cell at the other end of the connection, which FLARE has compared with its
    certificate.
    """
    certificate: str | None
    """The common name in that certificate; None: the connection shows none."""
    passive: bool
    """Whether the neighbour opened the connection."""
    clear: bool
    """Whether the connection stays within the machine and is not encrypted, as in kits of earlier
    versions.
    """
    origin: str
    destination: str
    request: Request | None
    """None: an answer, which reaches nothing but the request that waits for it."""
    foreign_address: bool
    """Whether the receiver is told to open a connection to an address in the message."""
    client: str | None = None
    """As whom the sender registers at the server, leaves it or sends its heartbeat; None: the
    message does not say.
    """
    client_type: str | None = None
    """As what it registers."""
    stream_to: str | None = None
    """To which cell the receiver sends the stream that is acknowledged; None: no stream that goes
    on.
    """

    @property
    def sender(self) -> str:
        """Who sent it, for people: the name in the certificate; without one, what the cell calls
        itself.
        """
        return self.certificate or f"{self.neighbour}, without a certificate"


def place_of(name: str) -> Place | None:
    """Return what the cell of that name is; None: nothing that a federation of fedward has, such as
    a relay.
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
    """Return whether a text is a job's id as FLARE makes them. Nothing else may name a job's
    folder.
    """
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
    """Return whether the neighbour passes on messages of the cell that the header names as their
    origin.
    """
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
    """Return whether the receiver lies between the origin and the destination: one of them is on
    the server's side.
    """
    here = place_of(message.receiver)
    origin = place_of(message.origin)
    target = place_of(message.destination)
    sites = ("site", "site job")
    servers = ("server", "server job")
    if here == "server":
        return (origin in sites and target == "server job") or (
            origin == "server job" and target in sites
        )
    if here == "site":
        own_target = _family(message.destination) == message.receiver
        own_origin = _family(message.origin) == message.receiver
        return (origin in servers and own_target) or (own_origin and target in servers)
    return False


def _family(name: str) -> str:
    """Return the site, server or user whose process or job the cell of that name is."""
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
    """Return what the gate looks at of a message that a connection has brought."""
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
    ends = [
        str(properties.get(end.value, ""))
        for end in (DriverParams.LOCAL_ADDR, DriverParams.PEER_ADDR)
    ]
    return security == ConnectionSecurity.CLEAR and all(end.startswith(_LOOPBACK) for end in ends)


def _streamed(message: Message) -> Request:
    """Return the request that a part of a stream belongs to; a part that ends a stream with an
    error calls nothing.
    """
    if message.get_header(StreamHeaderKey.ERROR_MSG):
        return STREAM_CHANNEL, STREAM_ERROR_TOPIC
    return str(message.get_header(StreamHeaderKey.CHANNEL)), str(
        message.get_header(StreamHeaderKey.TOPIC)
    )


def _stream_to(message: Message) -> str | None:
    """Return to whom this process sends the stream that a message is about.

    FLARE numbers its streams one after another and takes an acknowledgement, or an error in it,
    from anybody: whoever knows the number of one stream could end those to others.
    """
    stream = ByteStreamer.tx_task_map.get(message.get_header(StreamHeaderKey.STREAM_ID))
    return str(stream.target) if stream else None


class Refusals:
    """Writes what was refused into the log and the audit log, with its sender.

    Of a flood only the first refusals are written. How many followed is written with the sender's
    next refusal after the window.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}

    def note(self, sender: str, action: str, reason: str, user: str = "") -> None:
        """Write a refusal down.

        Args:
            sender: as :attr:`Arrival.sender`; its refusals are counted together.
            action: what was asked for.
            reason: why it is refused.
            user: for whom the sender says that it asks: its own word, of which it may have many.
        """
        with self._lock:
            window = self._windows.get(sender)
            now = time.monotonic()
            if window is None or now - window.start > _WINDOW_SECONDS:
                if window and window.count > _WRITTEN_IN_FULL:
                    unwritten = window.count - _WRITTEN_IN_FULL
                    _write(sender, "more", f"{unwritten} further times in {_WINDOW_SECONDS:.0f} s")
                window = _Window(now)
                self._windows[sender] = window
            window.count += 1
            if window.count > _WRITTEN_IN_FULL:
                return
        _write(f"{sender} for {user}" if user else sender, action, reason)


@dataclass
class _Window:
    start: float
    count: int = 0


def _printable(text: str) -> str:
    """Return a text of the sender's choice without what would write further lines into a log, or
    move a terminal.
    """
    return text.encode("unicode_escape").decode("ascii")


def _write(sender: str, action: str, reason: str) -> None:
    who = _printable(sender)[:_LONGEST_NAME]
    what = f"refused {_printable(action)[:_LONGEST_NAME]}"  # FLARE's audit log leaves out some actions by their names
    why = _printable(reason)
    if len(why) > _LONGEST_REASON:
        why = f"{why[:_LONGEST_REASON]}..."
    _log.warning("%s from %s: %s", what, who, why)
    AuditService.add_event(user=who, action=what, msg=f" {why}")


refusals = Refusals()
"""Writes down those of this process."""


def install() -> None:
    """Put the gate into this process, for all its cells; a second call changes nothing.

    The app check of a kit does so (:mod:`fedward.flare.kits.apps`): FLARE builds it in every
    process of a kit, those of jobs too, before it opens a connection. The simulator has no app
    check.
    """
    if CoreCell._process_received_msg is not _receive:
        CoreCell._process_received_msg = _receive
        FedAdminAgent.register_processor = _register
        FedAdminAgent._dispatch_request = _obey
        NetManager.get_spec = _no_diagnosis
        FedEventRunner._receive = _happen
        ServerCommandAgent._aux_communicate = _hear
        flares_cell._is_server_job_cell = _ends_for_a_message


_FLARES_RECEIVE = CoreCell._process_received_msg
_FLARES_REGISTER = FedAdminAgent.register_processor
_FLARES_OBEY = FedAdminAgent._dispatch_request
_FLARES_HAPPEN = FedEventRunner._receive
_FLARES_HEAR = ServerCommandAgent._aux_communicate


def _receive(cell: CoreCell, endpoint: Endpoint, connection: Connection, message: Message) -> None:
    """Stand in for ``CoreCell._process_received_msg``, which FLARE calls for each message before it
    is decoded.
    """
    if not isinstance(connection, NullConnection):  # that is a cell's message to itself
        try:
            arrival = arrival_of(cell.get_fqcn(), endpoint, connection, message)
        except (
            Exception
        ) as error:  # whatever its sender made of it: what the gate cannot read does not pass
            refusals.note(endpoint.name, "message", f"it cannot be read: {type(error).__name__}")
            return
        reason = refusal(arrival)
        if reason:
            action = ":".join(arrival.request) if arrival.request else "answer"
            refusals.note(arrival.sender, action, reason)
            return
    _FLARES_RECEIVE(cell, endpoint, connection, message)


def _register(agent: FedAdminAgent, processor: RequestProcessor) -> None:
    """Stand in for ``FedAdminAgent.register_processor``: a site has no others than those of
    :data:`RIGHTS`.
    """
    if set(processor.get_topics()) <= set(RIGHTS):
        _FLARES_REGISTER(agent, processor)


def _obey(agent: FedAdminAgent, request: Message) -> Message:
    """Stand in for ``FedAdminAgent._dispatch_request``, which checks rights only if the sender's
    header asks for it.
    """
    command = request.payload
    reason = _forbidden(command)
    if reason:
        topic = type(command).__name__
        user = ""
        if isinstance(command, Command):
            topic = str(command.topic)
            user = str(_person(command, "USER").name or "nobody")
        refusals.note("server", topic, reason, user)
        return new_cell_message({}, error_reply(f"{ERROR_MSG_PREFIX}: {reason}"))
    return _FLARES_OBEY(agent, request)


def _forbidden(command: Any) -> str:
    """Return why a site does not obey a command; empty if it does."""
    if not isinstance(command, Command) or command.topic not in RIGHTS:
        return "no such command exists at a site"
    right = RIGHTS[command.topic]
    if right is not None:
        return _not_entitled(command, right)
    if command.topic != _NAMES_NO_JOB and not is_job_id(command.get_header(RequestHeader.JOB_ID)):
        return "it names no job"
    return _unfit(command.body) if command.topic == TrainingTopic.DEPLOY else ""


def _not_entitled(command: Command, right: str) -> str:
    """Return why a command's user does not have a right at this site; empty if the user has it."""
    user = _person(command, "USER")
    authorized, error = AuthorizationService.authorize(
        AuthzContext(user=user, submitter=_person(command, "SUBMITTER"), right=right)
    )
    if error:
        return str(error)
    return (
        ""
        if authorized
        else f"this site's authorization.json does not give {user.name!r} the right to {right}"
    )


def _unfit(app: Any) -> str:
    """Return why an app is refused by its list of files: FLARE unpacks it, to check its signature,
    before any check.
    """
    try:
        check_archive(app, "site")
    except ConfigError as error:
        return str(error)
    return ""


def _person(command: Command, kind: Literal["USER", "SUBMITTER"]) -> Person:
    """Return who gave a command, or whose job it is about, as the server says; it has checked their
    certificates.
    """
    name, org, role = (getattr(RequestHeader, f"{kind}_{part}") for part in ("NAME", "ORG", "ROLE"))
    return Person(
        command.get_header(name, ""), command.get_header(org, ""), command.get_header(role, "")
    )


def _hear(agent: ServerCommandAgent, request: Message) -> Message:
    """Stand in for ``ServerCommandAgent._aux_communicate``, which takes a site's word for its name.

    Under another's name a site would say that this one is still there, and send metrics as this
    one's.
    """
    site = _family(str(request.get_header(MessageHeaderKey.ORIGIN, "")))
    said = request.payload
    name = (
        said.get_peer_prop(ReservedKey.IDENTITY_NAME, None) if isinstance(said, Shareable) else None
    )
    if name == site:
        return _FLARES_HEAR(agent, request)
    refusals.note(
        site, str(request.get_header(MessageHeaderKey.TOPIC)), f"it calls itself {name!r}"
    )
    return new_cell_message({MessageHeaderKey.RETURN_CODE: CellReturnCode.INVALID_REQUEST}, None)


def _happen(runner: FedEventRunner, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
    """Stand in for ``FedEventRunner._receive``: sites cause no other events than those of
    :data:`EVENTS`.
    """
    event = request.get_header(FedEventHeader.EVENT_TYPE)
    if isinstance(event, str) and event in EVENTS:
        return _FLARES_HAPPEN(runner, topic, request, fl_ctx)
    refusals.note("a site of this job", topic, f"no site makes {event!r} happen here")
    return make_reply(ReturnCode.BAD_REQUEST_DATA)


def _ends_for_a_message(_: FqcnInfo) -> bool:
    """Stand in for ``_is_server_job_cell``, by which FLARE picks the processes that one message may
    end.

    The server's process of a job would end itself for an answer that cannot be decoded, from
    whichever site, and for one site's word that a message is too large for it. Either way that
    message is lost, and nothing else.
    """
    return False


def _no_diagnosis(_: NetManager) -> CommandModuleSpec:
    """Stand in for ``NetManager.get_spec``: the console has no commands that list, stop or redirect
    cells.
    """
    return CommandModuleSpec(name="cellnet", cmd_specs=[])
