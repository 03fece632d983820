"""Which file of a run folder is the model that the report describes, and its SHA-256."""

from dataclasses import dataclass

from fedward.digests import file_digest
from fedward.runs.run import Run


@dataclass(frozen=True)
class ModelFile:
    """The model to deploy."""

    name: str
    """Its file, in the folder of the report."""
    sha256: str

    @classmethod
    def of(cls, run: Run) -> "ModelFile | None":
        """Return the file that ``fedward predict`` loads by default.

        None for a run that has not finished, that trained no whole model, or whose file is gone.
        """
        info = run.info
        if info.status != "finished" or info.untrained or info.private:
            return None
        name = "model.safetensors"
        if info.summary.best_round is not None:
            name = "best.safetensors"
        file = run.folder / name
        return cls(name, file_digest(file)) if file.is_file() else None
