"""A run folder, read back: the only way reports and commands learn what a run did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.errors import RunError
from fedward.evaluation.selection import MetricRow
from fedward.label_kinds import LabelKind, kind_of_field
from fedward.runs.metrics import Metrics
from fedward.runs.sentences import leaked
from fedward.storage.info import RunInfo, read_info
from fedward.storage.rows import (
    BinnedRow,
    ByteRow,
    GroupRow,
    PeerRow,
    QueryRow,
    RoundRow,
    RowT,
    SurveyRow,
    read_rows,
)
from fedward.text import natural

_LOSSES_OF_LABELS = {"loss_supervised", "loss_proximal"}
"""Losses that need no image without a label: against labels, and from the model received."""


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
    """What a reader should know: leaks between splits, or a last line cut off by a kill."""

    @property
    def title(self) -> str:
        """The method, and how it chooses the images to buy labels for, if that has another name.

        A job of another name comes first, as several jobs may be of one method.
        """
        method = self.info.method
        sampler = self.info.experiment.get("options", {}).get("sampler", method)
        title = method if sampler == method else f"{method}, {sampler}"
        job = self.info.job
        return title if job in ("", method) else f"{job} ({title})"

    @classmethod
    def load(cls, folder: Path) -> "Run":
        """Read a run folder.

        A ``.jsonl`` file may be missing, if the run has not got there or its method has none.

        - A last line that is cut off, as in a killed run, is omitted and noted in ``notes``.
        - Two rows of one round are both kept, because a round may have several exchanges.
        - A metric that is not finite is None, and counted in ``notes``.

        Raises:
            RunError: a line before the last is broken; run.json is missing, or of another format;
                or a survey is of other classes.
        """
        info = read_info(folder)
        info = info.model_copy(update={"sites": tuple(sorted(info.sites, key=natural))})
        notes = list[str]()

        def rows(name: str, kind: type[RowT]) -> tuple[RowT, ...]:
            return tuple(read_rows(folder / f"{name}.jsonl", kind, notes))

        surveys = rows("surveys", SurveyRow)
        _require_classes(surveys, folder, info)
        return cls(
            folder=folder,
            info=info,
            metrics=Metrics(read_rows(folder / "metrics.jsonl", MetricRow, notes), info.sites),
            rounds=rows("rounds", RoundRow),
            peers=rows("peers", PeerRow),
            groups=rows("groups", GroupRow),
            queries=rows("queries", QueryRow),
            bytes=rows("bytes", ByteRow),
            surveys=surveys,
            notes=(*leaked(info.leaks), *notes),
        )

    def binned(self, round_: int | None) -> list[BinnedRow]:
        """Return the sites' counts of the answers of the model after ``round_`` rounds.

        They are read when they are needed, because those of all rounds are many.
        """
        beginning = f'{{"round": {round_}, '
        return list(read_rows(self.folder / "binned.jsonl", BinnedRow, [], containing=beginning))

    @property
    def data(self) -> Mapping[str, Any]:
        """What the job says of the images."""
        data: Mapping[str, Any] = self.info.experiment["data"]
        return data

    @property
    def data_name(self) -> str:
        """What the job calls its images."""
        return str(self.data["name"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The data set's class names."""
        return tuple(self.data["classes"])

    @property
    def titles(self) -> Mapping[str, str]:
        """Class -> what it stands for; only classes for which the job says so."""
        titles: Mapping[str, str] = self.data.get("titles") or {}
        return titles

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
        return str(self.info.experiment["key_metric"])

    @property
    def server_labels(self) -> int:
        """Labelled images that the server trained on; 0 where the labels are at the sites."""
        options = self.info.experiment.get("options") or {}
        if not options.get("server_labels"):
            return 0
        losses = self.metrics.named("loss_supervised")
        return max((row.n for row in losses if row.site not in self.info.sites), default=0)

    @property
    def learned_without_labels(self) -> bool:
        """Whether the training minimised a loss of images without labels."""
        losses = {name for name in self.metrics.names("train") if name.startswith("loss_")}
        return bool(losses - _LOSSES_OF_LABELS)

    @property
    def warm_up(self) -> int:
        """Rounds at the start that are of another kind, by the rows; 0 if no others followed yet.

        If sites are averaged in groups, they are those in which only labelled sites trained, and
        otherwise those before the first peer model. The job's setting is not used, because to
        SelfFed a warm-up is a learning rate that rises.
        """
        if self.info.method == "fedmatch":
            return 0  # Helpers come every few rounds, and those before the first are of no kind.
        if self.groups:
            later_rounds = [row.round for row in self.groups if row.group != "labelled"]
        else:
            later_rounds = [row.round for row in self.rounds if row.peer_models]
        return min(later_rounds, default=1) - 1

    def at(self, site: str, split: str, round_: int | None) -> Mapping[str, MetricRow]:
        """Return name -> row of one site and split after one round; empty if not measured."""
        return self.metrics.at(site, split, round_)

    def series(self, split: str, name: str) -> dict[str, dict[int, float]]:
        """Return site -> round -> value of one metric, in the run's order of sites.

        Undefined values are omitted.
        """
        table: dict[str, dict[int, float]] = {site: {} for site in self.info.sites}
        for row in self.metrics.named(name):
            if row.split == split and row.value is not None:
                table.setdefault(row.site, {})[row.round] = row.value
        return {site: dict(sorted(values.items())) for site, values in table.items() if values}


def _require_classes(rows: Sequence[SurveyRow], folder: Path, info: RunInfo) -> None:
    """Raise RunError unless each site has counted as many classes as the run has."""
    classes = len(info.experiment["data"]["classes"])
    for row in rows:
        if len(row.labelled) != classes:
            raise RunError(
                str(folder / "surveys.jsonl"),
                "Restore the run folder.",
                expected=f"counts of the run's {classes} classes",
                found=f"{len(row.labelled)}",
            )
