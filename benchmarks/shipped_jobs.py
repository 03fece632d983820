"""What the shipped jobs reach: the tables of docs/running.md, from the recorded lines of a study.

    fedward bench benchmarks/studies/demo.json --seeds 31 32 33 34 35 \\
        --results docs/results/data/measured/demo.jsonl
    python benchmarks/shipped_jobs.py --page docs/running.md
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from fedward.evaluation import paired_difference
from fedward.lab.bench.markdown import Table, gap_text, mean_text, metric_name
from fedward.lab.bench.records import Record, read_records
from measured import KEPT, page_text

LINES = KEPT / "demo.jsonl"
ROWS = {
    "local": "`fedavg`, each site alone",
    "lower": "`fedavg`",
    "ssfl": "`ssfl`",
    "upper": "`fedavg_full`",
}
"""Row of the study -> what the table calls it; each is compared with the one above."""
METRICS = ("accuracy", "f1_macro")
Values = dict[str, list[float]]
"""Row -> test values by seed."""


def tables(records: Iterable[Record]) -> dict[str, str]:
    """Return name -> table in markdown.

    Args:
        records: of the study; every row has the same seeds.
    """
    by_seed = sorted(records, key=lambda record: record.seed)
    values = {metric: values_of(by_seed, metric) for metric in METRICS}
    return {"demo_jobs": jobs_table(values), "demo_fedperl": fedperl_table(values)}


def values_of(records: Iterable[Record], metric: str) -> Values:
    """Return the means of the last three evaluations."""
    values: Values = {}
    for record in records:
        values.setdefault(record.row, []).append(record.test["last"][metric])
    return values


def jobs_table(values: dict[str, Values]) -> str:
    """Return a table with a row for each job, and its paired difference from the row above."""
    columns = ["job"]
    for metric in METRICS:
        columns += [metric_name(metric), "difference"]
    table = Table(columns)
    above = ""
    for row, title in ROWS.items():
        cells = [title]
        for by_row in values.values():
            gap = gap_text(paired_difference(by_row[row], by_row[above])) if above else ""
            cells += [mean_text(by_row[row]), gap]
        table.add(*cells)
        above = row
    return table.markdown()


def fedperl_table(values: dict[str, Values]) -> str:
    """Return a table of FedPerl's paired differences from the jobs without peers."""
    table = Table(["`fedperl`", *map(metric_name, METRICS)])
    table.add("itself", *(mean_text(by_row["fedperl"]) for by_row in values.values()))
    for row in ("lower", "ssfl"):
        gaps = [paired_difference(by_row["fedperl"], by_row[row]) for by_row in values.values()]
        table.add(f"minus {ROWS[row]}", *map(gap_text, gaps))
    return table.markdown()


def main() -> None:
    """Write the tables into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, required=True, help="docs/running.md")
    page = parser.parse_args().page
    page.write_text(page_text(page, tables(read_records(LINES).values())), encoding="utf-8")


if __name__ == "__main__":
    main()
