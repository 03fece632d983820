"""What the gate needs to know of a message: what its connection shows, and what its headers say."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.private.defs import CellMessageHeaderKeys

from fedward.flare.gate.names import owner_of, place_of
from fedward.flare.gate.requests import Request

StreamKey: TypeAlias = tuple[str, int]
"""The cell that sends a stream, and the stream's number there, as FLARE keeps its streams."""


@dataclass(frozen=True)
class Arrival:
    """A message that a cell has just received.

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
    new_stream: StreamKey | None = None
    """The stream of several parts that begins with the message; None if none does."""

    @property
    def sender(self) -> str:
        """Who sent it: a site, person or server, by the certificate of the connection.

        To the server's process of a job the server passes on what sites send. It has compared the
        name of each site with its certificate.
        """
        if place_of(self.receiver) == "server job":
            return owner_of(self.origin)
        return self.certificate or f"{self.neighbour}, without a certificate"


def arrival_of(
    receiver: str, endpoint: Endpoint, connection: Connection, message: Message
) -> Arrival:
    """Return what the gate needs to know of a message that came over a connection.

    Raises:
        Exception: of any type, if the message's headers cannot be read.
    """
    destination = str(message.get_header(MessageHeaderKey.DESTINATION, ""))
    request = _request_of(message)
    acknowledged = request == (STREAM_CHANNEL, STREAM_ACK_TOPIC) and destination == receiver
    return Arrival(
        receiver=receiver,
        neighbour=endpoint.name,
        certificate=certificate_of(connection),
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
        new_stream=_new_stream(message) if destination == receiver else None,
    )


def certificate_of(connection: Connection) -> str | None:
    """Return the common name in the certificate of a connection; None if it shows none."""
    properties = connection.get_conn_properties() or {}
    name: str | None = properties.get(DriverParams.PEER_CN.value)
    return None if name == "N/A" else name


def _text_or_none(header: Any) -> str | None:
    return None if header is None else str(header)


def _request_of(message: Message) -> Request | None:
    """Return the request that a message makes; None for an answer."""
    if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        return None
    channel = str(message.get_header(MessageHeaderKey.CHANNEL, ""))
    topic = str(message.get_header(MessageHeaderKey.TOPIC, ""))
    if (channel, topic) == (STREAM_CHANNEL, STREAM_DATA_TOPIC):
        return _request_of_stream(message)
    return channel, topic


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


def _new_stream(message: Message) -> StreamKey | None:
    """Return the stream of several parts that begins with a message; None if none does."""
    kind = message.get_header(StreamHeaderKey.DATA_TYPE)
    if message.get_header(MessageHeaderKey.TOPIC) != STREAM_DATA_TOPIC:
        return None
    if message.get_header(StreamHeaderKey.SEQUENCE) != 0 or kind == StreamDataType.FINAL:
        return None
    number = message.get_header(StreamHeaderKey.STREAM_ID)
    if not isinstance(number, int):
        raise TypeError("a stream's number is no integer")
    return str(message.get_header(MessageHeaderKey.ORIGIN)), number


def _receiver_of_stream(message: Message) -> str | None:
    """Return the cell to which this process sends the stream that a message acknowledges.

    FLARE numbers its streams consecutively and accepts an acknowledgement, or an error in it, from
    anybody: a site that knows the number of its own stream could end those to other sites.
    """
    stream = ByteStreamer.tx_task_map.get(message.get_header(StreamHeaderKey.STREAM_ID))
    return str(stream.target) if stream else None


def _cell_not_reached(message: Message) -> Any:
    """Return the cell to which, by this message, an earlier one was not delivered.

    None if it says no such thing.
    """
    if message.get_header(MessageHeaderKey.MSG_TYPE) == MessageType.RETURN:
        returned = message.get_header(MessageHeaderKey.ORIGINAL_HEADERS) or {}
        return returned.get(MessageHeaderKey.DESTINATION)
    return message.get_header(StreamHeaderKey.FAILED_DESTINATION)
