"""The kept results of a study, and what may be concluded from them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median, stdev

from pydantic import ValidationError

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.evaluation import mean_and_interval, paired_difference
from fedward.evaluation.intervals import Interval, percent_more
from fedward.evaluation.selection import mean
from fedward.lab.bench.bounds import Best, Candidate, apart, best_of
from fedward.lab.bench.convergence import chosen_value, fall, unconverged
from fedward.lab.bench.markdown import Spread, gap_text
from fedward.lab.bench.records import Record, with_defaults
from fedward.lab.bench.study import Cell, Place, Study
from fedward.methods import settings_of

NOT_RUN = "not run"
"""What is said of a row without results."""
NO_REFERENCE = "no reference on raw pixels was recorded"
"""Why nothing is concluded on methods where no reference can be compared with the federation."""
NO_BOUNDS = "rows of few and of all labels have not both run"
"""Why nothing is concluded where there is no lower bound, no upper bound, or neither."""
_GROUP_WIDTH = 1.96
"""Half of a 95 % interval in standard deviations."""
_MODELS = {
    "svm": "support vector machine",
    "logistic": "logistic regression",
    "lda": "linear discriminant analysis",
}
"""Model of a reference -> what tables call it."""


@dataclass(frozen=True)
class Results:
    """The kept results of a study.

    Lines with twice the rounds and lines of references are in ``records`` too; no method below
    counts them among the repetitions of a row.
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

    def test_values(self, variant: str, row: str, metric: str) -> dict[int, float]:
        """Return seed -> test value by the one stopping rule."""
        return _test_values(self.by_seed(variant, row), metric)

    def data_varied(self, variant: str, row: str) -> bool:
        """Return whether the repetitions of a row differ in images and labels, not in weights only.

        Each line must say so, and no two may have the same test images or the same labels.
        """
        records = list(self.by_seed(variant, row).values())
        cuts = [record.cut for record in records if record.cut is not None]
        if len(cuts) < len(records) or any(record.repetition == "weights" for record in records):
            return False
        test_images = {cut.test for cut in cuts}
        labels = {cut.labels for cut in cuts}
        return len(test_images) == len(labels) == len(records)

    def group_interval(self, variant: str, row: str, metric: str) -> float | None:
        """Return half the 95 % interval over groups of test images; None if it was not recorded.

        1.96 times the mean over repetitions of the standard deviation over resampled groups.
        """
        return group_interval(self.by_seed(variant, row), metric)

    def has_run(self, variant: str, row: str) -> bool:
        """Return whether a row has a result under any seed."""
        return bool(self.by_seed(variant, row))

    def unconverged(self, variant: str, row: str, metric: str) -> str:
        """Return why a row is not shown to have converged in a metric; empty if it is."""
        records = list(self.by_seed(variant, row).values())
        if not records:
            return NOT_RUN
        return unconverged(records, self.doubled(variant, row), metric)

    def fall(self, variant: str, row: str, metric: str) -> float | None:
        """Return by how much a row's curve falls after its best round; None if it does not."""
        records = list(self.by_seed(variant, row).values())
        return fall(records, metric) if records else None

    def _bounds_of(self, variant: str) -> str:
        """Return the variant whose bounds judge one: the first, if it does not change them."""
        rows = self.study.rows_of(variant)
        if self.study.lower in rows and self.study.upper in rows:
            return variant
        return self.study.first_variant

    def upper(self, variant: str, metric: str) -> Best:
        """Return the upper bound: the best of all rows and references with all labels.

        A row has all labels if it sees those that the study's ``upper`` row sees: sites cut in the
        same way, no row that bought labels, and the same share of them. Centralised training, whose
        cut differs by ``--pooled`` alone, is among them, and so are sites alone.
        """
        variant = self._bounds_of(variant)
        candidates = self._with_all_labels(variant, metric, self.study.rows_of(variant))
        for title, records in self.references(variant, labels="all").items():
            candidates.append(_candidate(title, records, metric))
        return best_of(candidates)

    def _with_all_labels(self, variant: str, metric: str, rows: Sequence[str]) -> list[Candidate]:
        """Return the rows among ``rows`` that see all labels."""
        if not self.has_run(variant, self.study.upper):
            return []
        candidates = []
        for row in rows:
            if self.same_labels(variant, row, self.study.upper):
                title = self.study.rows[row].title
                candidates.append(_candidate(title, self.by_seed(variant, row), metric))
        return candidates

    def same_labels(self, variant: str, row: str, other: str) -> bool:
        """Return whether two rows of a variant that have run see the same labels."""
        labels = self._labels.get((variant, row))
        return labels is not None and labels == self._labels.get((variant, other))

    @cached_property
    def _labels(self) -> dict[tuple[str, str], tuple[object, ...]]:
        """(variant, row) -> what decides which labels it sees, of the rows that have run."""
        return {
            (variant, row): self._labels_of(variant, row)
            for variant in self.study.variants
            for row in self.study.rows_of(variant)
            if self.has_run(variant, row)
        }

    def _labels_of(self, variant: str, row: str) -> tuple[object, ...]:
        """Return what decides which labels a row sees; it is equal for rows that see the same.

        It is how images are cut, the row that bought the labels, the share of them that the row
        buys itself, and the synthetic images.
        """
        first = next(iter(self.by_seed(variant, row).values()))
        cut = [_number(argument) for argument in self._cut(variant, row) if argument != "--pooled"]
        # Methods without this setting buy no labels: they use all that the cut leaves.
        bought_share = getattr(_method_settings(first), "target_fraction", 1.0)
        # Jobs differ in their synthetic images, which a row with site files does not use.
        has_site_files = bool(self.study.partition or self.study.rows[row].sites)
        synthetic = None if has_site_files else first.settings.get("synthetic")
        return (cut, self.study.rows[row].labels, bought_share, synthetic)

    def _cut(self, variant: str, row: str) -> list[str]:
        """Return the arguments by which a row's images are cut, without the seed.

        If the study does not cut them itself, it is the folder of their site files instead.
        """
        cell = Cell(variant, row, next(iter(self.by_seed(variant, row))))
        for arguments in self.study.partitions([cell]).values():
            if "--seed" not in arguments:
                return arguments
            index = arguments.index("--seed")
            return arguments[:index] + arguments[index + 2 :]
        return [self.study.rows[row].sites]

    def _best_in_federation(self, variant: str, metric: str) -> Best:
        """Return the best row with all labels whose sites train together."""
        rows = [
            row
            for row in self.study.rows_of(variant)
            if self.has_run(variant, row)
            and not self.study.rows[row].alone
            and "--pooled" not in self._cut(variant, row)
        ]
        return best_of(self._with_all_labels(variant, metric, rows))

    def own_regime_refusal(self, variant: str) -> str:
        """Return why nothing is concluded on methods from a variant; empty if something may be.

        All labels in the federation must be shown to beat each reference on raw pixels with all
        labels pooled, in the metric that chooses rounds, paired by repetition. Otherwise the
        federation is no regime in which to compare methods: it learns too little from its images.
        """
        references = self.references(variant, input="pixels", sites="pooled", labels="all")
        variant = self._bounds_of(variant)
        upper_records = self.by_seed(variant, self.study.upper)
        if not references or not upper_records:
            return NO_REFERENCE
        key_metric = str(next(iter(upper_records.values())).settings["key_metric"])
        federation = self._best_in_federation(variant, key_metric).values
        for title, by_seed in references.items():
            ours, theirs = _in_common(federation, _test_values(by_seed, key_metric))
            if len(ours) < 2:
                return f"too few repetitions have {title} and all labels in the federation"
            if not apart(ours, theirs):
                gap = gap_text(paired_difference(ours, theirs))
                return (
                    "all labels in the federation are not shown to beat "
                    f"{title}: {gap} of {key_metric}"
                )
        return ""

    def own_bounds_refusal(self, variant: str, metric: str) -> str:
        """Return why a variant must not be shown in a metric by its own bounds.

        Its upper bound must be shown to beat its lower bound; empty without bounds.
        """
        lower = self.test_values(self._bounds_of(variant), self.study.lower, metric)
        upper = self.upper(variant, metric).values
        upper_values, lower_values = _in_common(upper, lower)
        if not upper_values:
            return ""
        if len(upper_values) == 1:
            return "a single seed"
        if apart(upper_values, lower_values):
            return ""
        gap = paired_difference(upper_values, lower_values)
        return f"bounds not apart: {gap_text(gap)}"

    def bounds_refusal(self, variant: str, metric: str) -> str:
        """Return why a variant must not be shown in a metric; empty if it may be.

        Either its own bounds are not apart, or those of a study that shares some of its runs.

        Args:
            variant: one of the study.
            metric: one of the study.
        """
        return self._bounds_refusals[variant, metric]

    @cached_property
    def _bounds_refusals(self) -> dict[tuple[str, str], str]:
        return {
            (variant, metric): self._bounds_refusal(variant, metric)
            for variant in self.study.variants
            for metric in self.study.metrics
        }

    def _bounds_refusal(self, variant: str, metric: str) -> str:
        own = self.own_bounds_refusal(variant, metric)
        if own:
            return own
        for neighbour, other_variant in self._sharing(variant):
            refusal = neighbour.own_bounds_refusal(other_variant, metric)
            if refusal:
                return f"{refusal} in the same runs of *{neighbour.study.title}*"
        return ""

    def bounds_unknown(self, variant: str) -> bool:
        """Return whether neither this study nor one that shares runs has few and all labels."""
        return next(self._with_bounds(variant), None) is None

    def _with_bounds(self, variant: str) -> Iterator[tuple["Results", str]]:
        """Yield the studies with both bounds that judge a variant, each with its own variant.

        They are this study, and those that share runs with it.
        """
        if self._has_bounds(variant):
            yield self, variant
        for neighbour, other_variant in self._sharing(variant):
            if neighbour._has_bounds(other_variant):
                yield neighbour, other_variant

    def _has_bounds(self, variant: str) -> bool:
        """Return whether some repetition has both a lower and an upper bound."""
        metric = self.study.metrics[0]
        lower = self.test_values(self._bounds_of(variant), self.study.lower, metric)
        return bool(set(lower) & set(self.upper(variant, metric).values))

    def regime_refusal(self, variant: str) -> str:
        """Return why nothing is concluded on methods here, by this study or one that shares runs.

        A study without a row of all labels is judged by those that share its runs.
        """
        refusals = []
        for study, its_variant in self._with_bounds(variant):
            refusal = study.own_regime_refusal(its_variant)
            if refusal != NO_REFERENCE:
                refusals.append(refusal)
        if not refusals:
            has_references = bool(self.references(variant, input="pixels"))
            return NO_BOUNDS if has_references else NO_REFERENCE
        # Empty ones are of studies in which something may be concluded.
        return next((refusal for refusal in refusals if refusal), "")

    def _sharing(self, variant: str) -> Iterator[tuple["Results", str]]:
        """Yield the variants of other studies that have some of the same runs.

        Runs are the same if data set, cut, network and all settings are, whatever the seeds. A
        study without bounds is judged as a whole, so that no variant of it escapes.
        """
        if not self.neighbours:
            return
        variants = (variant,) if self._has_bounds(variant) else tuple(self.study.variants)
        ours = {key for name in variants for key in self._run_keys[name].values()}
        for neighbour in self.neighbours:
            for other_variant, keys in neighbour._run_keys.items():
                if ours & set(keys.values()):
                    yield neighbour, other_variant

    @cached_property
    def _run_keys(self) -> dict[str, dict[str, tuple[object, ...]]]:
        """Variant -> row -> what its runs are of, without the seed."""
        keys: dict[str, dict[str, tuple[object, ...]]] = {}
        for variant in self.study.variants:
            keys[variant] = {}
            for row in self.study.rows_of(variant):
                key = self._run_key(variant, row)
                if key is not None:
                    keys[variant][row] = key
        return keys

    def _run_key(self, variant: str, row: str) -> tuple[object, ...] | None:
        """Return what a row's runs are of, without the seed; None if there is nothing to share.

        It is the cut, whether sites are alone, all settings, and the same of the rows whose weights
        or labels it begins with.
        """
        if row not in self.study.rows_of(variant):
            variant = self.study.first_variant
        records = self.by_seed(variant, row)
        if not records:
            return None
        record = next(iter(records.values()))
        try:
            settings = _settings_text(record)
        except (ValidationError, ConfigError):
            # A line that no version of today could run again shares its run with no other study.
            return None
        needed = tuple(self._run_key(variant, name) for name in self.study.rows[row].needs)
        cut = " ".join(self._cut(variant, row))
        return (cut, self.study.rows[row].alone, settings, needed)

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Yield (variant, row, row to compare it with) of the study's pairs that have run."""
        for variant in self.study.variants:
            rows = self.study.rows_of(variant)
            for ours, theirs in self.study.compare:
                if ours not in rows or theirs not in rows:
                    continue
                if self.has_run(variant, ours) and self.has_run(variant, theirs):
                    yield variant, ours, theirs

    def gap(self, ours: Place, theirs: Place, metric: str) -> Interval | None:
        """Return the difference of two rows, paired by seed; None if no seed has both."""
        return _gap(self.test_values(*ours, metric), self.test_values(*theirs, metric))

    def reference_gap(
        self, by_seed: Mapping[int, Record], row: Place, metric: str
    ) -> Interval | None:
        """Return the difference of a reference from a row, paired by seed.

        None if no seed has both.
        """
        return _gap(_test_values(by_seed, metric), self.test_values(*row, metric))

    def spread_over_sites(self, variant: str, row: str, metric: str) -> Spread | None:
        """Return mean, median and deviation of a repetition's sites, each as mean over repetitions.

        None without a site that has a test value. A site of one repetition may be another one in
        the next, so sites are not compared between repetitions.
        """
        records = self.by_seed(variant, row).values()
        of_sites = [list(record.of_sites(metric).values()) for record in records]
        by_repetition = [values for values in of_sites if values]
        if not by_repetition:
            return None
        deviations = [stdev(values) for values in by_repetition if len(values) > 1]
        return Spread(
            mean=fmean(map(fmean, by_repetition)),
            median=fmean(map(median, by_repetition)),
            sd=fmean(deviations) if deviations else None,
        )

    def relative_improvement(
        self, variant: str, ours: str, theirs: str, metric: str
    ) -> float | None:
        """Return by how many percent a row is better than another one, over their common seeds."""
        our_values, their_values = _in_common(
            self.test_values(variant, ours, metric), self.test_values(variant, theirs, metric)
        )
        return percent_more(our_values, their_values)

    def additional_cost(self, variant: str, ours: str, theirs: str) -> float | None:
        """Return by how many percent a row moves more data than another one, over common seeds.

        None if they do not begin with the same weights, or if sites are alone in one of them: data
        moved by another run would be missing, or would not be moved by a site that is alone.
        """
        our_row = self.study.rows[ours]
        their_row = self.study.rows[theirs]
        if our_row.init != their_row.init or our_row.alone or their_row.alone:
            return None
        our_megabytes, their_megabytes = _in_common(
            self._megabytes(variant, ours), self._megabytes(variant, theirs)
        )
        return percent_more(our_megabytes, their_megabytes)

    def _megabytes(self, variant: str, row: str) -> dict[int, float]:
        """Return seed -> traffic of a row's run."""
        return {seed: record.megabytes for seed, record in self.by_seed(variant, row).items()}

    def percent_reached(self, variant: str, row: str, metric: str) -> Interval | None:
        """Return the percentage that a row reaches of the own row's value in the first variant.

        The values are paired by seed; None without a common seed, or if the own row's value is 0.
        """
        own_row = self.study.own or row
        values, with_all_labels = _in_common(
            self.test_values(variant, row, metric),
            self.test_values(self.study.first_variant, own_row, metric),
        )
        if not values or 0.0 in with_all_labels:
            return None
        return mean_and_interval(
            [100 * value / whole for value, whole in zip(values, with_all_labels, strict=True)]
        )


