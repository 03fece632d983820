"""The functions of FLARE that the gate replaces. No other module of the gate changes FLARE.

FLARE 2.9 has no place of its own for these checks. Its filters of messages do not see who opened a
connection, and they are added to single cells, which FLARE makes where nothing of ours runs. The
replacements are therefore put into FLARE's classes. Each one calls the original, or refuses.
"""

import logging
import sys

from nvflare.apis.fl_constant import FedEventHeader, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.f3.cellnet import cell as flare_cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FqcnInfo
from nvflare.fuel.f3.cellnet.net_manager import NetManager
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm.conn_manager import NullConnection
from nvflare.fuel.hci.reg import CommandModuleSpec
from nvflare.private.admin_defs import Message as Command
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import ERROR_MSG_PREFIX, new_cell_message
from nvflare.private.fed.app.deployer.server_deployer import ServerDeployer
from nvflare.private.fed.client import admin as flares_commands
from nvflare.private.fed.client import scheduler_cmds as flares_job_commands
from nvflare.private.fed.client.admin import FedAdminAgent, RequestProcessor
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent
from nvflare.widgets.fed_event import FedEventRunner

from fedward.flare.gate import server_start
from fedward.flare.gate.arrivals import arrival_of, certificate_of
from fedward.flare.gate.commands import RIGHTS, command_refusal, person_of
from fedward.flare.gate.decisions import message_refusal
from fedward.flare.gate.lost_sites import lost_sites
from fedward.flare.gate.names import owner_of
from fedward.flare.gate.refusals import refusals
from fedward.flare.gate.shut_out import shut_out
from fedward.flare.gate.speakers import event_refusal, speaker_refusal
from fedward.flare.gate.streams import streams

_log = logging.getLogger(__name__)


def install() -> None:
    """Put the gate into this process, for all its cells; a second call changes nothing.

    The app check of a kit calls it (:mod:`fedward.flare.kits.apps`): FLARE builds the app check in
    every process of a kit, those of jobs too, before the process opens a connection. Only a job in
    a pod of Kubernetes fetches its files before that, so :mod:`fedward.flare.job_process` calls it
    too. The simulator has neither, and so no gate.
    """
    if CoreCell._process_received_msg is _process_received_msg:
        return
    CoreCell._process_received_msg = _process_received_msg
    ServerDeployer.close = _close_deployer
    ClientManager.set_disabled_clients_file = _set_disabled_clients_file
    FederatedServer.remove_dead_clients = _remove_dead_clients
    FedAdminAgent.register_processor = _register_processor
    FedAdminAgent._dispatch_request = _dispatch_request
    flares_commands.secure_format_exception = _kind_of
    flares_job_commands.secure_format_exception = _logged_kind_of
    NetManager.get_spec = _get_spec
    FedEventRunner._receive = _receive_event
    ServerCommandAgent._aux_communicate = _aux_communicate
    flare_cell._is_server_job_cell = _is_server_job_cell


# FLARE's own functions, which the replacements call.
_ORIGINAL_PROCESS_RECEIVED = CoreCell._process_received_msg
_ORIGINAL_CLOSE_DEPLOYER = ServerDeployer.close
_ORIGINAL_SET_DISABLED = ClientManager.set_disabled_clients_file
_ORIGINAL_REMOVE_DEAD = FederatedServer.remove_dead_clients
_ORIGINAL_REGISTER = FedAdminAgent.register_processor
_ORIGINAL_DISPATCH = FedAdminAgent._dispatch_request
_ORIGINAL_RECEIVE_EVENT = FedEventRunner._receive
_ORIGINAL_AUX_COMMUNICATE = ServerCommandAgent._aux_communicate


