"""A run's progress for Prometheus: a file for node exporter's textfile collector, written anew after each commit."""

import logging
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fedward.errors import ConfigError
from fedward.federation.progress import progress

_STATUSES = ("running", "finished", "failed")
_Values: TypeAlias = dict[tuple[str, ...], float]

_log = logging.getLogger(__name__)


class MetricsFile:
    """Writes ``<folder>/fedward_<job>.prom``; called with a run folder, see ``watch`` of the driver.

    A file that cannot be written is logged as a warning, and the run goes on.

    Args:
        folder: an existing folder, where node exporter's ``--collector.textfile.directory`` looks.
        job: name of the job, the label ``job_name`` of every sample. Jobs of one name share one file.

    Raises:
        ConfigError: no such folder, or the package prometheus-client is missing.
    """

    def __init__(self, folder: Path, job: str) -> None:
        if not folder.is_dir():
            remedy = "Make it, or name another in FEDWARD_METRICS."
            raise ConfigError("folder of metrics", expected="an existing folder", found=str(folder), remedy=remedy)
        try:
            from prometheus_client import CollectorRegistry, write_to_textfile
        except ModuleNotFoundError as error:
            raise ConfigError(
                "metrics for Prometheus",
                expected="the package prometheus-client",
                found="none",
                remedy="Install it at the server: pip install 'fedward[monitoring]'.",
            ) from error
        self.job, self.path = job, folder / f"fedward_{re.sub(r'[^A-Za-z0-9._-]', '_', job)}.prom"
        self._registry, self._write = CollectorRegistry, write_to_textfile

    def __call__(self, run_folder: Path) -> None:
        """Write the file anew; a reader sees the old one or the new one."""
        try:
            registry = self._registry()
            registry.register(_Samples(self.job, progress(run_folder)))
            self._write(str(self.path), registry)
        except Exception:  # whatever it is, it must not end the run that is watched
            _log.warning("metrics %s are not written", self.path, exc_info=True)


class _Samples:
    """What the registry collects: one run's progress; what is not known yet is left out."""

    def __init__(self, job: str, state: Mapping[str, Any]) -> None:
        self._job, self._state = job, state

    def collect(self) -> Iterator[Any]:
        """Yield one family of samples a name."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for gauge in _gauges(self._state):
            family = GaugeMetricFamily(f"fedward_{gauge.name}", gauge.about, labels=["job_name", *gauge.labels])
            for label, value in gauge.values.items():
                family.add_metric([self._job, *label], value)
            yield family
        for way in ("down", "up"):
            name, about = f"fedward_bytes_{way}", f"Bytes of models sent {way}, to or from all sites."
            counter = CounterMetricFamily(name, about, labels=["job_name"])
            counter.add_metric([self._job], self._state[f"bytes_{way}"])
            yield counter


class _Gauge(NamedTuple):
    name: str
    about: str
    values: _Values
    """Values of the labels -> value."""
    labels: tuple[str, ...] = ()


def _gauges(state: Mapping[str, Any]) -> Iterator[_Gauge]:
    yield _Gauge("round", "Rounds committed.", {(): state["round"]})
    yield _Gauge("rounds_planned", "Rounds the run is to have.", {(): state["rounds"]})
    statuses: _Values = {(name,): float(name == state["status"]) for name in _STATUSES}
    yield _Gauge("status", "1 for the status the run has.", statuses, ("status",))
    if exchange := state["exchange"]:
        counts: _Values = {(name,): float(len(exchange[name])) for name in ("asked", "replied", "failed")}
        yield _Gauge("sites", "Sites in the last exchange.", counts, ("outcome",))
        yield _Gauge("exchange_seconds", "Seconds of the last exchange.", {(): exchange["seconds"]})
    values: _Values = {(name, state["metric"]): state[name]["value"] for name in ("best", "last") if state[name]}
    if values:
        yield _Gauge("validation", "Key metric, mean over sites on validation images.", values, ("model", "metric"))
    if state["committed"]:
        seconds = datetime.fromisoformat(state["committed"]).timestamp()
        yield _Gauge("last_commit_timestamp_seconds", "When a round was last committed.", {(): seconds})
