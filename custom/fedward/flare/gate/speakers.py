"""Whom the server's process of a job hears, and which events a site may cause there."""

from collections.abc import Sequence
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.shareable import Shareable

from fedward.flare.jobs.configurations import METRICS_AT_SERVER

EVENTS = frozenset({METRICS_AT_SERVER})
"""Events that a site may cause in the server's process of its job.

FLARE would admit any event, such as the one with which a component ends the run, or the one that
starts the server."""


def speaker_refusal(site: str, payload: Any, participants: Sequence[Client]) -> str:
    """Return why a site is not heard; empty if it is.

    A site could report under another site's name that the other site is still there, and send
    metrics as if they were that site's. It could also do so in a job that it takes no part in,
    since a cell may bear the id of any job.

    Args:
        site: the site, by its connection.
        payload: what it says.
        participants: the sites of the job. As long as the process does not know them, FLARE itself
            tells every site to ask again.
    """
    claimed_name = None
    if isinstance(payload, Shareable):
        claimed_name = payload.get_peer_prop(ReservedKey.IDENTITY_NAME, None)
    if claimed_name != site:
        return f"it calls itself {claimed_name!r}"
    if participants and site not in {client.name for client in participants}:
        return "it takes no part in this job"
    return ""


def event_refusal(event: Any) -> str:
    """Return why a site may not cause an event; empty if it may."""
    if isinstance(event, str) and event in EVENTS:
        return ""
    return f"no site makes {event!r} happen here"
