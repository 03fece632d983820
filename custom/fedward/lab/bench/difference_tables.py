"""Tables of differences between rows, which are no claims."""

from fedward.lab.bench.comparisons import additional_cost, paired_gap, relative_improvement
from fedward.lab.bench.evidence import bounds_refusal
from fedward.lab.bench.markdown import Table, full_title, gap_text, metric_name, row_title
from fedward.lab.bench.results import Results
from fedward.lab.bench.study_parts import RowOfVariant


def lower_bound_table(results: Results) -> str:
    """Return the distance of each row from the lower bound; empty without one.

    It is empty as well if the first metric is withheld.
    """
    study = results.study
    variant = study.first_variant
    if not study.lower or bounds_refusal(results, variant, study.metrics[0]):
        return ""
    columns = [f"{metric_name(metric)} minus lower bound" for metric in study.metrics]
    table = Table(["method", *columns])
    for row in study.rows:
        if row == study.lower or not results.has_run(variant, row):
            continue
        cells = []
        for metric in study.metrics:
            gap = _gap(results, (variant, row), (variant, study.lower), metric)
            cells.append("" if bounds_refusal(results, variant, metric) else gap)
        table.add(row_title(study, row), *cells)
    return table.markdown() if table.lines else ""


def first_variant_table(results: Results) -> str:
    """Return the distances of all variants from the first one; empty if there are none."""
    study = results.study
    first = study.first_variant
    columns = [f"{metric_name(metric)} minus the first variant" for metric in study.metrics]
    table = Table(["training", *columns])
    for variant in list(study.variants)[1:]:
        for row in study.rows_of(variant):
            gaps = [_gap(results, (variant, row), (first, row), name) for name in study.metrics]
            if any(gaps):
                table.add(full_title(study, variant, row), *gaps)
    return table.markdown() if table.lines else ""


def pair_table(results: Results) -> str:
    """Return the differences of the study's pairs in each variant; empty if no pair has run."""
    study = results.study
    several = len(study.variants) > 1
    metric_names = [metric_name(metric) for metric in study.metrics]
    if several:
        table = Table(["training", "difference", *metric_names], left=(0, 1))
    else:
        table = Table(["difference", *metric_names])
    for variant, ours, theirs in results.pairs():
        cells = [f"{study.rows[ours].title} minus {study.rows[theirs].title}"]
        if several:
            cells.insert(0, study.variants[variant].title)
        for metric in study.metrics:
            cells.append(_gap(results, (variant, ours), (variant, theirs), metric))
        table.add(*cells)
    return table.markdown() if table.lines else ""


def relative_table(results: Results) -> str:
    """Return the study's pairs as papers compare them: in percent, with what a row costs more.

    It is empty if no pair has run.
    """
    study = results.study
    metric_names = [f"{metric_name(metric)}, RI %" for metric in study.metrics]
    table = Table(["relative improvement", *metric_names, "additional cost %"])
    for variant, ours, theirs in results.pairs():
        cells = []
        for metric in study.metrics:
            withheld = bounds_refusal(results, variant, metric)
            improvement = relative_improvement(results, variant, ours, theirs, metric)
            cells.append("withheld" if withheld else _signed(improvement))
        pair = f"{study.rows[ours].title} over {study.rows[theirs].title}"
        cost = _signed(additional_cost(results, variant, ours, theirs))
        table.add(study.in_variant(variant, pair), *cells, cost)
    return table.markdown() if table.lines else ""


def _gap(results: Results, ours: RowOfVariant, theirs: RowOfVariant, metric: str) -> str:
    """Return the difference of two rows, unless it is withheld; empty if no seed has both."""
    if any(bounds_refusal(results, variant, metric) for variant, _ in (ours, theirs)):
        return "withheld"
    our_values = results.test_values(*ours, metric)
    gap = paired_gap(our_values, results.test_values(*theirs, metric))
    return gap_text(gap) if gap else ""


def _signed(percent: float | None) -> str:
    return "" if percent is None else f"{percent:+.1f}"
