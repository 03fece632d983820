"""Tables of how a study's runs went: convergence, sites, peers, pseudo-labels and work."""

from collections.abc import Iterator, Sequence
from statistics import fmean, median, stdev

from fedward.lab.bench.convergence import unconverged
from fedward.lab.bench.evidence import bounds_refusal
from fedward.lab.bench.markdown import (
    Spread,
    Table,
    full_title,
    mean_text,
    metric_name,
    spread_text,
)
from fedward.lab.bench.partitions import CENTRALISED
from fedward.lab.bench.records import Record
from fedward.lab.bench.results import Results
from fedward.runs.communities import Community, community


def convergence_table(results: Results) -> str:
    """Return what twice the rounds showed, of the rows that ran with them; empty without any."""
    study = results.study
    with_doubled = [
        (variant, row)
        for variant in study.variants
        for row in study.rows_of(variant)
        if results.doubled(variant, row)
    ]
    if not with_doubled:
        return ""
    seed_counts = {len(results.doubled(variant, row)) for variant, row in with_doubled}
    title = f"convergence, by {_mean_of_seeds(min(seed_counts), max(seed_counts))}"
    table = Table([title, *map(metric_name, study.metrics)])
    for variant, row in with_doubled:
        records = results.repetitions(variant, row)
        doubled = results.doubled(variant, row)
        texts = [unconverged(records, doubled, metric) for metric in study.metrics]
        table.add(full_title(study, variant, row), *(text or "shown" for text in texts))
    return table.markdown()


def _mean_of_seeds(fewest: int, most: int) -> str:
    """Return what a value of some seeds is, where rows have from ``fewest`` to ``most`` of them."""
    if most == 1:
        return "one seed"
    return (
        f"the mean of {most} seeds" if fewest == most else f"the mean of {fewest} to {most} seeds"
    )


def site_table(results: Results) -> str:
    """Return mean, median and deviation over a repetition's sites, as means over repetitions.

    It is empty if no line has sites.
    """
    study = results.study
    columns = [f"{metric_name(metric)}, over sites" for metric in study.metrics]
    table = Table(["mean (median) ± sd", *columns])
    for variant, row in results.rows_that_ran():
        records = results.repetitions(variant, row)
        cells = []
        for metric in study.metrics:
            withheld = bounds_refusal(results, variant, metric)
            spread = spread_text(_spread_over_sites(records, metric))
            cells.append("withheld" if withheld else spread)
        if any(cells):
            table.add(full_title(results.study, variant, row), *cells)
    return table.markdown() if table.lines else ""


def _spread_over_sites(records: Sequence[Record], metric: str) -> Spread | None:
    """Return mean, median and deviation of a repetition's sites, each as mean over repetitions.

    None without a site that has a test value. A site of one repetition may be another one in
    the next, so sites are not compared between repetitions.
    """
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


def peer_table(results: Results) -> str:
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


def pseudo_label_table(results: Results) -> str:
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


def work_table(results: Results) -> str:
    """Return what a run of each row did, as means over seeds: seconds, and megabytes moved."""
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


def _titles_that_ran(results: Results) -> Iterator[tuple[str, list[Record]]]:
    """Yield the title of each row of each variant with its results, ordered by seed."""
    for variant, row in results.rows_that_ran():
        yield full_title(results.study, variant, row), results.repetitions(variant, row)
