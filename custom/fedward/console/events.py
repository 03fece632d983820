"""What other programs are told of a run: ``fedward run --json`` and ``--quiet``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.console.listener import Listener, Start
from fedward.runs.outcome import outcome
from fedward.storage.info import Summary
from fedward.storage.rows import RoundRow
from fedward.terminal import Printer
from fedward.text import count


class Events(Listener):
    """Prints one JSON object a line for each event. Keys are never renamed or left out;
    docs/running.md lists them.
    """

    def __init__(self) -> None:
        self._line = Printer().line

    def _event(self, event: str, **details: Any) -> None:
        self._line(json.dumps({"event": event, **details}))

    def header(self, start: Start) -> None:
        """Print ``started``."""
        experiment = start.experiment
        data = {
            "data": experiment.data.name,
            "image_size": experiment.data.image_size,
            "net": experiment.net,
        }
        about = {
            "method": experiment.method,
            **data,
            "seed": experiment.seed,
            "key_metric": experiment.key_metric,
        }
        whence = {
            "resumed_after": start.resumed_after,
            "init": start.taken[0] if start.taken else None,
        }
        self._event("started", **about, sites=list(start.sites), rounds=start.rounds, **whence)

    def round(self, row: RoundRow, values: Mapping[str, float], kept: float | None = None) -> None:
        """Print ``round``."""
        said = {"round": row.round, "part": row.part, "seconds": row.seconds, "asked": row.asked}
        said |= {"replied": row.replied, "failed": dict(row.failed)}
        bytes_ = {"bytes_down": row.bytes_down, "bytes_up": row.bytes_up}
        self._event("round", **said, validation=dict(values), pseudo_labels_kept=kept, **bytes_)

    def waiting(self, sites: Mapping[str, str]) -> None:
        """Print ``waiting``."""
        self._event("waiting", sites=dict(sites))

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """Print ``finished`` or ``failed``."""
        test = outcome(folder, summary)
        report = folder / "report.html"
        best = {"best_round": summary.best_round, "best_validation": summary.best_value}
        kind = "finished" if summary.reason is None else "failed"
        files = {
            "folder": str(folder.resolve()),
            "report": str(report.resolve()) if report.exists() else None,
        }
        how = {
            "rounds": summary.rounds,
            **best,
            "test": test and test._asdict(),
            "reason": summary.reason,
        }
        self._event(kind, **how, not_evaluated=dict(summary.not_evaluated), **files)


class ClosingLine(Listener):
    """Prints one line when a run has finished. Of one that failed, the command tells the error."""

    def closing(self, folder: Path, summary: Summary, untrained: Sequence[str] = ()) -> None:
        """Print it."""
        if summary.reason is not None:
            return
        test = outcome(folder, summary)
        reached = (
            f", test {test.metric} {test.value:.3f} on {count(test.images, test.unit)}"
            if test
            else ""
        )
        Printer().line(f"finished after {count(summary.rounds or 0, 'round')}{reached}: {folder}")
