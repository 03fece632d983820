"""The configuration of a job for the server and for sites, and the experiment in it.

A job states its experiment once: as the arguments of the controller, in the server's file. Sites
have that file too, and their executor reads it. This module is light to import, because the parent
process of each participant compares every job's configuration with these.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedward.errors import ConfigError, reason_of
from fedward.flare.classes import (
    CONTROLLERS,
    EXECUTOR,
    METHOD_CONTROLLER,
    MLFLOW,
    SYNTHETIC_SITES,
    TENSORBOARD,
    TO_SERVER,
    TRAINER,
    WANDB,
)
from fedward.flare.shareables import TASK
from fedward.json_text import read_json_file
from fedward.tracking import EVENTS_FOLDER

if TYPE_CHECKING:
    from fedward.config import Experiment

SERVER = "config_fed_server.json"
"""Name of the server's file, in an app's folder ``config``."""
CLIENT = "config_fed_client.json"
"""Name of a site's file, in the same folder."""

WEIGHTS = ("model.safetensors", "model.json")
"""Files beside the server's file where a job starts from a finished run."""

_RESULT_SECONDS = 600.0
"""Seconds that a site waits for the server to have received a result.

The server answers once it has all of it. A site that waits less sends a large update twice."""

Tracking = Literal["tensorboard", "mlflow", "wandb"]

SYNTHETIC = "synthetic_sites"
"""Id of the component that makes the images of participants without files, in simulations."""
_SYNTHETIC_COMPONENT: dict[str, Any] = {"id": SYNTHETIC, "path": SYNTHETIC_SITES, "args": {}}

Device = Literal["auto", "cpu"]
"""What a job may say about where its sites compute: on a GPU where the site has one, or not.

A job cannot demand a GPU by it, since a site without one would fail. ``resource_spec`` in
``meta.json`` can.
"""
DEVICES: tuple[Device, ...] = get_args(Device)

_WHERE = f"file {SERVER} of the job"
_EVENT = "analytix_log_stats"
"""FLARE's event of a scalar, under which sites send theirs."""
METRICS_AT_SERVER = f"fed.{_EVENT}"
"""The same event at the server, where the sites' scalars arrive."""
_GRACE_PERIOD = 30.0
"""Seconds after a site misses its heartbeats until the server ends its tasks."""
_LEAD_TIME = 5.0
"""Seconds from the start of a task until the server asks whether its sites are there."""


def server_config(
    path: str,
    args: Mapping[str, Any],
    interval: float,
    tracking: Mapping[str, Any] | None = None,
    *,
    synthetic: bool = False,
) -> dict[str, Any]:
    """Return the server's file.

    Args:
        path: the controller's class.
        args: the controller's arguments.
        interval: seconds for which an idle site waits before it asks for work again.
        tracking: the component that receives the sites' scalars, of :func:`receiver`; by default
            TensorBoard's.
        synthetic: whether a server without files works on synthetic images, as in simulations.
    """
    components = [tracking or receiver("tensorboard")]
    if synthetic:
        components.append(_SYNTHETIC_COMPONENT)
    return {
        "format_version": 2,
        "server": {"task_request_interval": interval},
        "dead_client_grace_period": _GRACE_PERIOD,
        "dead_client_check_lead_time": _LEAD_TIME,
        "workflows": [{"id": "controller", "path": path, "args": args}],
        "components": components,
    }


def client_config(
    interval: float, device: Device = "auto", *, synthetic: bool = False
) -> dict[str, Any]:
    """Return a site's file.

    Args:
        interval: seconds for which an idle site waits before it asks for work again.
        device: where sites compute whose own file does not say it.
        synthetic: whether a site without files works on synthetic images, as in simulations.
    """
    arguments = {"trainer": TRAINER, "device": device}
    components: list[dict[str, Any]] = [
        {"id": "to_server", "path": TO_SERVER, "args": {"events_to_convert": [_EVENT]}}
    ]
    if synthetic:
        components.append(_SYNTHETIC_COMPONENT)
    return {
        "format_version": 2,
        "default_task_fetch_interval": interval,
        "submit_task_result_timeout": _RESULT_SECONDS,
        "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": arguments}}],
        "components": components,
    }


