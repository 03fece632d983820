"""The recorded lines of a study by row and repetition, and which round of a row counts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from fedward.evaluation.names import ERRORS
from fedward.evaluation.selection import mean
from fedward.lab.bench.records import Record
from fedward.lab.bench.study import Cell, Place, Study

NOT_RUN = "not run"
"""What is said of a row without results."""
_MODELS = {
    "svm": "support vector machine",
    "logistic": "logistic regression",
    "lda": "linear discriminant analysis",
}
"""Model of a reference -> what tables call it."""


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

    def rows_that_ran(self) -> list[Place]:
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
        """Return seed -> test value of a row by the one stopping rule."""
        return test_values(self.by_seed(variant, row), metric)

    def cut(self, variant: str, row: str) -> list[str]:
        """Return the arguments by which the images of a row that has run are cut, without the seed.

        If the study does not cut them itself, it is the folder of their site files instead.
        """
        cell = self.repetitions(variant, row)[0].cell
        for arguments in self.study.partitions([cell]).values():
            if "--seed" not in arguments:
                return arguments
            index = arguments.index("--seed")
            return arguments[:index] + arguments[index + 2 :]
        return [self.study.rows[row].sites]

    def doubled(self, variant: str, row: str) -> list[Record]:
        """Return the results of a row with twice the rounds."""
        return [
            record
            for record in self.records.values()
            if record.doubled and (record.variant, record.row) == (variant, row)
        ]

    def references(self, variant: str, **wanted: str) -> dict[str, dict[int, Record]]:
        """Return title -> seed -> result of a variant's references, in the order of the lines.

        A variant without references of its own has those of the first variant.

        Args:
            variant: one of the study.
            wanted: fields of :attr:`~fedward.lab.bench.records.Record.reference` and their values.
        """
        lines = [record for record in self.records.values() if record.reference]
        own = [record for record in lines if record.variant == variant]
        if not own:
            own = [record for record in lines if record.variant == self.study.first_variant]
        found: dict[str, dict[int, Record]] = {}
        for record in own:
            kind = record.reference
            if all(kind[name] == value for name, value in wanted.items()):
                found.setdefault(reference_title(kind), {})[record.seed] = record
        return found

    def best_reference(self, variant: str, labels: str) -> tuple[str, dict[int, Record]] | None:
        """Return title and results of the best reference of all sites together; None without one.

        The largest mean value on validation images chooses. Test values must not, as the largest of
        several is too high by chance.

        Args:
            variant: one of the study.
            labels: ``few`` or ``all``.
        """
        best: tuple[str, dict[int, Record]] | None = None
        largest = 0.0
        for title, by_seed in self.references(variant, sites="pooled", labels=labels).items():
            on_validation = mean([record.on_validation for record in by_seed.values()])
            if on_validation is not None and (best is None or on_validation > largest):
                best = title, by_seed
                largest = on_validation
        return best


def test_values(by_seed: Mapping[int, Record], metric: str) -> dict[int, float]:
    """Return seed -> test value of a row or a reference by the one stopping rule."""
    return {seed: chosen_value(record, metric) for seed, record in by_seed.items()}


def chosen_value(record: Record, metric: str) -> float:
    """Return a test value in the round that is best on validation, as a mean over sites.

    Errors, such as that of calibration, choose no round: theirs are of the last rounds.

    Args:
        record: of a run or a reference.
        metric: one that the line keeps; ``pooled`` is the accuracy over all test images.
    """
    protocol = "last" if metric in ERRORS else "global"
    return record.test[protocol][metric]


def last_value(record: Record, metric: str) -> float:
    """Return a test value of the last rounds; of a reference, which has none, its value."""
    return record.test.get("last", record.test["global"])[metric]


def has_values(record: Record, metric: str) -> bool:
    """Return whether a run has both :func:`chosen_value` and :func:`last_value` of a metric."""
    protocols = ("last",) if metric in ERRORS else ("last", "global")
    return all(metric in record.test[protocol] for protocol in protocols)


def reference_title(kind: Mapping[str, str]) -> str:
    """Return what tables call a reference.

    Args:
        kind: as :attr:`~fedward.lab.bench.records.Record.reference`.
    """
    model = _MODELS[kind["model"]]
    images = "raw pixels" if kind["input"] == "pixels" else "the encoder's features"
    sites = "pooled" if kind["sites"] == "pooled" else "each site alone"
    return f"reference: {model} on {images}, {sites}, {kind['labels']} labels"
