"""Results that a repository keeps: one line of JSON for each cell of a study.

A line has the hashes of the run folders that it was read from.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from fedward import private
from fedward.config import Experiment
from fedward.disk import replacing
from fedward.errors import ConfigError, RunError, reason_of
from fedward.evaluation.selection import mean
from fedward.faults import faults
from fedward.lab.bench.reference import Reference
from fedward.lab.bench.study_parts import METRICS, Cell
from fedward.methods import settings_of

DIGITS = 5
"""Decimal places of kept values."""
_CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Lines with a field that fedward does not know are refused, as the field would get lost."""
Repetition: TypeAlias = Literal["data and weights", "weights"]
"""What differs between the seeds of a row."""


@dataclass(frozen=True)
class ImageDigests:
    """Which images a repetition used, as digests; equal ones are of equal images."""

    __pydantic_config__ = _CLOSED

    test: str
    """Of the test images of all sites."""
    labels: str
    """Of the labelled training images of each site."""


@dataclass(frozen=True)
class Drawn:
    """Which images a repetition used, and whether others of its row used the same."""

    cut: ImageDigests
    repetition: Repetition
    """What differs between its seed and those of the others."""


@dataclass(frozen=True)
class Curve:
    """All evaluations except that of round 0, ordered by round, as means over sites.

    A reference has no rounds. It has a single value, ``val`` of a round 1, or none at all.
    """

    __pydantic_config__ = _CLOSED

    round: tuple[int, ...]
    val: tuple[float, ...]
    """Key metric on validation images, in [0, 1]."""
    test: Mapping[str, tuple[float, ...]]
    """Metric -> its values on test images."""
    labels: tuple[int, ...]
    """Labels known at all sites together while each model was trained; empty if no site counts."""

    @property
    def val_since_labels(self) -> tuple[float, ...]:
        """The validation values since labels last came, or all of them."""
        if not self.labels:
            return self.val
        fewer = [place for place, known in enumerate(self.labels) if known != self.labels[-1]]
        return self.val[max(fewer, default=-1) + 1 :]


@dataclass(frozen=True)
class Record:
    """What a results page shows of one cell, or of a reference in one repetition."""

    __pydantic_config__ = _CLOSED

    variant: str
    row: str
    seed: int
    settings: dict[str, Any]
    """The whole experiment; of a reference, those of its fields on which it depends, and the
    ``partition`` and the folder ``sites`` of its images.
    """
    audit: str
    """Hash of the last line of the run's audit log, which binds all files of the run folder.

    Of several runs, the hash of their hashes; so is ``model``. Both are empty for a reference.
    """
    model: str
    """SHA-256 of model.safetensors, which the same settings give on a machine of the same kind."""
    rounds: int
    """Rounds of the run, the most of several runs; 1 for a reference."""
    trainings: int
    """Trainings of a site, summed over rounds and sites."""
    seconds: float
    """Sum of the times of all trainings."""
    megabytes: float
    """Traffic to and from all sites."""
    curve: Curve
    test: dict[str, dict[str, float]]
    """Protocol -> metric -> test value, as a mean over sites; ``pooled`` is the accuracy over all
    test images.

    ``global`` has the values in the round of the best ``metric`` on validation images. Sites that
    are alone choose each its own round. ``last`` has those of the last three evaluations, among
    them errors of confidences, which no page shows. Both are the same for a reference.
    """
    pseudo_labels: dict[str, float]
    """Fields of :class:`fedward.runs.pseudo_labels.Quality` in the last three rounds of training;
    undefined ones are omitted.
    """
    sites: dict[str, dict[str, float]]
    """Site -> metric -> test value, and ``images``, in the round that ``global`` chooses."""
    picks: dict[str, dict[str, int]]
    """Site -> other site -> how often the other was its peer; empty without peers."""
    metric: str
    """Metric whose validation value chose the round of ``global``."""
    repetition: Repetition
    """What differs between seeds."""
    cut: ImageDigests
    """Which images were used."""
    best_round: dict[str, int] = field(default_factory=dict)
    """Site -> the round of ``global``; 0 is the model before training. Empty in older lines, and
    for references.
    """
    best_val: float | None = None
    """``metric`` on validation images in these rounds, as a mean over sites; None if older."""
    reference: Annotated[Reference | None, BeforeValidator(lambda given: given or None)] = None
    """Which reference it is; None for a method's run, whose older lines have ``{}``."""
    chosen: dict[str, float] = field(default_factory=dict)
    """Site -> what validation chose for a reference: C, or the shrinkage; ``""`` is for all."""
    doubled: bool = False
    """Whether it trained for twice the rounds, to show convergence; no mean counts it."""
    by_group: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metric -> ``deviation``, its standard deviation over resampled groups of test images.

    It is of the values of ``global``. Groups are patients or lesions, else single images.
    """
    claims: str = ""
    """Digest of the study's claims when this was recorded; empty: it had none."""
    judged_by: str = ""
    """Digest of what judged the study when this was recorded; empty if older."""
    title: str = ""
    """What the study called the row then, after its variant; empty if older, and of references."""

    @property
    def cell(self) -> Cell:
        """The cell of the study; a file has one line for each."""
        return Cell(self.variant, self.row, self.seed, self.doubled)

    @property
    def experiment(self) -> Experiment:
        """The experiment of its settings; raises ValidationError if no version of today has it."""
        return Experiment.model_validate(self.settings)

    @property
    def on_validation(self) -> float | None:
        """Its value on validation images in the best round, as far as its line says; None without.

        An older line has no value of the model before training.
        """
        if self.best_val is not None:
            return self.best_val
        return max(self.curve.val, default=None)

    def of_sites(self, metric: str) -> dict[str, float]:
        """Return site -> test value, of the sites that have one."""
        return {site: values[metric] for site, values in self.sites.items() if metric in values}

    def without(self, options: Collection[str]) -> Experiment:
        """Return the settings of the run without some options, which fedward may no longer have."""
        kept = {name: value for name, value in self.options.items() if name not in options}
        return Experiment.model_validate({**self.settings, "options": kept})

    @property
    def options(self) -> Mapping[str, Any]:
        """Settings of the method, as far as the run named them."""
        options: Mapping[str, Any] = self.settings.get("options", {})
        return options

    def is_of(
        self,
        experiment: Experiment,
        *,
        removed: Mapping[str, Any] | None = None,
        site_files: bool = False,
    ) -> bool:
        """Return whether the run had these settings; settings that are not named have defaults.

        Args:
            experiment: the settings that fedward has.
            removed: options besides, which it no longer has.
            site_files: what the settings say of synthetic images makes no difference.
        """
        others = removed or {}
        if any(self.options.get(name) != value for name, value in others.items()):
            return False
        try:
            recorded = self.without(others)
            if site_files:
                recorded = recorded.model_copy(update={"synthetic": experiment.synthetic})
            return with_defaults(recorded) == with_defaults(experiment)
        except (ValidationError, ConfigError):
            return False


