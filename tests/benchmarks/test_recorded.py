"""Results that the repository keeps: from run folders, and compared with them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import paper
from fedward.errors import RunError
from fedward.evaluation import last_rounds
from fedward.report.run import Run
from papers import recipe
from papers.recipe import Cell
from papers.recorded import add, check, read

FEW = [
    "rounds=8",
    "images_per_round=16",
    "participants=2",
    "synthetic.images=40",
    "synthetic.sites=2",
    "evaluate_every=1",
]
CELLS = [Cell("recipe", row, seed) for row in recipe.METHODS for seed in (1, 2)]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, without_report: None) -> Path:
    folder = tmp_path_factory.mktemp("out")
    for cell in CELLS:
        recipe.run_cell(cell, FEW, folder, None, folder / "recipe.jsonl")
    return folder


@pytest.fixture
def file(out: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "recipe.jsonl"
    copy.write_bytes((out / "recipe.jsonl").read_bytes())
    return copy


def folders(out: Path) -> dict[tuple[str, str, int], Path]:
    return {cell: recipe.run_folder(cell, out) for cell in CELLS}


def test_a_line_says_what_the_run_folder_says(out: Path, file: Path) -> None:
    lines = read(file)
    assert list(lines) == sorted(CELLS)
    result, run = lines[Cell("recipe", "ssfl", 2)], Run.load(recipe.run_folder(Cell("recipe", "ssfl", 2), out))
    assert (result.rounds, result.trainings, len(result.curve)) == (8, 16, 8)
    found = last_rounds(run.metrics.named("f1_macro"), "f1_macro").test
    assert found is not None
    assert result.test["last"]["f1_macro"] == pytest.approx(found, abs=1e-5)
    assert json.loads((run.folder / "audit.jsonl").read_text().splitlines()[-1])["hash"] == result.audit


def test_recorded_runs_are_compared_with_their_folders(out: Path, file: Path) -> None:
    assert len(check(file, folders(out))) == len(CELLS)
    wrong = read(file)[CELLS[0]]
    add(file, replace(wrong, test={**wrong.test, "last": {"accuracy": 1.0}}))
    with pytest.raises(RunError, match="other test"):
        check(file, folders(out))


def test_a_folder_that_was_changed_is_noticed(out: Path, file: Path) -> None:
    log = recipe.run_folder(CELLS[0], out) / "metrics.jsonl"
    before = log.read_bytes()
    log.write_bytes(before.replace(b'"accuracy", "value": 0', b'"accuracy", "value": 1', 1))
    try:
        with pytest.raises(RunError):
            check(file, folders(out))
    finally:
        log.write_bytes(before)


def test_recorded_cells_do_not_run_again(
    out: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(recipe, "run_all", lambda work, workers: ran.extend(work))
    recipe.run(CELLS, FEW, tmp_path, None, file, 1)
    assert ran == []
    recipe.run(CELLS[:1], [*FEW, "learning_rate=0.5"], tmp_path, None, file, 1)
    assert ran == ["recipe lower 1"], "its settings are others"


def test_a_setting_that_is_new_counts_as_its_default(file: Path) -> None:
    result = read(file)[CELLS[0]]
    asked = recipe.experiment_of(CELLS[0], FEW)
    older = {name: value for name, value in result.settings.items() if name != "update_dtype"}
    assert replace(result, settings=older).is_of(asked)
    assert not replace(result, settings={**older, "update_dtype": "float16"}).is_of(asked)
    assert not replace(result, settings={**older, "net": "none"}).is_of(asked)


def test_the_table_judges_each_way_of_training(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    constant = {key: replace(result, curve=(0.5,) * 8) for key, result in read(file).items()}
    for (_, row, seed), result in constant.items():
        value = {"lower": 0.6, "ssfl": 0.7, "fedperl": 0.71, "upper": 0.8}[row] + seed / 100
        add(file, replace(result, test={"last": {"accuracy": value, "f1_macro": value}}))
        add(
            file,
            replace(
                result, variant="cold", curve=(0.1,) * 7 + (0.9,), test={"last": {"accuracy": 0.5, "f1_macro": 0.5}}
            ),
        )
    assert paper.main(["recipe", "--show", "--record", str(file), "--seeds", "1", "2"]) == 0
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    own = next(cells for cells in shown if cells[:1] == ["the recipe"])
    assert own[2:4] == ["0.615 ± 0.007", ""]
    assert own[-1] == "converged"
    between = [cells for cells in shown if cells[:1] == ["the recipe"]][1]
    assert [cell.split()[0] for cell in between[1:]] == ["+0.100", "+0.010", "+0.200"]
    cold = next(cells for cells in shown if cells[:1] == ["no warm-up in a round (paper)"])
    assert cold[3].startswith("-0.115 [")
    assert cold[-1].startswith("not converged: Lower")
    assert cold[-1].endswith("; bounds not apart")


def both(value: float) -> dict[str, dict[str, float]]:
    return {"last": {"accuracy": value, "f1_macro": value}}


def test_a_way_of_labelling_changes_two_rows_only(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = recipe.cells(["cold", "aligned"], recipe.METHODS, [1])
    assert [row for variant, row, _ in made if variant == "aligned"] == ["ssfl", "fedperl"]
    assert len(made) == len(recipe.METHODS) + 2
    for cell in CELLS:
        if cell.row in ("ssfl", "fedperl"):
            add(file, replace(read(file)[cell], variant="aligned", curve=(0.5,) * 8))
    assert paper.main(["recipe", "--show", "--record", str(file), "--seeds", "1", "2"]) == 0
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    aligned = next(cells for cells in shown if cells[:1] == ["distribution alignment"])
    assert aligned[2:4] == aligned[8:10] == ["", ""]
    assert aligned[5].startswith("+0.000 [")
    assert aligned[-1] == "converged"


def test_unknown_ways_of_training_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paper.main(["recipe", "--variants", "colder", "--out", str(tmp_path)]) == 2
    assert "paper.py --variants: expected some of recipe, paper, weighted, cold" in capsys.readouterr().err
