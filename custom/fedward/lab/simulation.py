"""Starts a run on this machine for ``fedward run``, ``fedward bench`` and :func:`fedward.run`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedward.config import Experiment
from fedward.console.console import Console
from fedward.console.listener import Listener
from fedward.errors import ConfigError, option
from fedward.jobs import simulated_sites
from fedward.lab.local import Sites, local_transport
from fedward.lab.run_check import Say, enter, print_folded
from fedward.lab.synthetic import SyntheticSites
from fedward.methods import job_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.survey import Survey
from fedward.report import write_report
from fedward.server.public import refuse_sites_file
from fedward.server.run import Engine, begin_run, resume_run
from fedward.sites import named_sites
from fedward.starting_model import Source
from fedward.storage.run_folder import NewRun, RunFolder, refuse_results, require_room
from fedward.tracking import EVENTS_FOLDER, TrackedTransport


@dataclass(frozen=True)
class Simulation:
    """An experiment, the sites that take part, and where their data and results lie."""

    experiment: Experiment
    folder: Path
    """The run folder."""
    sites: Sequence[str]
    """Names of the sites."""
    site_files: Path | None = None
    """Folder with a file ``SITE.yaml`` for each site; None: the sites' images are synthetic."""
    init: Path | None = None
    """Folder of a finished run, whose last model a new run starts from."""
    cache: Path | None = None
    """Folder for decoded images and features; by default they lie in the run folder."""
    workers: int = 1
    """Processes in which the sites of a round work at the same time."""
    leaks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What is in several splits, as :class:`fedward.lab.run_check.Entered` says."""
    job: str = ""
    """Name of the job; empty for none."""
    checks_pseudo_labels: bool = False
    """Whether each site notes how good its pseudo-labels are (:mod:`fedward.lab.pseudo_labels`)."""

    def entered(
        self, say: Say, *, allow_missing: bool = False, unmeasured: bool = False
    ) -> "Simulation":
        """Open all images, say what is to be known before round 1, and return what is to run.

        Synthetic images need no opening. See :func:`fedward.lab.run_check.enter`.

        Raises:
            DataError: some sites cannot be used, or nothing would be measured.
            RunError: the run folder holds files, or cannot be written.
        """
        refuse_results(self.folder)
        require_room(self.folder)
        if self.site_files is None:
            return self
        entered = enter(
            self.experiment,
            [self._made_sites.source(site) for site in self.sites],
            say=say,
            allow_missing=allow_missing,
            unmeasured=unmeasured,
            workers=self.workers,
        )
        return replace(self, sites=entered.sites, leaks=entered.leaks)

    def run(self, console: Listener | None = None) -> Path:
        """Start the run in a new or empty folder, and return the folder once it has ended.

        ``console`` receives what happens; by default it is printed.

        Raises as :func:`~fedward.server.run.begin_run` does, and:
            ConfigError: the folder of site files holds none; the server's own images are those of a
                site; or ``workers`` is below 1, or above 1 for an experiment with names that only
                this process knows.
        """
        new = NewRun("local", job=self.job, leaks=self.leaks)
        init = Source(self.init) if self.init else None
        algorithm = job_of(self.experiment)
        with self._engine(algorithm, console) as engine:
            return begin_run(self.experiment, algorithm, self.folder, engine, new, init)

    def resume(self, console: Listener | None = None) -> Path:
        """Continue the interrupted run in the folder, whose experiment and sites must be these.

        Raises as :meth:`run` and :func:`~fedward.server.run.resume_run` do, and:
            DataError: the site files of the run are missing.
        """
        run = RunFolder.reopen(self.folder, self.experiment)
        for site in self.sites:
            self._made_sites.source(site).require_same(run.info.id)
        algorithm = job_of(self.experiment)
        with self._engine(algorithm, console) as engine:
            return resume_run(self.experiment, algorithm, self.folder, engine)

    @contextmanager
    def _engine(
        self, algorithm: Algorithm[Any] | Survey, console: Listener | None
    ) -> Iterator[Engine]:
        """Yield the in-process engine of the run; its transport is closed at the end."""
        if self.site_files:
            named_sites(self.site_files)  # Raises ConfigError for a folder without site files.
        refuse_sites_file(self.sites, self._site_folders)
        made = self._made_sites
        with local_transport(made, self.sites, algorithm, self.folder, self.workers) as transport:
            exchanges = algorithm.requirements.server.exchanges
            yield Engine(
                TrackedTransport(transport, self.folder / EVENTS_FOLDER, exchanges),
                console or Console(),
                write_report,
                site_folders=self._site_folders,
                synthetic=SyntheticSites(),
            )

    @property
    def _made_sites(self) -> Sites:
        folder = self.folder / "sites"
        return Sites(
            self.experiment, folder, self._site_folders, self.cache, self.checks_pseudo_labels
        )

    @property
    def _site_folders(self) -> list[Path]:
        return [self.site_files] if self.site_files else []


def default_sites(experiment: Experiment, site_files: Path | None) -> list[str]:
    """Return the sites that a folder names, else the experiment's synthetic ones.

    Raises:
        ConfigError: the folder holds no site's file, or there is no folder and the experiment has
            no synthetic images.
    """
    if site_files:
        return named_sites(site_files)
    if experiment.synthetic is None:
        raise ConfigError(
            "The experiment has no synthetic images, and no site files are named",
            f"Name their folder with {option('site-files')}.",
        )
    return simulated_sites(experiment)


def entered_sites(experiment: Experiment, site_files: Path) -> list[str]:
    """Open the images of site files, print what is to be known, and return the sites.

    It is for runs elsewhere on this machine, as in FLARE's simulator: decoded images are not kept.

    Raises:
        ConfigError: the folder holds no site's file.
        DataError: some sites cannot be used, or nothing would be measured.
    """
    with TemporaryDirectory() as folder:
        sites = named_sites(site_files)
        simulation = Simulation(experiment, Path(folder), sites, site_files=site_files)
        return list(simulation.entered(print_folded).sites)
