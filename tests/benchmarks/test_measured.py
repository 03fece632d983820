"""Lines that benchmarks keep, and the tables that pages have of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fresh_seeds
import shipped_jobs
from anonymity import Anonymity
from fedward.errors import ConfigError
from fedward.lab.bench.records import read_records
from fedward.lab.bench.study_file import read_study
from measured import KEPT, ROOT, Line, Measurement, lines_of, measure_missing, page_text, read_lines
from out_of_distribution import OutOfDistribution
from robustness import Robustness

DOCS = KEPT.parents[2]
RESULTS = DOCS / "results"
MEASUREMENTS = {
    "anonymity.md": Anonymity(),
    "tables/anonymity.md": Anonymity(),
    "robustness.md": Robustness(),
    "out_of_distribution.md": OutOfDistribution(),
    "tables/out_of_distribution.md": OutOfDistribution(),
}
"""Page of the results -> what its tables are made of."""


class Squares(Measurement):
    """The squares of three numbers."""

    name = "squares"

    def cells(self) -> list[dict[str, Any]]:
        return [{"number": number} for number in (1, 2, 3)]

    def measure(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        return {"square": cell["number"] ** 2}

    def tables(self, lines: Sequence[Line]) -> dict[str, str]:
        return {"squares": ", ".join(str(line.outcome["square"]) for line in lines)}


def page_with(text: str, folder: Path) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_page_has_the_tables_of_the_kept_lines(name: str) -> None:
    measurement = MEASUREMENTS[name]
    tables = measurement.tables(lines_of(measurement, KEPT / f"{measurement.name}.jsonl"))
    page = RESULTS / name
    command = f"run benchmarks/{measurement.name}.py --page {page}"
    assert page.read_text(encoding="utf-8") == page_text(page, tables), command


def test_the_page_of_the_shipped_jobs_has_the_tables_of_the_kept_lines() -> None:
    tables = shipped_jobs.tables(read_records(shipped_jobs.LINES).values())
    page = DOCS / "running.md"
    command = f"run benchmarks/shipped_jobs.py --page {page}"
    assert page.read_text(encoding="utf-8") == page_text(page, tables), command


def test_the_results_have_the_claims_under_fresh_seeds() -> None:
    page = RESULTS / "README.md"
    command = f"run benchmarks/fresh_seeds.py --page {page}"
    assert page.read_text(encoding="utf-8") == page_text(page, fresh_seeds.tables()), command


def test_seeds_of_a_study_are_not_fresh() -> None:
    study = read_study(ROOT / "benchmarks" / "studies" / "heads_skin.json")
    with pytest.raises(ConfigError, match="has seeds of its study: 31, 32"):
        fresh_seeds.fresh_results(study, RESULTS / "data" / "heads_skin.jsonl")


def test_a_line_that_says_something_else_changes_a_table() -> None:
    first, *others = read_records(shipped_jobs.LINES).values()
    test = {**first.test, "last": {**first.test["last"], "f1_macro": 0.0}}
    changed = [replace(first, test=test), *others]
    assert shipped_jobs.tables(changed) != shipped_jobs.tables([first, *others])


def test_only_cells_without_a_line_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "squares.jsonl"
    known = '{"cell": {"number": 2}, "outcome": {"square": 5}, "measured_by": {"commit": "old"}}\n'
    file.write_text(known, encoding="utf-8")
    measure_missing(Squares(), file, processes=1)
    assert file.read_text(encoding="utf-8").startswith(known)
    assert [line.outcome["square"] for line in read_lines(file)] == [5, 1, 9]
    assert [line.outcome["square"] for line in lines_of(Squares(), file)] == [1, 5, 9]


def test_lines_of_other_cells_are_left_out_and_missing_ones_refused(tmp_path: Path) -> None:
    file = tmp_path / "squares.jsonl"
    lines = '{"cell": {"number": 7}, "outcome": {"square": 49}, "measured_by": {}}\n'
    file.write_text(lines, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"has no line of 3 cells, such as .*1"):
        lines_of(Squares(), file)


def test_a_table_replaces_what_stands_in_its_place(tmp_path: Path) -> None:
    page = page_with("Before.\n<!-- measured a -->\nold\n<!-- end a -->\nAfter.\n", tmp_path)
    new = "Before.\n<!-- measured a -->\n\nnew\n\n<!-- end a -->\nAfter.\n"
    assert page_text(page, {"a": "new", "b": "elsewhere"}) == new


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("No place.\n", "has a place for none of the tables a"),
        ("<!-- measured a -->\n", "does not have the lines"),
        ("<!-- end a -->\n", "does not have the lines"),
        ("<!-- measured a -->\n<!-- end a -->\n" * 2, "does not have the lines"),
    ],
)
def test_a_page_without_one_place_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        page_text(page_with(text, tmp_path), {"a": "new"})
