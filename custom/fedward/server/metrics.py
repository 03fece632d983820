"""Metrics for Prometheus, as files for node exporter's textfile collector.

Each write replaces a whole file.
"""

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, TypeAlias

from fedward.disk import replace
from fedward.errors import ConfigError

PREFIX = "fedward_"
"""Prefix of every metric's name and of every file's."""

_KEPT = 30 * 24 * 3600.0
"""Seconds after its last change for which a job's file is kept.

A run that died is to be seen, but not for ever.
"""

Values: TypeAlias = dict[tuple[str, ...], float]
"""Values of a metric's labels -> its value."""

_log = logging.getLogger(__name__)


class Family(NamedTuple):
    """All samples of one metric."""

    name: str
    """Name without the prefix. The name of a counter ends in ``_total``."""
    about: str
    """What the metric measures, in a sentence."""
    values: Values
    """Values of the labels -> value."""
    labels: tuple[str, ...] = ()
    """Names of the labels."""


class MetricsFolder:
    """The folder that node exporter reads.

    Every account that may enter the folder can read its files, whatever the umask: the exporter has
    its own account.

    Args:
        path: an existing folder, where node exporter's ``--collector.textfile.directory`` looks.

    Raises:
        ConfigError: no such folder, or the package prometheus-client is missing.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise ConfigError(
                f"the folder of metrics {path} does not exist",
                "Make it, or name another in FEDWARD_METRICS.",
            )
        try:
            import prometheus_client  # noqa: F401 - optional, and better missed now than in a run
        except ModuleNotFoundError as error:
            raise ConfigError(
                "metrics for Prometheus need the package prometheus-client",
                "Install it here: pip install 'fedward[monitoring]'.",
            ) from error
        self.path = path

    def file(self, *names: str) -> Path:
        """Return the path of a file; names may hold any characters."""
        safe_names = [re.sub(r"[^A-Za-z0-9.-]", "_", name) for name in names]
        return self.path / f"{PREFIX}{'_'.join(safe_names)}.prom"

    def write(
        self, file: Path, families: Iterable[Family], labels: Mapping[str, str] | None = None
    ) -> None:
        """Replace a file; a reader sees the old one or the new one.

        A file that cannot be written is logged as a warning: no run may end because of it.

        Args:
            file: of :meth:`file`.
            families: the metrics.
            labels: further labels of every sample.
        """
        try:
            self._write(file, text(families, labels or {}))
        except Exception:
            _log.warning("metrics %s are not written", file, exc_info=True)

    def drop_old_jobs(self) -> None:
        """Remove the files of jobs that have written nothing for 30 days.

        What cannot be removed stays: no run may end because of it.
        """
        for file in self.path.glob(f"{PREFIX}job_*.prom"):
            # Another job may have removed the file by now, and others may own it.
            with suppress(OSError):
                if file.lstat().st_mtime < time.time() - _KEPT:
                    file.unlink()

    def _write(self, file: Path, content: bytes) -> None:
        # A name that nobody can guess: others may be allowed to put links into the folder.
        with NamedTemporaryFile(dir=self.path, prefix=".fedward-", delete=False) as partial:
            try:
                partial.write(content)
                os.fchmod(partial.fileno(), 0o644)
                partial.flush()
                replace(Path(partial.name), file)
            except BaseException:
                Path(partial.name).unlink(missing_ok=True)
                raise


def text(families: Iterable[Family], labels: Mapping[str, str]) -> bytes:
    """Return families in the format of Prometheus, each sample with further ``labels``."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collected(families, labels))
    return generate_latest(registry)


class _Collected:
    """Hands families of samples to prometheus_client."""

    def __init__(self, families: Iterable[Family], labels: Mapping[str, str]) -> None:
        self._families = list(families)
        self._labels = labels

    def collect(self) -> Iterator[Any]:
        """Yield one family of samples for each name."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for family in self._families:
            kind = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
            label_names = [*self._labels, *family.labels]
            samples = kind(PREFIX + family.name, family.about, labels=label_names)
            for label_values, value in family.values.items():
                samples.add_metric([*self._labels.values(), *label_values], value)
            yield samples
