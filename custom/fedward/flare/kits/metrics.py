"""How a participant itself is, for Prometheus: written by its own process, also while no job runs."""

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from cryptography import x509
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from fedward import __version__
from fedward.annotation.queue import queue_folder, queue_of
from fedward.client.site_log import FOLDER
from fedward.flare.kits.doctor.budget import ledger, noise_rules
from fedward.flare.kits.kit import Kit, job_store, open_kit, read_json
from fedward.flare.places import METRICS, RUNS, STATE, named_folder
from fedward.security.ledger import epsilon, half_line, spent
from fedward.server.metrics import Family, MetricsFolder, Values
from fedward.sites import find_site_file
from fedward.storage.disk import make_folder, replacing

_CONTACTS = "contacts.json"
"""File of the server's own folder: site -> when it was last heard of. A restart must not forget a
site that is away.
"""

_EVERY = 60.0
"""Seconds between two files: a ledger is checked as a whole for each."""

_log = logging.getLogger(__name__)


class KitMetrics(FLComponent):  # type: ignore[misc]
    """Writes ``fedward_kit_<name>.prom`` where ``FEDWARD_METRICS`` names a folder; stands in a
    kit's resources.

    It acts with the heartbeats between sites and server. Nothing it does can end the participant:
    what goes wrong is a warning in the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written = -_EVERY

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Write the file with a heartbeat, if the last one is older than a minute."""
        sent = EventType.BEFORE_CLIENT_HEARTBEAT
        received = EventType.CLIENT_HEARTBEAT_PROCESSED
        if event_type not in (sent, received) or time.monotonic() - self._written < _EVERY:
            return
        self._written = time.monotonic()
        try:
            clients = fl_ctx.get_engine().get_clients() if event_type == received else []
            connected = {site.name: site.last_connect_time for site in clients}
            path = named_folder(METRICS)
            if path:
                workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
                metrics = MetricsFolder(path)
                kit = open_kit(Path(workspace.get_root_dir()))
                metrics.write(metrics.file("kit", kit.name), families(kit, connected))
        except Exception:
            _log.warning("the metrics of this participant are not written", exc_info=True)


def families(kit: Kit, connected: Mapping[str, float]) -> list[Family]:
    """Return the metrics of a server's or a site's kit.

    The metric ``unreadable`` names what cannot be read; all else is still written.

    Args:
        kit: the participant's.
        connected: site -> seconds since 1970 when the server last heard of it; empty at a site.
    """
    parts: dict[str, Callable[[Kit], Iterable[Family]]] = {
        "certificate": _certificates,
        "disk": _disks,
    }
    if kit.role == "server":
        parts["contacts"] = partial(_contacts, connected=connected)
    else:
        parts |= {"requests": _requests, "questions": _questions, "privacy": _privacy}
    found = [
        Family("info", "Version of fedward.", {(kit.name, __version__): 1}, ("site", "version")),
        _by_site(
            "written_timestamp_seconds", "When this file was written.", {kit.name: time.time()}
        ),
    ]
    unreadable: Values = {}
    for name, part in parts.items():
        try:
            found += part(kit)
            unreadable[kit.name, name] = 0
        except Exception:
            _log.warning(
                "metrics of %s: what is about its %s cannot be read", kit.name, name, exc_info=True
            )
            unreadable[kit.name, name] = 1
    return [
        *found,
        Family(
            "unreadable", "1 if files of that kind cannot be read.", unreadable, ("site", "about")
        ),
    ]


def _certificates(kit: Kit) -> Iterator[Family]:
    ends: Values = {}
    for name, file in (("own", kit.certificate), ("authority", kit.root)):
        ends[kit.name, name] = x509.load_pem_x509_certificate(
            file.read_bytes()
        ).not_valid_after_utc.timestamp()
    yield Family(
        "certificate_expiry_timestamp_seconds",
        "When a certificate ends.",
        ends,
        ("site", "certificate"),
    )


def _disks(kit: Kit) -> Iterator[Family]:
    state = named_folder(STATE)
    places = {"kit": kit.folder, **({"state": state} if state else {})}
    if kit.role == "server":
        places |= {"runs": named_folder(RUNS) or state or kit.folder, "jobs": job_store(kit)}
    disks = {(kit.name, name): shutil.disk_usage(path) for name, path in places.items()}
    free: Values = {key: disk.free for key, disk in disks.items()}
    size: Values = {key: disk.total for key, disk in disks.items()}
    yield Family("disk_free_bytes", "Room on a folder's disk.", free, ("site", "place"))
    yield Family("disk_size_bytes", "Size of a folder's disk.", size, ("site", "place"))


def _contacts(kit: Kit, connected: Mapping[str, float]) -> Iterator[Family]:
    file = (
        named_folder(STATE) or kit.folder / "fedward"
    ) / _CONTACTS  # the server's own, which no job reads
    earlier = read_json(file) if file.exists() else {}
    contacts = {**earlier, **connected}
    if contacts != earlier:
        make_folder(file.parent)
        with replacing(file) as new:
            new.write_text(json.dumps(contacts), encoding="utf-8")
    yield _by_site(
        "last_contact_timestamp_seconds", "When the server last heard of a site.", contacts
    )


def _requests(kit: Kit) -> Iterator[Family]:
    asked = [file.stat().st_mtime for file in (kit.state / FOLDER).glob("*.jsonl")]
    if asked:
        yield _by_site(
            "last_request_timestamp_seconds",
            "When a job last asked the site.",
            {kit.name: max(asked)},
        )


def _questions(kit: Kit) -> Iterator[Family]:
    file = find_site_file(kit.name, [kit.local])
    if file and queue_folder(file).is_dir():
        waiting = len(queue_of(file).pending())
        yield _by_site(
            "waiting_questions", "Questions that wait for a clinician.", {kit.name: waiting}
        )


def _privacy(kit: Kit) -> Iterator[Family]:
    """Yield what a site's noise has spent, by the rule that stops it first: each may have a delta
    of its own.
    """
    rules = [rule for _, rule in noise_rules(kit)]
    if rules:
        file = ledger(kit)
        half = half_line(file)
        if half:
            _log.warning("%s ends in half a line, which does not count: %r", file, half)
        used = [(rule, epsilon(spent(file), rule.delta)) for rule in rules]
        rule, total = max(used, key=lambda pair: pair[1] / pair[0].max_epsilon)
        yield _by_site("epsilon", "Epsilon that the site's noise has spent.", {kit.name: total})
        yield _by_site(
            "epsilon_budget", "Epsilon at which the site stops.", {kit.name: rule.max_epsilon}
        )


def _by_site(name: str, about: str, values: Mapping[str, float]) -> Family:
    return Family(name, about, {(site,): value for site, value in values.items()}, ("site",))
