"""The rows of metrics.jsonl, kept as columns: a run of a thousand sites has millions of them."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.selection import MetricRow


@dataclass
class _Column:
    """All rows of one metric in one split, in the order of the log."""

    rounds: "array[int]" = field(default_factory=lambda: array("q"))
    sites: "array[int]" = field(default_factory=lambda: array("q"))
    """Place of each row's site in the list of sites."""
    values: "array[float]" = field(default_factory=lambda: array("d"))
    """NaN where the value is not defined."""
    images: "array[int]" = field(default_factory=lambda: array("q"))


class Metrics:
    """Metric rows that take 32 bytes each, column by column; ``rows`` are read once.

    Args:
        rows: of the log, in its order.
        sites: of the run; others follow as rows name them.
    """

    def __init__(self, rows: Iterable[MetricRow], sites: Sequence[str] = ()) -> None:
        self._places = {site: place for place, site in enumerate(sites)}
        self._columns: dict[tuple[str, str], _Column] = {}
        self._classes: dict[tuple[int, str, int], tuple[str, ...]] = {}
        """Place of a site, split, round -> the classes present, which one row says for all."""
        same: dict[tuple[str, ...], tuple[str, ...]] = {}
        for row in rows:
            place = self._places.setdefault(row.site, len(self._places))
            column = self._columns.get((row.split, row.name))
            if column is None:
                column = self._columns[row.split, row.name] = _Column()
            column.rounds.append(row.round)
            column.sites.append(place)
            column.values.append(nan if row.value is None else row.value)
            column.images.append(row.n)
            if row.classes:
                self._classes[place, row.split, row.round] = same.setdefault(
                    row.classes, row.classes
                )
        self._names = list(self._places)

    def __len__(self) -> int:
        return sum(len(column.rounds) for column in self._columns.values())

    def __iter__(self) -> Iterator[MetricRow]:
        """Yield all rows, metric by metric."""
        for split, name in self._columns:
            yield from self._rows(split, name)

    def named(self, name: str) -> Iterator[MetricRow]:
        """Yield the rows of one metric in all splits."""
        for split in [split for split, each in self._columns if each == name]:
            yield from self._rows(split, name)

    def at(self, site: str, split: str, round_: int | None) -> dict[str, MetricRow]:
        """Return name -> row of one site and split after one round."""
        names = [name for of, name in self._columns if of == split]
        rows = (row for name in names for row in self._rows(split, name, round_, site))
        return {row.name: row for row in rows}

    def values(self, split: str, name: str, round_: int | None) -> dict[str, float | None]:
        """Return site -> value of one metric after one round; None where it is not defined."""
        return (
            {row.site: row.value for row in self._rows(split, name, round_)}
            if round_ is not None
            else {}
        )

    def newest(self, split: str, name: str) -> dict[str, MetricRow]:
        """Return site -> the row of its last round of one metric."""
        column = self._columns.get((split, name))
        if column is None:
            return {}
        order = np.argsort(_ints(column.rounds), kind="stable")
        last = dict(zip(_ints(column.sites)[order].tolist(), order.tolist(), strict=True))
        return {
            self._names[place]: self._row(split, name, column, index)
            for place, index in last.items()
        }

    def classes(self) -> tuple[str, ...]:
        """Return all classes that rows name, as they come."""
        return tuple(dict.fromkeys(name for classes in self._classes.values() for name in classes))

    def _rows(
        self, split: str, name: str, round_: int | None = None, site: str | None = None
    ) -> Iterator[MetricRow]:
        column = self._columns.get((split, name))
        if column is None:
            return
        wanted = np.ones(len(column.rounds), dtype=bool)
        if round_ is not None:
            wanted &= _ints(column.rounds) == round_
        if site is not None:
            wanted &= _ints(column.sites) == self._places.get(site, -1)
        for index in np.flatnonzero(wanted).tolist():
            yield self._row(split, name, column, index)

    def _row(self, split: str, name: str, column: _Column, index: int) -> MetricRow:
        place = column.sites[index]
        round_ = column.rounds[index]
        value = column.values[index]
        classes = self._classes.get((place, split, round_), ())
        shown = None if isnan(value) else value
        return MetricRow(
            round_, self._names[place], split, name, shown, column.images[index], classes
        )


def _ints(numbers: "array[int]") -> NDArray[np.int64]:
    return np.frombuffer(numbers, dtype=np.int64)
