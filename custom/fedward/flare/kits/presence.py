"""What a participant's own process writes down about its connection, for health checks.

A site's heartbeat counts once the server has answered it: an open connection may lead nowhere. A
server counts as present while its own process holds its port and keeps writing so. When a server
starts, it also checks that its port is free, and closes the jobs that were lost when it ended.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import psutil
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import RunStatus
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import CellChannel, CellChannelTopic

from fedward.disk import make_folder, replacing
from fedward.flare.kits.kit import Kit, open_kit
from fedward.flare.kits.reading import read_json, reading

RECENT = 45.0
"""Seconds for which a contact counts.

Heartbeats come every 10 seconds, and FLARE waits up to 30 for an answer."""

_LOOK_INTERVAL = 5.0
"""Seconds between two of a server's checks of its own port and its sites."""

_PORT_LOOKS = 5
"""Number of checks after which a port is believed to be held by another process."""

_PORT_LOOK_INTERVAL = 0.3
"""Seconds between two of them."""

_EXIT_PORT_TAKEN = 1
"""Exit status of a server whose port another process holds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Presence:
    """What a participant's process last wrote down."""

    written: float
    """Time of writing, in seconds since 1970. At a site: when the server last answered it."""
    port: int | None
    """At a server: the port that its own process holds, None if it holds none. At a site: None."""
    sites: Mapping[str, float]
    """At a server: site -> last contact, in seconds since 1970. At a site: empty."""

    @classmethod
    def of(cls, kit: Kit) -> "Presence | None":
        """Return what a kit's process last wrote; None if it has never written.

        Raises:
            ConfigError: the file cannot be read.
        """
        file = _file(kit)
        if not file.exists():
            return None
        remedy = "Remove it; a participant that runs writes it again."
        with reading(str(file), "a participant's last contact", remedy):
            content = read_json(file, remedy)
            sites = {str(name): float(last) for name, last in content["sites"].items()}
            return cls(float(content["written"]), content["port"], sites)

    @property
    def age(self) -> float:
        """Seconds since it was written, by this machine's clock."""
        return time.time() - self.written

    @property
    def recent(self) -> bool:
        """Whether the contact counts.

        A time in the future does not count: the clock has been set back since.
        """
        return -1.0 <= self.age <= RECENT


class KitPresence(FLComponent):  # type: ignore[misc]
    """Writes ``presence.json`` into a participant's own folder; a component of a kit's resources.

    A server ends at once, with one line, if another process holds its port. When it starts, it
    closes the jobs that ran when it ended: FLARE would call them running for ever, and nobody could
    abort them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cell: Any = None
        """FLARE's cell, once answers to its heartbeats are noted."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Start when a server starts, or with the first heartbeat of a site."""
        if event_type == EventType.BEFORE_CLIENT_HEARTBEAT:
            self._note_answers(fl_ctx)
            return
        if event_type not in (EventType.SYSTEM_BOOTSTRAP, EventType.SYSTEM_START):
            return
        kit = _kit(fl_ctx)
        if kit.role != "server":
            return
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            end_if_taken(kit.port)
            close_lost_jobs(fl_ctx)
        else:
            Thread(target=_watch_server, args=[kit, fl_ctx.get_engine()], daemon=True).start()

    def _note_answers(self, fl_ctx: FLContext) -> None:
        """Write the presence of a site at each answer to its heartbeat."""
        cell = fl_ctx.get_engine().get_cell()
        if cell is self._cell:
            return
        self._cell = cell
        kit = _kit(fl_ctx)
        writing = Lock()

        def answered(message: Message) -> None:
            if message.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK:
                with writing:
                    _write(kit, Presence(time.time(), None, {}))

        cell.core_cell.add_incoming_reply_filter(
            CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT, answered
        )


def end_if_taken(port: int) -> None:
    """End this process if another one holds the port.

    FLARE would log that the server has started, and try for ever.
    """
    # Several looks, because a socket that is just being opened does not show its process yet.
    for _ in range(_PORT_LOOKS):
        own_processes = _own_processes()
        strangers = [pid for pid in _listening_processes(port) if pid not in own_processes]
        if not strangers:
            return
        time.sleep(_PORT_LOOK_INTERVAL)
    pid = strangers[0]
    holder = f"process {pid} ({_process_name(pid)})" if pid else "a process of another account"
    text = (
        f"the server's port {port}: expected it free, found {holder} there. "
        "Stop that, or give the server another port."
    )
    print(f"fedward: {text}", file=sys.stderr, flush=True)
    _log.critical(text)
    os._exit(_EXIT_PORT_TAKEN)  # FLARE's threads would keep the process alive.


def close_lost_jobs(fl_ctx: FLContext) -> None:
    """Mark the jobs that ran when the server ended as abandoned; their runs can be continued."""
    manager = fl_ctx.get_engine().get_component(SystemComponents.JOB_MANAGER)
    for job in manager.get_jobs_by_status([RunStatus.RUNNING, RunStatus.DISPATCHED], fl_ctx):
        manager.set_status(job.job_id, RunStatus.ABANDONED, fl_ctx)
        _log.warning("job %s was lost: it ran when the server ended", job.job_id)


def _watch_server(kit: Kit, engine: Any) -> None:
    """Write every few seconds whether this process holds its port, and each site's last contact."""
    while True:
        try:
            end_if_taken(kit.port)
            holds_port = bool(_own_processes() & set(_listening_processes(kit.port)))
            sites = {client.name: client.last_connect_time for client in engine.get_clients()}
            _write(kit, Presence(time.time(), kit.port if holds_port else None, sites))
        except Exception:
            _log.warning("the presence of this server is not written", exc_info=True)
        time.sleep(_LOOK_INTERVAL)


def _listening_processes(port: int) -> list[int | None]:
    """Return the ids of the processes that listen at a port; None for one of another account."""
    return [
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]


def _own_processes() -> set[int | None]:
    """Return the ids of this process and of all that it has started.

    A process that was just forked has its parent's sockets too.
    """
    children = psutil.Process().children(recursive=True)
    return {os.getpid(), *(child.pid for child in children)}


def _process_name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "gone"


def _kit(fl_ctx: FLContext) -> Kit:
    return open_kit(Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir()))


def _file(kit: Kit) -> Path:
    """Return the file of a participant's presence."""
    return kit.own_folder / "presence.json"


def _write(kit: Kit, presence: Presence) -> None:
    file = _file(kit)
    make_folder(file.parent, 0o700)
    content = {"written": presence.written, "port": presence.port, "sites": dict(presence.sites)}
    with replacing(file) as new:
        new.touch(0o600)
        new.write_text(json.dumps(content), encoding="utf-8")
