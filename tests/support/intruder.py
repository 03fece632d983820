"""A participant who speaks FLARE's cell network with a startup kit, past FLARE's commands."""

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, MessageType, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.identity import CellIdentityResolver
from nvflare.fuel.f3.communicator import Communicator, Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import Endpoint, EndpointState
from nvflare.fuel.f3.message import Message
from nvflare.fuel.sec.authn import set_add_auth_headers_filters
from nvflare.fuel.utils.admin_name_utils import new_admin_client_name
from nvflare.private.admin_defs import Message as Command
from nvflare.private.defs import ClientType
from nvflare.private.fed.authenticator import Authenticator

from fedward.flare.kits.kit import Kit, open_kit

_ANSWER = 4.0
"""Seconds for an answer. A refused request is never answered."""
_UNHEARD = {ReturnCode.TIMEOUT, ReturnCode.COMM_ERROR, ReturnCode.TARGET_UNREACHABLE}
"""Return codes of an intruder's own cell if no answer comes."""


class Intruder:
    """A cell that has logged in with a kit.

    Args:
        kit: any participant's; of a site whose own process does not run.
    """

    def __init__(self, kit: Kit) -> None:
        flare_decomposers.register()
        self.name = new_admin_client_name() if kit.role == "user" else kit.name
        self.cell = Cell(
            fqcn=self.name,
            root_url=_url(kit),
            secure=True,
            credentials=_credentials(kit),
            create_internal_listener=False,
            auth_identity_map={FQCN.ROOT_SERVER: kit.identity},
        )
        self.cell.start()
        self._log_in(kit)

    def _log_in(self, kit: Kit) -> None:
        """Get a token, as every participant does."""
        authenticator = Authenticator(
            cell=self.cell,
            project_name=kit.project,
            client_name=kit.name,
            client_type=ClientType.ADMIN if kit.role == "user" else ClientType.REGULAR,
            expected_sp_identity=kit.identity,
            secure_mode=True,
            root_cert_file=str(kit.root),
            private_key_file=str(kit.key),
            cert_file=str(kit.certificate),
            msg_timeout=5.0,
            retry_interval=1.0,
            timeout=30.0,
        )
        context = FLContext()
        context.set_public_props(
            {ReservedKey.IDENTITY_NAME: kit.name, FLContextKey.CLIENT_NAME: kit.name}
        )
        token, signature, ssid, _ = authenticator.authenticate(
            shared_fl_ctx=context, abort_signal=Signal()
        )
        set_add_auth_headers_filters(self.cell, kit.name, token, signature, ssid)

    def ask(
        self, target: str, channel: str, topic: str, payload: Any = None, **headers: Any
    ) -> Message:
        """Send a request to a cell past the commands; return its answer, or a return code."""
        return self.cell.core_cell.send_request(
            channel=channel,
            topic=topic,
            target=target,
            request=Message(headers, payload),
            timeout=_ANSWER,
        )

    def order(self, site: str, topic: str, body: Any = "", **headers: Any) -> Message:
        """Give a site's process a command, as its server does."""
        command = Command(topic=topic, body=body)
        for name, value in headers.items():
            command.set_header(name, value)
        return self.ask(site, CellChannel.CLIENT_MAIN, "admin", command)

    @contextmanager
    def posing_as(self, origin: str) -> Iterator[None]:
        """Let messages say that they come from another cell; answers go to that one."""
        core = self.cell.core_cell
        send = core._send_to_endpoint

        def forge(to_endpoint: Endpoint, message: Message) -> str:
            if message.get_header(MessageHeaderKey.MSG_TYPE) == MessageType.REQ:
                message.set_header(MessageHeaderKey.ORIGIN, origin)
                message.set_header(MessageHeaderKey.FROM_CELL, origin)
            return str(send(to_endpoint, message))

        core._send_to_endpoint = forge
        try:
            yield
        finally:
            core._send_to_endpoint = send

    def close(self) -> None:
        """Leave."""
        self.cell.stop()


@contextmanager
def intruder(kit: Path) -> Iterator[Intruder]:
    """Log in with a kit, and leave afterwards."""
    opened = Intruder(open_kit(kit))
    try:
        yield opened
    finally:
        opened.close()


def heard(answer: Message) -> bool:
    """Return whether anybody answered a request."""
    return answer.get_header(MessageHeaderKey.RETURN_CODE) not in _UNHEARD


def is_put_out(kit: Path, name: str, seconds: float) -> bool:
    """Return whether the server ends a connection with this certificate under another cell's name.

    Args:
        kit: whose certificate is shown.
        name: what the cell calls itself.
        seconds: for which the server's decision is waited for.
    """
    opened = open_kit(kit)
    states: queue.Queue[EndpointState] = queue.Queue()

    class Watch:
        def state_change(self, endpoint: Endpoint) -> None:
            states.put(endpoint.state)

    # The intruder must accept the server's certificate, or it would close the connection itself.
    names = CellIdentityResolver(name, prefix_identity_map={FQCN.ROOT_SERVER: opened.identity})
    communicator = Communicator(
        Endpoint(name, conn_props=_credentials(opened)), identity_resolver=names
    )
    communicator.register_monitor(Watch())
    communicator.add_connector(_url(opened), Mode.ACTIVE, secure=True)
    communicator.start()
    deadline = time.monotonic() + seconds
    try:
        while True:
            state = states.get(timeout=max(0.0, deadline - time.monotonic()))
            if state == EndpointState.DISCONNECTED:
                return True
    except queue.Empty:
        return False
    finally:
        communicator.stop()


def _url(kit: Kit) -> str:
    return f"{kit.scheme}://{kit.host}:{kit.port}"


def _credentials(kit: Kit) -> dict[str, str]:
    return {
        DriverParams.CA_CERT.value: str(kit.root),
        DriverParams.CLIENT_CERT.value: str(kit.certificate),
        DriverParams.CLIENT_KEY.value: str(kit.key),
    }
