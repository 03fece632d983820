"""Tables of a study in markdown."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from fedward.lab.bench.convergence import chosen_value, last_value
from fedward.lab.bench.markdown import (
    Table,
    folded,
    gap_text,
    interval_text,
    mean_text,
    metric_name,
    percent_text,
    spread_text,
)
from fedward.lab.bench.partitions import CENTRALISED
from fedward.lab.bench.records import Record
from fedward.lab.bench.results import NOT_RUN, Results, group_interval
from fedward.runs.communities import Community, community

FEWEST_SEEDS = 5
"""A row with fewer seeds shows its numbers, and says that they are few."""


def tables(results: Results) -> str:
    """Return all tables of a study."""
    return f"{value_table(results)}\n\n{further_tables(results)}"


def caption(results: Results) -> str:
    """Return what the intervals over repetitions cover; empty if they cover data and weights."""
    same = [
        results.study.rows[row].title
        for variant, row in rows_that_ran(results)
        if not results.data_varied(variant, row)
    ]
    if not same:
        return ""
    rows = results.study.rows.values()
    if not any(row.sites for row in rows):
        covered = (
            "over synthetic images and first weights, which are drawn by the seed; which images a "
            "line used was not recorded"
        )
    elif any("{seed}" in row.sites for row in rows):
        covered = (
            "over first weights and the division among sites only; test images and the split were "
            "the same"
        )
    else:
        covered = "over first weights only; the images and labels were the same"
    all_same = len(same) == len(rows_that_ran(results))
    of_rows = "" if all_same else f" of {', '.join(dict.fromkeys(same))}"
    return f"**Intervals**{of_rows} are {covered}. No difference is shown."


def rows_that_ran(results: Results) -> list[tuple[str, str]]:
    """Return (variant, row) of all rows that have run."""
    study = results.study
    return [
        (variant, row)
        for variant in study.variants
        for row in study.rows_of(variant)
        if results.has_run(variant, row)
    ]


def value_table(results: Results) -> str:
    """Return the table that a page shows: the value of each row.

    In a study of several variants it has the first metric alone.
    """
    study = results.study
    if len(study.variants) > 1:
        return _variant_table(results, study.metrics[0])
    return _row_table(results)


def further_tables(results: Results) -> str:
    """Return the other tables: further metrics, differences, sites, pseudo-labels and work."""
    study = results.study
    parts: list[str] = []
    if len(study.variants) > 1:
        parts += [_variant_table(results, metric) for metric in study.metrics[1:]]
        parts.append(folded("Last rounds", _last_rounds_table(results)))
        parts.append(_reference_table(results))
        if not study.by_labels:
            parts.append(_folded_differences(_first_variant_table(results)))
    else:
        parts.append(_pooled_table(results))
        parts.append(_folded_differences(_lower_bound_table(results)))
    if study.compare:
        parts.append(_folded_differences(_pair_table(results)))
        parts.append(_folded_differences(_relative_table(results)))
    parts.append(_convergence_table(results))
    parts.append(_site_table(results))
    parts.append(_peer_table(results))
    parts.append(_pseudo_label_table(results))
    parts.append(_work_table(results))
    return "\n\n".join(part for part in parts if part)


def _folded_differences(table: str) -> str:
    return folded("Differences, which are no claims and not corrected for their number", table)


def _title(results: Results, row: str) -> str:
    """Return the title of a row; the row that the page is about is bold."""
    title = results.study.rows[row].title
    return f"**{title}**" if row == results.study.own else title


def _row_table(results: Results) -> str:
    """Return the table of a study of one variant: values of its rows, bounds and references."""
    study = results.study
    variant = study.first_variant
    columns = []
    for metric in study.metrics:
        columns += [metric_name(metric), f"{metric_name(metric)}, last rounds"]
    table = Table(["method", "seeds", *columns, "curve"])
    for row in study.rows:
        records = results.by_seed(variant, row)
        refusal = _row_refusal(results, row)
        if refusal:
            blanks = [""] * len(columns)
            table.add(_title(results, row), str(len(records)), f"withheld: {refusal}", *blanks)
            continue
        cells = []
        for metric in study.metrics:
            cells.append(_value(results, row, metric))
            cells.append(_last_value(results, variant, row, metric))
        falling = _falling(results, variant, row)
        table.add(_title(results, row), _seeds(records), *cells, falling)
    if not _first_bounds_refusal(results):
        _add_upper_bound(results, table)
    for title, records in results.references(variant).items():
        cells = []
        for metric in study.metrics:
            cells += [_reference_value(records, metric), ""]
        table.add(title, _seeds(records), *cells, "")
    return table.markdown()


def _add_upper_bound(results: Results, table: Table) -> None:
    """Add a line with the best of all rows and references with all labels, if there are two."""
    cells = []
    seed_count = 0
    for metric in results.study.metrics:
        best = results.upper(results.study.first_variant, metric)
        if not best.values or not results.study.lower:
            return
        seed_count = len(best.values)
        value = interval_text(list(best.values.values()), metric)
        refusal = results.bounds_refusal(results.study.first_variant, metric)
        cells += ["withheld" if refusal else value, ""]
    table.add("upper bound: the best row with all labels", str(seed_count), *cells, "")


def _reference_value(records: Mapping[int, Record], metric: str) -> str:
    values = [chosen_value(record, metric) for record in records.values()]
    return interval_text(values, metric, group_interval(records, metric))


def _reference_table(results: Results) -> str:
    """Return the values of references, of a study of several variants; empty without any."""
    study = results.study
    table = Table(["reference", "seeds", *map(metric_name, study.metrics)])
    with_own = {record.variant for record in results.records.values() if record.reference}
    for variant in study.variants:
        if variant not in with_own:
            continue
        for title, records in results.references(variant).items():
            cells = [_reference_value(records, metric) for metric in study.metrics]
            table.add(study.in_variant(variant, title), _seeds(records), *cells)
    return table.markdown() if table.lines else ""


def _pooled_table(results: Results) -> str:
    """Return the accuracy of all test images as one set."""
    table = Table(["further values", "accuracy of all test images"])
    for row in results.study.rows:
        if _row_refusal(results, row):
            continue
        records = results.by_seed(results.study.first_variant, row).values()
        pooled = [chosen_value(record, "pooled") for record in records]
        table.add(_title(results, row), interval_text(pooled, "accuracy"))
    return table.markdown() if table.lines else ""


def _lower_bound_table(results: Results) -> str:
    """Return the distance of each row from the lower bound; empty without one."""
    study = results.study
    if not study.lower:
        return ""
    columns = [f"{metric_name(metric)} minus lower bound" for metric in study.metrics]
    table = Table(["method", *columns])
    for row in study.rows:
        if row != study.lower and not _row_refusal(results, row):
            cells = [_above_lower_bound(results, row, metric) for metric in study.metrics]
            table.add(_title(results, row), *cells)
    return table.markdown() if table.lines else ""


def _falling(results: Results, variant: str, row: str) -> str:
    """Return in which metrics a row's curve falls after its best round; empty if it does not."""
    metrics = [
        metric for metric in results.study.metrics if not results.bounds_refusal(variant, metric)
    ]
    losses = {metric: results.fall(variant, row, metric) for metric in metrics}
    texts = [f"{metric_name(metric)} -{loss:.3f}" for metric, loss in losses.items() if loss]
    return f"falls: {', '.join(texts)}" if texts else ""


