"""A run folder, read back: the only way reports and commands learn what a run did."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fedward.errors import FedwardError, RunError
from fedward.evaluation.selection import MetricRow

FORMAT = 1
"""The run.json format this reader understands."""

RowT = TypeVar("RowT")


@dataclass(frozen=True)
class RoundRow:
    """One row of rounds.jsonl: who was asked, who replied, what it cost."""

    round: int
    seconds: float
    asked: tuple[str, ...]
    replied: tuple[str, ...]
    failed: Mapping[str, str]
    """Site -> reason."""
    bytes_down: int
    bytes_up: int
    peer_models: int
    """Models of other sites sent down in this round."""


@dataclass(frozen=True)
class PeerRow:
    """One row of peers.jsonl: how alike the sites' models were, and whose model went to whom."""

    round: int
    sites: tuple[str, ...]
    """Sites with a known model, in the order of the matrix."""
    similarity: tuple[tuple[float, ...], ...]
    """(S, S) similarity of their models."""
    chosen: Mapping[str, tuple[str, ...]]
    """Site -> the peers it was helped by."""
    anonymised: bool
    """True when peers travel as one averaged model."""


@dataclass(frozen=True)
class GroupRow:
    """One row of groups.jsonl: one average of sites' models."""

    round: int
    part: int
    """Which of a round's exchanges, from 0."""
    group: str
    """``labelled`` or ``unlabelled`` where only such sites were averaged, else ``all``."""
    sites: tuple[str, ...]
    weights: tuple[float, ...]
    """Each site's share of the average."""
    distances: tuple[float, ...]
    """How far each site's model was from the plain mean by images."""


@dataclass(frozen=True)
class QueryRow:
    """One row of queries.jsonl: a site's labels in one round of active learning."""

    round: int
    site: str
    asked: int
    """Images it asked about in this round."""
    bought: int
    """Labels that came by asking, in the run so far."""
    waiting: int
    """Images asked about that have no label yet."""
    cannot_tell: int
    """Images that were looked at, and nobody could tell."""
    unusable: int
    """Answers that are no class of the job, or about images the site does not train on."""
    labelled: int
    unlabelled: int
    minutes: float | None
    """What the answers so far cost, where the site says what one costs."""


@dataclass(frozen=True)
class ByteRow:
    """One row of bytes.jsonl: bytes to and from one site in one round."""

    round: int
    site: str
    down: int
    up: int
    peer_models: int


