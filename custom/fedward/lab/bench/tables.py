"""Tables of a study in markdown."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from fedward.lab.bench.joining import joining_table
from fedward.lab.bench.markdown import Table, gap_text, mean_text, percent_text, spread_text
from fedward.lab.bench.records import Record
from fedward.lab.bench.results import Results
from fedward.runs.communities import Community, community, found_communities

FEWEST_SEEDS = 5
"""A row with fewer seeds shows its numbers, and says that they are few."""
_METRIC_NAMES = {
    "accuracy": "Accuracy",
    "f1_macro": "Macro F1",
    "f1_weighted": "Weighted F1",
    "auroc_macro": "AUROC",
    "balanced_accuracy": "Balanced accuracy",
    "precision_macro": "Macro precision",
    "precision_weighted": "Weighted precision",
    "ece_adaptive": "ECE in adaptive bins",
    "mce_adaptive": "MCE in adaptive bins",
    "aurc": "Area under risk-coverage",
}
LONGEST_TABLE = 20
"""A table with more rows than this is folded."""


def tables(results: Results) -> str:
    """Return all tables of a study."""
    return f"{value_table(results)}\n\n{further_tables(results)}"


def value_table(results: Results) -> str:
    """Return the table that a page shows: the value of each row.

    In a study of several variants it has the first metric, and each value has its difference from
    the first variant.
    """
    study = results.study
    if len(study.variants) > 1:
        return _variant_table(results, study.metrics[0])
    return _folded_if_long("All rows", _row_table(results))


def further_tables(results: Results) -> str:
    """Return the other tables: further metrics, differences, sites, pseudo-labels and work."""
    study = results.study
    parts: list[str] = []
    if len(study.variants) > 1:
        parts += [_variant_table(results, metric) for metric in study.metrics[1:]]
    else:
        parts.append(_further_row_table(results))
    if study.compare:
        parts.append(_pair_table(results))
        parts += _joining_tables(results)
        parts.append(_relative_table(results))
    parts.append(_site_table(results))
    parts.append(_peer_table(results))
    parts.append(_pseudo_label_table(results))
    parts.append(_work_table(results))
    return "\n\n".join(part for part in parts if part)


def _folded_if_long(summary: str, table: str) -> str:
    """Return a table, which a click unfolds on GitHub and on the site if it has many rows."""
    if table.count("\n") - 1 <= LONGEST_TABLE:
        return table
    summary_line = f'<details markdown="1"><summary>{summary}</summary>'
    return f"{summary_line}\n\n{table}\n\n</details>"


def metric_name(metric: str) -> str:
    """Return what tables and figures call a metric."""
    return _METRIC_NAMES.get(metric, metric)


def _title(results: Results, row: str) -> str:
    """Return the title of a row; the row that the page is about is bold."""
    title = results.study.rows[row].title
    return f"**{title}**" if row == results.study.own else title


def _row_table(results: Results) -> str:
    """Return the table of a study of one variant: values, and distances from the lower bound.

    Distances are in the first metric. :func:`_further_row_table` has those in the others.
    """
    study = results.study
    first = study.metrics[0]
    value_columns = [metric_name(metric) for metric in study.metrics]
    if study.lower:
        value_columns.append(f"{metric_name(first)} minus lower bound")
    table = Table(["method", "seeds", *value_columns])
    for row in study.rows:
        records = results.by_seed(study.reference, row)
        refusal = _row_refusal(results, row)
        if refusal:
            blanks = [""] * (len(value_columns) - 1)
            table.add(_title(results, row), str(len(records)), f"refused: {refusal}", *blanks)
            continue
        cells = [_value(results, row, metric) for metric in study.metrics]
        if study.lower:
            cells.append(_above_lower_bound(results, row, first))
        table.add(_title(results, row), _seeds(records), *cells)
    return table.markdown()


def _further_row_table(results: Results) -> str:
    """Return distances from the lower bound in further metrics, and the accuracy of all images."""
    study = results.study
    further_metrics = study.metrics[1:] if study.lower else ()
    columns = [f"{metric_name(metric)} minus lower bound" for metric in further_metrics]
    table = Table(["further values", *columns, "accuracy of all test images"])
    for row in study.rows:
        if _row_refusal(results, row):
            continue
        cells = [_above_lower_bound(results, row, metric) for metric in further_metrics]
        records = results.by_seed(study.reference, row).values()
        pooled = mean_text([record.test["last"]["pooled"] for record in records])
        table.add(_title(results, row), *cells, pooled)
    return table.markdown()


def _row_refusal(results: Results, row: str) -> str:
    """Return why a row of a study of one variant shows no number; empty if it shows some."""
    return results.refusal(results.study.reference, row) or _first_bounds_refusal(results)


def _first_bounds_refusal(results: Results) -> str:
    """Return why no row may be shown, by the bounds in the first metric; empty if they may be."""
    metric = results.study.metrics[0]
    refusal = results.bounds_refusal(results.study.reference, metric)
    return f"{metric_name(metric)}: {refusal}" if refusal else ""


def _value(results: Results, row: str, metric: str) -> str:
    variant = results.study.reference
    if results.bounds_refusal(variant, metric):
        return "refused"
    return mean_text(list(results.test_values(variant, row, metric).values()))


def _above_lower_bound(results: Results, row: str, metric: str) -> str:
    """Return the distance of a row from the lower bound; empty if one of both is not shown."""
    variant = results.study.reference
    lower = results.study.lower
    if row == lower or results.refusal(variant, lower) or results.bounds_refusal(variant, metric):
        return ""
    gap = results.gap((variant, row), (variant, lower), metric)
    return gap_text(gap) if gap else ""


def _seeds(records: Mapping[int, Record]) -> str:
    return str(len(records)) if len(records) >= FEWEST_SEEDS else f"{len(records)} (few)"


def _variant_table(results: Results, metric: str) -> str:
    """Return a study of several variants in one metric.

    A cell has the row's value, and its distance from the first variant.
    """
    study = results.study
    table = Table(["training", "seeds", *(row.title for row in study.rows.values())])
    for name, variant in study.variants.items():
        rows = study.rows_of(name)
        seed_counts = [len(results.by_seed(name, row)) for row in rows]
        if not any(seed_counts):
            continue
        refusal = results.bounds_refusal(name, metric)
        if refusal:
            cells = [f"refused: {refusal}", *[""] * (len(study.rows) - 1)]
        else:
            cells = [
                _variant_cell(results, name, row, metric) if row in rows else ""
                for row in study.rows
            ]
        table.add(variant.title, str(min(seed_counts)), *cells)
    return f"{metric_name(metric)}:\n\n{table.markdown()}"


def _variant_cell(results: Results, variant: str, row: str, metric: str) -> str:
    study = results.study
    refusal = results.refusal(variant, row)
    if refusal:
        return f"refused: {refusal}"
    value = mean_text(list(results.test_values(variant, row, metric).values()))
    compared_row = study.own or row if study.by_labels else row
    if variant == study.reference or results.refusal(study.reference, compared_row):
        return value
    if study.by_labels:
        share = results.percent_reached(variant, row, metric)
        return f"{value}, {percent_text(share) if share else ''}"
    gap = results.gap((variant, row), (study.reference, row), metric)
    return f"{value}, {gap_text(gap) if gap else ''}"


def _pair_table(results: Results) -> str:
    """Return the differences of the study's pairs in each variant; empty if none may be shown."""
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
            gap = results.gap((variant, ours), (variant, theirs), metric)
            if results.bounds_refusal(variant, metric):
                cells.append("refused")
            else:
                cells.append(gap_text(gap) if gap else "")
        table.add(*cells)
    return table.markdown() if table.lines else ""


