"""A study: rows of methods, perhaps in several variants, on the same site files and with the same
seeds.
"""

import json
from collections.abc import Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedward.config import Experiment
from fedward.errors import ConfigError, reason_of
from fedward.faults import explain, names_in
from fedward.jobs import changed_experiment
from fedward.methods import METHODS

Settings = dict[str, Any]
"""Key, as of ``fedward run --set`` -> value."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Part):
    """One method."""

    title: str
    job: str
    """A shipped job or a method."""
    settings: Settings = {}
    sites: str = ""
    """Folder of its site files, below that of the study; ``{seed}`` stands for the seed. None:
    synthetic images.
    """
    alone: bool = False
    """Each site with labels trains a model of its own; the result is the mean over these sites."""
    init: str = ""
    """Row whose finished run of the same variant and seed gives the first weights."""
    labels: str = ""
    """Row whose finished run of the same variant and seed has bought the labels that this row may
    use.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        """Rows that must have run before."""
        return tuple(filter(None, (self.init, self.labels)))


class Variant(_Part):
    """One way of training all rows, or some."""

    title: str
    settings: Settings = {}
    """Of its rows; those that a row's method does not have are left out of it."""
    rows: tuple[str, ...] = ()
    """Rows that it changes; none: all."""
    labelled: float | None = None
    """Share of the training labels that it uses, where that is what variants differ by: tables then
    show which share of the own row's value in the first variant is reached, and the figure has
    labels for its axis."""


class Cell(NamedTuple):
    """One result: of one run, or where sites are alone, of one run for each site."""

    variant: str
    row: str
    seed: int

    def __str__(self) -> str:
        """Return the cell as a console names it."""
        return f"{self.variant} {self.row} seed {self.seed}"


