"""Runs over any transport, told and reported as those of ``fedward run``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedward.config import Experiment
from fedward.console.console import Console
from fedward.console.listener import Listener
from fedward.lab import simulation
from fedward.lab.simulation import Simulation
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import job_of
from fedward.protocol.transport import Transport
from fedward.server.run import Engine, begin_run, resume_run
from fedward.starting_model import Source
from fedward.storage.run_folder import NewRun, RunFolder


def run_experiment(
    experiment: Experiment,
    folder: Path,
    transport: Transport,
    *,
    resume: bool = False,
    init: Source | None = None,
    site_folders: Sequence[Path] = (),
    watch: Callable[[Path], None] | None = None,
    console: Listener | None = None,
    engine_name: str = "local",
) -> Path:
    """Begin a run of the experiment's own method, or resume the one in the folder."""
    # Looked up now: a test that needs no report replaces what writes it.
    write_report = simulation.write_report
    engine = Engine(
        transport, console or Console(), write_report, site_folders, SyntheticSites(), watch
    )
    algorithm = job_of(experiment)
    if resume:
        return resume_run(experiment, algorithm, folder, engine, init)
    return begin_run(experiment, algorithm, folder, engine, NewRun(engine_name), init)


def run_local(
    experiment: Experiment,
    folder: Path,
    *,
    sites: Sequence[str],
    site_folders: Sequence[Path] = (),
    console: Listener | None = None,
    **options: Any,
) -> Path:
    """Run an experiment in this process; ``options`` are further fields of a Simulation."""
    (site_files,) = site_folders or [None]
    return Simulation(experiment, folder, sites, site_files, **options).run(console)


def resume_local(
    folder: Path,
    *,
    site_folders: Sequence[Path] = (),
    console: Listener | None = None,
    **options: Any,
) -> Path:
    """Resume the run in a folder, whose experiment and sites are read there."""
    run = RunFolder.reopen(folder)
    (site_files,) = site_folders or [None]
    return Simulation(run.experiment, folder, run.sites, site_files, **options).resume(console)