def _joining_tables(results: Results) -> Iterator[str]:
    """Yield a table of sites for each pair of a row of all sites and a row of sites alone.

    A row whose sites continue alone from the first row's weights is shown with them.
    """
    study = results.study
    for variant, ours, theirs in results.pairs():
        joined = study.rows[ours]
        alone = study.rows[theirs]
        if joined.alone or not alone.alone or alone.init == ours:
            continue
        metrics = {
            metric: metric_name(metric)
            for metric in study.metrics
            if not results.bounds_refusal(variant, metric)
        }
        if study.metrics[0] not in metrics:
            continue
        title = f"Does joining pay? *{joined.title}* against *{alone.title}*."
        if study.variants[variant].title:
            title = f"{study.variants[variant].title}: {title}"
        fine_tuned = _fine_tuned_row(results, variant, ours)
        yield joining_table(
            title,
            metrics,
            alone=results.site_values(variant, theirs),
            joined=results.site_values(variant, ours),
            fine_tuned=results.site_values(variant, fine_tuned) if fine_tuned else None,
        )


def _relative_table(results: Results) -> str:
    """Return the study's pairs as papers compare them: in percent, with what a row costs more."""
    study = results.study
    metric_names = [f"{metric_name(metric)}, RI %" for metric in study.metrics]
    columns = ["relative improvement", *metric_names, "additional cost %"]
    table = Table(columns)
    for variant, ours, theirs in results.pairs():
        cells = []
        for metric in study.metrics:
            improvement = results.relative_improvement(variant, ours, theirs, metric)
            is_refused = results.bounds_refusal(variant, metric)
            cells.append("refused" if is_refused else _signed(improvement))
        title = f"{study.rows[ours].title} over {study.rows[theirs].title}"
        if study.variants[variant].title:
            title = f"{study.variants[variant].title}: {title}"
        table.add(title, *cells, _signed(results.additional_cost(variant, ours, theirs)))
    return table.markdown() if table.lines else ""


