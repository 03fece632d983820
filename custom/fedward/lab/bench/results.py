"""The recorded lines of a study by row and repetition, and which round of a row counts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from fedward.errors import ConfigError
from fedward.evaluation.selection import mean
from fedward.lab.bench.partitions import CutKey, cut_key
from fedward.lab.bench.records import Record
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell, RowOfVariant

NOT_RUN = "not run"
"""What is said of a row without results."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Results:
    """The kept results of a study.

    Lines with twice the rounds and lines of references are in ``records`` too; no method below
    counts them among the repetitions of a row. Results are equal to themselves alone, so that the
    rules of evidence can cache what they find in them.
    """

    study: Study
    records: Mapping[Cell, Record]
    neighbours: tuple["Results", ...] = ()
    """Results of other studies: what is withheld there is withheld here where runs are shared."""

    @cached_property
    def _repetitions(self) -> Mapping[Cell, Record]:
        """Results of rows that count in means."""
        return {
            Cell(record.variant, record.row, record.seed): record
            for record in self.records.values()
            if not record.doubled and not record.reference
        }

    def by_seed(self, variant: str, row: str) -> dict[int, Record]:
        """Return seed -> result, of the seeds that have run."""
        records: dict[int, Record] = {}
        for seed in self.study.seeds:
            cell = Cell(variant, row, seed)
            if cell in self._repetitions:
                records[seed] = self._repetitions[cell]
        return records

    def repetitions(self, variant: str, row: str) -> list[Record]:
        """Return the results of a row in the order of the study's seeds."""
        return list(self.by_seed(variant, row).values())

    def has_run(self, variant: str, row: str) -> bool:
        """Return whether a row has a result under any seed."""
        return bool(self.by_seed(variant, row))

    def rows_that_ran(self) -> list[RowOfVariant]:
        """Return (variant, row) of all rows that have run, in the study's order."""
        return [
            (variant, row)
            for variant in self.study.variants
            for row in self.study.rows_of(variant)
            if self.has_run(variant, row)
        ]

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Yield (variant, row, row to compare it with) of the study's pairs that have run."""
        ran = set(self.rows_that_ran())
        for variant in self.study.variants:
            for ours, theirs in self.study.compare:
                if {(variant, ours), (variant, theirs)} <= ran:
                    yield variant, ours, theirs

    def test_values(self, variant: str, row: str, metric: str) -> dict[int, float]:
        """Return seed -> test value of a row by the one stopping rule; see :func:`test_values`."""
        return test_values(self.by_seed(variant, row), metric)

    def cut(self, variant: str, row: str) -> CutKey:
        """Return how the images of a row are cut, in any repetition."""
        cell = Cell(variant, row, self.study.seeds[0])
        arguments = list(self.study.partitions([cell]).values())
        return cut_key(*arguments) if arguments else CutKey(self.study.rows[row].sites, False)

    def doubled(self, variant: str, row: str) -> list[Record]:
        """Return the results of a row with twice the rounds, of the study's doubled seeds."""
        return [
            record
            for record in self.records.values()
            if record.doubled
            and record.seed in self.study.doubled
            and (record.variant, record.row) == (variant, row)
        ]

    def references(self, variant: str, **wanted: str) -> dict[str, dict[int, Record]]:
        """Return title -> seed -> result of a variant's references, in the order of the lines.

        They are those of :meth:`~fedward.lab.bench.study.Study.variant_of_references`, of the
        study's seeds.

        Args:
            variant: one of the study.
            wanted: fields of :class:`~fedward.lab.bench.reference.Reference` and their values.
        """
        fitted_in = self.study.variant_of_references(variant)
        found: dict[str, dict[int, Record]] = {}
        for record in self.records.values():
            reference = record.reference
            if not reference:
                continue
            if record.variant != fitted_in or record.seed not in self.study.seeds:
                continue
            if all(getattr(reference, name) == value for name, value in wanted.items()):
                found.setdefault(reference.title, {})[record.seed] = record
        return found

    def best_reference_of_few(self, variant: str) -> tuple[str, dict[int, Record]] | None:
        """Return title and results of the best reference with few labels of all sites together.

        The largest mean value on validation images chooses. Test values must not, as the largest of
        several is too high by chance. None without such a reference.
        """
        best: tuple[str, dict[int, Record]] | None = None
        largest = 0.0
        for title, by_seed in self.references(variant, sites="pooled", labels="few").items():
            on_validation = mean([record.on_validation for record in by_seed.values()])
            if on_validation is not None and (best is None or on_validation > largest):
                best = title, by_seed
                largest = on_validation
        return best


def kept_with_results(
    find: Callable[Concatenate[Results, _P], _T],
) -> Callable[Concatenate[Results, _P], _T]:
    """Keep what a function finds in results for as long as these exist.

    Args:
        find: its other arguments are hashable, and what it returns does not hold the results.
    """
    found: WeakKeyDictionary[Results, dict[Any, _T]] = WeakKeyDictionary()

    @wraps(find)
    def look_up(results: Results, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        of_results = found.setdefault(results, {})
        key = (arguments, tuple(sorted(named.items())))
        if key not in of_results:
            of_results[key] = find(results, *arguments, **named)
        return of_results[key]

    return look_up


def test_values(by_seed: Mapping[int, Record], metric: str) -> dict[int, float]:
    """Return seed -> test value of a row or a reference by the one stopping rule.

    Raises:
        ConfigError: a line has no value of the metric.
    """
    return {seed: chosen_value(record, metric) for seed, record in by_seed.items()}


def chosen_value(record: Record, metric: str) -> float:
    """Return a test value in the round that is best on validation, as a mean over sites.

    Args:
        record: of a run or a reference.
        metric: one that the line keeps; ``pooled`` is the accuracy over all test images.

    Raises:
        ConfigError: the line has no value of the metric.
    """
    return _value(record, "global", metric)


def last_value(record: Record, metric: str) -> float:
    """Return a test value of the last rounds; of a reference, which has none, its value.

    Raises:
        ConfigError: the line has no value of the metric.
    """
    return _value(record, "last", metric)


def _value(record: Record, protocol: str, metric: str) -> float:
    values = record.test[protocol]
    if metric not in values:
        raise ConfigError(
            f"result of {record.cell}",
            "Delete its line and run its study again, or take the metric out of the study.",
            expected=f"a test value of {metric}",
            found="none",
        )
    return values[metric]


def has_values(record: Record, metric: str) -> bool:
    """Return whether a run has both :func:`chosen_value` and :func:`last_value` of a metric."""
    return all(metric in record.test[protocol] for protocol in ("last", "global"))
