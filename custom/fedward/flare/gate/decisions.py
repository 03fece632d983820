"""Whether a cell accepts a message: by its connection, its way, its request and its claims."""

from collections.abc import Mapping

from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.private.defs import ClientType

from fedward.flare.gate.arrivals import Arrival
from fedward.flare.gate.names import Place, is_person, job_id_of, owner_of, place_of
from fedward.flare.gate.requests import FAREWELL, REGISTER, senders

_ON_SERVER: tuple[Place, ...] = ("server", "server job")
_AT_SITE: tuple[Place, ...] = ("site", "site job")

_CONNECT_TO_IT: Mapping[Place, tuple[Place, ...]] = {
    "server": ("site", "site job", "user", "server job"),
    "site": ("site job",),
}
"""Receiver -> the neighbours that have opened a connection to it."""

_IT_CONNECTS_TO: Mapping[Place, tuple[Place, ...]] = {
    "server job": ("server",),
    "site": ("server",),
    "site job": ("server", "site"),
}
"""Receiver -> the neighbours to which it has opened a connection."""

_CLIENT_TYPES: Mapping[Place | None, str] = {"site": ClientType.REGULAR, "user": ClientType.ADMIN}
"""Sender -> the type as which it may register at the server.

FLARE would also register a person as a site that takes part in jobs."""


def message_refusal(arrival: Arrival) -> str:
    """Return why a message is refused; empty if it is accepted."""
    for check in (_connection_refusal, _route_refusal, _request_refusal, _claim_refusal):
        reason = check(arrival)
        if reason:
            return reason
    return ""


def _connection_refusal(arrival: Arrival) -> str:
    """Return why a message may not come over its connection."""
    if arrival.foreign_address:
        return "it names an address to connect to"
    if arrival.encrypted:
        # FLARE would ask the sender for its certificate, and wait an hour for the answer.
        return "it is encrypted between cells"
    if not _is_neighbour(arrival):
        return f"its connection is not that of a neighbour of {arrival.receiver}"
    if place_of(arrival.neighbour) == "user" and not is_person(arrival.certificate):
        # FLARE lets any certificate open a console.
        return "only a person may open a console"
    if not _may_speak_for(arrival):
        return f"its connection may not speak for {arrival.origin!r}"
    return ""


def _is_neighbour(arrival: Arrival) -> bool:
    """Return whether the cell at the other end is one that the receiver has a connection with."""
    receiver_place = place_of(arrival.receiver)
    neighbour_place = place_of(arrival.neighbour)
    if receiver_place is None or (arrival.passive and not arrival.certificate):
        return False
    neighbours = _CONNECT_TO_IT if arrival.passive else _IT_CONNECTS_TO
    if neighbour_place not in neighbours.get(receiver_place, ()):
        return False
    is_within_a_site = receiver_place in _AT_SITE and neighbour_place in _AT_SITE
    return not is_within_a_site or owner_of(arrival.neighbour) == owner_of(arrival.receiver)


def _may_speak_for(arrival: Arrival) -> bool:
    """Return whether the neighbour may pass on messages of the cell that sent this one."""
    receiver_place = place_of(arrival.receiver)
    neighbour_place = place_of(arrival.neighbour)
    origin_place = place_of(arrival.origin)
    if receiver_place == "server":
        if neighbour_place in ("user", "server job"):
            return arrival.origin == arrival.neighbour
        same_site = owner_of(arrival.origin) == owner_of(arrival.neighbour)
        return same_site and origin_place in _AT_SITE
    if receiver_place == "server job":
        return origin_place in ("server", *_AT_SITE)
    # The receiver is a site or its job.
    if neighbour_place == "site job":
        return arrival.origin == arrival.neighbour
    if neighbour_place == "site" and arrival.origin == arrival.neighbour:
        return True
    # The server, and to its own job a site, pass on what the server sends.
    return origin_place in _ON_SERVER


def _route_refusal(arrival: Arrival) -> str:
    """Return why a message may not go from its origin to its destination."""
    route = f"from {arrival.origin!r} to {arrival.destination!r}"
    if arrival.destination != arrival.receiver and not _is_on_the_way(arrival):
        return f"nothing is passed on {route}"
    jobs = {job for job in (job_id_of(arrival.origin), job_id_of(arrival.destination)) if job}
    if len(jobs) > 1:
        return f"it leads from one job to another, {route}"
    return ""


def _is_on_the_way(arrival: Arrival) -> bool:
    """Return whether the receiver lies between origin and destination of the message.

    One of the two is always on the server's side: nothing goes from site to site.
    """
    receiver_place = place_of(arrival.receiver)
    origin_place = place_of(arrival.origin)
    destination_place = place_of(arrival.destination)
    if receiver_place == "server":
        to_server_job = origin_place in _AT_SITE and destination_place == "server job"
        from_server_job = origin_place == "server job" and destination_place in _AT_SITE
        return to_server_job or from_server_job
    if receiver_place == "site":
        to_own_job = (
            origin_place in _ON_SERVER and owner_of(arrival.destination) == arrival.receiver
        )
        from_own_job = (
            owner_of(arrival.origin) == arrival.receiver and destination_place in _ON_SERVER
        )
        return to_own_job or from_own_job
    return False


def _request_refusal(arrival: Arrival) -> str:
    """Return why the destination does not accept a request from this sender."""
    if arrival.request is None:
        return ""
    origin_place = place_of(arrival.origin)
    destination_place = place_of(arrival.destination)
    if (
        origin_place is None
        or destination_place is None
        or origin_place not in senders(destination_place, arrival.request)
    ):
        channel, topic = arrival.request
        return (
            f"no {destination_place} accepts {topic!r} on channel {channel!r} from a {origin_place}"
        )
    return ""


def _claim_refusal(arrival: Arrival) -> str:
    """Return why what a message says of its sender, or of another cell, is refused."""
    if arrival.not_reached and not _may_report_undelivered(arrival.origin, arrival.not_reached):
        return f"its connection may not speak for {arrival.not_reached!r}"
    if arrival.stream_receiver not in (None, arrival.origin):
        return f"it acknowledges a stream to {arrival.stream_receiver!r}"
    is_direct = (arrival.origin, arrival.destination) == (arrival.neighbour, arrival.receiver)
    if arrival.request == FAREWELL and not is_direct:
        # FLARE would cut off the neighbour that has passed it on.
        return "a farewell is not passed on"
    if arrival.request is not None and arrival.request[0] == CellChannel.SERVER_MAIN:
        return _registration_refusal(arrival)
    return ""


def _may_report_undelivered(origin: str, not_reached: str) -> bool:
    """Return whether a cell may say that a message was not delivered to another one.

    The server says so of any cell, and a site of its own. FLARE takes such a message for the answer
    of the cell that was not reached.
    """
    return place_of(origin) in _ON_SERVER or owner_of(not_reached) == owner_of(origin)


def _registration_refusal(arrival: Arrival) -> str:
    """Return why a message is refused by which a participant registers, stays or leaves."""
    if arrival.client and arrival.client != arrival.certificate:
        return f"its connection may not speak for {arrival.client!r}"
    origin_place = place_of(arrival.origin)
    if arrival.request == REGISTER and arrival.client_type != _CLIENT_TYPES.get(origin_place):
        return f"a {origin_place} may not register as {arrival.client_type!r}"
    return ""