def _signed(percent: float | None) -> str:
    return "" if percent is None else f"{percent:+.1f}"


def _site_table(results: Results) -> str:
    """Return mean, median and deviation over sites of each row; empty if no line has sites."""
    study = results.study
    columns = [f"{metric_name(metric)}, over sites" for metric in study.metrics]
    table = Table(["mean (median) ± sd", *columns])
    for variant in study.variants:
        for row in study.rows_of(variant):
            if results.refusal(variant, row):
                continue
            cells = []
            for metric in study.metrics:
                values = results.means_by_site(variant, row, metric)
                is_refused = results.bounds_refusal(variant, metric)
                cells.append("refused" if is_refused else spread_text(values))
            if any(cells):
                title = _title(results, row)
                variant_title = study.variants[variant].title
                table.add(f"{variant_title}: {title}" if variant_title else title, *cells)
    return table.markdown() if table.lines else ""


def _fine_tuned_row(results: Results, variant: str, joined: str) -> str | None:
    """Return the row whose sites train on alone from a row's weights; None if none is shown."""
    for name in results.study.rows_of(variant):
        row = results.study.rows[name]
        if row.alone and row.init == joined and not results.refusal(variant, name):
            return name
    return None


def _rows_that_ran(results: Results) -> Iterator[tuple[str, list[Record]]]:
    """Yield the title of each row of each variant with its results, ordered by seed."""
    study = results.study
    for name, variant in study.variants.items():
        for row in study.rows_of(name):
            records = list(results.by_seed(name, row).values())
            if records:
                title = _title(results, row)
                yield f"{variant.title}: {title}" if variant.title else title, records


def _pseudo_label_table(results: Results) -> str:
    """Return how good pseudo-labels were; empty if no row makes any."""
    columns = {
        "kept": "share kept",
        "kept_right": "kept that are right",
        "right": "all that are right",
        "local": "sites' own models",
    }
    table = Table(["method", *columns.values()])
    for title, records in _rows_that_ran(results):
        if "kept" not in records[0].pseudo_labels:
            continue
        cells = []
        for name in columns:
            values = [
                record.pseudo_labels[name] for record in records if name in record.pseudo_labels
            ]
            cells.append(mean_text(values) if values else "-")
        table.add(title, *cells)
    return table.markdown() if table.lines else ""


def _peer_table(results: Results) -> str:
    """Return how often members of a community were each other's peers; empty without peers.

    The seeds of a row count together.
    """
    known = results.study.communities
    columns = list(known) or ["communities that the peers form"]
    table = Table(["share of a community's peers that are members", *columns])
    chances = dict[str, str]()
    for title, records in _rows_that_ran(results):
        runs = [record.picks for record in records if record.picks]
        if not runs:
            continue
        if known:
            cells = [
                _share_text([community(picks, known[name]) for picks in runs]) for name in known
            ]
            chances = {
                name: f"{100 * community(runs[0], known[name]).chance:.0f} %" for name in known
            }
        else:
            found = [community(picks, part) for picks in runs for part in found_communities(picks)]
            cells = [_share_text(found)]
        table.add(title, *cells)
    if chances:
        table.add("peers drawn at random", *chances.values())
    return table.markdown() if table.lines else ""


def _share_text(communities: Sequence[Community]) -> str:
    """Return the share of peers inside communities, and the two numbers that it is of."""
    inside = sum(found.inside for found in communities)
    picks = sum(found.picks for found in communities)
    return f"{100 * inside / picks:.0f} % ({inside} of {picks})" if picks else "-"


def _work_table(results: Results) -> str:
    """Return what a run of each row did, as means over seeds."""
    columns = ["rounds", "trainings of a site", "seconds of training", "MB to and from all sites"]
    table = Table(["work of a run", *columns])
    for title, records in _rows_that_ran(results):
        rounds = fmean(record.rounds for record in records)
        trainings = fmean(record.trainings for record in records)
        seconds = fmean(record.seconds for record in records)
        megabytes = fmean(record.megabytes for record in records)
        table.add(title, f"{rounds:.0f}", f"{trainings:.0f}", f"{seconds:.0f}", f"{megabytes:.1f}")
    return table.markdown()