def _test_values(by_seed: Mapping[int, Record], metric: str) -> dict[int, float]:
    """Return seed -> test value in the chosen round."""
    return {seed: chosen_value(record, metric) for seed, record in by_seed.items()}


def _in_common(
    ours: Mapping[int, float], theirs: Mapping[int, float]
) -> tuple[list[float], list[float]]:
    """Return the values of the seeds that both have, in the order of the seeds.

    Args:
        ours: seed -> value.
        theirs: likewise.
    """
    seeds = sorted(set(ours) & set(theirs))
    return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]


def _gap(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return the difference of values that are paired by seed; None if no seed has both."""
    our_values, their_values = _in_common(ours, theirs)
    return paired_difference(our_values, their_values) if our_values else None


def _candidate(title: str, by_seed: Mapping[int, Record], metric: str) -> Candidate:
    validation = {}
    for seed, record in by_seed.items():
        if record.on_validation is not None:
            validation[seed] = record.on_validation
    return Candidate(title, _test_values(by_seed, metric), validation)


def group_interval(by_seed: Mapping[int, Record], metric: str) -> float | None:
    """Return half the 95 % interval over test groups of some repetitions; None if one lacks it."""
    deviations = []
    for record in by_seed.values():
        if metric not in record.by_group:
            return None
        deviations.append(record.by_group[metric]["deviation"])
    return _GROUP_WIDTH * fmean(deviations) if deviations else None


def reference_title(kind: Mapping[str, str]) -> str:
    """Return what tables call a reference."""
    model = _MODELS[kind["model"]]
    images = "raw pixels" if kind["input"] == "pixels" else "the encoder's features"
    sites = "pooled" if kind["sites"] == "pooled" else "each site alone"
    return f"reference: {model} on {images}, {sites}, {kind['labels']} labels"


def _number(word: str) -> str | float:
    """Return an argument as a number if it is one, so that 1 and 1.0 are the same share."""
    try:
        return float(word)
    except ValueError:
        return word


def _experiment(record: Record) -> Experiment:
    return Experiment.model_validate(record.settings)


def _method_settings(record: Record) -> object:
    experiment = _experiment(record)
    return settings_of(experiment.method, experiment.options)


def _settings_text(record: Record) -> str:
    """Return all settings of a run but its seed, those that are not named with their defaults."""
    experiment = with_defaults(_experiment(record))
    return experiment.model_copy(update={"seed": 0}).model_dump_json()
