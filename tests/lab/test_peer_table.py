"""A study says how often members of a community were each other's peers."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedward.lab.bench.recording import record
from fedward.lab.bench.records import Drawn, ImageDigests
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell
from fedward.lab.bench.tables import further_tables
from fedward.runs.run import Run
from recorded import bare
from running import run_local
from tiny import tiny

ROWS = {
    "fedperl": {"title": "FedPerl", "job": "fedperl"},
    "ssfl": {"title": "SSFL", "job": "ssfl"},
}
VALUES = {"accuracy": 0.5, "f1_macro": 0.5, "pooled": 0.5}
RESULT = replace(
    bare(Cell("all", "fedperl", 1)),
    test={"global": VALUES, "last": VALUES},
    picks={"a": {"b": 3, "c": 1}, "b": {"a": 2}, "c": {"d": 4}, "d": {"c": 4}},
)


def table_of(**communities: tuple[str, ...]) -> list[str]:
    study = Study.model_validate(
        {"title": "Peers", "rows": ROWS, "seeds": [1, 2], "communities": communities}
    )
    other_seed = replace(RESULT, seed=2, picks={"a": {"c": 2}, "b": {}, "c": {}, "d": {}})
    without_peers = replace(RESULT, row="ssfl", picks={})
    records = {result.cell: result for result in (RESULT, other_seed, without_peers)}
    lines = further_tables(Results(study, records)).splitlines()
    start = next(number for number, line in enumerate(lines) if "community's peers" in line)
    end = lines.index("", start)
    return lines[start:end]


def test_known_communities_are_columns_and_seeds_count_together() -> None:
    """Of a's and b's peers 3 + 2 of 6 and none of 2 were members; of c's and d's 8 of 8."""
    head, _, fedperl, chance = table_of(archive=("a", "b"), clinic=("c", "d"))
    assert head.endswith("| archive | clinic |")
    assert fedperl == "| FedPerl | 62 % (5 of 8) | 100 % (8 of 8) |"
    assert chance == "| peers drawn at random | 33 % | 33 % |"


def test_communities_that_the_peers_themselves_form_are_not_counted() -> None:
    with pytest.raises(StopIteration):
        table_of()


@pytest.mark.usefixtures("without_report")
def test_a_record_counts_the_peers_of_its_run(tmp_path: Path) -> None:
    experiment = tiny("fedperl", options={"participants": None})
    folder = run_local(experiment, tmp_path / "run", sites=["site-1", "site-2", "site-3"])
    drawn = Drawn(ImageDigests("test", "labels"), "weights")
    kept = record(Cell("all", "fedperl", 3), [Run.load(folder)], drawn)
    assert kept.picks == {
        "site-1": {"site-2": 2, "site-3": 2},
        "site-2": {"site-1": 2, "site-3": 2},
        "site-3": {"site-1": 2, "site-2": 2},
    }
