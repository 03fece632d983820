"""One table of all studies: what few labels reach, and how far the other rows are from it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.evaluation.intervals import Interval
from fedward.lab.bench.comparisons import paired_gap
from fedward.lab.bench.evidence import bounds_refusal, refusal
from fedward.lab.bench.labels_seen import same_labels
from fedward.lab.bench.markdown import Table, gap_text, interval_text, metric_name
from fedward.lab.bench.results import Results, test_values

COLUMNS = (
    "images and network",
    "few labels",
    "each site alone",
    "the page's method",
    "all labels",
    "best reference, few labels",
)


@dataclass(frozen=True)
class Page:
    """A study's results, and the page that shows them."""

    results: Results
    link: str
    """Path of the page, as the table writes it."""


def summary_table(pages: Sequence[Page]) -> str:
    """Return a line for each study with a row of few labels, in its first variant and metric.

    A difference from few labels is bold if the rules let one judge it and its 95 % interval
    excludes 0. It is in italics if the rules withhold it. A column that no study fills is omitted.
    """
    lines = []
    for page in pages:
        results = page.results
        if results.has_run(results.study.first_variant, results.study.lower):
            lines.append((f"[{results.study.title}]({page.link})", *_cells(results)))
    filled = [place for place in range(len(COLUMNS)) if any(line[place] for line in lines)]
    table = Table([COLUMNS[place] for place in filled])
    for line in lines:
        table.add(*(line[place] for place in filled))
    return table.markdown()


def _cells(results: Results) -> list[str]:
    study = results.study
    variant = study.first_variant
    metric = study.metrics[0]
    if bounds_refusal(results, variant, metric):
        return [f"{metric_name(metric)} withheld", "", "", "", ""]
    few = list(results.test_values(variant, study.lower, metric).values())
    return [
        f"{metric_name(metric)} {interval_text(few, metric)}",
        _row_cell(results, _alone(results), name=False),
        _row_cell(results, "" if study.own == study.lower else study.own, name=True),
        _row_cell(results, study.upper, name=False),
        _reference_cell(results),
    ]


def _alone(results: Results) -> str:
    """Return the row of sites that train alone from the start on the few labels; empty if none."""
    study = results.study
    for row in study.rows_of(study.first_variant):
        starts_alone = study.rows[row].alone and not study.rows[row].init
        if starts_alone and same_labels(results, study.first_variant, row, study.lower):
            return row
    return ""


def _row_cell(results: Results, row: str, *, name: bool) -> str:
    """Return a row's difference from few labels, after the row's name if wanted."""
    study = results.study
    variant = study.first_variant
    if not row or row not in study.rows_of(variant):
        return ""
    metric = study.metrics[0]
    few = results.test_values(variant, study.lower, metric)
    gap = paired_gap(results.test_values(variant, row, metric), few)
    if gap is None:
        return ""
    is_withheld = bool(refusal(results, ((variant, row), (variant, study.lower)), metric))
    text = _difference(gap, is_withheld)
    return f"{study.rows[row].title}: {text}" if name else text


def _reference_cell(results: Results) -> str:
    """Return the difference of the reference, of all sites together, that validation chose."""
    study = results.study
    variant = study.first_variant
    metric = study.metrics[0]
    best = results.best_reference_of_few(variant)
    if best is None:
        return ""
    _, by_seed = best
    few = results.test_values(variant, study.lower, metric)
    gap = paired_gap(test_values(by_seed, metric), few)
    if gap is None:
        return ""
    return _difference(gap, bool(refusal(results, ((variant, study.lower),), metric)))


def _difference(gap: Interval, withheld: bool) -> str:
    text = gap_text(gap)
    if withheld:
        return f"*{text}*"
    excludes_zero = gap.low is not None and gap.high is not None and gap.low * gap.high > 0
    return f"**{text}**" if excludes_zero else text
