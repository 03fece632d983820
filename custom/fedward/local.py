"""The in-process engine: every site in this process, no FLARE, the same messages and the same weights."""

from collections.abc import Sequence
from pathlib import Path

from fedward.client.admission import Admission
from fedward.client.client import Client
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.methods import method_of
from fedward.protocol.transport import Deliver, Transport
from fedward.protocol.wire import Message
from fedward.report import write_report
from fedward.report.console import Console
from fedward.security.encryption import Adder, SiteKey, new_contexts
from fedward.security.encryption_transport import EncryptedTransport
from fedward.server.loop import run_experiment
from fedward.server.public import refuse_sites_file
from fedward.sites import named_sites
from fedward.storage.initial import Source
from fedward.storage.run_folder import RunFolder


class LocalTransport:
    """Runs each site's work in turn, in site-name order."""

    def __init__(
        self,
        experiment: Experiment,
        names: Sequence[str],
        folder: Path,
        site_folders: Sequence[Path] = (),
        key: SiteKey | None = None,
        cache: Path | None = None,
    ) -> None:
        algorithm = method_of(experiment)

        def client(name: str) -> Client:
            own = folder / name
            source = DataSource(name, experiment, own, site_folders, cache / name if cache else None)
            log = SiteLog(own, name, experiment, algorithm)
            return Client(source, algorithm, log, Admission(name, experiment, algorithm, own), key)

        self._clients = {name: client(name) for name in sorted(names)}

    def sites(self) -> list[str]:
        """Return the sites' names, sorted."""
        return list(self._clients)

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Let each site answer its request; a site in this process cannot be late, so ``timeout`` is not used."""
        for name, request in sorted(requests.items()):
            deliver(name, self._clients[name].handle(request))


def run_local(
    experiment: Experiment | None,
    folder: Path,
    *,
    sites: Sequence[str] = (),
    resume: bool = False,
    site_folders: Sequence[Path] = (),
    init: Path | None = None,
    cache: Path | None = None,
) -> Path:
    """Run an experiment in this process, or resume one; return the run folder.

    With ``resume`` the experiment and the sites are those the folder was started with. ``init`` is the folder of a
    finished run, whose weights a new one starts from. Decoded images are cached in ``cache``, or in the run folder,
    where everything lies that sites remember.

    Raises as :func:`~fedward.server.loop.run_experiment` does, ConfigError where a folder of ``site_folders``
    holds no site's file or the server's own images are those of a site, and DataError where a resumed run has lost its
    site files.
    """
    for named in site_folders:
        named_sites(named)
    if resume:
        run = RunFolder.reopen(folder)
        experiment, sites = run.experiment, run.sites
        for site in sites:
            DataSource(site, experiment, folder / "sites" / site, site_folders).require_same(run.info.id)
    assert experiment is not None
    refuse_sites_file(sites, site_folders)
    transport = local_transport(experiment, sites, folder, site_folders, cache)
    source = Source(init) if init else None
    return run_experiment(
        experiment,
        folder,
        transport,
        engine="local",
        console=Console(),
        report=write_report,
        resume=resume,
        site_folders=site_folders,
        init=source,
    )


def local_transport(
    experiment: Experiment, sites: Sequence[str], folder: Path, site_folders: Sequence[Path], cache: Path | None
) -> Transport:
    """Return what carries a run's messages in this process; with secure aggregation it makes a key, kept in memory."""
    own = folder / "sites"
    if not experiment.secure_aggregation:
        return LocalTransport(experiment, sites, own, site_folders, cache=cache)
    server, site = new_contexts()
    inner = LocalTransport(experiment, sites, own, site_folders, SiteKey(site), cache)
    return EncryptedTransport(inner, experiment, method_of(experiment), Adder(server), folder)
