"""The in-process engine: every site works in this process or in worker processes, without FLARE.

Messages and weights are the same as in a federation.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from fedward.client.admission import Admission
from fedward.client.client import client_of
from fedward.client.respondent import Respondent
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.lab.pseudo_labels import PseudoLabelObserver
from fedward.lab.synthetic import SyntheticSites
from fedward.lab.workers import Workers
from fedward.methods import job_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.survey import Survey
from fedward.protocol.transport import Deliver, Transport
from fedward.protocol.wire import Message
from fedward.registry import registered
from fedward.security.encryption import Adder, SiteKey, new_contexts
from fedward.server.encrypted_transport import EncryptedTransport
from fedward.sites.caches import Cache

MOST_HELD = 64
"""Number of sites in memory at most: those that worked last.

A site can be dropped and made again, because all that it remembers lies in its folder.
"""
MOST_HELD_BYTES = psutil.virtual_memory().total // 4
"""Bytes of images in memory at most, unless one site has more."""


@dataclass(frozen=True)
class Sites:
    """Makes the sites of a run on this machine."""

    experiment: Experiment
    folder: Path
    """Parent of the sites' own folders."""
    site_folders: Sequence[Path] = ()
    """Folders that are searched for the sites' files."""
    cache: Path | None = None
    """Folder for decoded images and features; by default they lie in the sites' own folders."""
    checks_pseudo_labels: bool = False
    """Whether each site notes how good its pseudo-labels are (:mod:`fedward.lab.pseudo_labels`).

    In a multi-label job none are checked.
    """

    def source(self, name: str) -> DataSource:
        """Return where the images of a site come from."""
        folder = self.folder / name
        source = DataSource(
            name, self.experiment, folder, self.site_folders, synthetic=SyntheticSites()
        )
        if not self.cache:
            return source
        # Sites share features: if the same images are divided otherwise, they are found again.
        features = Cache(self.cache / "features", kept=None)
        return replace(source, cache=self.cache / "images" / name, shared=features)

    def client(
        self, name: str, algorithm: Algorithm[Any] | Survey, key: SiteKey | None
    ) -> Respondent:
        """Return a site by its name; ``key`` encrypts its updates, if given."""
        experiment = self.experiment
        folder = self.folder / name
        source = self.source(name)
        is_checked = self.checks_pseudo_labels and experiment.data.label_kind.exclusive
        return client_of(
            source,
            algorithm,
            SiteLog(folder, name, experiment, algorithm),
            Admission(name, experiment, algorithm, folder),
            key,
            observer=PseudoLabelObserver(source) if is_checked else None,
        )


class LocalTransport:
    """Lets each site work in this process, one after another in the order of their names.

    Args:
        sites: what makes the sites.
        names: names of the sites.
        key: encrypts their updates; None: they are sent as they are.
    """

    def __init__(self, sites: Sites, names: Sequence[str], key: SiteKey | None = None) -> None:
        self._names = sorted(names)
        algorithm = job_of(sites.experiment)
        self._make = partial(sites.client, algorithm=algorithm, key=key)
        self._held: dict[str, Respondent] = {}
        """Sites in memory, in the order in which they worked."""

    def sites(self) -> list[str]:
        """Return the sites' names, sorted."""
        return self._names

    def client(self, name: str) -> Respondent:
        """Return a site by its name; those that worked last stay in memory."""
        client = self._held.pop(name, None) or self._make(name)
        self._held[name] = client
        return client

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Let each site answer its request; ``timeout`` is not used, as no site is late here."""
        for name, request in sorted(requests.items()):
            deliver(name, self.client(name).handle(request))
            self._drop_some()

    def _drop_some(self) -> None:
        """Drop the sites that worked first, until the others are few and small enough."""
        sizes = {name: client.image_bytes for name, client in self._held.items()}
        while len(sizes) > 1 and (len(sizes) > MOST_HELD or sum(sizes.values()) > MOST_HELD_BYTES):
            name = next(iter(sizes))
            del sizes[name], self._held[name]

    def close(self) -> None:
        """Do nothing: there is no process to end."""


@contextmanager
def local_transport(
    sites: Sites,
    names: Sequence[str],
    algorithm: Algorithm[Any] | Survey,
    folder: Path,
    workers: int = 1,
) -> Iterator[Transport]:
    """Yield the transport of a run's messages between server and sites; it is closed at the end.

    With secure aggregation a new key encrypts the sites' updates; it is only kept in memory.

    Args:
        sites: what makes the sites.
        names: the sites' names.
        algorithm: the experiment's method, or its survey.
        folder: the run folder.
        workers: processes in which the sites of an exchange work at the same time.

    Raises:
        ConfigError: ``workers`` is below 1, or above 1 for an experiment with names that only this
            process knows.
    """
    if not sites.experiment.secure_aggregation:
        with closing(_plain_transport(sites, names, b"", workers)) as transport:
            yield transport
        return
    assert not isinstance(algorithm, Survey), "a survey cannot be combined with encryption"
    server_context, site_context = new_contexts()
    with closing(_plain_transport(sites, names, site_context, workers)) as transport:
        adder = Adder(server_context)
        yield EncryptedTransport(transport, sites.experiment, algorithm, adder, folder)


def _plain_transport(
    sites: Sites, names: Sequence[str], key: bytes, workers: int
) -> LocalTransport | Workers:
    """Return a transport that passes messages on as they are, encrypted or not."""
    if workers < 1:
        raise ConfigError(
            "workers", "Name a number above 0.", expected="1 or more", found=f"{workers}"
        )
    if workers == 1:
        return LocalTransport(sites, names, SiteKey(key) if key else None)
    # A worker process imports fedward alone, so it lacks what a script has registered.
    local_names = registered(sites.experiment.model_dump(mode="json"))
    if local_names:
        raise ConfigError(
            "workers",
            "Run with one, or let a package offer them (docs/extending.md).",
            expected=f"1, as only this process knows {', '.join(local_names)}",
            found=f"{workers}",
        )
    return Workers(sites, names, workers, key)
