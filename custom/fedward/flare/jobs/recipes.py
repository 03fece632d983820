"""An experiment as a FLARE recipe, for ``SimEnv``, ``PocEnv`` and ``ProdEnv``.

:func:`main` is the command line of each shipped job's script ``job.py``.

Importing this module imports ``nvflare.recipe``, which takes ``--export`` and ``--export-dir`` out
of ``sys.argv``. The fedward command therefore never does.
"""

import argparse
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn, get_args

from nvflare.job_config.api import FedJob
from nvflare.job_config.fed_job_config import FedJobConfig
from nvflare.recipe import PocEnv, ProdEnv, SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from fedward.config import Experiment
from fedward.console.run_end import report_line
from fedward.errors import ConfigError, RunError
from fedward.flare.job_commands import Enter
from fedward.flare.jobs.configurations import Tracking
from fedward.flare.jobs.export import SCRIPT, export_job
from fedward.flare.jobs.submit import unfinished
from fedward.flare.kits.kit import open_kit
from fedward.flare.places import SITES_VARIABLE
from fedward.flare.plain_paths import plain_path
from fedward.jobs import load_experiment, simulated_sites
from fedward.sites.data_file import read_data_file

WORKSPACE = "simulator_workspace"
"""Where the simulator makes a folder for each job. It deletes what an earlier run left there."""


class FedwardRecipe(Recipe):  # type: ignore[misc]
    """A job of fedward: the same files that ``fedward jobs`` writes.

    ``ProdEnv`` gets the clinical flavour, since the kits of this package refuse any other.

    Args:
        experiment: what to run.
        name: the job's name; by default the method's.
        tracking: who receives the sites' scalars at the server. MLflow and Weights & Biases must be
            installed there.
        sites: names of the sites; by default those of the simulation.
    """

    def __init__(
        self,
        experiment: Experiment,
        name: str = "",
        tracking: Tracking = "tensorboard",
        sites: Sequence[str] = (),
    ) -> None:
        super().__init__(_Job(name or experiment.method, experiment, tracking, sites))

    def process_env(self, env: ExecEnv) -> None:
        """Choose the flavour for an environment. FLARE calls this before it writes the job."""
        self._job.job.clinical = isinstance(env, ProdEnv)


class _Job(FedJob):  # type: ignore[misc]
    """A job of fixed parts: it refuses FLARE's helpers that add parts to a recipe."""

    def __init__(
        self, name: str, experiment: Experiment, tracking: Tracking, sites: Sequence[str]
    ) -> None:
        super().__init__(name=name, min_clients=experiment.minimum_replies)
        self.job = _Folder(name, experiment, tracking, sites)

    def to(self, obj: Any, target: str, *_: Any, **__: Any) -> NoReturn:
        """Refuse a further part."""
        raise ConfigError(
            f"recipe {self.name}",
            "Change the experiment's settings or the recipe's tracking instead.",
            expected="the parts of a job as `fedward jobs` writes them",
            found=f"{type(obj).__name__} for {target}",
        )


class _Folder(FedJobConfig):  # type: ignore[misc]
    """The files of a job, written as ``fedward jobs`` writes them."""

    def __init__(
        self, name: str, experiment: Experiment, tracking: Tracking, sites: Sequence[str]
    ) -> None:
        super().__init__(name, min_clients=experiment.minimum_replies)
        self.experiment = experiment
        self.tracking = tracking
        self.sites = sites
        self.clinical = False

    def generate_job_config(self, job_root: str) -> None:
        """Write the job's folder into another one. FLARE calls this to export and to send a job."""
        job = Path(job_root) / self.job_name
        # A clinical job goes to all sites that are connected.
        sites = () if self.clinical else self.sites
        export_job(self.experiment, job, self.clinical, sites, tracking=self.tracking)
        # The script runs the job. It is not part of the job that is sent.
        (job / SCRIPT).unlink(missing_ok=True)


def main(name: str, enter: Enter) -> None:
    """Run a shipped job as the command line says, and print the link to its report.

    Args:
        name: the job's name, such as ``fedperl``.
        enter: called where the command line names site files.
    """
    options = parse_arguments()
    # Sites of a real federation have policies of their own. The simulator's have none.
    has_policies = options.poc or options.kit is not None
    data = read_data_file(options.site_files) if options.site_files else None
    experiment = load_experiment(name, options.set, clinical=has_policies, data=data)
    sites = simulated_sites(experiment)
    if options.site_files and not options.kit:
        sites = enter(experiment, options.site_files)
        # FLARE's processes inherit the variable.
        os.environ[SITES_VARIABLE] = str(options.site_files.resolve())
    recipe = FedwardRecipe(experiment, name, options.tracking, sites)
    # A kit needs no simulator, to which paths can be odd.
    place = nullcontext(Path()) if options.kit else plain_path(Path())
    with place as here:
        run = execute(recipe, environment(options, sites, here)).resolve()
    # FLARE has printed lines of its own below those of the run.
    print(report_line(run))


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command line of a ``job.py``."""
    parser = argparse.ArgumentParser(
        description="Run this job in FLARE's simulator (SimEnv), or elsewhere.", allow_abbrev=False
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--poc", action="store_true", help="PocEnv: a server and all sites, each in its own process"
    )
    where.add_argument(
        "--kit",
        type=Path,
        help="ProdEnv: a running federation; startup kit of a lead or project admin",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="such as rounds=5"
    )
    parser.add_argument(
        "--site-files",
        type=Path,
        default=os.environ.get(SITES_VARIABLE) or None,
        metavar="FOLDER",
        help="folder with a file SITE.yaml for each site, and perhaps data.json "
        "(default: $FEDWARD_SITES)",
    )
    parser.add_argument(
        "--tracking", choices=get_args(Tracking), default="tensorboard", help="default: tensorboard"
    )
    return parser.parse_args()


def environment(
    options: argparse.Namespace, sites: Sequence[str], folder: Path = Path()
) -> ExecEnv:
    """Return the environment that a command line asks for.

    Args:
        options: of :func:`parse_arguments`.
        sites: names of the sites, where the environment simulates them.
        folder: where the simulator makes its workspace; by default the working directory.
    """
    if options.kit:
        return ProdEnv(str(options.kit), username=open_kit(options.kit, "user").name)
    if options.poc:
        return PocEnv(clients=list(sites), num_clients=len(sites))
    workspace = str(folder / WORKSPACE)
    return SimEnv(clients=list(sites), workspace_root=workspace, log_config="warning")


def execute(recipe: Recipe, env: ExecEnv) -> Path:
    """Run a recipe to its end, stop what the environment started, and return the run folder.

    Raises:
        RunError: the job left no finished run.
    """
    try:
        result = Path(recipe.execute(env).get_result(clean_up=False) or "")
    finally:
        env.stop()
    workspace = "server/simulate_job" if isinstance(env, SimEnv) else "workspace"
    run = result / workspace / "fedward"
    problem = unfinished(run)
    if problem:
        raise RunError(
            f"job {recipe.name}",
            f"See the logs in {result}.",
            expected="a finished run",
            found=problem,
        )
    return run
