"""The jobs of a run that its supervisor has stopped, and why.

They are kept in a file beside the results, which outlives the supervisor: FLARE only says of such a
job that somebody has stopped it.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from fedward.disk import make_folder, replacing
from fedward.flare.kits.reading import read_json, reading


@dataclass
class StoppedJobs:
    """The jobs of one run that were stopped from here.

    Args:
        file: where they are kept; written at each change.
        reasons: job id -> why it was stopped.
    """

    file: Path
    reasons: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, out: Path, run: str) -> "StoppedJobs":
        """Return the stopped jobs of a run whose results go to ``out``.

        Raises:
            ConfigError: their file cannot be read.
        """
        file = out / f"{run}.stopped.json"
        if not file.exists():
            return cls(file)
        with reading(str(file), "jobs, and why each was stopped", "Restore it, or remove it."):
            reasons = {str(job): str(reason) for job, reason in read_json(file).items()}
            return cls(file, reasons)

    def add(self, job: str, reason: str) -> None:
        """Note why a job is about to be stopped."""
        self.reasons[job] = reason
        self._write()

    def remove(self, job: str) -> None:
        """Note that a job was not stopped after all."""
        self.reasons.pop(job, None)
        self._write()

    def _write(self) -> None:
        make_folder(self.file.parent)
        with replacing(self.file) as new:
            new.write_text(json.dumps(self.reasons, indent=1) + "\n", encoding="utf-8")
