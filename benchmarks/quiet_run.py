"""Runs over a transport that a benchmark watches or changes, without a console."""

import io
from collections.abc import Callable
from pathlib import Path

from fedward.client.client import Client
from fedward.config import Experiment
from fedward.console.console import Console
from fedward.lab.local import LocalTransport
from fedward.methods import method_of
from fedward.protocol.transport import Transport
from fedward.server.run import Engine, begin_run, resume_run
from fedward.sites import SiteData
from fedward.storage.run_folder import NewRun


def no_report(folder: Path) -> None:
    """Write no report into a run folder."""


def run_quietly(
    experiment: Experiment,
    folder: Path,
    transport: Transport,
    report: Callable[[Path], object] = no_report,
) -> Path:
    """Run an experiment in a new folder, and return the folder."""
    return begin_run(
        experiment, method_of(experiment), folder, _engine(transport, report), NewRun("local")
    )


def resume_quietly(experiment: Experiment, folder: Path, transport: Transport) -> Path:
    """Continue the run in a folder to its end, and return the folder."""
    return resume_run(experiment, method_of(experiment), folder, _engine(transport, no_report))


def _engine(transport: Transport, report: Callable[[Path], object]) -> Engine:
    return Engine(transport, Console(io.StringIO()), report)


def data_at(transport: LocalTransport, site: str) -> SiteData:
    """Return the data of a site in a run that trains."""
    client = transport.client(site)
    assert isinstance(client, Client), "only a survey has another kind of client"
    return client.data