class Study(_Part):
    """What is compared; read from a JSON file by :func:`read_study`."""

    title: str
    settings: Settings = {}
    """Of all rows; those that a row's method does not have are left out of it."""
    sites: dict[str, str] = {}
    """Folder of site files -> arguments of ``fedward partition`` that make it, with a path below
    the data folder first. Folders that are not named here are the user's own."""
    rows: dict[str, Row] = Field(min_length=1)
    variants: dict[str, Variant] = {"all": Variant(title="")}
    """The first is what the others are compared with."""
    seeds: tuple[int, ...] = (11, 12, 13, 14, 15)
    """Not those that chose a setting."""
    own: str = ""
    """The row that the page is about: bold in figures."""
    lower: str = ""
    upper: str = ""
    """Rows of few and of all labels: the table is refused unless the second beats the first."""
    compare: tuple[tuple[str, str], ...] = ()
    """Pairs of rows whose difference is shown."""
    metrics: tuple[str, ...] = ("accuracy", "f1_macro")

    @model_validator(mode="after")
    def _known_names(self) -> "Study":
        named = {
            self.own,
            self.lower,
            self.upper,
            *(name for row in self.rows.values() for name in row.needs),
        } - {""}
        named |= {name for pair in self.compare for name in pair}
        named |= {name for variant in self.variants.values() for name in variant.rows}
        unknown = sorted(named - set(self.rows))
        if unknown:
            raise ValueError(f"rows named {', '.join(unknown)}, which the study has not")
        return self

    @model_validator(mode="after")
    def _no_circle(self) -> "Study":
        try:
            self.stages()
        except CycleError as error:
            raise ValueError(
                f"{', '.join(error.args[1][1:])}: each needs another one of them to run first"
            ) from None
        return self

    def stages(self) -> list[tuple[str, ...]]:
        """Return the rows in groups: each needs only rows of the groups before its own."""
        order = TopologicalSorter({name: row.needs for name, row in self.rows.items()})
        stages = []
        order.prepare()
        while ready := order.get_ready():
            stages.append(ready)
            order.done(*ready)
        return stages

    @property
    def by_labels(self) -> bool:
        """Whether variants differ by how many labels there are."""
        return all(variant.labelled is not None for variant in self.variants.values())

    @property
    def reference(self) -> str:
        """The variant that the others are compared with."""
        return next(iter(self.variants))

    def rows_of(self, variant: str) -> tuple[str, ...]:
        """Return the rows that a variant changes, in the study's order."""
        chosen = self.variants[variant].rows
        return tuple(row for row in self.rows if not chosen or row in chosen)

    def cells(self, variants: Sequence[str] = (), rows: Sequence[str] = ()) -> list[Cell]:
        """Return the results of the named variants and rows, seed by seed; of all where none is
        named.
        """
        pairs = [
            (variant, row) for variant in variants or self.variants for row in self.rows_of(variant)
        ]
        wanted = [(variant, row) for variant, row in pairs if not rows or row in rows]
        return [Cell(variant, row, seed) for seed in self.seeds for variant, row in wanted]

    def experiment(
        self, cell: Cell, changes: Settings | None = None, data: Settings | None = None
    ) -> Experiment:
        """Return what a cell runs.

        Args:
            cell: one of the study.
            changes: settings in place of the common ones.
            data: what the site files' folder says of the images; what the study says of them comes
                first.

        Raises ConfigError: a job or a setting that is not known, or a value out of bounds.
        """
        row = self.rows[cell.row]
        known = _known(row.job)
        images = {f"data.{name}": value for name, value in (data or {}).items()}
        common = {**images, **self.settings, **(changes or {})}
        variant = self.variants[cell.variant].settings
        common, variant = (
            {k: v for k, v in each.items() if _has(known, k)} for each in (common, variant)
        )
        made = changed_experiment(row.job, {**common, **row.settings, **variant, "seed": cell.seed})
        if not made.data.label_kind.exclusive:
            remedy = "Compare single runs: fedward report RUN --compare OTHERS."
            raise ConfigError(
                f"study, row {cell.row}",
                expected="one label an image",
                found="several",
                remedy=remedy,
            )
        return made

    def folder(self, cell: Cell) -> str:
        """Return the folder of a cell's site files, below the study's; "" where the images are
        synthetic.
        """
        return self.rows[cell.row].sites.format(seed=cell.seed)

    def partitions(self, cells: Sequence[Cell]) -> dict[str, list[str]]:
        """Return folder of site files -> the arguments of ``fedward partition``, of all that some
        cells need.
        """
        named = sorted({(self.rows[cell.row].sites, cell.seed) for cell in cells})
        return {
            folder.format(seed=seed): self.sites[folder].format(seed=seed).split()
            for folder, seed in named
            if folder in self.sites
        }

    def unused(self, settings: Settings) -> list[str]:
        """Return the settings of several rows that no row's method has: typing errors."""
        known = [_known(row.job) for row in self.rows.values()]
        of_variants = [variant.settings for variant in self.variants.values()]
        shared = dict.fromkeys(
            key for each in (self.settings, settings, *of_variants) for key in each
        )
        return [key for key in shared if not any(_has(each, key) for each in known)]


@cache
def _known(job: str) -> frozenset[str]:
    """Return the options of a job's method."""
    method = changed_experiment(job, {}).method
    return frozenset(METHODS[method].settings_type.model_fields)


def _has(options: frozenset[str], key: str) -> bool:
    name = key.split(".", maxsplit=1)[0]
    return name in Experiment.model_fields or name in options


def read_study(file: Path) -> Study:
    """Read a study; raise ConfigError where the file cannot be read, or says what no study says."""
    remedy = "Name a file such as those in benchmarks/studies, or repair it."
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        study = Study.model_validate(content)
    except ValidationError as error:
        raise explain(
            error, f"study {file}", content, [*names_in(Study), *names_in(Row), *names_in(Variant)]
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"study {file}", expected="a JSON file", found=reason_of(error), remedy=remedy
        ) from None
    unused = study.unused({})
    if unused:
        expected = "settings that some row's method has"
        found = ", ".join(unused)
        raise ConfigError(
            f"study {file}, settings", expected=expected, found=found, remedy="Correct the names."
        )
    return study