def _last_value(results: Results, variant: str, row: str, metric: str) -> str:
    """Return the mean over repetitions of the last rounds."""
    if results.bounds_refusal(variant, metric):
        return "withheld"
    records = results.by_seed(variant, row).values()
    return f"{fmean(last_value(record, metric) for record in records):.3f}"


def _row_refusal(results: Results, row: str) -> str:
    """Return why a row of a study of one variant shows no number; empty if it shows some."""
    if not results.has_run(results.study.first_variant, row):
        return NOT_RUN
    return _first_bounds_refusal(results)


def _first_bounds_refusal(results: Results) -> str:
    """Return why no row may be shown, by the bounds in the first metric; empty if they may be."""
    metric = results.study.metrics[0]
    refusal = results.bounds_refusal(results.study.first_variant, metric)
    return f"{metric_name(metric)}: {refusal}" if refusal else ""


def _value(results: Results, row: str, metric: str) -> str:
    variant = results.study.first_variant
    if results.bounds_refusal(variant, metric):
        return "withheld"
    return _interval(results, variant, row, metric)


def _interval(results: Results, variant: str, row: str, metric: str) -> str:
    """Return a row's mean with its intervals over repetitions and over test groups."""
    values = list(results.test_values(variant, row, metric).values())
    return interval_text(values, metric, results.group_interval(variant, row, metric))