def rounded(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values that are defined, rounded as they are kept."""
    return {name: round(value, DIGITS) for name, value in values.items() if value is not None}


def values_of_sites(sites: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return metric -> mean over the sites that have it, and ``pooled``, as they are kept.

    ``pooled`` is the accuracy over the test images of all sites. What no site has is left out.

    Args:
        sites: site -> metric -> test value, and ``images``, its number of test images.
    """
    means = {metric: mean([values.get(metric) for values in sites.values()]) for metric in METRICS}
    tested = [values for values in sites.values() if "accuracy" in values]
    images = sum(values["images"] for values in tested)
    if images:
        right = sum(values["images"] * values["accuracy"] for values in tested)
        means["pooled"] = right / images
    return rounded(means)


def with_defaults(experiment: Experiment) -> Experiment:
    """Return the experiment with all settings of its method."""
    settings = settings_of(experiment.method, experiment.options)
    return experiment.model_copy(update={"options": settings.model_dump(mode="json")})


def _whole(record: Record) -> Record:
    """Return a record; ValueError if a part of it lacks what another part or a table needs."""
    curve = record.curve
    rounds = len(curve.round)
    has_all_values = len(curve.val) == rounds and len(curve.labels) in (0, rounds)
    # A metric may be undefined in some rounds, which then have no test value.
    has_too_many = any(len(values) > rounds for values in curve.test.values())
    if not has_all_values or has_too_many:
        raise ValueError("a curve with another number of values than of rounds")
    if any(not 0 < round_ <= record.rounds for round_ in curve.round):
        raise ValueError(f"a curve with other rounds than 1 to {record.rounds}")
    if {"last", "global"} - set(record.test):
        raise ValueError("test values without last or global")
    if any("images" not in values for values in record.sites.values()):
        raise ValueError("a site without its number of images")
    if any("deviation" not in values for values in record.by_group.values()):
        raise ValueError("groups of test images without a deviation")
    if any(not 0 <= value <= 1 for value in _metric_values(record)):
        raise ValueError("a value of a metric outside 0 to 1")
    return record


def _metric_values(record: Record) -> Iterator[float]:
    """Yield all values of metrics in a record, and their deviations over groups."""
    yield from record.curve.val
    for values in record.curve.test.values():
        yield from values
    for of_protocol in record.test.values():
        yield from of_protocol.values()
    for of_site in record.sites.values():
        yield from (value for name, value in of_site.items() if name != "images")
    for of_metric in record.by_group.values():
        yield of_metric["deviation"]


_LINES = TypeAdapter(Annotated[Record, AfterValidator(_whole)])


def read_records(file: Path) -> dict[Cell, Record]:
    """Return the kept results by their cells; empty if there is no file.

    Raises:
        RunError: the file cannot be read; a line is broken, lacks a part, or has a field that
            fedward does not know; or two lines are of one cell.
    """
    records: dict[Cell, Record] = {}
    if not file.exists():
        return records
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RunError(
            f"{file}", "Restore the file.", expected="lines of results", found=reason_of(error)
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = _LINES.validate_json(line)
        except ValidationError as error:
            first_fault, *_ = faults(error, line)
            raise RunError(
                f"{file}, line {number}",
                "Restore the file, or delete it and record the runs again.",
                expected="a result",
                found=f"{first_fault}",
            ) from error
        if record.cell in records:
            raise RunError(
                f"{file}, line {number}",
                "Restore the file, or delete the line that is not of the run.",
                expected="one line for each cell",
                found=f"a second one of {record.cell}",
            )
        records[record.cell] = record
    return records


def add_records(file: Path, added: Iterable[Record]) -> None:
    """Add results to a file at once, or replace those of the same cells.

    Lines are sorted by cell. Processes that add results at the same time take turns.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with private.locked(file.parent):
        records = {**read_records(file), **{record.cell: record for record in added}}
        lines = [f"{json.dumps(asdict(records[cell]))}\n" for cell in sorted(records)]
        with replacing(file) as partial:
            partial.write_text("".join(lines), "utf-8")
