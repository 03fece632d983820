"""The rows of a run folder's logs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, with_config

from fedward.errors import RunError
from fedward.evaluation.selection import CLOSED, MetricRow
from fedward.faults import faults
from fedward.storage.info import Names

_Numbers: TypeAlias = Annotated[tuple[float, ...], Field(strict=False)]
_Counts: TypeAlias = Annotated[tuple[int, ...], Field(strict=False)]
_CountsByClass: TypeAlias = Annotated[tuple[_Counts, ...], Field(strict=False)]


@with_config(CLOSED)
@dataclass(frozen=True)
class BinnedRow:
    """One row of binned.jsonl: a site's counts of a model's answers; see
    :class:`~fedward.evaluation.binned.Binned`.
    """

    round: int
    """The model is the global one after so many rounds."""
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


@with_config(CLOSED)
@dataclass(frozen=True)
class RoundRow:
    """One row of rounds.jsonl: who was asked, who replied, what it cost."""

    round: int
    seconds: float
    asked: Names
    replied: Names
    failed: Mapping[str, str]
    """Site -> reason."""
    bytes_down: int
    bytes_up: int
    peer_models: int
    """Models of other sites sent down in this round."""
    part: int = 0
    """Which of a round's exchanges, from 0."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Site -> how often its process was started again."""


@with_config(CLOSED)
@dataclass(frozen=True)
class PeerRow:
    """One row of peers.jsonl: which models were most like those of the participants, and whose
    model went to whom.
    """

    round: int
    sites: Names
    """Participants with a known model."""
    nearest: Annotated[tuple[Names, ...], Field(strict=False)]
    """For each of them, at most thirty sites with the models most like its own, by falling
    similarity.
    """
    similarity: Annotated[tuple[_Numbers, ...], Field(strict=False)]
    """How alike each of these models is."""
    chosen: Mapping[str, Names]
    """Site -> the peers it was helped by."""
    anonymised: bool
    """True when peers travel as one averaged model."""

    def __post_init__(self) -> None:
        sites, nearest, similarity = (
            len(self.sites),
            *([*map(len, rows)] for rows in (self.nearest, self.similarity)),
        )
        if nearest != similarity or len(nearest) != sites:
            raise ValueError(
                f"{sites} sites, {sum(nearest)} sites near them, {sum(similarity)} similarities"
            )


@with_config(CLOSED)
@dataclass(frozen=True)
class GroupRow:
    """One row of groups.jsonl: one average of sites' models."""

    round: int
    part: int
    """Which of a round's exchanges, from 0."""
    group: Literal["labelled", "unlabelled", "all"]
    """``all`` where not only sites of one of the other kinds were averaged."""
    sites: Names
    weights: _Numbers
    """Each site's share of the average."""
    distances: _Numbers
    """How far each site's model was from the plain mean by images."""

    def __post_init__(self) -> None:
        sites, weights, distances = map(len, (self.sites, self.weights, self.distances))
        if not sites == weights == distances:
            raise ValueError(f"{sites} sites, {weights} weights, {distances} distances")


@with_config(CLOSED)
@dataclass(frozen=True)
class QueryRow:
    """One row of queries.jsonl: a site's labels in one round of active learning; see
    ``messages.LabelCounts``.
    """

    round: int
    site: str
    asked: int
    bought: int
    waiting: int
    cannot_tell: int
    unusable: int
    labelled: int
    unlabelled: int
    minutes: float | None
    """What the answers so far cost, where the site says what one costs."""


@with_config(CLOSED)
@dataclass(frozen=True)
class BudgetRow:
    """One row of budgets.jsonl: how a query's labels were divided by scores."""

    round: int
    labels: Mapping[str, int]
    """Site -> labels it was to ask for."""


@with_config(CLOSED)
@dataclass(frozen=True)
class ByteRow:
    """One row of bytes.jsonl: bytes to and from one site in one exchange."""

    round: int
    site: str
    down: int
    up: int
    peer_models: int


