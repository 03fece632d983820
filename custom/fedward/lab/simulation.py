"""Starts a run on this machine for ``fedward run``, ``fedward bench`` and :func:`fedward.run`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedward.config import Experiment
from fedward.console.listener import Listener
from fedward.errors import ConfigError, option
from fedward.jobs import simulated_sites
from fedward.lab.local import Sites, run_local
from fedward.lab.run_check import Say, enter, print_folded
from fedward.sites import named_sites
from fedward.storage.run_folder import RunFolder, refuse_results


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
    leaks: Mapping[str, int] = field(default_factory=dict)
    """What is in several splits, as :class:`fedward.lab.run_check.Entered` says."""
    job: str = ""
    """Name of the job; empty for none."""
    judged: bool = False
    """Whether each site notes how good its pseudo-labels are (:mod:`fedward.lab.pseudo_labels`)."""

    def entered(
        self, say: Say, *, allow_missing: bool = False, unmeasured: bool = False
    ) -> "Simulation":
        """Open all images, say what is to be known before round 1, and return what is to run.

        Synthetic images need no opening. See :func:`fedward.lab.run_check.enter`.

        Raises:
            DataError: some sites cannot be used, or nothing would be measured.
            RunError: the run folder holds files.
        """
        if self.site_files is None:
            return self
        refuse_results(self.folder)
        made = Sites(self.experiment, self.folder / "sites", self._site_folders, self.cache)
        entered = enter(
            self.experiment,
            [made.source(site) for site in self.sites],
            say=say,
            allow_missing=allow_missing,
            unmeasured=unmeasured,
            workers=self.workers,
        )
        return replace(self, sites=entered.sites, leaks=entered.leaks)

    def run(self, console: Listener | None = None) -> Path:
        """Start the run in a new or empty folder, and return the folder once it has ended.

        ``console`` receives what happens; by default it is printed. Errors are those of
        :func:`fedward.lab.local.run_local`.
        """
        return run_local(
            self.experiment,
            self.folder,
            sites=self.sites,
            site_folders=self._site_folders,
            init=self.init,
            cache=self.cache,
            workers=self.workers,
            judged=self.judged,
            leaks=self.leaks,
            console=console,
            job=self.job,
        )

    def resume(self, console: Listener | None = None) -> Path:
        """Continue the interrupted run in the folder, whose experiment and sites must be these.

        Errors are those of :func:`fedward.lab.local.run_local`, and RunError if the folder's
        experiment is another one.
        """
        # This call compares the experiments; run_local takes experiment and sites from the folder.
        RunFolder.reopen(self.folder, self.experiment)
        return run_local(
            None,
            self.folder,
            resume=True,
            site_folders=self._site_folders,
            cache=self.cache,
            workers=self.workers,
            judged=self.judged,
            console=console,
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
