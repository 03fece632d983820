"""The configuration of a job for the server and for sites.

Light to import: the parent process of each participant compares every job's configuration with these.
"""

from typing import Any

from fedward.federation.flare.classes import CONTROLLER, EXECUTOR, TENSORBOARD, TO_SERVER
from fedward.federation.flare.shareables import TASK

SERVER, CLIENT = "config_fed_server.json", "config_fed_client.json"
"""The files' names, in an app's folder ``config``."""

WEIGHTS = ("model.safetensors", "model.json")
"""What lies beside the server's file where a job starts from a finished run."""

_GONE, _LEAD = 30.0, 5.0
"""Seconds after the server misses a site's heartbeats until its tasks end, and that each later one waits for it."""


def server_config(args: dict[str, Any], interval: float) -> dict[str, Any]:
    """Return the server's file; ``args`` are the controller's, ``interval`` the seconds that idle sites wait."""
    return {
        "format_version": 2,
        "server": {"task_request_interval": interval},
        "dead_client_grace_period": _GONE,
        "dead_client_check_lead_time": _LEAD,
        "workflows": [{"id": "controller", "path": CONTROLLER, "args": args}],
        "components": [
            {
                "id": "tensorboard",
                "path": TENSORBOARD,
                "args": {"tb_folder": "tb_events", "events": ["fed.analytix_log_stats"]},
            }
        ],
    }


def client_config(args: dict[str, Any], interval: float) -> dict[str, Any]:
    """Return a site's file; ``args`` are the executor's, ``interval`` the seconds between two questions for work."""
    return {
        "format_version": 2,
        "default_task_fetch_interval": interval,
        "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": args}}],
        "components": [{"id": "to_server", "path": TO_SERVER, "args": {"events_to_convert": ["analytix_log_stats"]}}],
    }
