"""Whether a federation learns enough from its images for methods to be compared in it."""

from fedward.evaluation import paired_difference
from fedward.lab.bench.bounds import (
    Best,
    best_of,
    interval_above_zero,
    variant_of_bounds,
    with_all_labels,
)
from fedward.lab.bench.comparisons import in_common
from fedward.lab.bench.markdown import gap_text, metric_name
from fedward.lab.bench.results import Results, test_values

NO_REFERENCE = "no reference on raw pixels was recorded"
"""Why nothing is concluded on methods where no reference can be compared with the federation."""


def own_regime_refusal(results: Results, variant: str) -> str:
    """Return why a study itself lets nothing be concluded on methods; empty if something may be.

    All labels in the federation must be shown to beat each reference on raw pixels with all labels
    pooled, in the metric that chooses rounds, paired by repetition.

    Raises:
        ConfigError: a line has no value of this metric.
    """
    bounded = variant_of_bounds(results, variant)
    references = results.references(bounded, input="pixels", sites="pooled", labels="all")
    upper_records = results.repetitions(bounded, results.study.upper)
    if not references or not upper_records:
        return NO_REFERENCE
    key_metric = str(upper_records[0].settings["key_metric"])
    federation = _best_in_federation(results, bounded, key_metric).values
    for title, by_seed in references.items():
        ours, theirs = in_common(federation, test_values(by_seed, key_metric))
        if len(ours) < 2:
            return f"too few repetitions have *{title}* and all labels in the federation"
        if not interval_above_zero(ours, theirs):
            gap = gap_text(paired_difference(ours, theirs))
            return (
                f"all labels in the federation are not shown to beat *{title}* in "
                f"{metric_name(key_metric)}, {gap}"
            )
    return ""


def _best_in_federation(results: Results, variant: str, metric: str) -> Best:
    """Return the best row with all labels whose sites train together."""
    rows = [
        row
        for row in results.study.rows_of(variant)
        if results.has_run(variant, row)
        and not results.study.rows[row].alone
        and not results.cut(variant, row).pooled
    ]
    return best_of(with_all_labels(results, variant, metric, rows))
