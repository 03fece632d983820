"""The rows of a run folder's logs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, with_config

from fedward.errors import RunError
from fedward.evaluation.histograms import INTERVALS
from fedward.evaluation.in_fives import LEVELS, SIDES
from fedward.evaluation.selection import CLOSED, Count, MetricRow
from fedward.faults import faults
from fedward.storage.info import Names
from fedward.text import count

_Numbers: TypeAlias = Annotated[tuple[float, ...], Field(strict=False)]
_Counts: TypeAlias = Annotated[tuple[Count, ...], Field(strict=False)]
_CountsByClass: TypeAlias = Annotated[tuple[_Counts, ...], Field(strict=False)]
_SIDES = len(SIDES) - 1
"""Intervals of the longer sides of images."""


@with_config(CLOSED)
@dataclass(frozen=True)
class SubgroupColumn:
    """Right answers by the groups of one column (:mod:`fedward.evaluation.subgroups`)."""

    column: str
    groups: Names
    images: _CountsByClass
    right: _CountsByClass


@with_config(CLOSED)
@dataclass(frozen=True)
class ClusterPart:
    """What images of patients are worth in intervals (:mod:`fedward.evaluation.clusters`)."""

    patients: _Counts
    effective: _Counts
    all_patients: Count
    all_effective: Count


@with_config(CLOSED)
@dataclass(frozen=True)
class BinnedRow:
    """One row of binned.jsonl: a site's counts of a model's answers.

    :meth:`fedward.evaluation.answer_counts.AnswerCounts.to_wire` says what each field counts.
    """

    round: Count
    """Rounds after which the global model was evaluated."""
    site: str
    images: _Counts
    found: _Counts
    mistaken: _Counts
    cells: _CountsByClass
    scores: _CountsByClass
    inside: _CountsByClass
    sure: _Counts
    right: _Counts
    confidence: _Numbers
    subgroups: Annotated[tuple[SubgroupColumn, ...], Field(strict=False)] | None = None
    """Right answers by subgroup; None where the site sends none."""
    clusters: ClusterPart | None = None
    """What the images are worth in intervals; None where the site names no patients."""

    def __post_init__(self) -> None:
        classes = len(self.images)
        by_class = [self.found, self.mistaken, self.scores, self.inside]
        rows_of_classes: list[tuple[int, Sequence[_Counts]]] = [
            (INTERVALS, self.scores),
            (INTERVALS, self.inside),
        ]
        for column in self.subgroups or ():
            by_class += [column.images, column.right]
            rows_of_classes += [
                (len(column.groups), column.images),
                (len(column.groups), column.right),
            ]
        if self.clusters:
            by_class += [self.clusters.patients, self.clusters.effective]
        if {*map(len, by_class)} != {classes}:
            raise ValueError(f"images of {classes} classes, and other counts of more or fewer")
        if any(len(row) != length for length, rows in rows_of_classes for row in rows):
            raise ValueError("counts of more or fewer intervals or groups than there are")
        if {len(self.sure), len(self.right), len(self.confidence)} != {INTERVALS}:
            raise ValueError(f"confidences of more or fewer than {INTERVALS} intervals")
        if any(
            len(cell) != 3 or not 0 <= min(cell) <= max(cell[:2]) < classes for cell in self.cells
        ):
            raise ValueError(f"cells that are not two of {classes} classes and their images")


@with_config(CLOSED)
@dataclass(frozen=True)
class RoundRow:
    """One row of rounds.jsonl: who was asked, who replied, what it cost."""

    round: Count
    seconds: float
    asked: Names
    replied: Names
    failed: Mapping[str, str]
    """Site -> reason."""
    bytes_down: Count
    bytes_up: Count
    peer_models: Count
    """Models of other sites sent down in this round."""
    part: Count = 0
    """Number of the exchange within the round, from 0."""
    restarts: Mapping[str, Count] = field(default_factory=dict)
    """Site -> how often its process was started again."""


@with_config(CLOSED)
@dataclass(frozen=True)
class PeerRow:
    """One row of peers.jsonl: the models most similar to each participant's, and who got whose."""

    round: Count
    sites: Names
    """Participants of which the server has a model."""
    nearest: Annotated[tuple[Names, ...], Field(strict=False)]
    """For each of them at most thirty sites with the most similar models, by falling similarity."""
    similarity: Annotated[tuple[_Numbers, ...], Field(strict=False)]
    """The similarity of each of these models."""
    chosen: Mapping[str, Names]
    """Site -> the peers whose models it was sent."""
    anonymised: bool
    """Whether these models were sent as one mean."""
    features: Count
    """Number of features by which models were compared."""

    def __post_init__(self) -> None:
        near_counts = [len(names) for names in self.nearest]
        similarity_counts = [len(values) for values in self.similarity]
        if near_counts != similarity_counts or len(near_counts) != len(self.sites):
            raise ValueError(
                f"{len(self.sites)} sites, {sum(near_counts)} sites near them, "
                f"{sum(similarity_counts)} similarities"
            )


