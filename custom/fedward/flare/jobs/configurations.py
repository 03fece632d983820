"""The configuration of a job for the server and for sites, and the experiment that stands in it.

An experiment stands in a job once: as the arguments of the controller, in the server's file. Sites
have that file too, and their executor reads it. Light to import: the parent process of each
participant compares every job's configuration with these.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedward.errors import ConfigError
from fedward.flare.classes import (
    AVERAGING,
    CONTROLLERS,
    EXECUTOR,
    FOREIGN,
    MLFLOW,
    SYNTHETIC_SITES,
    TENSORBOARD,
    TO_SERVER,
    WANDB,
)
from fedward.flare.shareables import TASK
from fedward.tracking import FOLDER

if TYPE_CHECKING:
    from fedward.config import Experiment

SERVER = "config_fed_server.json"
CLIENT = "config_fed_client.json"
"""The files' names, in an app's folder ``config``."""

WEIGHTS = ("model.safetensors", "model.json")
"""What lies beside the server's file where a job starts from a finished run."""

Tracking = Literal["tensorboard", "mlflow", "wandb"]

SYNTHETIC = "synthetic_sites"
"""Id of the component that makes the images of participants without files, in simulations."""
_SYNTHETIC_COMPONENT: dict[str, Any] = {"id": SYNTHETIC, "path": SYNTHETIC_SITES, "args": {}}

_WHERE = f"file {SERVER} of the job"
_EVENT = "analytix_log_stats"
"""FLARE's event of a scalar, under which sites send theirs."""
METRICS_AT_SERVER = f"fed.{_EVENT}"
"""The same event at the server, where the sites' scalars arrive."""
_GONE = 30.0
_LEAD = 5.0
"""Seconds after the server misses a site's heartbeats until its tasks end, and that each later one
waits for it.
"""


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
        path: class path of the controller.
        args: its arguments.
        interval: seconds between two questions of an idle site for work.
        tracking: receives the sites' scalars; see :func:`receiver`. The default is TensorBoard.
        synthetic: whether a server without files works on synthetic images, as in simulations.
    """
    components = [tracking or receiver("tensorboard")]
    if synthetic:
        components.append(_SYNTHETIC_COMPONENT)
    return {
        "format_version": 2,
        "server": {"task_request_interval": interval},
        "dead_client_grace_period": _GONE,
        "dead_client_check_lead_time": _LEAD,
        "workflows": [{"id": "controller", "path": path, "args": args}],
        "components": components,
    }


def client_config(interval: float, *, synthetic: bool = False) -> dict[str, Any]:
    """Return a site's file; ``interval`` are the seconds between two questions for work.

    With ``synthetic`` a site without files works on synthetic images, as in simulations.
    """
    components: list[dict[str, Any]] = [
        {"id": "to_server", "path": TO_SERVER, "args": {"events_to_convert": [_EVENT]}}
    ]
    if synthetic:
        components.append(_SYNTHETIC_COMPONENT)
    return {
        "format_version": 2,
        "default_task_fetch_interval": interval,
        "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}],
        "components": components,
    }


def receiver(tracking: Tracking, job: str = "") -> dict[str, Any]:
    """Return the server's component that receives the sites' scalars; each is FLARE's own.

    MLflow writes a database into the job's results, Weights & Biases offline files: none sends
    anything anywhere.
    """
    wandb = {"project": "fedward", "group": job, "name": job, "job_type": "federation"}
    receivers: dict[Tracking, tuple[str, dict[str, Any]]] = {
        "tensorboard": (TENSORBOARD, {"tb_folder": FOLDER}),
        "mlflow": (MLFLOW, {"kw_args": {"experiment_name": "fedward", "run_name": job}}),
        "wandb": (WANDB, {"wandb_args": wandb}),
    }
    path, args = receivers[tracking]
    return {"id": tracking, "path": path, "args": {**args, "events": [METRICS_AT_SERVER]}}


def controller(experiment: "Experiment") -> tuple[str, dict[str, Any]]:
    """Return (path, arguments) of the controller that runs an experiment.

    All settings of the method are written out, also those that have their defaults: what a job does
    can be read in it, and no other version's defaults change it.
    """
    from fedward.methods import METHODS, settings_of

    method = experiment.method
    settings = settings_of(method, experiment.options).model_dump(mode="json")
    shared = experiment.model_dump(mode="json", exclude={"method", "options"})
    taken = ", ".join({"method", "experiment", "init"} & set(settings))
    if taken:
        where = f"settings of {method}"
        remedy = "Give the setting another name."
        raise ConfigError(
            where, expected="no name of a controller's own", found=taken, remedy=remedy
        )
    if method in CONTROLLERS:
        return CONTROLLERS[method], {**settings, "experiment": shared}
    path = AVERAGING if method in METHODS.builtin else FOREIGN
    return path, {"method": method, **settings, "experiment": shared}


def described(method: str, arguments: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the experiment that a controller's arguments describe, unchecked; the inverse of
    :func:`controller`.

    The argument ``init`` is left out. Raises ConfigError, which names ``where``: ``experiment`` is
    no mapping, or says what the other arguments say.
    """
    shared = arguments.get("experiment", {})
    if not isinstance(shared, Mapping) or {"method", "options"} & set(shared):
        expected = "an argument experiment that is a mapping, without method and options"
        remedy = "The controller's class says the method, its other arguments are the options."
        raise ConfigError(where, expected=expected, found=f"{shared!r:.80}", remedy=remedy)
    settings = {
        name: value for name, value in arguments.items() if name not in ("experiment", "init")
    }
    return {**shared, "method": method, "options": settings}


def experiment_in(config: Path) -> "Experiment":
    """Return the experiment of a job's app, from its folder ``config``; ConfigError: it is missing
    or wrong.
    """
    from fedward.config import Experiment

    return Experiment.parse(described_in(config), _WHERE)


def described_in(config: Path) -> dict[str, Any]:
    """Return the same as plain JSON values, unchecked: to check it, the packages that it names are
    imported.
    """
    try:
        (workflow,) = json.loads((config / SERVER).read_text(encoding="utf-8"))["workflows"]
        path = str(workflow["path"])
        arguments = dict(workflow["args"])
        named = {path: method for method, path in CONTROLLERS.items()}
        method = str(arguments.pop("method") if path in (AVERAGING, FOREIGN) else named[path])
    except (OSError, KeyError, TypeError, ValueError) as error:
        expected = "one controller of fedward, with its arguments"
        found = f"{type(error).__name__}: {error}"
        remedy = "Export the job with `fedward jobs`, and send it as it is."
        raise ConfigError(_WHERE, expected=expected, found=found, remedy=remedy) from error
    return described(method, arguments, _WHERE)
