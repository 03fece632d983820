"""Every request that a cell accepts, and from whom."""

from collections.abc import Mapping

from nvflare.apis.fl_constant import ReservedTopic
from nvflare.app_opt.job_launcher.workspace_cell_transfer import WORKSPACE_TRANSFER_CHANNEL
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_ERROR_TOPIC,
)
from nvflare.private.defs import TrainingTopic
from nvflare.private.stream_runner import TOPIC_STREAM_ABORT, TOPIC_STREAM_REQUEST
from nvflare.widgets.fed_event import FED_EVENT_TOPIC

from fedward.flare.gate.names import Place

Request = tuple[str, str]
"""Channel and topic for which a callback is registered; ``*`` is every topic of the channel."""

REGISTER: Request = (CellChannel.SERVER_MAIN, CellChannelTopic.Register)
FAREWELL: Request = (CellChannel.CELLNET, CellChannelTopic.Bye)

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
        FAREWELL: ("site", "site job", "user", "server job"),
        (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge): ("site", "user"),
        REGISTER: ("site", "user"),
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
        FAREWELL: ("server",),
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
        FAREWELL: ("server", "site job"),
        (CellChannel.CLIENT_MAIN, "admin"): ("server",),
        (CellChannel.CLIENT_MAIN, TrainingTopic.NOTIFY_JOB_STATUS): ("site job",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("site job",),
        (WORKSPACE_TRANSFER_CHANNEL, "*"): ("site job",),
    },
    "site job": {
        **_FOLLOW_UPS,
        FAREWELL: ("server", "site"),
        (CellChannel.CLIENT_COMMAND, "*"): ("site",),
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.END_RUN): ("server job",),
        (OBJ_DOWNLOADER_CHANNEL, "*"): ("server job", "site"),
    },
}
"""Receiver -> the requests that it accepts -> the places that may send them.

A topic's own entry takes precedence over that of its channel.

A console sends the files of jobs as streams of FLARE's own kind. A job's process at a site asks
whether the job's process at the server is ready and still runs, and sends its metrics there as
events (:data:`fedward.flare.gate.speakers.EVENTS`). The process at the server says when the run has
ended.

Models travel as downloads. The address of a download is a secret that an earlier request carried.
Where FLARE starts a container for each job, the job's process fetches its files from its own site
or server over the workspace channel."""


def senders(receiver: Place, request: Request) -> tuple[Place, ...]:
    """Return the places from which a receiver accepts a request; none if it does not accept it."""
    accepted = REQUESTS.get(receiver, {})
    channel, _ = request
    return accepted.get(request) or accepted.get((channel, "*")) or ()
