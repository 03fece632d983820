"""Clients of sites, and the server's images, as the engine in one process makes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedward.client.admission import Admission
from fedward.client.client import Client
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import method_of
from fedward.security.encryption import SiteKey
from fedward.server.public import PublicImages


def new_client(
    name: str,
    experiment: Experiment,
    folder: Path,
    site_folders: Sequence[Path] = (),
    *,
    key: SiteKey | None = None,
    log: SiteLog | None = None,
    admission: Admission | None = None,
    device: str = "auto",
    kind: type[Client] = Client,
) -> Any:
    """Return the client of a site; its policy forbids nothing unless ``admission`` does."""
    source = DataSource(name, experiment, folder, site_folders, synthetic=SyntheticSites())
    algorithm = method_of(experiment)
    log = log or SiteLog(folder, name, experiment, algorithm)
    return kind(
        source,
        algorithm,
        log,
        admission or Admission(name, experiment, algorithm, folder),
        key,
        device,
    )


def public_images(
    experiment: Experiment, folder: Path, site_folders: Sequence[Path] = ()
) -> PublicImages:
    """Return the server's own images."""
    return PublicImages(experiment, method_of(experiment), folder, site_folders, SyntheticSites())
