"""Jobs as FLARE reads them: written from the experiments, never edited by hand."""

import json
from pathlib import Path
from typing import Any

from fedward.config import Experiment
from fedward.federation.flare.shareables import TASK
from fedward.jobs import JOBS, simulated_sites

POLLING, CLINICAL_POLLING = 0.1, 1.0
"""Seconds between two questions of an idle site for work; hospitals' rounds take minutes."""

_GONE, _LEAD = 30.0, 5.0
"""Seconds after the server misses a site's heartbeats until its tasks end, and that each later one waits for it."""

_NO_TASK = 30.0
"""Seconds after which a site asks again, if its question for work was lost with the server's process; FLARE: 300."""

_MARKER_IN_JOB = "app/custom/README.txt"
MARKER = Path(__file__).with_name("custom") / "README.txt"
"""One file of "own code": without it FLARE's class allow list refuses the installed package."""


def job_files(experiment: Experiment, name: str, clinical: bool = False) -> dict[str, str]:
    """Return a job as {path inside the job folder: text}; equal arguments give equal bytes.

    The research flavour names its sites: only then does the simulator start that many without being told. The clinical
    flavour goes to every connected site, carries no code and no stand-in data, and asks for the privacy scope
    ``clinical``.
    """
    if clinical:
        experiment = experiment.model_copy(update={"stand_in": None})
    args = {"experiment": experiment.model_dump(mode="json")}
    interval = CLINICAL_POLLING if clinical else POLLING
    files = {
        "meta.json": _meta(experiment, name, clinical),
        "app/config/config_fed_server.json": _server(args, interval),
        "app/config/config_fed_client.json": _client(args, interval),
    }
    texts = {path: json.dumps(content, indent=2) + "\n" for path, content in files.items()}
    return texts if clinical else {**texts, _MARKER_IN_JOB: MARKER.read_text(encoding="utf-8")}


def export_job(experiment: Experiment, out: Path, clinical: bool = False) -> None:
    """Write an experiment as a job folder; the folder's name is the job's."""
    for path, text in job_files(experiment, out.name, clinical).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")
    if clinical:
        (out / _MARKER_IN_JOB).unlink(missing_ok=True)


def stale_jobs(folder: Path) -> list[str]:
    """Return the names of shipped jobs that ``folder`` lacks or has otherwise, and of jobs that are not shipped."""
    exported = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    fresh = {name for name, experiment in JOBS.items() if _read(folder / name) == job_files(experiment, name)}
    return sorted((exported | set(JOBS)) - fresh)


def _read(job: Path) -> dict[str, str]:
    return {
        path.relative_to(job).as_posix(): path.read_text(encoding="utf-8")
        for path in job.rglob("*")
        if path.is_file() and not path.name.startswith(".__nvfl")  # left behind where FLARE signed a submitted job
    }


def _meta(experiment: Experiment, name: str, clinical: bool) -> dict[str, Any]:
    return {
        "name": name,
        "min_clients": experiment.minimum_replies,
        "mandatory_clients": [],
        "resource_spec": {},
        "deploy_map": {"app": ["@ALL"] if clinical else ["server", *simulated_sites(experiment)]},
        **({"scope": "clinical"} if clinical else {}),
    }


def _server(args: dict[str, Any], interval: float) -> dict[str, Any]:
    return {
        "format_version": 2,
        "server": {"task_request_interval": interval},
        "dead_client_grace_period": _GONE,
        "dead_client_check_lead_time": _LEAD,
        "workflows": [
            {"id": "controller", "path": "fedward.federation.flare.controller.FedwardController", "args": args}
        ],
        "components": [
            {
                "id": "tensorboard",
                "path": "nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver",
                "args": {"tb_folder": "tb_events", "events": ["fed.analytix_log_stats"]},
            }
        ],
    }


def _client(args: dict[str, Any], interval: float) -> dict[str, Any]:
    return {
        "format_version": 2,
        "default_task_fetch_interval": interval,
        "get_task_timeout": _NO_TASK,
        "executors": [
            {
                "tasks": [TASK],
                "executor": {"path": "fedward.federation.flare.executor.FedwardExecutor", "args": args},
            }
        ],
        "components": [
            {
                "id": "to_server",
                "path": "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent",
                "args": {"events_to_convert": ["analytix_log_stats"]},
            }
        ],
    }