@with_config(CLOSED)
@dataclass(frozen=True)
class GroupRow:
    """One row of groups.jsonl: one average of sites' models."""

    round: Count
    part: Count
    """Number of the exchange within the round, from 0."""
    group: Literal["labelled", "unlabelled", "all"]
    """``all`` if labelled and unlabelled sites were averaged together."""
    sites: Names
    weights: _Numbers
    """Each site's share of the average."""
    distances: _Numbers
    """Distance of each site's model from the mean weighted by images."""

    def __post_init__(self) -> None:
        sites = len(self.sites)
        weights = len(self.weights)
        distances = len(self.distances)
        if not sites == weights == distances:
            raise ValueError(f"{sites} sites, {weights} weights, {distances} distances")


@with_config(CLOSED)
@dataclass(frozen=True)
class HeadRow:
    """One row of heads.jsonl: a classifier that was computed from sums over labelled images."""

    round: Count
    images: Count
    """Labelled images of all sites in the sums."""
    shrinkage: float
    """ρ: how far the covariance within classes was moved towards a multiple of the identity."""
    absent: _Counts = ()
    """Indices of the classes of which the sums hold no image; the head never predicts them."""


@with_config(CLOSED)
@dataclass(frozen=True)
class QueryRow:
    """One row of queries.jsonl: a site's labels in one round of active learning.

    ``messages.LabelCounts`` says what each field counts.
    """

    round: Count
    site: str
    asked: Count
    bought: Count
    waiting: Count
    cannot_tell: Count
    unusable: Count
    labelled: Count
    unlabelled: Count
    minutes: float | None
    """What the answers so far cost; None if the site does not say what one costs."""


@with_config(CLOSED)
@dataclass(frozen=True)
class ByteRow:
    """One row of bytes.jsonl: bytes sent to and received from one site in one exchange."""

    round: Count
    site: str
    down: Count
    up: Count
    peer_models: Count


@with_config(CLOSED)
@dataclass(frozen=True)
class SurveyRow:
    """One row of surveys.jsonl: what one site's images are, in counts that are multiples of five.

    ``messages.SurveyCounts`` says what each field counts.
    """

    round: Count
    site: str
    labelled: _Counts
    unlabelled: Count
    val: _Counts
    test: _Counts
    patients: _Counts
    """Patients in training, validation and testing; empty if the site does not say."""
    sizes: Annotated[tuple[Mapping[str, Count], ...], Field(strict=False)]
    sides: _Counts
    grey: Count
    colour: Count
    brightness: _Counts
    contrast: _Counts
    dark: Count
    repeated: Count
    columns: Mapping[str, Mapping[str, Count]]

    def __post_init__(self) -> None:
        if not len(self.labelled) == len(self.val) == len(self.test):
            raise ValueError("training, validation and test images of different numbers of classes")
        if {len(self.brightness), len(self.contrast)} != {LEVELS} or len(self.sides) != _SIDES:
            raise ValueError("counts of more or fewer intervals than there are")


