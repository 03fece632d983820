"""The app of a FLARE job as a site's executor finds it, without a job."""

import json
from pathlib import Path
from typing import Any

from fedward.config import Experiment
from fedward.flare.executor import MonaiTrainerExecutor
from fedward.flare.jobs.configurations import SERVER, controller, server_config

JOB = "simulate_job"


def executor_of(folder: Path, experiment: Experiment) -> MonaiTrainerExecutor:
    """Return the executor of a job whose app was written by hand, with the given settings alone."""
    path, arguments = controller(experiment)
    named = {"method", "experiment", *experiment.options}
    write_app(
        folder, server_config(path, {name: arguments[name] for name in named & set(arguments)}, 0.1)
    )
    return MonaiTrainerExecutor()


def write_app(folder: Path, config: Any) -> None:
    """Write the server's file of an app."""
    config_folder(folder).mkdir(parents=True, exist_ok=True)
    (config_folder(folder) / SERVER).write_text(json.dumps(config))


def config_folder(folder: Path, job: str = JOB) -> Path:
    """Return what FLARE tells of where an app's configuration lies."""
    return folder / job / "app" / "config"
