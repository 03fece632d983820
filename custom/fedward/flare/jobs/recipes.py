"""An experiment as a FLARE recipe, for ``SimEnv``, ``PocEnv`` and ``ProdEnv``, and the command line
of ``job.py``.

Importing this module imports ``nvflare.recipe``, which takes ``--export`` and ``--export-dir`` out
of ``sys.argv``; the fedward command therefore never does.
"""

import argparse
from pathlib import Path
from typing import Any, NoReturn, get_args

from nvflare.job_config.api import FedJob
from nvflare.job_config.fed_job_config import FedJobConfig
from nvflare.recipe import PocEnv, ProdEnv, SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.flare.jobs.configurations import Tracking
from fedward.flare.jobs.export import SCRIPT, export_job
from fedward.flare.jobs.submit import unfinished
from fedward.flare.kits.kit import open_kit
from fedward.jobs import simulated_sites

WORKSPACE = "simulator_workspace"
"""Where the simulator makes a folder for each job; what an earlier run left there is deleted."""


class FedwardRecipe(Recipe):  # type: ignore[misc]
    """A job of fedward: the same files that ``fedward jobs`` writes.

    ``ProdEnv`` gets the clinical flavour, since the kits of this package refuse any other.

    Args:
        experiment: what to run.
        name: the job's name; the method's by default.
        tracking: who receives the sites' scalars at the server. MLflow and Weights & Biases must be
            installed there.
    """

    def __init__(
        self, experiment: Experiment, name: str = "", tracking: Tracking = "tensorboard"
    ) -> None:
        super().__init__(_Job(name or experiment.method, experiment, tracking))

    def process_env(self, env: ExecEnv) -> None:
        """Choose the flavour for an environment; FLARE calls this before it writes the job."""
        self._job.job.clinical = isinstance(env, ProdEnv)


class _Job(FedJob):  # type: ignore[misc]
    """A job of fixed parts; FLARE's helpers that add parts to a recipe are refused."""

    def __init__(self, name: str, experiment: Experiment, tracking: Tracking) -> None:
        super().__init__(name=name, min_clients=experiment.minimum_replies)
        self.job = _Folder(name, experiment, tracking)

    def to(self, obj: Any, target: str, *_: Any, **__: Any) -> NoReturn:
        """Refuse a further part."""
        expected = "the parts of a job as `fedward jobs` writes them"
        found = f"{type(obj).__name__} for {target}"
        remedy = "Change the experiment's settings or the recipe's tracking instead."
        raise ConfigError(f"recipe {self.name}", expected=expected, found=found, remedy=remedy)


class _Folder(FedJobConfig):  # type: ignore[misc]
    def __init__(self, name: str, experiment: Experiment, tracking: Tracking) -> None:
        super().__init__(name, min_clients=experiment.minimum_replies)
        self.experiment = experiment
        self.tracking = tracking
        self.clinical = False

    def generate_job_config(self, job_root: str) -> None:
        """Write the job's folder into another one; FLARE calls this to export and to send a job."""
        job = Path(job_root) / self.job_name
        export_job(self.experiment, job, self.clinical, tracking=self.tracking)
        (job / SCRIPT).unlink(missing_ok=True)  # it is no part of a job that is sent


def options() -> argparse.Namespace:
    """Read the command line of a ``job.py``; ``policy`` says whether sites run the job whose own
    policy counts.
    """
    parser = argparse.ArgumentParser(
        description="Run this job in FLARE's simulator (SimEnv), or elsewhere."
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
        "--tracking", choices=get_args(Tracking), default="tensorboard", help="default: tensorboard"
    )
    chosen = parser.parse_args()
    chosen.policy = chosen.poc or chosen.kit is not None
    return chosen


def environment(chosen: argparse.Namespace, experiment: Experiment) -> ExecEnv:
    """Return the environment that a command line asks for, with the experiment's own sites if it
    simulates them.
    """
    if chosen.kit:
        return ProdEnv(str(chosen.kit), username=open_kit(chosen.kit, "user").name)
    sites = simulated_sites(experiment)
    if chosen.poc:
        return PocEnv(clients=sites, num_clients=len(sites))
    return SimEnv(clients=sites, workspace_root=WORKSPACE, log_config="warning")


def execute(recipe: Recipe, env: ExecEnv) -> Path:
    """Run a recipe to its end, stop what the environment started, and return the run folder.

    Raises:
        RunError: the job left no finished run.
    """
    try:
        result = Path(recipe.execute(env).get_result(clean_up=False) or "")
    finally:
        env.stop()
    run = result / ("server/simulate_job" if isinstance(env, SimEnv) else "workspace") / "fedward"
    found = unfinished(run)
    if found:
        where = f"job {recipe.name}"
        remedy = f"See the logs in {result}."
        raise RunError(where, expected="a finished run", found=found, remedy=remedy)
    return run
