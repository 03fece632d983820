"""A run folder, read back: the only way reports and commands learn what a run did."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.evaluation.selection import MetricRow
from fedward.label_kinds import LabelKind, kind_of_field
from fedward.runs.metrics import Metrics
from fedward.storage.info import RunInfo, read_info
from fedward.storage.rows import (
    LOGS,
    BinnedRow,
    ByteRow,
    GroupRow,
    PeerRow,
    QueryRow,
    RoundRow,
    SurveyRow,
    read_rows,
)
from fedward.text import natural


@dataclass(frozen=True)
class Run:
    """Everything a run folder says, typed; see :meth:`load`."""

    folder: Path
    """Where it lies."""
    info: RunInfo
    """``run.json``: method, sites, settings, versions, and how the run ended."""
    metrics: Metrics
    """Rows (round, site, split, name, value, n): iterate, or ask :meth:`at` and :meth:`series`."""
    rounds: tuple[RoundRow, ...]
    """One row per exchange: seconds, who was asked and replied, bytes."""
    peers: tuple[PeerRow, ...]
    """Which sites' models were alike, and which helped whom (FedPerl)."""
    groups: tuple[GroupRow, ...]
    """One row per average of a group, with each site's weight (IsoFed and its baselines)."""
    queries: tuple[QueryRow, ...]
    """One row per round and site: labels asked for and bought (active learning)."""
    bytes: tuple[ByteRow, ...]
    """Bytes to and from each site, one row per exchange."""
    surveys: tuple[SurveyRow, ...]
    """What sites counted, in a survey."""
    notes: tuple[str, ...]
    """What a reader should know about the files, e.g. a last line cut off by a kill."""

    @property
    def title(self) -> str:
        """The method; where it buys labels, also how it chooses for which images, unless both have
        one name.
        """
        method = self.info.method
        sampler = self.info.experiment.get("options", {}).get("sampler", method)
        return method if sampler == method else f"{method}, {sampler}"

    @classmethod
    def load(cls, folder: Path) -> "Run":
        """Read a run folder; the ``.jsonl`` files may be missing (a run that has not got there, or
        a method without).

        - last line cut off (killed run): left out, said in ``notes``
        - two rows of one round: both kept: a method may exchange more than once in a round
        - a metric that is not finite: None, counted in ``notes``
        - a broken line before the last: :class:`RunError` with file and line
        - no run.json, or another format: :class:`RunError`
        """
        info = read_info(folder)
        notes = list[str]()
        info = info.model_copy(update={"sites": tuple(sorted(info.sites, key=natural))})
        metrics = Metrics(read_rows(folder / "metrics.jsonl", MetricRow, notes), info.sites)
        read = [name for name in LOGS if name in cls.__annotations__ and name != "metrics"]
        rows: Any = {
            name: tuple(read_rows(folder / f"{name}.jsonl", LOGS[name], notes)) for name in read
        }
        return cls(folder, info, metrics, **rows, notes=tuple(notes))

    def binned(self, round_: int | None) -> list[BinnedRow]:
        """Return the sites' counts of the answers of the model after ``round_`` rounds; none in
        older runs.

        They are read when they are asked for: those of all rounds are many.
        """
        row = f'{{"round": {round_}, '
        return list(read_rows(self.folder / "binned.jsonl", BinnedRow, [], containing=row))

    @property
    def data(self) -> Mapping[str, Any]:
        """What the job says of the images; nothing in older runs."""
        said: Mapping[str, Any] = self.info.experiment.get("data") or {}
        return said

    @property
    def data_name(self) -> str:
        """What the job calls its images."""
        return str(self.data.get("name", "unnamed data"))

    @property
    def classes(self) -> tuple[str, ...]:
        """The data set's class names; those seen in the metrics where run.json does not say."""
        named = self.data.get("classes")
        return tuple(named) if named else self.metrics.classes()

    @property
    def unit(self) -> str:
        """What validation and test numbers are of: ``image`` or ``patient``."""
        return str(self.data.get("evaluate_by", "image"))

    @property
    def label_kind(self) -> LabelKind:
        """What an image may show."""
        return kind_of_field(bool(self.data.get("multi_label")))

    @property
    def key_metric(self) -> str:
        """The validation metric that chooses the best round."""
        return str(self.info.experiment.get("key_metric") or "accuracy")

    @property
    def warm_up(self) -> int:
        """Rounds at the start of another kind, as the rows say; 0 where no others followed yet.

        Where sites are averaged in groups, those in which only labelled sites trained; else those
        before the first peer model. What a job calls its warm-up is no matter: to SelfFed it is a
        learning rate that rises.
        """
        if self.groups:
            return min((row.round for row in self.groups if row.group != "labelled"), default=1) - 1
        return min((row.round for row in self.rounds if row.peer_models), default=1) - 1

    def at(self, site: str, split: str, round_: int | None) -> Mapping[str, MetricRow]:
        """Return name -> row of one site and split after one round; empty where nothing was
        measured.
        """
        return self.metrics.at(site, split, round_)

    def series(self, split: str, name: str) -> dict[str, dict[int, float]]:
        """Return site -> round -> value of one metric; undefined values are left out, sites keep
        the run's order.
        """
        table: dict[str, dict[int, float]] = {site: {} for site in self.info.sites}
        for row in self.metrics.named(name):
            if row.split == split and row.value is not None:
                table.setdefault(row.site, {})[row.round] = row.value
        return {site: dict(sorted(values.items())) for site, values in table.items() if values}