@with_config(CLOSED)
@dataclass(frozen=True)
class SurveyRow:
    """One row of surveys.jsonl: what one site's images are, in fives; see
    ``messages.SurveyCounts``.
    """

    round: int
    site: str
    labelled: _Counts
    unlabelled: int
    val: _Counts
    test: _Counts
    patients: _Counts
    """In training, validation and testing; empty where the site does not say."""
    sizes: Annotated[tuple[Mapping[str, int], ...], Field(strict=False)]
    sides: _Counts
    grey: int
    colour: int
    brightness: _Counts
    contrast: _Counts
    repeated: int
    columns: Mapping[str, Mapping[str, int]]


@with_config(CLOSED)
@dataclass(frozen=True)
class PseudoLabelRow:
    """What a site notes for itself of one training: how good its pseudo-labels are, by labels that
    the run hides.
    """

    round: int
    part: int
    """Which of a round's exchanges, from 0."""
    kept: Mapping[str, int]
    """Class -> pseudo-labels of this class that were used, over all steps: an image counts each
    time.
    """
    kept_right: int
    """How many of these are right."""
    labelled: int
    """Pseudo-labels, used or not."""
    right: int
    hidden: Mapping[str, int]
    """Class -> unlabelled images that are of this class."""
    accuracy: float
    """Of the site's model after the training, on these images."""


Row: TypeAlias = (
    MetricRow
    | BinnedRow
    | RoundRow
    | PeerRow
    | GroupRow
    | QueryRow
    | BudgetRow
    | ByteRow
    | SurveyRow
    | PseudoLabelRow
)
RowT = TypeVar("RowT", bound=Row)

LOGS: Mapping[str, type[Row]] = {
    "metrics": MetricRow,
    "binned": BinnedRow,
    "rounds": RoundRow,
    "peers": PeerRow,
    "groups": GroupRow,
    "queries": QueryRow,
    "budgets": BudgetRow,
    "bytes": ByteRow,
    "surveys": SurveyRow,
}
"""Name of a log, without ``.jsonl`` -> type of its rows."""
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (*LOGS.values(), PseudoLabelRow)
}


def written(row: Row) -> str:
    """Return a row as a line of its log; a list of no classes is not written."""
    return (
        json.dumps({name: value for name, value in vars(row).items() if name != "classes" or value})
        + "\n"
    )


def row_of(kind: type[RowT], line: str) -> RowT:
    """Return a row that is written as JSON; ValueError, which names the first wrong value, where it
    is none.
    """
    try:
        row: RowT = _ADAPTERS[kind].validate_json(line)
        return row
    except ValidationError as error:
        first, *_ = faults(error, line)
        raise ValueError(str(first)) from None


def read_rows(
    path: Path, kind: type[RowT], notes: list[str], containing: str = ""
) -> Iterator[RowT]:
    """Yield the rows of a log, none where there is no file; RunError names the number of a broken
    line.

    A last line that is cut off, by a kill or because it is still being written, is left out.
    Numbers that are not finite are None. Both are added to ``notes`` at the end.

    ``containing``: only rows whose line holds this text are parsed, of logs with hundreds of
    thousands of rows.
    """
    if not path.exists():
        return
    strange: list[str] = []
    decode = json.JSONDecoder(parse_constant=strange.append).decode
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if containing not in line:
                continue
            try:
                yield row_of(
                    kind, json.dumps(decode(line)) if "NaN" in line or "Infinity" in line else line
                )
            except (ValueError, RecursionError) as error:
                if not line.endswith("\n"):
                    notes.append(
                        f"{path.name}: the last line is cut off and left out; the run was probably killed."
                    )
                    break
                found = f"line {number}: {error}"
                remedy = "Restore the file from a copy, or remove the broken line."
                raise RunError(
                    str(path), expected="the run folder's format", found=found, remedy=remedy
                ) from error
    if strange:
        notes.append(
            f"{path.name}: {len(strange)} values are not finite and are shown as not available."
        )