def receiver(tracking: Tracking, job: str = "") -> dict[str, Any]:
    """Return the server's component that receives the sites' scalars, one of FLARE's own.

    None of them sends anything anywhere: TensorBoard writes into the job's results, MLflow a
    database there, and Weights & Biases offline files.

    Args:
        tracking: which one.
        job: the job's name, under which MLflow and Weights & Biases list the run.
    """
    wandb = {"project": "fedward", "group": job, "name": job, "job_type": "federation"}
    receivers: dict[Tracking, tuple[str, dict[str, Any]]] = {
        "tensorboard": (TENSORBOARD, {"tb_folder": EVENTS_FOLDER}),
        "mlflow": (MLFLOW, {"kw_args": {"experiment_name": "fedward", "run_name": job}}),
        "wandb": (WANDB, {"wandb_args": wandb}),
    }
    path, args = receivers[tracking]
    return {"id": tracking, "path": path, "args": {**args, "events": [METRICS_AT_SERVER]}}


def controller(experiment: "Experiment") -> tuple[str, dict[str, Any]]:
    """Return class path and arguments of the controller that runs an experiment.

    All settings of the method are written out, also those that have their defaults. So the job says
    what it does, and no other version's defaults change it.

    Raises:
        ConfigError: a setting of the method has the name of an argument that all controllers have.
    """
    from fedward.methods import settings_of

    method = experiment.method
    settings = settings_of(method, experiment.options).model_dump(mode="json")
    taken = {"method", "experiment", "init"} & set(settings)
    if taken:
        raise ConfigError(
            f"{method} has settings that every controller has already: {', '.join(sorted(taken))}",
            "Give them other names.",
        )
    shared = experiment.model_dump(mode="json", exclude={"method", "options"})
    if method in CONTROLLERS:
        return CONTROLLERS[method], {**settings, "experiment": shared}
    return METHOD_CONTROLLER, {"method": method, **settings, "experiment": shared}


def described(method: str, arguments: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the experiment that a controller's arguments describe, unchecked.

    This is the inverse of :func:`controller`. The argument ``init`` is left out.

    Args:
        method: the method's name.
        arguments: the controller's other arguments.
        where: names the arguments in an error.

    Raises:
        ConfigError: ``experiment`` is not a mapping, or it repeats the method or its options.
    """
    shared = arguments.get("experiment", {})
    if not isinstance(shared, Mapping) or {"method", "options"} & set(shared):
        raise ConfigError(
            where,
            "The controller's class says the method, its other arguments are the options.",
            expected="an argument experiment that is a mapping, without method and options",
            found=f"{shared!r:.80}",
        )
    settings = {
        name: value for name, value in arguments.items() if name not in ("experiment", "init")
    }
    return {**shared, "method": method, "options": settings}


def experiment_in(config: Path) -> "Experiment":
    """Return the experiment of a job's app.

    Args:
        config: the app's folder ``config``.

    Raises:
        ConfigError: the server's file is missing or wrong.
    """
    from fedward.config import Experiment

    return Experiment.parse(described_in(config), _WHERE)


def described_in(config: Path) -> dict[str, Any]:
    """Return the experiment of a job's app as plain JSON values, unchecked.

    To check an experiment, the packages that it names are imported. A site first asks its policy
    whether it admits those.

    Args:
        config: the app's folder ``config``.

    Raises:
        ConfigError: the server's file is missing, or it names no controller of fedward.
    """
    try:
        (workflow,) = read_json_file(config / SERVER)["workflows"]
        arguments = dict(workflow["args"])
        method = _method(str(workflow["path"]), arguments)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            _WHERE,
            "Export the job with `fedward jobs`, and send it as it is.",
            expected="one controller of fedward, with its arguments",
            found=reason_of(error),
        ) from error
    return described(method, arguments, _WHERE)


def _method(path: str, arguments: dict[str, Any]) -> str:
    """Return the method that a controller runs, and take it out of the arguments if it is there."""
    if path == METHOD_CONTROLLER:
        return str(arguments.pop("method"))
    methods = {class_path: method for method, class_path in CONTROLLERS.items()}
    return methods[path]
