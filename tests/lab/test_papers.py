"""Every kind of row of the four papers' tables runs by its name, as small as it runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fedward.jobs import simulated_sites
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell
from fedward.lab.simulation import Simulation
from fedward.runs.run import Run
from fedward.storage.run_folder import RunFolder
from starting import initial_model

STUDY = read_study(Path(__file__).parents[2] / "benchmarks" / "studies" / "papers.json")

pytestmark = pytest.mark.usefixtures("narrow_swin")

# Methods whose server has no model that its sites have trained.
KEPT_AT_SITES = {"alone"}


def finished(cell: Cell, folder: Path) -> Run:
    """Run a cell as ``fedward bench`` does; of a row of sites alone the first one."""
    experiment = STUDY.experiment(cell)
    sites = simulated_sites(experiment)
    if STUDY.rows[cell.row].alone:
        sites = sites[:1]
    return Run.load(Simulation(experiment, folder, sites, checks_pseudo_labels=True).run())


@pytest.fixture(autouse=True)
def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no report: drawing it would take as long as such a small run."""
    monkeypatch.setattr(RunFolder, "report", lambda *_: None)


def kind(value: Any) -> Any:
    """Return settings of whose numbers it is only left whether they are above 0 and above 1."""
    if isinstance(value, dict):
        return {name: kind(part) for name, part in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value > 0, value > 1]
    return value


def one_of_each_kind() -> list[Cell]:
    """Return the first of all rows that differ in numbers alone, as in the size of a committee."""
    cells: dict[str, Cell] = {}
    for cell in STUDY.cells():
        settings = kind(STUDY.experiment(cell).model_dump(mode="json"))
        cells.setdefault(json.dumps([settings, STUDY.rows[cell.row].alone]), cell)
    return list(cells.values())


@pytest.mark.parametrize("cell", one_of_each_kind(), ids=lambda cell: cell.row)
def test_a_row_of_a_paper_runs(cell: Cell, tmp_path: Path) -> None:
    run = finished(cell, tmp_path / "run")
    assert run.info.status == "finished"
    accuracies = [row.value for row in run.metrics if (row.split, row.name) == ("test", "accuracy")]
    assert len(accuracies) >= len(run.info.sites)
    assert all(0 <= accuracy <= 1 for accuracy in accuracies)
    if run.info.method not in KEPT_AT_SITES:
        first = initial_model(STUDY.experiment(cell)).state
        last = load_file(run.folder / "model.safetensors")
        assert any(not first[name].equal(last[name]) for name in last)


@pytest.mark.parametrize("committee", [1, 2])
def test_a_committee_has_as_many_peers_as_it_says(committee: int, tmp_path: Path) -> None:
    run = finished(Cell("fedperl", f"fedperl_t{committee}_open", 1), tmp_path / "run")
    chosen = run.peers[-1].chosen
    assert {len(peers) for peers in chosen.values()} == {committee}