def _above_lower_bound(results: Results, row: str, metric: str) -> str:
    """Return the distance of a row from the lower bound; empty if one of both is not shown."""
    variant = results.study.first_variant
    lower = results.study.lower
    if not results.has_run(variant, lower) or results.bounds_refusal(variant, metric):
        return ""
    gap = results.gap((variant, row), (variant, lower), metric)
    return gap_text(gap) if gap else ""


def _seeds(records: Mapping[int, Record]) -> str:
    return str(len(records)) if len(records) >= FEWEST_SEEDS else f"{len(records)} (few)"


def _variant_table(results: Results, metric: str) -> str:
    """Return a study of several variants in one metric.

    Where the first variant has all labels and the others a share, a cell also has the percentage
    that the row reaches of the page's own row with all labels.
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
            cells = [f"withheld: {refusal}", *[""] * (len(study.rows) - 1)]
        else:
            cells = [
                _variant_cell(results, name, row, metric) if row in rows else ""
                for row in study.rows
            ]
        table.add(variant.title, str(min(seed_counts)), *cells)
    return f"{metric_name(metric)}:\n\n{table.markdown()}"


def _variant_cell(results: Results, variant: str, row: str, metric: str) -> str:
    study = results.study
    if not results.has_run(variant, row):
        return NOT_RUN
    texts = [_interval(results, variant, row, metric)]
    if study.by_share_of_all and variant != study.first_variant:
        share = results.percent_reached(variant, row, metric)
        if share:
            texts.append(percent_text(share))
    loss = results.fall(variant, row, metric)
    if loss:
        texts.append(f"falls by {loss:.3f}")
    return ", ".join(texts)


def _last_rounds_table(results: Results) -> str:
    """Return the means of the last rounds in a study of several variants."""
    study = results.study
    table = Table(["last rounds", *map(metric_name, study.metrics)])
    for variant in study.variants:
        for row in study.rows_of(variant):
            if results.has_run(variant, row):
                cells = [_last_value(results, variant, row, metric) for metric in study.metrics]
                table.add(_full_title(results, variant, row), *cells)
    return table.markdown() if table.lines else ""


def _first_variant_table(results: Results) -> str:
    """Return the distances of all variants from the first one."""
    study = results.study
    columns = [f"{metric_name(metric)} minus the first variant" for metric in study.metrics]
    table = Table(["training", *columns])
    for variant in list(study.variants)[1:]:
        for row in study.rows_of(variant):
            cells = [
                _above_first_variant(results, variant, row, metric) for metric in study.metrics
            ]
            if any(cells):
                table.add(_full_title(results, variant, row), *cells)
    return table.markdown() if table.lines else ""


def _above_first_variant(results: Results, variant: str, row: str, metric: str) -> str:
    first = results.study.first_variant
    if results.bounds_refusal(variant, metric) or results.bounds_refusal(first, metric):
        return "withheld"
    gap = results.gap((variant, row), (first, row), metric)
    return gap_text(gap) if gap else ""


def _full_title(results: Results, variant: str, row: str) -> str:
    """Return the title of a row with that of its variant, if the study names variants."""
    return results.study.in_variant(variant, _title(results, row))


def _convergence_table(results: Results) -> str:
    """Return what twice the rounds showed, of the rows that ran with them; empty without any."""
    study = results.study
    seeds = "one seed" if len(study.doubled) < 2 else f"the mean of {len(study.doubled)} seeds"
    table = Table([f"convergence, by {seeds}", *map(metric_name, study.metrics)])
    for variant in study.variants:
        for row in study.rows_of(variant):
            texts = [results.unconverged(variant, row, metric) for metric in study.metrics]
            if results.doubled(variant, row):
                cells = [text or "shown" for text in texts]
                table.add(_full_title(results, variant, row), *cells)
    return table.markdown() if table.lines else ""


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
                cells.append("withheld")
            else:
                cells.append(gap_text(gap) if gap else "")
        table.add(*cells)
    return table.markdown() if table.lines else ""


def _relative_table(results: Results) -> str:
    """Return the study's pairs as papers compare them: in percent, with what a row costs more."""
    study = results.study
    metric_names = [f"{metric_name(metric)}, RI %" for metric in study.metrics]
    table = Table(["relative improvement", *metric_names, "additional cost %"])
    for variant, ours, theirs in results.pairs():
        cells = []
        for metric in study.metrics:
            improvement = results.relative_improvement(variant, ours, theirs, metric)
            is_withheld = results.bounds_refusal(variant, metric)
            cells.append("withheld" if is_withheld else _signed(improvement))
        pair = f"{study.rows[ours].title} over {study.rows[theirs].title}"
        additional_cost = _signed(results.additional_cost(variant, ours, theirs))
        table.add(study.in_variant(variant, pair), *cells, additional_cost)
    return table.markdown() if table.lines else ""