@dataclass(frozen=True)
class Run:
    """Everything a run folder says, typed; see :meth:`load`."""

    folder: Path
    method: str
    experiment: Mapping[str, Any]
    versions: Mapping[str, str]
    seed: int
    sites: tuple[str, ...]
    started: str
    engine: str
    status: str
    """``running`` (or killed), ``finished`` or ``failed``."""
    summary: Mapping[str, Any]
    metrics: tuple[MetricRow, ...]
    rounds: tuple[RoundRow, ...]
    peers: tuple[PeerRow, ...]
    groups: tuple[GroupRow, ...]
    queries: tuple[QueryRow, ...]
    bytes: tuple[ByteRow, ...]
    stays_at_sites: tuple[str, ...]
    """How the names of tensors begin that each site trained and kept; untrained in the run's models."""
    untrained: tuple[str, ...]
    """How the names of tensors begin that no round of the run trains, though its results hang on them."""
    notes: tuple[str, ...]
    """What a reader should know about the files, e.g. a last line cut off by a kill."""

    @property
    def title(self) -> str:
        """The method; where it buys labels, also how it chooses for which images, unless both have one name."""
        sampler = self.experiment.get("options", {}).get("sampler", self.method)
        return self.method if sampler == self.method else f"{self.method}, {sampler}"

    @classmethod
    def load(cls, folder: Path) -> "Run":
        """Read a run folder; the ``.jsonl`` files may be missing (a run that has not got there, or a method without).

        ==================================  =========================================================
        case                                result
        ==================================  =========================================================
        last line cut off (killed run)      left out, said in ``notes``
        two rows of one round               both kept: a method may exchange more than once in a round
        a metric that is not finite         None, counted in ``notes``
        a broken line before the last       :class:`RunError` with file and line
        no run.json, or another format      :class:`RunError`
        ==================================  =========================================================
        """
        head = _head(folder)
        notes: list[str] = []
        metrics = _rows(folder / "metrics.jsonl", _metric, notes)
        rounds = _rows(folder / "rounds.jsonl", _round, notes)
        peers = _rows(folder / "peers.jsonl", _peer, notes)
        groups = _rows(folder / "groups.jsonl", _group, notes)
        queries = _rows(folder / "queries.jsonl", _query, notes)
        sizes = _rows(folder / "bytes.jsonl", _byte, notes)
        try:
            return cls(
                folder=folder,
                method=str(head["method"]),
                experiment=dict(head["experiment"]),
                versions={str(name): str(version) for name, version in head["versions"].items()},
                seed=int(head["seed"]),
                sites=tuple(map(str, head["sites"])),
                started=str(head["started"]),
                engine=str(head["engine"]),
                status=str(head["status"]),
                summary=dict(head.get("summary") or {}),
                metrics=metrics,
                rounds=rounds,
                peers=peers,
                groups=groups,
                queries=queries,
                bytes=sizes,
                stays_at_sites=tuple(map(str, head.get("stays_at_sites", ()))),
                untrained=tuple(map(str, head.get("untrained", ()))),
                notes=tuple(notes),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _broken(folder / "run.json", f"{type(error).__name__}: {error}") from error

    @property
    def classes(self) -> tuple[str, ...]:
        """The data set's class names; those seen in the metrics where run.json does not say."""
        named = (self.experiment.get("data") or {}).get("classes")
        return tuple(named) if named else tuple(dict.fromkeys(name for row in self.metrics for name in row.classes))

    @property
    def key_metric(self) -> str:
        """The validation metric that chooses the best round."""
        return str(self.experiment.get("key_metric") or "accuracy")

    @property
    def unjudged(self) -> Mapping[str, str]:
        """Site -> why it brought no value of the last model; empty where all did, or the run has not finished."""
        return dict(self.summary.get("unjudged", {}))

    @property
    def warm_up(self) -> int:
        """Rounds at the start of another kind, as the rows say; 0 where no others followed yet.

        Where sites are averaged in groups, those in which only labelled sites trained; else those before the first peer
        model. What a job calls its warm-up is no matter: to SelfFed it is a learning rate that rises.
        """
        if self.groups:
            return min((row.round for row in self.groups if row.group != "labelled"), default=1) - 1
        return min((row.round for row in self.rounds if row.peer_models), default=1) - 1

    def series(self, split: str, name: str) -> dict[str, dict[int, float]]:
        """Return site -> round -> value of one metric; undefined values are left out, sites keep the run's order."""
        table: dict[str, dict[int, float]] = {site: {} for site in self.sites}
        for row in self.metrics:
            if row.split == split and row.name == name and row.value is not None:
                table.setdefault(row.site, {})[row.round] = row.value
        return {site: dict(sorted(values.items())) for site, values in table.items() if values}

    def at(self, site: str, split: str, round_: int | None) -> Mapping[str, MetricRow]:
        """Return name -> row of one site and split after one round; empty where nothing was measured."""
        return self._index.get((site, split, round_), {})

    def newest(self, site: str, split: str, name: str) -> MetricRow | None:
        """Return the last row of one metric at one site, or None."""
        rows = [row for row in self.metrics if (row.site, row.split, row.name) == (site, split, name)]
        return max(rows, key=lambda row: row.round, default=None)

    @cached_property
    def _index(self) -> Mapping[tuple[str, str, int | None], dict[str, MetricRow]]:
        index: dict[tuple[str, str, int | None], dict[str, MetricRow]] = {}
        for row in self.metrics:
            index.setdefault((row.site, row.split, row.round), {})[row.name] = row
        return index


def _head(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(
            str(folder),
            expected="a run folder with a readable run.json",
            found=f"{type(error).__name__}: {error}",
            remedy="Name the folder that a fedward run wrote.",
        ) from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        found = head.get("format") if isinstance(head, dict) else type(head).__name__
        raise RunError(
            str(path),
            expected=f"format {FORMAT}",
            found=repr(found),
            remedy="Read this run with the fedward version that wrote it.",
        )
    return head


def _rows(path: Path, parse: Callable[[Any], RowT], notes: list[str]) -> tuple[RowT, ...]:
    """Read a .jsonl file: missing is empty, a cut-off last line is left out and noted."""
    if not path.exists():
        return ()
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    strange: list[str] = []
    decode = json.JSONDecoder(parse_constant=strange.append).decode  # NaN and infinities become None
    rows: list[RowT] = []
    for number, line in enumerate(lines, 1):
        if not line and number == len(lines):
            break
        try:
            rows.append(parse(decode(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):  # every whole line ends with a newline, so this one is a part of a line
                notes.append(f"{path.name}: the last line is cut off and was left out; the run was probably killed.")
                break
            raise _broken(path, f"line {number}: {type(error).__name__}: {error}") from error
    if strange:
        notes.append(f"{path.name}: {len(strange)} values are not finite and are shown as not available.")
    return tuple(rows)


def _broken(path: Path, found: str) -> FedwardError:
    return RunError(
        str(path),
        expected="the run folder's format",
        found=found,
        remedy="Restore the file from a copy, or remove the broken line.",
    )


def _metric(raw: Any) -> MetricRow:
    value = raw["value"]
    return MetricRow(
        round=int(raw["round"]),
        site=str(raw["site"]),
        split=str(raw["split"]),
        name=str(raw["name"]),
        value=None if value is None else float(value),
        n=int(raw["n"]),
        classes=tuple(map(str, raw["classes"])),
    )


def _round(raw: Any) -> RoundRow:
    return RoundRow(
        round=int(raw["round"]),
        seconds=float(raw["seconds"]),
        asked=tuple(map(str, raw["asked"])),
        replied=tuple(map(str, raw["replied"])),
        failed={str(site): str(reason) for site, reason in raw["failed"].items()},
        bytes_down=int(raw["bytes_down"]),
        bytes_up=int(raw["bytes_up"]),
        peer_models=int(raw["peer_models"]),
    )


def _peer(raw: Any) -> PeerRow:
    sites = tuple(map(str, raw["sites"]))
    similarity = tuple(tuple(map(float, line)) for line in raw["similarity"])
    if any(len(line) != len(sites) for line in similarity) or len(similarity) != len(sites):
        raise ValueError(f"similarity is not {len(sites)} x {len(sites)}")
    return PeerRow(
        round=int(raw["round"]),
        sites=sites,
        similarity=similarity,
        chosen={str(site): tuple(map(str, peers)) for site, peers in raw["chosen"].items()},
        anonymised=bool(raw["anonymised"]),
    )


def _group(raw: Any) -> GroupRow:
    sites = tuple(map(str, raw["sites"]))
    weights, distances = (tuple(map(float, raw[name])) for name in ("weights", "distances"))
    if not len(sites) == len(weights) == len(distances):
        raise ValueError(f"{len(sites)} sites, {len(weights)} weights, {len(distances)} distances")
    if raw["group"] not in ("labelled", "unlabelled", "all"):
        raise ValueError(f"group {raw['group']!r}")
    return GroupRow(
        round=int(raw["round"]),
        part=int(raw["part"]),
        group=str(raw["group"]),
        sites=sites,
        weights=weights,
        distances=distances,
    )


def _query(raw: Any) -> QueryRow:
    counts = ("asked", "bought", "waiting", "cannot_tell", "unusable", "labelled", "unlabelled")
    minutes = None if raw["minutes"] is None else float(raw["minutes"])
    whole = {name: int(raw[name]) for name in counts}
    return QueryRow(round=int(raw["round"]), site=str(raw["site"]), **whole, minutes=minutes)


def _byte(raw: Any) -> ByteRow:
    return ByteRow(
        round=int(raw["round"]),
        site=str(raw["site"]),
        down=int(raw["down"]),
        up=int(raw["up"]),
        peer_models=int(raw["peer_models"]),
    )
