"""The rows of metrics.jsonl, kept as columns: a run of a thousand sites has millions of them."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.selection import MetricRow


def _integers() -> "array[int]":
    return array("q")


def _floats() -> "array[float]":
    return array("d")


@dataclass
class _Column:
    """All rows of one metric in one split, in the order of the log."""

    rounds: "array[int]" = field(default_factory=_integers)
    sites: "array[int]" = field(default_factory=_integers)
    """Place of each row's site in the list of sites."""
    values: "array[float]" = field(default_factory=_floats)
    """NaN where the value is not defined."""
    images: "array[int]" = field(default_factory=_integers)


class Metrics:
    """Metric rows that take 32 bytes each.

    Args:
        rows: of the log, in its order; they are read once.
        sites: of the run; a site that only rows name is added as it comes.
    """

    def __init__(self, rows: Iterable[MetricRow], sites: Sequence[str] = ()) -> None:
        self._places = {site: place for place, site in enumerate(sites)}
        self._columns: dict[tuple[str, str], _Column] = {}
        """Split, name -> the metric's rows."""
        self._classes: dict[tuple[int, str, int], tuple[str, ...]] = {}
        """Place of a site, split, round -> the classes present, which one row says for all."""
        same_classes: dict[tuple[str, ...], tuple[str, ...]] = {}
        for row in rows:
            place = self._places.setdefault(row.site, len(self._places))
            column = self._columns.setdefault((row.split, row.name), _Column())
            column.rounds.append(row.round)
            column.sites.append(place)
            column.values.append(nan if row.value is None else row.value)
            column.images.append(row.n)
            if row.classes:
                # Equal tuples are kept once.
                classes = same_classes.setdefault(row.classes, row.classes)
                self._classes[place, row.split, row.round] = classes
        self._names = list(self._places)

    def __len__(self) -> int:
        return sum(len(column.rounds) for column in self._columns.values())

    def __iter__(self) -> Iterator[MetricRow]:
        """Yield all rows, metric by metric."""
        for split, name in self._columns:
            yield from self._rows(split, name)

    def names(self, split: str) -> set[str]:
        """Return the names of a split's metrics."""
        return {name for of_split, name in self._columns if of_split == split}

    def named(self, name: str) -> Iterator[MetricRow]:
        """Yield the rows of one metric in all splits."""
        for split, metric in self._columns:
            if metric == name:
                yield from self._rows(split, name)

    def at(self, site: str, split: str, round_: int | None) -> dict[str, MetricRow]:
        """Return name -> row of one site and split after one round."""
        rows = {}
        for column_split, name in self._columns:
            if column_split == split:
                for row in self._rows(split, name, round_, site):
                    rows[name] = row
        return rows

    def values(self, split: str, name: str, round_: int | None) -> dict[str, float | None]:
        """Return site -> value of one metric after one round; None where it is not defined."""
        if round_ is None:
            return {}
        return {row.site: row.value for row in self._rows(split, name, round_)}

    def test_rows(self, name: str, round_: int) -> dict[str, MetricRow]:
        """Return site -> its row of one metric on test images after one round."""
        return {row.site: row for row in self._rows("test", name, round_)}

    def newest(self, split: str, name: str) -> dict[str, MetricRow]:
        """Return site -> the row of its last round of one metric."""
        column = self._columns.get((split, name))
        if column is None:
            return {}
        by_round = np.argsort(_as_numpy(column.rounds), kind="stable")
        sites = _as_numpy(column.sites)[by_round]
        # Of the rows of one site, the last one of the order stays in the dictionary.
        last = dict(zip(sites.tolist(), by_round.tolist(), strict=True))
        return {
            self._names[place]: self._row(split, name, column, index)
            for place, index in last.items()
        }

    def _rows(
        self, split: str, name: str, round_: int | None = None, site: str | None = None
    ) -> Iterator[MetricRow]:
        """Yield the rows of a metric; those of one round, or of one site, where it is given."""
        column = self._columns.get((split, name))
        if column is None:
            return
        wanted = np.ones(len(column.rounds), dtype=bool)
        if round_ is not None:
            wanted &= _as_numpy(column.rounds) == round_
        if site is not None:
            wanted &= _as_numpy(column.sites) == self._places.get(site, -1)
        for index in np.flatnonzero(wanted).tolist():
            yield self._row(split, name, column, index)

    def _row(self, split: str, name: str, column: _Column, index: int) -> MetricRow:
        place = column.sites[index]
        round_ = column.rounds[index]
        value = column.values[index]
        return MetricRow(
            round=round_,
            site=self._names[place],
            split=split,
            name=name,
            value=None if isnan(value) else value,
            n=column.images[index],
            classes=self._classes.get((place, split, round_), ()),
        )


def _as_numpy(numbers: "array[int]") -> NDArray[np.int64]:
    """Return a view of an array of integers."""
    return np.frombuffer(numbers, dtype=np.int64)
