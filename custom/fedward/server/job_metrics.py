"""How far a job is, for Prometheus."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from fedward.server.metrics import Family, MetricsFolder, Values
from fedward.server.run_status import progress

_STATUSES = ("running", "finished", "failed", "stopped")


class JobMetrics:
    """Writes ``fedward_job_<job>_<id>.prom`` whenever it is called with a run folder.

    Args:
        folder: where node exporter looks.
        job: label ``job_name`` of every sample.
        job_id: label ``job_id`` of every sample.

    Raises:
        ConfigError: as :class:`~fedward.server.metrics.MetricsFolder`.
    """

    def __init__(self, folder: Path, job: str, job_id: str) -> None:
        self._folder = MetricsFolder(folder)
        self._folder.drop_old_jobs()
        self._labels = {"job_name": job, "job_id": job_id}
        self.path = self._folder.file("job", job, job_id)

    def __call__(self, run_folder: Path) -> None:
        """Write the file again."""
        self._folder.write(self.path, families(run_folder), self._labels)


def families(run_folder: Path) -> Iterator[Family]:
    """Yield what is known of a run that this process writes; unknown numbers are left out."""
    state = progress(run_folder, is_own=True)
    yield Family("round", "Rounds committed.", {(): state["round"]})
    yield Family("rounds_planned", "Rounds the run is to have.", {(): state["rounds"]})
    statuses: Values = {(name,): float(name == state["status"]) for name in _STATUSES}
    yield Family("status", "1 for the status the run has.", statuses, ("status",))
    if state["exchange"]:
        yield from _of_exchange(state["exchange"])
    values: Values = {}
    for model in ("best", "last"):
        if state[model]:
            values[model, state["metric"]] = state[model]["value"]
    if values:
        about = "Key metric, mean over sites on validation images."
        yield Family("validation", about, values, ("model", "metric"))
    if state["committed"]:
        seconds = datetime.fromisoformat(state["committed"]).timestamp()
        about = "When a round was last committed."
        yield Family("last_commit_timestamp_seconds", about, {(): seconds})
    for direction in ("down", "up"):
        about = f"Bytes of models sent {direction}, to or from all sites."
        yield Family(f"bytes_{direction}_total", about, {(): state[f"bytes_{direction}"]})


def _of_exchange(exchange: Mapping[str, Any]) -> Iterator[Family]:
    """Yield what is known of the last exchange."""
    outcomes = ("asked", "replied", "failed")
    counts: Values = {(outcome,): float(len(exchange[outcome])) for outcome in outcomes}
    yield Family("sites", "Sites in the last exchange.", counts, ("outcome",))
    replied: Values = {(site,): float(site in exchange["replied"]) for site in exchange["asked"]}
    about = "1 if a site that was last asked has replied."
    yield Family("site_replied", about, replied, ("site",))
    yield Family("exchange_seconds", "Seconds of the last exchange.", {(): exchange["seconds"]})
