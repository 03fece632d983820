"""Results that a repository keeps: one line of JSON for each cell of a study, with the hashes of
its run folders.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.faults import faults
from fedward.lab.bench.study import Cell
from fedward.methods import settings_of


@dataclass(frozen=True)
class Curve:
    """All evaluations but that of round 0, in the order of rounds; means over sites."""

    round: tuple[int, ...]
    val: tuple[float, ...]
    """Validation key metric in [0, 1]."""
    test: Mapping[str, tuple[float, ...]]
    labels: tuple[int, ...]
    """Labels known at all sites while the model of that round was trained; none where no site
    tells.
    """

    @property
    def judged(self) -> tuple[float, ...]:
        """The validation values since labels came last: those that say whether training has
        converged.
        """
        after = (
            len(self.labels) - self.labels.index(self.labels[-1]) if self.labels else len(self.val)
        )
        return self.val[-after:]


@dataclass(frozen=True)
class Record:
    """What a results page says of one cell."""

    variant: str
    row: str
    seed: int
    settings: dict[str, Any]
    """The whole experiment."""
    audit: str
    """Hash of the last line of the run's audit log, which binds all files of the folder; of several
    runs, of theirs.
    """
    model: str
    """SHA-256 of model.safetensors: what the same settings give again on a machine of the same
    kind.
    """
    rounds: int
    trainings: int
    """Rounds of sites: in each of them, one site trained."""
    seconds: float
    """That all trainings took, one after another."""
    megabytes: float
    """To and from all sites."""
    curve: Curve
    test: dict[str, dict[str, float]]
    """Protocol -> metric -> mean over sites of the test value; ``pooled``: accuracy over all test
    images.
    """
    pseudo_labels: dict[str, float]
    """Numbers of :class:`fedward.runs.pseudo_labels.Quality` in the last three rounds of
    training, where defined.
    """
    sites: dict[str, dict[str, float]] = field(default_factory=dict)
    """Site -> metric -> its test value as of ``last``, and ``images``; none in lines that were
    written before.
    """

    @property
    def cell(self) -> Cell:
        """What there is one line for."""
        return Cell(self.variant, self.row, self.seed)

    def is_of(self, experiment: Experiment) -> bool:
        """Return whether the run had these settings; one that is not named counts as its default."""
        try:
            return _whole(Experiment.model_validate(self.settings)) == _whole(experiment)
        except (ValidationError, ConfigError):
            return False


def _whole(experiment: Experiment) -> Experiment:
    """Return an experiment that names all settings of its method."""
    return experiment.model_copy(
        update={
            "options": settings_of(experiment.method, experiment.options).model_dump(mode="json")
        }
    )


_LINES = TypeAdapter(Record)


def read_records(file: Path) -> dict[Cell, Record]:
    """Return the kept results by their cells, none where there is no file; RunError names a broken
    line.
    """
    found = {}
    for number, line in enumerate(
        file.read_text(encoding="utf-8").splitlines() if file.exists() else (), 1
    ):
        try:
            result = _LINES.validate_json(line)
        except ValidationError as error:
            remedy = "Restore the file, or delete it and record the runs again."
            first, *_ = faults(error, line)
            raise RunError(
                f"{file}, line {number}", expected="a result", found=f"{first}", remedy=remedy
            ) from error
        found[result.cell] = result
    return found


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which leaves no file behind."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def add_record(file: Path, result: Record) -> None:
    """Add a result to a file, in place of one of the same cell; lines are sorted by cell. Processes
    take turns.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file.parent):
        merged = read_records(file) | {result.cell: result}
        partial = file.with_suffix(".partial")
        partial.write_text(
            "".join(f"{json.dumps(asdict(merged[cell]))}\n" for cell in sorted(merged)), "utf-8"
        )
        partial.replace(file)
