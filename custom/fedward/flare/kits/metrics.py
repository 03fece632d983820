"""The state of a participant for Prometheus, written by its own process, also while no job runs.

Nothing here imports torch: the process of a participant would hold some hundred megabytes for it.
"""

import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

from cryptography import x509
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from fedward.annotation.queue import queue_folder, queue_of
from fedward.code_version import code_version
from fedward.disk import make_folder, replacing
from fedward.flare.kits.disks import written_folders
from fedward.flare.kits.kit import Kit, open_kit
from fedward.flare.kits.reading import read_json
from fedward.flare.kits.scopes import noise_rules, privacy_ledger
from fedward.flare.places import METRICS_VARIABLE, named_folder
from fedward.security.privacy_budget import epsilon
from fedward.security.privacy_ledger import half_line, spent
from fedward.server.metrics import Family, MetricsFolder, Values
from fedward.sites import find_site_file

ANSWERS_FOLDER = "answers"
"""Folder of a site's logs of answers, as in :mod:`fedward.client.site_log`, which imports torch."""

_CONTACTS = "contacts.json"
"""File of the server's own folder: site -> time of the last contact, in seconds since 1970.

A server that is started again must not forget a site that is away."""

_INTERVAL = 60.0
"""Seconds between two files: for each of them a ledger is checked as a whole."""

_log = logging.getLogger(__name__)


class KitMetrics(FLComponent):  # type: ignore[misc]
    """Writes ``fedward_kit_<name>.prom`` into the folder that ``FEDWARD_METRICS`` names.

    A component of a kit's resources, which acts on the heartbeats between sites and server. Nothing
    it does can end the participant: an error becomes a warning in the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written = -_INTERVAL
        self._looking = Lock()
        """Held while ``_written`` is looked at: heartbeats of several sites arrive at once."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Write the file with a heartbeat, if the last one is older than a minute."""
        at_server = event_type == EventType.CLIENT_HEARTBEAT_PROCESSED
        at_site = event_type == EventType.BEFORE_CLIENT_HEARTBEAT
        if not (at_server or at_site):
            return
        with self._looking:
            now = time.monotonic()
            if now - self._written < _INTERVAL:
                return
            self._written = now
        try:
            clients = fl_ctx.get_engine().get_clients() if at_server else []
            contacts = {client.name: client.last_connect_time for client in clients}
            folder = named_folder(METRICS_VARIABLE)
            if folder:
                workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
                metrics = MetricsFolder(folder)
                kit = open_kit(Path(workspace.get_root_dir()))
                metrics.write(metrics.file("kit", kit.name), families(kit, contacts))
        except Exception:
            _log.warning("the metrics of this participant are not written", exc_info=True)


def families(kit: Kit, contacts: Mapping[str, float]) -> list[Family]:
    """Return the metrics of a server's or a site's kit.

    The metric ``unreadable`` names what cannot be read; all other metrics are still written.

    Args:
        kit: the participant's.
        contacts: site -> when the server last heard of it, in seconds since 1970; empty at a site.
    """
    groups = {"certificate": _certificates(kit), "disk": _disks(kit)}
    if kit.role == "server":
        groups["contacts"] = _contacts(kit, contacts)
    else:
        groups["requests"] = _requests(kit)
        groups["questions"] = _questions(kit)
        groups["privacy"] = _privacy(kit)
    written = {kit.name: time.time()}
    metrics = [
        Family("info", "Version of fedward.", {(kit.name, code_version()): 1}, ("site", "version")),
        _by_site("written_timestamp_seconds", "When this file was written.", written),
    ]
    unreadable: Values = {}
    for name, group in groups.items():
        try:
            metrics += group
            unreadable[kit.name, name] = 0
        except Exception:
            _log.warning(
                "metrics of %s: what is about its %s cannot be read", kit.name, name, exc_info=True
            )
            unreadable[kit.name, name] = 1
    about = "1 if files of that kind cannot be read."
    metrics.append(Family("unreadable", about, unreadable, ("site", "about")))
    return metrics


def _certificates(kit: Kit) -> Iterator[Family]:
    ends: Values = {}
    for name, file in (("own", kit.certificate), ("authority", kit.root)):
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        ends[kit.name, name] = certificate.not_valid_after_utc.timestamp()
    yield Family(
        "certificate_expiry_timestamp_seconds",
        "When a certificate ends.",
        ends,
        ("site", "certificate"),
    )


def _disks(kit: Kit) -> Iterator[Family]:
    free: Values = {}
    size: Values = {}
    for name, folder in written_folders(kit).items():
        disk = shutil.disk_usage(folder)
        free[kit.name, name] = disk.free
        size[kit.name, name] = disk.total
    yield Family("disk_free_bytes", "Room on a folder's disk.", free, ("site", "place"))
    yield Family("disk_size_bytes", "Size of a folder's disk.", size, ("site", "place"))


def _contacts(kit: Kit, latest: Mapping[str, float]) -> Iterator[Family]:
    """Yield when the server last heard of each site, and remember it for its next start."""
    file = kit.own_folder / _CONTACTS
    earlier = read_json(file) if file.exists() else {}
    contacts = {**earlier, **latest}
    if contacts != earlier:
        make_folder(file.parent)
        with replacing(file) as new:
            new.write_text(json.dumps(contacts), encoding="utf-8")
    about = "When the server last heard of a site."
    yield _by_site("last_contact_timestamp_seconds", about, contacts)


def _requests(kit: Kit) -> Iterator[Family]:
    times = [file.stat().st_mtime for file in (kit.state / ANSWERS_FOLDER).glob("*.jsonl")]
    if times:
        about = "When a job last asked the site."
        yield _by_site("last_request_timestamp_seconds", about, {kit.name: max(times)})


def _questions(kit: Kit) -> Iterator[Family]:
    file = find_site_file(kit.name, [kit.local])
    if file and queue_folder(file).is_dir():
        waiting = len(queue_of(file).pending())
        about = "Questions that wait for a clinician."
        yield _by_site("waiting_questions", about, {kit.name: waiting})


def _privacy(kit: Kit) -> Iterator[Family]:
    """Yield the privacy budget that a site's noise has spent.

    Of several noise filters, each of which may have a delta of its own, the one counts that will
    stop the site first.
    """
    rules = [rule for _, rule in noise_rules(kit)]
    if not rules:
        return
    ledger = privacy_ledger(kit)
    torn_line = half_line(ledger)
    if torn_line:
        _log.warning("%s ends in half a line, which does not count: %r", ledger, torn_line)
    releases = spent(ledger)
    totals = [(rule, epsilon(releases, rule.delta)) for rule in rules]
    rule, total = max(totals, key=lambda pair: pair[1] / pair[0].max_epsilon)
    yield _by_site("epsilon", "Epsilon that the site's noise has spent.", {kit.name: total})
    limit = {kit.name: rule.max_epsilon}
    yield _by_site("epsilon_budget", "Epsilon at which the site stops.", limit)


def _by_site(name: str, about: str, values: Mapping[str, float]) -> Family:
    return Family(name, about, {(site,): value for site, value in values.items()}, ("site",))
