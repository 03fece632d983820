"""Which jobs of a run its supervisor has stopped, and why: a file beside the results, which
outlives the supervisor.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from fedward.flare.kits.kit import read_json, reading
from fedward.storage.disk import make_folder, replacing


@dataclass
class Record:
    """The jobs of one run that were stopped from here.

    Args:
        file: where they are kept; written at each change.
        stopped: job -> why.
    """

    file: Path
    stopped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, out: Path, run: str) -> "Record":
        """Return the record of a run whose results go to ``out``; ConfigError: its file cannot be
        read.
        """
        file = out / f"{run}.stopped.json"
        if not file.exists():
            return cls(file)
        with reading(str(file), "jobs, and why each was stopped", "Restore it, or remove it."):
            return cls(file, {str(job): str(why) for job, why in read_json(file).items()})

    def stopping(self, job: str, why: str | None) -> None:
        """Note why a job is about to be stopped from here; None: it was not stopped after all."""
        if why is None:
            self.stopped.pop(job, None)
        else:
            self.stopped[job] = why
        make_folder(self.file.parent)
        with replacing(self.file) as new:
            new.write_text(json.dumps(self.stopped, indent=1) + "\n", encoding="utf-8")
