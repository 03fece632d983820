"""Results that the repository keeps: one line of JSON for each run, with the hashes of its folder."""

import fcntl
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedward.config import Experiment
from fedward.digests import file_digest
from fedward.errors import RunError
from fedward.evaluation import Selection, best_global, best_per_site, last_rounds, mean_over_sites
from fedward.operation.audit_check import verify
from fedward.report.run import Run

METRICS = ("accuracy", "f1_weighted", "f1_macro", "auroc_macro")
PROTOCOLS: Mapping[str, Callable[..., Selection]] = {
    "last": last_rounds,
    "global": best_global,
    "sites": best_per_site,
}
"""Name in the file -> how rounds are chosen."""


@dataclass(frozen=True)
class Recorded:
    """What a results page says of one run."""

    variant: str
    """Which settings; the page's own name for them."""
    row: str
    """Which method."""
    seed: int
    settings: dict[str, Any]
    """The whole experiment."""
    audit: str
    """Hash of the last line of the run's audit log, which binds every file of the folder."""
    model: str
    """SHA-256 of model.safetensors: what the same settings give again on a machine of the same kind."""
    rounds: int
    trainings: int
    """Rounds of sites: in each of them, one site trained."""
    seconds: float
    """That all trainings took, one after another."""
    curve: tuple[float, ...]
    """Validation key metric, mean over sites, by evaluation, without round 0."""
    test: dict[str, dict[str, float]]
    """Protocol -> metric -> mean over sites of the test value; ``pooled``: accuracy over all test images."""

    def is_of(self, experiment: Experiment) -> bool:
        """Return whether the run had these settings; one that did not exist yet counts as its default."""
        try:
            return Experiment.model_validate(self.settings) == experiment
        except ValidationError:
            return False

    @property
    def key(self) -> tuple[str, str, int]:
        """What there is one line for."""
        return self.variant, self.row, self.seed


_LINES = TypeAdapter(Recorded)


def recorded(variant: str, row: str, run: Run) -> Recorded:
    """Return what a finished run folder says; raise RunError where its audit log does not agree with its files."""
    experiment = Experiment.parse(run.info.experiment, str(run.folder))
    curve = mean_over_sites(run.metrics.named(experiment.key_metric), experiment.key_metric)
    seconds = [row.value or 0.0 for row in run.metrics.named("seconds") if row.split == "train"]
    return Recorded(
        variant,
        row,
        experiment.seed,
        experiment.model_dump(mode="json"),
        verify(run.folder).last_hash,
        file_digest(run.folder / "model.safetensors"),
        run.info.summary.rounds or 0,
        len(seconds),
        round(sum(seconds), 1),
        tuple(round(value, 5) for round_, value in curve.items() if round_),
        {name: _values(run, choose) for name, choose in PROTOCOLS.items()},
    )


def _values(run: Run, choose: Callable[..., Selection]) -> dict[str, float]:
    values = {metric: choose(run.metrics.named(metric), metric).test for metric in METRICS}
    values["pooled"] = choose(run.metrics.named("accuracy"), "accuracy").pooled
    return {name: round(value, 5) for name, value in values.items() if value is not None}


def read(file: Path) -> dict[tuple[str, str, int], Recorded]:
    """Return the recorded runs by their keys, none where there is no file; RunError names a broken line."""
    found = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines() if file.exists() else (), 1):
        try:
            result = _LINES.validate_json(line)
        except ValidationError as error:
            remedy = "Restore the file from the repository."
            raise RunError(f"{file}, line {number}", expected="a run", found=str(error), remedy=remedy) from error
        found[result.key] = result
    return found


def add(file: Path, result: Recorded) -> None:
    """Add a result to a file, in place of one with the same key; lines are sorted by key. Processes take turns."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        merged = read(file) | {result.key: result}
        partial = file.with_suffix(".partial")
        partial.write_text("".join(f"{json.dumps(asdict(merged[key]))}\n" for key in sorted(merged)), encoding="utf-8")
        partial.replace(file)


def check(file: Path, folders: Mapping[tuple[str, str, int], Path]) -> list[str]:
    """Compare recorded runs with their folders, where these lie; return the keys of those that were compared.

    Raises RunError: a folder's audit log does not agree with its files, or the record with the folder.
    """
    compared = []
    for key, result in read(file).items():
        folder = folders.get(key)
        if folder is None or not (folder / "run.json").exists():
            continue
        found = recorded(result.variant, result.row, Run.load(folder))
        if found != result:
            wrong = [name for name, value in asdict(result).items() if asdict(found)[name] != value]
            remedy = "Record the run again, and make the tables anew."
            raise RunError(
                f"{file}, {key}", expected=f"what {folder} says", found=f"other {', '.join(wrong)}", remedy=remedy
            )
        compared.append(" ".join(map(str, key)))
    return compared
