"""Clients of sites, and the server's images, as the engine in one process makes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedward.client.admission import Admission
from fedward.client.client import Client, client_of
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.config import Experiment
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import job_of, method_of
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
    kind: type[Client] | None = None,
) -> Any:
    """Return the client of a site; its policy forbids nothing unless ``admission`` does.

    ``kind`` is the class of a training's client, if not the package's own.
    """
    source = DataSource(name, experiment, folder, site_folders, synthetic=SyntheticSites())
    algorithm = job_of(experiment)
    log = log or SiteLog(folder, name, experiment, algorithm)
    return (kind or client_of)(
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
