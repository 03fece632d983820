"""Metrics for Prometheus: files for node exporter's textfile collector, each written anew as a
whole.
"""

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, TypeAlias

from fedward.errors import ConfigError
from fedward.storage.disk import replace

PREFIX = "fedward_"
"""Of every metric's name and of every file."""

_KEPT = 30 * 24 * 3600.0
"""Seconds after its last change for which a job's file is kept: a run that died is to be seen, but
not for ever.
"""

Values: TypeAlias = dict[tuple[str, ...], float]

_log = logging.getLogger(__name__)


class Family(NamedTuple):
    """All samples of one metric."""

    name: str
    """Without the prefix. The name of a counter ends in ``_total``."""
    about: str
    values: Values
    """Values of the labels -> value."""
    labels: tuple[str, ...] = ()


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
            remedy = "Make it, or name another in FEDWARD_METRICS."
            raise ConfigError(
                "folder of metrics", expected="an existing folder", found=str(path), remedy=remedy
            )
        try:
            import prometheus_client  # noqa: F401 - it is optional, and missing is better said now
        except ModuleNotFoundError as error:
            where = "metrics for Prometheus"
            remedy = "Install it here: pip install 'fedward[monitoring]'."
            raise ConfigError(
                where, expected="the package prometheus-client", found="none", remedy=remedy
            ) from error
        self.path = path

    def file(self, *names: str) -> Path:
        """Return the path of a file; names may hold any characters."""
        return (
            self.path
            / f"{PREFIX}{'_'.join(re.sub(r'[^A-Za-z0-9.-]', '_', name) for name in names)}.prom"
        )

    def write(
        self, file: Path, families: Iterable[Family], labels: Mapping[str, str] | None = None
    ) -> None:
        """Write a file anew, with further ``labels`` on each sample; a reader sees the old one or
        the new one.

        A file that cannot be written is logged as a warning: nothing that is watched may end
        because of it.
        """
        try:
            self._write(file, text(families, labels or {}))
        except Exception:
            _log.warning("metrics %s are not written", file, exc_info=True)

    def drop_old_jobs(self) -> None:
        """Remove the files of jobs that have written nothing for 30 days."""
        for file in self.path.glob(f"{PREFIX}job_*.prom"):
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
    def __init__(self, families: Iterable[Family], labels: Mapping[str, str]) -> None:
        self._families = list(families)
        self._labels = labels

    def collect(self) -> Iterator[Any]:
        """Yield one family of samples a name."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for family in self._families:
            kind = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
            found = kind(PREFIX + family.name, family.about, labels=[*self._labels, *family.labels])
            for label, value in family.values.items():
                found.add_metric([*self._labels.values(), *label], value)
            yield found
