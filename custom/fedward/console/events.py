"""A run's events for other programs: ``fedward run --json`` and ``--quiet``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.console.listener import Listener, Start
from fedward.runs.outcome import ending, outcome
from fedward.storage.info import Summary
from fedward.storage.rows import RoundRow
from fedward.terminal import Printer


class Events(Listener):
    """Prints one JSON object a line for each event.

    Keys are never renamed or removed; docs/running.md lists them.
    """

    def __init__(self) -> None:
        self._line = Printer().line
        self._validation: Mapping[str, float] = {}
        """Values since the last round."""

    def _event(self, event: str, details: Mapping[str, Any]) -> None:
        self._line(json.dumps({"event": event, **details}))

    def header(self, start: Start) -> None:
        """Print ``started``."""
        experiment = start.experiment
        details = {
            "job": start.job,
            "method": experiment.method,
            "data": experiment.data.name,
            "synthetic": start.synthetic,
            "image_size": experiment.data.image_size,
            "net": experiment.net,
            "seed": experiment.seed,
            "key_metric": experiment.key_metric,
            "sites": list(start.sites),
            "rounds": start.rounds,
            "resumed_after": start.resumed_after,
            "init": start.weights.folder if start.weights else None,
        }
        self._event("started", details)

    def evaluated(self, round_: int, values: Mapping[str, float]) -> None:
        """Print ``evaluated``."""
        self._validation = values
        self._event("evaluated", {"round": round_, "validation": dict(values)})

    def round(self, row: RoundRow, kept: float | None = None) -> None:
        """Print ``round``."""
        details = {
            "round": row.round,
            "part": row.part,
            "seconds": row.seconds,
            "asked": row.asked,
            "replied": row.replied,
            "failed": dict(row.failed),
            "validation": dict(self._validation),
            "pseudo_labels_kept": kept,
            "bytes_down": row.bytes_down,
            "bytes_up": row.bytes_up,
        }
        self._validation = {}
        self._event("round", details)

    def waiting(self, sites: Mapping[str, str]) -> None:
        """Print ``waiting``."""
        self._event("waiting", {"sites": dict(sites)})

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """Print ``finished`` or ``failed``."""
        test = outcome(folder, summary)
        report = folder / "report.html"
        details = {
            "rounds": summary.rounds,
            "best_round": summary.best_round,
            "best_validation": summary.best_value,
            "test": test and test._asdict(),
            "reason": summary.reason,
            "not_evaluated": dict(summary.not_evaluated),
            "folder": str(folder.resolve()),
            "report": str(report.resolve()) if report.exists() else None,
        }
        self._event("finished" if summary.reason is None else "failed", details)


class ClosingLine(Listener):
    """Prints one line when a run has finished; the command prints the error of a failed one."""

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """Print the line."""
        if summary.reason is not None:
            return
        line = ending(folder, summary, untrained)
        test = outcome(folder, summary)
        if test is not None:
            line += f", test {test.metric} {test.value:.3f} on {test.tested}"
        Printer().line(f"{line}: {folder}")
