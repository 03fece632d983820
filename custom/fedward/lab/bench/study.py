"""A study: methods to compare, perhaps in several variants, on the same images and seeds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import changed_experiment
from fedward.lab.bench.partitions import CUTS, Partition, arguments_of, test_train_ratio
from fedward.lab.bench.study_parts import METRICS, Cell, Claim, Row, Settings, Title, Variant
from fedward.methods import method_of, settings_type


class Study(BaseModel):
    """What is compared; read from a JSON file by :mod:`.study_file`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Title
    settings: Settings = {}
    """Settings of all rows; a row ignores those that its method does not have."""
    sites: dict[str, str] = {}
    """Folder of site files -> arguments of ``fedward partition`` that make it.

    The first argument is a path below the data folder. Folders that are not named here are the
    user's own.
    """
    partition: str = ""
    """How the images of each repetition are cut, in place of ``sites``.

    It has the arguments of ``fedward partition`` without ``--seed``, ``--out`` and ``--pooled``;
    the seed is that of the repetition. The first argument is a path below the data folder.
    """
    rows: dict[str, Row] = Field(min_length=1)
    variants: dict[Title, Variant] = Field({"all": Variant(title="")}, min_length=1)
    """Variants to compare; the first is what the others are compared with."""
    seeds: tuple[int, ...] = Field((11, 12, 13, 14, 15), min_length=1)
    """Seeds of the runs; other seeds than those by which settings were chosen."""
    doubled: tuple[int, ...] = ()
    """Seeds whose rows run again with twice the rounds and a schedule that is stretched likewise.

    These results are in no mean. Rows of a single round have nothing to double. One seed is enough
    for about five repetitions. Intervals over more of them are narrower than what chance changes
    in a single run, and need several.
    """
    own: str = ""
    """Row that the page is about; it is bold in tables and figures."""
    lower: str = ""
    """Row of few labels, whose value is the lower bound; empty: there is none."""
    upper: str = ""
    """Row of all labels; empty: there is none.

    The upper bound is the best of all rows that see the same labels as this one, and of the
    references with all labels. A metric is withheld unless this bound beats the lower one.
    """
    compare: tuple[tuple[str, str], ...] = ()
    """Pairs of rows whose difference is shown."""
    communities: dict[Title, tuple[str, ...]] = {}
    """Name of a community -> its sites, as the images were divided.

    A table shows how often members were each other's peers.
    """
    metrics: tuple[str, ...] = Field(("accuracy", "f1_macro"), min_length=1)
    """Metrics that it shows, of :data:`METRICS`; most figures and sentences are on the first."""
    claims: tuple[Claim, ...] = ()
    """Expectations that stand here before the study runs; a change afterwards is refused."""

    @model_validator(mode="after")
    def _shows_recorded_metrics(self) -> "Study":
        unknown = [metric for metric in self.metrics if metric not in METRICS]
        if unknown or len(set(self.metrics)) < len(self.metrics):
            raise ValueError(
                f"metrics {', '.join(self.metrics)}, not some of {', '.join(METRICS)}, each of "
                "them once"
            )
        return self

    @model_validator(mode="after")
    def _tells_rows_and_variants_apart(self) -> "Study":
        for parts in (self.rows, self.variants):
            titles = Counter(part.title for part in parts.values())
            title, uses = titles.most_common(1)[0]
            if uses > 1:
                raise ValueError(f"{uses} rows or variants with the title {title!r}")
        return self

    @model_validator(mode="after")
    def _names_site_files_by_seed_alone(self) -> "Study":
        folders = [row.sites for row in self.rows.values()]
        for text in (*folders, *self.sites, *self.sites.values()):
            try:
                text.format(seed=0)
            except (AttributeError, LookupError, ValueError):
                raise ValueError(f"sites with another placeholder than {{seed}}: {text}") from None
        for text in self.sites.values():
            # Raises ValueError for arguments that `fedward partition` does not have.
            arguments_of(text.format(seed=0))
        return self

    @model_validator(mode="after")
    def _claims_only_what_it_shows(self) -> "Study":
        for claim in self.claims:
            places = claim.places(self.first_variant)
            for variant, row in chain.from_iterable(places):
                if variant not in self.variants or row not in self.rows_of(variant):
                    raise ValueError(
                        f"claims name the row {row} of {variant}, which the study does not have"
                    )
            if claim.metric not in self.metrics:
                raise ValueError(
                    f"claims name {claim.metric}, which is not one of the study's metrics"
                )
            if any(ours == theirs for ours, theirs in places):
                raise ValueError(f"claims compare the row {claim.row} with itself")
        return self

    @model_validator(mode="after")
    def _names_only_rows_it_has(self) -> "Study":
        named = {self.own, self.lower, self.upper}
        for row in self.rows.values():
            named.update(row.needs)
        for pair in self.compare:
            named.update(pair)
        for variant in self.variants.values():
            named.update(variant.rows)
        unknown = sorted(named - set(self.rows) - {""})
        if unknown:
            raise ValueError(f"rows named {', '.join(unknown)}, which the study does not have")
        return self

    @model_validator(mode="after")
    def _begins_with_rows_of_one_model(self) -> "Study":
        for name, row in self.rows.items():
            alone = [other for other in row.needs if self.rows[other].alone]
            if alone:
                raise ValueError(
                    f"init or labels of {name} with the row {alone[0]}, which has no model of all "
                    "sites, as they train alone"
                )
        return self

    @model_validator(mode="after")
    def _buys_labels_of_site_files(self) -> "Study":
        for name, row in self.rows.items():
            if row.labels and not (row.sites and self.rows[row.labels].sites):
                raise ValueError(
                    f"labels of {name} without sites: those of synthetic images cannot be bought"
                )
        return self

    @model_validator(mode="after")
    def _has_the_seeds_of_repetitions_alone(self) -> "Study":
        of_rows = [row.settings for row in self.rows.values()]
        of_variants = [variant.settings for variant in self.variants.values()]
        if any("seed" in settings for settings in (self.settings, *of_rows, *of_variants)):
            raise ValueError("settings with a seed, which is that of the repetition")
        return self

    @model_validator(mode="after")
    def _names_each_seed_once(self) -> "Study":
        for seeds in (self.seeds, self.doubled):
            if len(set(seeds)) < len(seeds):
                raise ValueError(f"seeds or doubled {', '.join(map(str, seeds))}, not each once")
        return self

    @model_validator(mode="after")
    def _doubles_seeds_that_it_has(self) -> "Study":
        unknown = sorted(set(self.doubled) - set(self.seeds))
        if unknown:
            raise ValueError(
                f"doubled names {', '.join(map(str, unknown))}, which the study's seeds lack"
            )
        return self

    @model_validator(mode="after")
    def _has_no_circle(self) -> "Study":
        needs = {name: row.needs for name, row in self.rows.items()}
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            circle = error.args[1][1:]
            raise ValueError(
                f"{', '.join(circle)}: each needs another one of them to run first"
            ) from None
        return self

    @model_validator(mode="after")
    def _cuts_what_its_rows_need(self) -> "Study":
        partitions = [variant.partition for variant in self.variants.values() if variant.partition]
        if not self.partition:
            if partitions:
                raise ValueError("partition of a variant, where the study has none")
            return self
        # Raises ValueError for arguments that `fedward partition` does not have.
        for partition in (self.partition, *partitions):
            Partition.parse(partition)
        if self.sites:
            raise ValueError("sites, where partition says how the images are cut")
        others = [name for name, row in self.rows.items() if row.sites not in CUTS]
        if others:
            raise ValueError(
                f"rows {', '.join(others)} with other sites than {', '.join(CUTS)}, where "
                "partition says how the images are cut"
            )
        return self

    def all_needs(self, row: str) -> set[str]:
        """Return the rows that must have run before a row, also those that these need."""
        needed = set(self.rows[row].needs)
        for other in self.rows[row].needs:
            needed |= self.all_needs(other)
        return needed

    @property
    def by_labels(self) -> bool:
        """Whether each variant has a share of labels that no other one has."""
        shares = {variant.labelled for variant in self.variants.values()}
        return None not in shares and len(shares) == len(self.variants)

    @property
    def first_variant(self) -> str:
        """The variant that the others are compared with."""
        return next(iter(self.variants))

    def variant_of(self, variant: str, row: str) -> str:
        """Return the variant whose run a row has in ``variant``.

        It is ``variant`` itself if that changes the row, and otherwise the first one.
        """
        return variant if row in self.rows_of(variant) else self.first_variant

    def variant_of_references(self, variant: str) -> str:
        """Return the variant on whose images a variant's references are fitted.

        It is the variant itself if it has a share of labels or a cut of its own, else the first.
        """
        of_variant = self.variants[variant]
        has_own_images = of_variant.labelled is not None or bool(of_variant.partition)
        return variant if has_own_images else self.first_variant

    def in_variant(self, variant: str, text: str) -> str:
        """Return a text with the title of its variant before it, if variants have titles."""
        title = self.variants[variant].title
        return f"{title}: {text}" if title else text

    def name_of(self, variant: str, row: str) -> str:
        """Return a row's title with that of its variant before it, if variants have titles."""
        return self.in_variant(variant, self.rows[row].title)

    def rows_of(self, variant: str) -> tuple[str, ...]:
        """Return the rows that a variant changes, in the study's order."""
        chosen = self.variants[variant].rows
        return tuple(row for row in self.rows if not chosen or row in chosen)

    def cells(self, variants: Sequence[str] = (), rows: Sequence[str] = ()) -> list[Cell]:
        """Return the cells of the named variants and rows, seed by seed; by default all cells.

        Those with twice the rounds come last: a study that is cut short has its repetitions first.
        """
        cells = [
            Cell(variant, row, seed)
            for seed in self.seeds
            for variant in variants or self.variants
            for row in self.rows_of(variant)
            if not rows or row in rows
        ]
        doubled = [
            cell._replace(doubled=True)
            for cell in cells
            if cell.seed in self.doubled and self.rounds(cell) > 1
        ]
        return [*cells, *doubled]

    def rounds(self, cell: Cell) -> int:
        """Return how many rounds a cell has."""
        return int(method_of(self.experiment(cell)).settings.rounds)

    def experiment(
        self, cell: Cell, changes: Settings | None = None, data: Settings | None = None
    ) -> Experiment:
        """Return what a cell runs; of a removed row, without the settings of the row itself.

        Args:
            cell: one of the study.
            changes: settings that replace the common ones.
            data: fields of ``data`` as the folder of site files describes them; the study's own
                settings take precedence.

        Raises:
            ConfigError: an unknown job or setting, a value out of bounds, or multi-label images.
        """
        row = self.rows[cell.row]
        options = _options_of(row.job)
        data_settings = {f"data.{name}": value for name, value in (data or {}).items()}
        common = {**data_settings, **self.settings, **(changes or {})}
        settings = {
            **_applicable(common, options),
            **({} if row.removed else row.settings),
            **_applicable(self.variants[cell.variant].settings, options),
            "seed": cell.seed,
        }
        experiment = changed_experiment(row.job, settings)
        if cell.doubled:
            experiment = changed_experiment(row.job, {**settings, **_doubled(experiment)})
        if not experiment.data.label_kind.exclusive:
            raise ConfigError(
                f"study, row {cell.row}",
                "Compare single runs: fedward report RUN --compare OTHERS.",
                expected="one label an image",
                found="several",
            )
        return experiment

    def folder(self, cell: Cell) -> str:
        """Return the folder of a cell's site files, below the study's; empty: synthetic images.

        Raises:
            KeyError: the study lacks the cell's variant or row.
        """
        if self.partition:
            return self._cut(cell).folder
        return self.rows[cell.row].sites.format(seed=cell.seed)

    def partition_of(self, variant: str) -> str:
        """Return how the images of a variant are cut; empty without a partition."""
        return self.variants[variant].partition or self.partition

    def test_train_ratio(self, variant: str, row: str) -> float | None:
        """Return how many test images a row of a variant has for each training image.

        It is 0 for synthetic images, of which each repetition has its own, and None where the study
        does not say how its site files divide a data set.
        """
        folder = self.rows[row].sites
        if not folder:
            return 0.0
        if self.partition:
            return test_train_ratio(arguments_of(self.partition_of(variant)))
        if folder not in self.sites:
            return None
        # Shares of images are the same under all seeds.
        return test_train_ratio(arguments_of(self.sites[folder].format(seed=0)))

    def _cut(self, cell: Cell) -> Partition:
        """Return how the images of a cell are cut, where the study has a partition."""
        variant = self.variants[cell.variant]
        partition = Partition.parse(self.partition_of(cell.variant))
        cut = partition.of(self.rows[cell.row].sites, cell.seed, variant.labelled)
        return cut.below(cell.variant) if variant.partition else cut

    def partitions(self, cells: Sequence[Cell]) -> dict[str, list[str]]:
        """Return folder of site files -> arguments of ``fedward partition``, for the cells.

        Folders that the study does not cut are left out.

        Raises:
            KeyError: the study lacks the variant or row of a cell.
        """
        if self.partition:
            cuts = [self._cut(cell) for cell in cells]
            return {cut.folder: list(cut.arguments) for cut in cuts}
        needed = sorted({(self.rows[cell.row].sites, cell.seed) for cell in cells})
        arguments = {}
        for folder, seed in needed:
            if folder in self.sites:
                text = self.sites[folder].format(seed=seed)
                arguments[folder.format(seed=seed)] = list(arguments_of(text))
        return arguments

    def unused(self, settings: Settings) -> list[str]:
        """Return the shared settings that no row's method has, which are misspelt.

        ``settings`` are given in addition to the study's own.
        """
        options = [_options_of(row.job) for row in self.rows.values()]
        shared = {**self.settings, **settings}
        for variant in self.variants.values():
            shared |= variant.settings
        return [key for key in shared if not any(_applies(key, known) for known in options)]


@cache
def _options_of(job: str) -> frozenset[str]:
    """Return the names of the settings that a job's method has."""
    method = changed_experiment(job, {}).method
    return frozenset(settings_type(method).model_fields)


def _doubled(experiment: Experiment) -> Settings:
    """Return the settings that make an experiment twice as long, with a schedule as stretched.

    It is evaluated as often as before: at the same rounds, and then at as many again.
    """
    settings = method_of(experiment).settings
    return {name: 2 * getattr(settings, name) for name in settings.counted_in_rounds}


def _applies(key: str, options: frozenset[str]) -> bool:
    """Return whether a setting is of every experiment, or among a method's options."""
    name = key.split(".", maxsplit=1)[0]
    return name in Experiment.model_fields or name in options


def _applicable(settings: Mapping[str, Any], options: frozenset[str]) -> Settings:
    """Return the settings that a method with these options has."""
    return {key: value for key, value in settings.items() if _applies(key, options)}