@with_config(CLOSED)
@dataclass(frozen=True)
class PseudoLabelRow:
    """How good a site's pseudo-labels were in one training, by labels that the run hides.

    A site keeps these rows for itself.
    """

    round: Count
    part: Count
    """Number of the exchange within the round, from 0."""
    kept: Mapping[str, Count]
    """Class -> pseudo-labels of this class that were used, over all steps.

    An image counts each time that it is used.
    """
    kept_right: Count
    """How many of the used pseudo-labels are right."""
    labelled: Count
    """Pseudo-labels, used or not."""
    right: Count
    """How many of all pseudo-labels are right."""
    hidden: Mapping[str, Count]
    """Class -> unlabelled images of this class."""


@with_config(CLOSED)
@dataclass(frozen=True)
class AnswerRow:
    """What a model answered about a site's test images.

    A site keeps these rows for itself.
    """

    round: Count
    """Rounds that the model has been trained for."""
    answers: str
    """Number of the class that it gives each image, from 0, separated by spaces."""


Row: TypeAlias = (
    MetricRow
    | BinnedRow
    | RoundRow
    | PeerRow
    | GroupRow
    | HeadRow
    | QueryRow
    | ByteRow
    | SurveyRow
    | PseudoLabelRow
    | AnswerRow
)
RowT = TypeVar("RowT", bound=Row)

LOGS: Mapping[str, type[Row]] = {
    "metrics": MetricRow,
    "binned": BinnedRow,
    "rounds": RoundRow,
    "peers": PeerRow,
    "groups": GroupRow,
    "heads": HeadRow,
    "queries": QueryRow,
    "bytes": ByteRow,
    "surveys": SurveyRow,
}
"""Name of a log, without ``.jsonl`` -> type of its rows."""
_OPTIONAL = ("classes", "subgroups", "clusters")
"""Fields that a row has only if they say something."""
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (*LOGS.values(), PseudoLabelRow, AnswerRow)
}


def written(row: Row) -> str:
    """Return a row as a line of its log; classes, subgroups and clusters are omitted if empty."""
    content = {name: value for name, value in vars(row).items() if name not in _OPTIONAL or value}
    return json.dumps(content, default=vars) + "\n"


def row_of(kind: type[RowT], line: str) -> RowT:
    """Return a row from its JSON; raise ValueError, which names the first wrong value."""
    try:
        row: RowT = _ADAPTERS[kind].validate_json(line)
        return row
    except ValidationError as error:
        first_fault, *_ = faults(error, line)
        raise ValueError(str(first_fault)) from None


def read_rows(
    path: Path, kind: type[RowT], notes: list[str], containing: str = ""
) -> Iterator[RowT]:
    """Yield the rows of a log; no rows if there is no such file.

    A last line that is cut off, by a kill or because it is still being written, is omitted. Numbers
    that are not finite become None.

    Args:
        path: the log.
        kind: type of its rows.
        notes: receives a sentence on each of these two repairs, at the end.
        containing: only lines with this text are parsed. It saves time in logs with hundreds of
            thousands of rows.

    Raises:
        RunError: a line is broken; the error names its number.
    """
    if not path.exists():
        return
    constants: list[str] = []
    """NaN and infinities that were found. The parser puts None in their place."""
    decode = json.JSONDecoder(parse_constant=constants.append).decode
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if containing not in line:
                continue
            try:
                finite_line = line
                if "NaN" in line or "Infinity" in line:
                    finite_line = json.dumps(decode(line))
                yield row_of(kind, finite_line)
            except (ValueError, RecursionError) as error:
                if not line.endswith("\n"):
                    notes.append(
                        f"{path.name}: the last line is cut off and left out; "
                        "the run was probably killed."
                    )
                    break
                raise RunError(
                    str(path),
                    "Restore the file from a copy, or remove the broken line.",
                    expected="the run folder's format",
                    found=f"line {number}: {error}",
                ) from error
    if constants:
        values = count(len(constants), "value")
        are = "is" if len(constants) == 1 else "are"
        notes.append(f"{path.name}: {values} {are} not finite and {are} shown as not available.")
