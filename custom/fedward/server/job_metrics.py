"""How far a job is, for Prometheus."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fedward.server.metrics import Family, MetricsFolder, Values
from fedward.server.progress import progress

_STATUSES = ("running", "finished", "failed")


class JobMetrics:
    """Writes ``fedward_job_<job>_<id>.prom`` whenever it is called with a run folder; raises as
    MetricsFolder does.

    ``job`` and ``job_id`` are the labels ``job_name`` and ``job_id`` of every sample.
    """

    def __init__(self, folder: Path, job: str, job_id: str) -> None:
        self._folder = MetricsFolder(folder)
        self._folder.drop_old_jobs()
        self._labels = {"job_name": job, "job_id": job_id}
        self.path = self._folder.file("job", job, job_id)

    def __call__(self, run_folder: Path) -> None:
        """Write the file anew."""
        self._folder.write(self.path, families(run_folder), self._labels)


def families(run_folder: Path) -> Iterator[Family]:
    """Yield what is known of a run; what is not known yet is left out."""
    state = progress(run_folder)
    yield Family("round", "Rounds committed.", {(): state["round"]})
    yield Family("rounds_planned", "Rounds the run is to have.", {(): state["rounds"]})
    statuses: Values = {(name,): float(name == state["status"]) for name in _STATUSES}
    yield Family("status", "1 for the status the run has.", statuses, ("status",))
    exchange = state["exchange"]
    if exchange:
        counts: Values = {
            (name,): float(len(exchange[name])) for name in ("asked", "replied", "failed")
        }
        yield Family("sites", "Sites in the last exchange.", counts, ("outcome",))
        replied: Values = {
            (site,): float(site in exchange["replied"]) for site in exchange["asked"]
        }
        yield Family(
            "site_replied", "1 if a site that was last asked has replied.", replied, ("site",)
        )
        yield Family("exchange_seconds", "Seconds of the last exchange.", {(): exchange["seconds"]})
    values: Values = {
        (name, state["metric"]): state[name]["value"] for name in ("best", "last") if state[name]
    }
    if values:
        yield Family(
            "validation",
            "Key metric, mean over sites on validation images.",
            values,
            ("model", "metric"),
        )
    if state["committed"]:
        seconds = datetime.fromisoformat(state["committed"]).timestamp()
        yield Family(
            "last_commit_timestamp_seconds", "When a round was last committed.", {(): seconds}
        )
    for way in ("down", "up"):
        about = f"Bytes of models sent {way}, to or from all sites."
        yield Family(f"bytes_{way}_total", about, {(): state[f"bytes_{way}"]})