def _signed(percent: float | None) -> str:
    return "" if percent is None else f"{percent:+.1f}"


def _site_table(results: Results) -> str:
    """Return mean, median and deviation over a repetition's sites, as means over repetitions.

    It is empty if no line has sites.
    """
    study = results.study
    columns = [f"{metric_name(metric)}, over sites" for metric in study.metrics]
    table = Table(["mean (median) ± sd", *columns])
    for variant in study.variants:
        for row in study.rows_of(variant):
            if not results.has_run(variant, row):
                continue
            cells = []
            for metric in study.metrics:
                spread = results.spread_over_sites(variant, row, metric)
                is_withheld = results.bounds_refusal(variant, metric)
                cells.append("withheld" if is_withheld else spread_text(spread))
            if any(cells):
                table.add(_full_title(results, variant, row), *cells)
    return table.markdown() if table.lines else ""


def _titles_that_ran(results: Results) -> Iterator[tuple[str, list[Record]]]:
    """Yield the title of each row of each variant with its results, ordered by seed."""
    study = results.study
    for variant in study.variants:
        for row in study.rows_of(variant):
            records = list(results.by_seed(variant, row).values())
            if records:
                yield _full_title(results, variant, row), records


def _pseudo_label_table(results: Results) -> str:
    """Return how good pseudo-labels were; empty if no row makes any."""
    columns = {
        "kept": "share kept",
        "kept_right": "kept that are right",
        "right": "all that are right",
    }
    table = Table(["method", *columns.values()])
    for title, records in _titles_that_ran(results):
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
    """Return how often members of the study's communities were each other's peers.

    The seeds of a row count together. It is empty without peers, and without communities that the
    study names: those that are found in the peers themselves always look as if peers agreed.
    """
    known = results.study.communities
    table = Table(["share of a community's peers that are members", *known])
    chances = dict[str, str]()
    for title, records in _titles_that_ran(results):
        runs = [record.picks for record in records if record.picks]
        cells = []
        for name, members in known.items():
            of_runs = [community(picks, members) for picks in runs]
            cells.append(_share_text(of_runs))
            if of_runs:
                # Sites are the same in all runs, and with them what chance gives.
                chances[name] = f"{100 * of_runs[0].chance:.0f} %"
        if runs and cells:
            table.add(title, *cells)
    if not table.lines:
        return ""
    table.add("peers drawn at random", *chances.values())
    return table.markdown()


def _share_text(communities: Sequence[Community]) -> str:
    """Return the share of peers inside communities, and the two numbers that it is of."""
    inside = sum(found.inside for found in communities)
    picks = sum(found.picks for found in communities)
    return f"{100 * inside / picks:.0f} % ({inside} of {picks})" if picks else "-"


def _work_table(results: Results) -> str:
    """Return what a run of each row did, as means over seeds."""
    columns = ["rounds", "trainings of a site", "seconds of training", "MB to and from all sites"]
    table = Table(["work of a run", *columns])
    for title, records in _titles_that_ran(results):
        rounds = fmean(record.rounds for record in records)
        trainings = fmean(record.trainings for record in records)
        seconds = fmean(record.seconds for record in records)
        megabytes = f"{fmean(record.megabytes for record in records):.1f}"
        row = results.study.rows[records[0].row]
        if row.alone or row.sites == CENTRALISED:
            # Only the simulation moves this data: no hospital would send it.
            megabytes = "-"
        table.add(title, f"{rounds:.0f}", f"{trainings:.0f}", f"{seconds:.0f}", megabytes)
    return table.markdown()
