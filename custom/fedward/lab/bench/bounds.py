"""The bounds of a study: few labels, and the best of all rows and references with all labels."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedward.evaluation import paired_difference
from fedward.lab.bench.comparisons import in_common
from fedward.lab.bench.labels_seen import same_labels
from fedward.lab.bench.markdown import gap_text
from fedward.lab.bench.records import Record
from fedward.lab.bench.results import Results, test_values

NOT_APART = "all labels are not shown to beat few, "
"""How the text begins that has the difference of the two bounds, where this withholds a metric."""


@dataclass(frozen=True)
class Candidate:
    """A row or reference that may be the best one."""

    title: str
    values: Mapping[int, float]
    """Seed -> test value."""
    validation: Mapping[int, float]
    """Seed -> value on validation images, in the metric and the round by which runs are chosen.

    Seeds without one are missing. It chooses a candidate in whichever metric test values are.
    """


@dataclass(frozen=True)
class Best:
    """The best of some candidates in each repetition; empty if nothing can choose one."""

    values: Mapping[int, float]
    """Seed -> test value of the candidate that was chosen for it."""
    chosen: Mapping[str, int]
    """Title of a candidate -> in how many repetitions it was chosen."""


def best_of(candidates: Sequence[Candidate]) -> Best:
    """Return the candidate that is best on validation images, in each repetition.

    The largest of several test values is too high by chance, so test values must not choose.

    Args:
        candidates: compared in the seeds in which all of them have a test value and a validation
            value. One without any test value is omitted. Of equally good ones the first is chosen.
    """
    present = [candidate for candidate in candidates if candidate.values]
    if not present:
        return Best({}, {})
    common_seeds = set.intersection(
        *(set(candidate.values) & set(candidate.validation) for candidate in present)
    )
    values: dict[int, float] = {}
    chosen = Counter[str]()
    for seed in sorted(common_seeds):
        scores = [candidate.validation[seed] for candidate in present]
        best = present[scores.index(max(scores))]
        values[seed] = best.values[seed]
        chosen[best.title] += 1
    return Best(values, chosen)


def interval_above_zero(upper: Sequence[float], lower: Sequence[float]) -> bool:
    """Return whether the 95 % interval of the paired difference upper - lower lies above 0."""
    low = paired_difference(upper, lower).low
    return low is not None and low > 0


def variant_of_bounds(results: Results, variant: str) -> str:
    """Return the variant whose bounds judge one: itself if it has both rows, else the first."""
    rows = results.study.rows_of(variant)
    if results.study.lower in rows and results.study.upper in rows:
        return variant
    return results.study.first_variant


def upper_bound(results: Results, variant: str, metric: str) -> Best:
    """Return the upper bound of a variant: the best of all rows and references with all labels.

    A row has all labels if it sees those that the study's ``upper`` row sees: sites cut in the
    same way, no row that bought labels, and the same share of them. Centralised training, whose
    cut differs by ``--pooled`` alone, is among them, and so are sites alone.

    Raises:
        ConfigError: a line has no value of the metric.
    """
    variant = variant_of_bounds(results, variant)
    candidates = with_all_labels(results, variant, metric, results.study.rows_of(variant))
    for title, by_seed in results.references(variant, labels="all").items():
        candidates.append(_candidate(title, by_seed, metric))
    return best_of(candidates)


def with_all_labels(
    results: Results, variant: str, metric: str, rows: Sequence[str]
) -> list[Candidate]:
    """Return the rows among ``rows`` that see all labels; none if the ``upper`` row has not run."""
    study = results.study
    if not results.has_run(variant, study.upper):
        return []
    return [
        _candidate(study.rows[row].title, results.by_seed(variant, row), metric)
        for row in rows
        if same_labels(results, variant, row, study.upper)
    ]


def _candidate(title: str, by_seed: Mapping[int, Record], metric: str) -> Candidate:
    validation = {}
    for seed, record in by_seed.items():
        if record.on_validation is not None:
            validation[seed] = record.on_validation
    return Candidate(title, test_values(by_seed, metric), validation)


def has_bounds(results: Results, variant: str) -> bool:
    """Return whether some repetition has both a lower and an upper bound."""
    upper_values, _ = _values_of_bounds(results, variant, results.study.metrics[0])
    return bool(upper_values)


def own_bounds_refusal(results: Results, variant: str, metric: str) -> str:
    """Return why a variant must not be shown in a metric by the bounds of its own study.

    Its upper bound must be shown to beat its lower bound, which is of fewer labels; empty if it is,
    or without bounds.

    Raises:
        ConfigError: a line has no value of the metric.
    """
    upper_values, lower_values = _values_of_bounds(results, variant, metric)
    if not upper_values:
        return ""
    study = results.study
    if same_labels(results, variant_of_bounds(results, variant), study.lower, study.upper):
        return "the lower bound sees the labels of the upper one"
    if len(upper_values) == 1:
        return "a single seed"
    if interval_above_zero(upper_values, lower_values):
        return ""
    return f"{NOT_APART}{gap_text(paired_difference(upper_values, lower_values))}"


def _values_of_bounds(
    results: Results, variant: str, metric: str
) -> tuple[list[float], list[float]]:
    """Return the values of the upper and of the lower bound, of the seeds that have both."""
    bounds_variant = variant_of_bounds(results, variant)
    lower = results.test_values(bounds_variant, results.study.lower, metric)
    return in_common(upper_bound(results, variant, metric).values, lower)
