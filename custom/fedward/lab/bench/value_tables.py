"""Tables of the values of rows and references, and of what withholds them."""

from collections.abc import Sequence
from statistics import fmean

from fedward.lab.bench.bounds import upper_bound
from fedward.lab.bench.by_group import half_width_over_groups
from fedward.lab.bench.convergence import FEWEST_SEEDS, fall
from fedward.lab.bench.evidence import bounds_refusal
from fedward.lab.bench.markdown import (
    Table,
    full_title,
    interval_text,
    metric_name,
    row_title,
)
from fedward.lab.bench.records import Record
from fedward.lab.bench.results import NOT_RUN, Results, chosen_value, last_value


def row_table(results: Results) -> str:
    """Return the table of a study of one variant: values of its rows, bounds and references."""
    study = results.study
    variant = study.first_variant
    columns = []
    for metric in study.metrics:
        columns += [metric_name(metric), f"{metric_name(metric)}, last rounds"]
    table = Table(["method", "seeds", *columns, "curve"])
    for row in study.rows:
        title = row_title(study, row)
        records = results.repetitions(variant, row)
        refusal = _row_refusal(results, row)
        if refusal:
            blanks = [""] * len(columns)
            table.add(title, str(len(records)), f"withheld: {refusal}", *blanks)
            continue
        cells = []
        for metric in study.metrics:
            withheld = bounds_refusal(results, variant, metric)
            cells.append("withheld" if withheld else _value(records, metric))
            cells.append(_last_value(results, variant, row, metric))
        table.add(title, _seeds(records), *cells, _falling(results, variant, row))
    if not _first_bounds_refusal(results):
        _add_upper_bound(results, table)
    for title, by_seed in results.references(variant).items():
        records = list(by_seed.values())
        cells = []
        for metric in study.metrics:
            cells += [_value(records, metric), ""]
        table.add(title, _seeds(records), *cells, "")
    return table.markdown()


def _add_upper_bound(results: Results, table: Table) -> None:
    """Add a line with the best of all rows and references with all labels, if there are two."""
    variant = results.study.first_variant
    cells = []
    seed_count = 0
    for metric in results.study.metrics:
        best = upper_bound(results, variant, metric)
        if not best.values or not results.study.lower:
            return
        seed_count = len(best.values)
        value = interval_text(list(best.values.values()), metric)
        cells += ["withheld" if bounds_refusal(results, variant, metric) else value, ""]
    table.add("upper bound: the best row with all labels", str(seed_count), *cells, "")


def reference_table(results: Results) -> str:
    """Return the values of references, of a study of several variants; empty without any."""
    study = results.study
    table = Table(["reference", "seeds", *map(metric_name, study.metrics)])
    for variant in study.variants:
        if study.variant_of_references(variant) != variant:
            continue
        for title, by_seed in results.references(variant).items():
            records = list(by_seed.values())
            cells = [_value(records, metric) for metric in study.metrics]
            table.add(study.in_variant(variant, title), _seeds(records), *cells)
    return table.markdown() if table.lines else ""


def pooled_table(results: Results) -> str:
    """Return the accuracy of all test images as one set; empty if no row may be shown.

    It is withheld where the accuracy of sites is.
    """
    study = results.study
    if bounds_refusal(results, study.first_variant, "accuracy"):
        return ""
    table = Table(["further values", "accuracy of all test images"])
    for row in study.rows:
        if not _row_refusal(results, row):
            pooled = results.test_values(study.first_variant, row, "pooled")
            table.add(row_title(study, row), interval_text(list(pooled.values()), "accuracy"))
    return table.markdown() if table.lines else ""


def variant_table(results: Results, metric: str) -> str:
    """Return a study of several variants in one metric, a line for each."""
    study = results.study
    table = Table(["training", "seeds", *(row.title for row in study.rows.values())])
    for name, variant in study.variants.items():
        rows = study.rows_of(name)
        seed_counts = [len(results.by_seed(name, row)) for row in rows]
        if not any(seed_counts):
            continue
        refusal = bounds_refusal(results, name, metric)
        cells = []
        for row in study.rows:
            text = "withheld" if refusal else _variant_cell(results, name, row, metric)
            cells.append(text if row in rows else "")
        table.add(variant.title, _seed_count(min(seed_counts)), *cells)
    return f"{metric_name(metric)}:\n\n{table.markdown()}"


def _variant_cell(results: Results, variant: str, row: str, metric: str) -> str:
    records = results.repetitions(variant, row)
    if not records:
        return NOT_RUN
    texts = [_value(records, metric)]
    loss = fall(records, metric)
    if loss:
        texts.append(f"falls by {loss:.3f}")
    return ", ".join(texts)


def last_rounds_table(results: Results) -> str:
    """Return the means of the last rounds in a study of several variants; empty without any."""
    study = results.study
    table = Table(["last rounds", *map(metric_name, study.metrics)])
    for variant, row in results.rows_that_ran():
        cells = [_last_value(results, variant, row, metric) for metric in study.metrics]
        table.add(full_title(study, variant, row), *cells)
    return table.markdown() if table.lines else ""


def _row_refusal(results: Results, row: str) -> str:
    """Return why a row of a study of one variant shows no number; empty if it shows some."""
    if not results.has_run(results.study.first_variant, row):
        return NOT_RUN
    return _first_bounds_refusal(results)


def _first_bounds_refusal(results: Results) -> str:
    """Return why no row may be shown, by the bounds in the first metric; empty if they may be."""
    metric = results.study.metrics[0]
    refusal = bounds_refusal(results, results.study.first_variant, metric)
    return f"{metric_name(metric)}: {refusal}" if refusal else ""


def _seeds(records: Sequence[Record]) -> str:
    return _seed_count(len(records))


def _seed_count(count: int) -> str:
    return str(count) if count >= FEWEST_SEEDS else f"{count} (few)"


def _value(records: Sequence[Record], metric: str) -> str:
    """Return a mean with its intervals over repetitions and over test groups."""
    values = [chosen_value(record, metric) for record in records]
    return interval_text(values, metric, half_width_over_groups(records, metric))


def _last_value(results: Results, variant: str, row: str, metric: str) -> str:
    """Return the mean over repetitions of the last rounds."""
    if bounds_refusal(results, variant, metric):
        return "withheld"
    records = results.repetitions(variant, row)
    return f"{fmean(last_value(record, metric) for record in records):.3f}"


def _falling(results: Results, variant: str, row: str) -> str:
    """Return in which metrics a row's curve falls after its best round; empty if it does not."""
    records = results.repetitions(variant, row)
    texts = []
    for metric in results.study.metrics:
        loss = fall(records, metric)
        if loss and not bounds_refusal(results, variant, metric):
            texts.append(f"{metric_name(metric)} -{loss:.3f}")
    return f"falls: {', '.join(texts)}" if texts else ""
