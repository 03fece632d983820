"""The in-process engine: every site in this process or in some workers, no FLARE, the same messages
and weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedward.client.admission import Admission
from fedward.client.client import Client
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.console.console import Console
from fedward.console.listener import Listener
from fedward.errors import ConfigError
from fedward.lab.pseudo_labels import PseudoLabelObserver
from fedward.lab.synthetic import SyntheticSites
from fedward.lab.workers import Workers
from fedward.methods import method_of
from fedward.methods.algorithm import Algorithm
from fedward.protocol.transport import Deliver, Transport
from fedward.protocol.wire import Message
from fedward.registry import registered
from fedward.report import write_report
from fedward.security.encryption import Adder, SiteKey, new_contexts
from fedward.server.encrypted_transport import EncryptedTransport
from fedward.server.loop import run_experiment
from fedward.server.public import refuse_sites_file
from fedward.sites import named_sites
from fedward.sites.caches import Cache
from fedward.starting_model import Source
from fedward.storage.run_folder import RunFolder
from fedward.tracking import FOLDER, TrackedTransport


@dataclass(frozen=True)
class Sites:
    """What the sites of a run on this machine are made of."""

    experiment: Experiment
    folder: Path
    """With a folder for each site."""
    site_folders: Sequence[Path] = ()
    """Where their files may lie."""
    cache: Path | None = None
    """For what can be made again of images; by default it lies in the sites' folders."""
    judged: bool = False
    """Whether each site notes in its folder how good its pseudo-labels are, where an image has one
    label; see :mod:`fedward.lab.pseudo_labels`."""

    def client(self, name: str, algorithm: Algorithm[Any], key: SiteKey | None) -> Client:
        """Return a site with the experiment's method; ``key`` encrypts its updates, if there is one."""
        experiment = self.experiment
        own = self.folder / name
        source = DataSource(name, experiment, own, self.site_folders, synthetic=SyntheticSites())
        if self.cache:  # another division of the same images has the same features
            features = Cache(self.cache / "features", kept=None)
            source = replace(source, cache=self.cache / "images" / name, shared=features)
        log = SiteLog(own, name, experiment, algorithm)
        observed = self.judged and experiment.data.label_kind.exclusive
        return Client(
            source,
            algorithm,
            log,
            Admission(name, experiment, algorithm, own),
            key,
            observer=PseudoLabelObserver(source) if observed else None,
        )


MOST_HELD = 64
"""Sites in memory, those that worked last: all that a site remembers lies in its folder."""
SITES = TypeAdapter(Sites)
"""Writes and reads them as JSON, for worker processes."""


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
        judged: bool = False,
    ) -> None:
        made = Sites(experiment, folder, site_folders, cache, judged)
        self._names = sorted(names)
        algorithm = method_of(experiment)
        self.client = lru_cache(MOST_HELD)(lambda name: made.client(name, algorithm, key))
        """A site by its name."""

    def sites(self) -> list[str]:
        """Return the sites' names, sorted."""
        return self._names

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Let each site answer its request; a site in this process cannot be late, so ``timeout``
        is not used.
        """
        for name, request in sorted(requests.items()):
            deliver(name, self.client(name).handle(request))

    def close(self) -> None:
        """Do nothing: there is no process to end."""


def run_local(  # noqa: PLR0913 - named choices of one run
    experiment: Experiment | None,
    folder: Path,
    *,
    sites: Sequence[str] = (),
    resume: bool = False,
    site_folders: Sequence[Path] = (),
    init: Path | None = None,
    cache: Path | None = None,
    workers: int = 1,
    judged: bool = False,
    console: Listener | None = None,
) -> Path:
    """Run an experiment on this machine, or resume one; return the run folder.

    With ``resume`` the experiment and the sites are those the folder was started with. ``init`` is
    the folder of a finished run, whose weights a new one starts from. Decoded images and stored
    features are cached in the run folder, where everything lies that sites remember, or in
    ``cache``, from which no features are removed. With ``workers`` of 2 or more the sites of a
    round work beside one another, in so many processes; the weights are the same. With ``judged``
    each site notes in its own folder how good its pseudo-labels are, by the labels that the
    experiment hides, where an image has one label. ``console`` is told what happens; by default it
    is printed.

    Raises as :func:`~fedward.server.loop.run_experiment` does, ConfigError where a folder of
    ``site_folders`` holds no site's file, the server's own images are those of a site, or
    ``workers`` is below 1 or above it for an experiment with names that only this process knows;
    and DataError where a resumed run has lost its site files.
    """
    for named in site_folders:
        named_sites(named)
    if resume:
        run = RunFolder.reopen(folder)
        experiment = run.experiment
        sites = run.sites
        for site in sites:
            DataSource(site, experiment, folder / "sites" / site, site_folders).require_same(
                run.info.id
            )
    assert experiment is not None
    refuse_sites_file(sites, site_folders)
    source = Source(init) if init else None
    algorithm = method_of(experiment)
    with local_transport(
        experiment, algorithm, sites, folder, site_folders, cache, workers, judged
    ) as transport:
        return run_experiment(
            experiment,
            algorithm,
            folder,
            TrackedTransport(transport, folder / FOLDER, algorithm.requirements.server.exchanges),
            engine="local",
            console=console or Console(),
            report=write_report,
            resume=resume,
            site_folders=site_folders,
            synthetic=SyntheticSites(),
            init=source,
        )


@contextmanager
def local_transport(
    experiment: Experiment,
    algorithm: Algorithm[Any],
    names: Sequence[str],
    folder: Path,
    site_folders: Sequence[Path] = (),
    cache: Path | None = None,
    workers: int = 1,
    judged: bool = False,
) -> Iterator[Transport]:
    """Yield what carries a run's messages; with secure aggregation it makes a key, kept in memory."""
    server, key = new_contexts() if experiment.secure_aggregation else (b"", b"")
    sites = Sites(experiment, folder / "sites", site_folders, cache, judged)
    with closing(_inner(sites, names, key, workers)) as inner:
        if experiment.secure_aggregation:
            yield EncryptedTransport(inner, experiment, algorithm, Adder(server), folder)
        else:
            yield inner


def _inner(
    sites: Sites, names: Sequence[str], key: bytes, workers: int
) -> LocalTransport | Workers:
    """Return what carries the messages to the sites, each of them encrypted or not."""
    if workers < 1:
        raise ConfigError(
            "workers", expected="1 or more", found=f"{workers}", remedy="Name a number above 0."
        )
    if workers == 1:
        own = SiteKey(key) if key else None
        return LocalTransport(
            sites.experiment,
            names,
            sites.folder,
            sites.site_folders,
            own,
            sites.cache,
            sites.judged,
        )
    known = registered(sites.experiment.model_dump(mode="json"))
    if known:
        expected = f"1, as only this process knows {', '.join(known)}"
        remedy = "Run with one, or let a package offer them (docs/extending.md)."
        raise ConfigError("workers", expected=expected, found=f"{workers}", remedy=remedy)
    return Workers(names, workers, SITES.dump_json(sites).decode(), key)