def _process_received_msg(
    cell: CoreCell, endpoint: Endpoint, connection: Connection, message: Message
) -> None:
    """Replace ``CoreCell._process_received_msg``: FLARE calls it before it decodes a message."""
    refusals.write_counts()
    if isinstance(connection, NullConnection):  # FLARE's connection of a cell to itself.
        _ORIGINAL_PROCESS_RECEIVED(cell, endpoint, connection, message)
        return
    try:
        arrival = arrival_of(cell.get_fqcn(), endpoint, connection, message)
    except Exception as error:
        # The sender may have written anything. A message that cannot be read does not pass.
        sender = certificate_of(connection) or endpoint.name
        refusals.note(sender, "message", f"it cannot be read: {type(error).__name__}")
        return
    reason = (
        message_refusal(arrival)
        or server_start.start_refusal(arrival, connection)
        or shut_out.refusal(arrival)
        or streams.refusal(arrival)
    )
    if reason:
        action = ":".join(arrival.request) if arrival.request else "answer"
        refusals.note(arrival.sender, action, reason)
        return
    try:
        _ORIGINAL_PROCESS_RECEIVED(cell, endpoint, connection, message)
    finally:
        if arrival.new_stream:
            streams.handed_over(arrival.new_stream)


def _close_deployer(deployer: ServerDeployer) -> None:
    """Replace ``ServerDeployer.close``: FLARE calls it once its server knows its certificate.

    FLARE also calls it after a start that failed, and its server listens for some seconds more. The
    server then accepts no message.
    """
    _ORIGINAL_CLOSE_DEPLOYER(deployer)
    if sys.exc_info()[0] is None:
        server_start.started.set()


def _set_disabled_clients_file(manager: ClientManager, file_path: str) -> None:
    """Replace ``ClientManager.set_disabled_clients_file``: a server reads whom it has shut out."""
    shut_out.manager = manager
    _ORIGINAL_SET_DISABLED(manager, file_path)


def _remove_dead_clients(server: FederatedServer) -> None:
    """Replace ``FederatedServer.remove_dead_clients``: the server calls it every five seconds.

    FLARE iterates over the running jobs while its other threads start and end them. An error here
    would end the only thread that looks for dead sites, so it is logged, and the next call notifies
    the jobs that this one missed.
    """
    try:
        _ORIGINAL_REMOVE_DEAD(server)
        lost_sites.tell_jobs(server)
    except Exception:
        _log.warning("the search for lost sites failed; it goes on in some seconds", exc_info=True)


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
    reason = command_refusal(command)
    if not reason:
        return _ORIGINAL_DISPATCH(agent, request)
    topic = type(command).__name__
    user = ""
    if isinstance(command, Command):
        topic = str(command.topic)
        user = str(person_of(command, "USER").name or "nobody")
    refusals.note("server", topic, reason, user)
    return new_cell_message({}, error_reply(f"{ERROR_MSG_PREFIX}: {reason}"))


def _kind_of(error: Exception) -> str:
    """Replace ``secure_format_exception`` where a site answers that a command has failed.

    FLARE's answer has the text of the error, which may name files of the site.
    """
    return f"{type(error).__name__}; the details are in the site's own log"


def _logged_kind_of(error: Exception) -> str:
    """Do as :func:`_kind_of` where FLARE writes the error into its answer alone, and log it."""
    _log.error("a command about a job failed", exc_info=error)
    return _kind_of(error)


def _aux_communicate(agent: ServerCommandAgent, request: Message) -> Message:
    """Replace ``ServerCommandAgent._aux_communicate``, which believes what a site calls itself."""
    site = owner_of(str(request.get_header(MessageHeaderKey.ORIGIN, "")))
    reason = speaker_refusal(site, request.payload, agent.engine.get_clients())
    if not reason:
        return _ORIGINAL_AUX_COMMUNICATE(agent, request)
    refusals.note(site, str(request.get_header(MessageHeaderKey.TOPIC)), reason)
    return new_cell_message({MessageHeaderKey.RETURN_CODE: CellReturnCode.INVALID_REQUEST}, None)


def _receive_event(
    runner: FedEventRunner, topic: str, request: Shareable, fl_ctx: FLContext
) -> Shareable:
    """Replace ``FedEventRunner._receive``, which lets any event happen that a site names."""
    reason = event_refusal(request.get_header(FedEventHeader.EVENT_TYPE))
    if not reason:
        return _ORIGINAL_RECEIVE_EVENT(runner, topic, request, fl_ctx)
    refusals.note("a site of this job", topic, reason)
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
