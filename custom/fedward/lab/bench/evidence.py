"""Why nothing may be concluded from some rows: the rules of evidence in their order.

docs/studies.md explains them. Few and all labels have run, all labels in the federation beat the
references on raw pixels, the upper bound beats the lower one, and each row has converged and has
repetitions of different images and labels. A study is judged by those that share its runs as well.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from fedward.lab.bench.bounds import has_bounds, own_bounds_refusal
from fedward.lab.bench.convergence import unconverged
from fedward.lab.bench.regime import NO_REFERENCE, own_regime_refusal
from fedward.lab.bench.repetition import data_varied
from fedward.lab.bench.results import Results, kept_with_results
from fedward.lab.bench.shared_runs import sharing_runs
from fedward.lab.bench.study_parts import RowOfVariant

NO_BOUNDS = "rows of few and of all labels have not both run"
"""Why nothing is concluded where there is no lower bound, no upper bound, or neither."""
SAME_DATA = "its repetitions are not of different images and labels"


def refusal(results: Results, rows: Sequence[RowOfVariant], metric: str) -> str:
    """Return the first rule of evidence by which some rows cannot be judged; empty without one.

    Where the rows are of several variants, it names that of the row which the rule concerns.

    Args:
        results: of the study.
        rows: (variant, row) of each.
        metric: one of the study.
    """
    study = results.study
    several_variants = len({variant for variant, _ in rows}) > 1
    for variant, _ in rows:
        reason = _refusal_of_variant(results, variant, metric)
        if reason:
            title = study.variants[variant].title or variant
            return f"*{title}*: {reason}" if several_variants else reason
    for variant, row in rows:
        name = study.name_of(variant, row) if several_variants else study.rows[row].title
        records = results.repetitions(variant, row)
        reason = unconverged(records, results.doubled(variant, row), metric)
        if reason:
            return f"*{name}*: {reason}"
        if not data_varied(records):
            return f"*{name}*: {SAME_DATA}"
    return ""


def _refusal_of_variant(results: Results, variant: str, metric: str) -> str:
    """Return the first rule by which no row of a variant can be judged; empty without one."""
    if bounds_unknown(results, variant):
        return NO_BOUNDS
    return regime_refusal(results, variant) or bounds_refusal(results, variant, metric)


def bounds_unknown(results: Results, variant: str) -> bool:
    """Return whether neither this study nor one that shares runs has few and all labels."""
    return next(_with_bounds(results, variant), None) is None


@kept_with_results
def regime_refusal(results: Results, variant: str) -> str:
    """Return why nothing is concluded on methods here, by this study or one that shares runs.

    A study without a row of all labels is judged by those that share its runs. Empty if something
    may be concluded.
    """
    refusals = []
    for study, its_variant in _with_bounds(results, variant):
        reason = own_regime_refusal(study, its_variant)
        if reason != NO_REFERENCE:
            refusals.append(reason)
    if not refusals:
        has_references = bool(results.references(variant, input="pixels"))
        return NO_BOUNDS if has_references else NO_REFERENCE
    # Empty ones are of studies in which something may be concluded.
    return next((reason for reason in refusals if reason), "")


def _with_bounds(results: Results, variant: str) -> Iterator[tuple[Results, str]]:
    """Yield the studies with both bounds that judge a variant, each with its own variant.

    They are this study, and those that share runs with it.
    """
    for study, its_variant in chain([(results, variant)], sharing_runs(results, variant)):
        if has_bounds(study, its_variant):
            yield study, its_variant


@kept_with_results
def bounds_refusal(results: Results, variant: str, metric: str) -> str:
    """Return why a variant must not be shown in a metric; empty if it may be.

    Either its own bounds are not apart, or those of a study that shares some of its runs.

    Args:
        results: of the study.
        variant: one of the study.
        metric: one that the lines keep, whether the study shows it or not.
    """
    reason = own_bounds_refusal(results, variant, metric)
    if reason:
        return reason
    for neighbour, other_variant in sharing_runs(results, variant):
        reason = own_bounds_refusal(neighbour, other_variant, metric)
        if reason:
            return f"{reason} in the same runs of *{neighbour.study.title}*"
    return ""
