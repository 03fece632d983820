"""The benchmark's cells, budgets, judge and tables; one cell runs whole on a file of random images."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import paper
from fedward.errors import ConfigError, DataError, RunError
from fedward.methods import method_of
from fedward.report.run import Run
from papers import isofed
from papers.isofed import Budget, Cell, cells, experiment_of, result_file, run_cell
from papers.isofed_paper import PAPER, Scores
from papers.isofed_table import adaptation, table
from papers.runs import read_results

pytestmark = pytest.mark.usefixtures("without_report")
TINY = Budget(passes=9, images_at_most=16)
CELL = Cell("pneumonia", 0.8, 2, "isofed", 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file like PneumoniaMNIST, whose brighter images are the second class."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 120), ("val", 80), ("test", 20)):
        labels = np.arange(count) % 2
        arrays[f"{split}_images"] = (rng.integers(0, 120, (count, 28, 28)) + 120 * labels[:, None, None]).astype("u1")
        arrays[f"{split}_labels"] = labels[:, None]
    folder = tmp_path_factory.mktemp("data")
    np.savez(folder / "pneumoniamnist.npz", **arrays)
    return folder


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory, without_report: None) -> Path:
    """Where :data:`CELL` has run; never written to."""
    folder = tmp_path_factory.mktemp("out")
    said = run_cell(CELL, TINY, data, folder)
    assert said == f"accuracy {json.loads(result_file(folder, CELL).read_text())['accuracy']:.2f}"
    return folder


@pytest.fixture
def copied(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, as far from the data as ``out``."""
    return Path(shutil.copytree(out, tmp_path_factory.mktemp("copied"), dirs_exist_ok=True))


def test_the_papers_numbers_are_those_of_its_tables() -> None:
    assert len(PAPER) == 2 * (4 + 3 * 3 * 4 + 3)  # upper bounds; three rows a setting; the ablation on OrganAMNIST
    assert PAPER["blood", "isofed", 1, 0.5] == Scores(63.70, 90.58, 70.22, 63.81)
    assert PAPER["organa", "isofed_wo_pt", 2, 0.8] == Scores(68.67, 93.25, 67.65, 68.50)
    assert {row for _, row, _, _ in PAPER} == set(isofed.TABLE_ROWS)


def test_a_table_has_every_setting_once() -> None:
    found = cells(["blood", "path"], [0.8, 0.5], [3, 2, 1], isofed.TABLE_ROWS, [1, 2])
    assert len(found) == len(set(found)) == 2 * 2 * 2 * (1 + 3 * 4)
    assert {cell.labelled for cell in found if cell.row == "upper"} == {4}
    assert [cell.seed for cell in found] == sorted(cell.seed for cell in found)


@pytest.mark.parametrize("row", isofed.ROWS)
def test_all_rows_make_the_same_passes(row: str) -> None:
    """A round of the warm-up is one pass; behind it a round has as many as the method makes."""
    budget = Budget(passes=200)
    made = isofed.WARM_UP + (budget.rounds(row) - isofed.WARM_UP) * isofed.ROWS[row].passes
    assert abs(made - 200) <= isofed.ROWS[row].passes / 2
    settings = method_of(experiment_of(Cell("blood", 0.8, 2, row, 3), budget)).settings
    assert settings.rounds == budget.rounds(row)
    assert (settings.optimizer, settings.learning_rate, settings.batch) == ("sgd", 0.03, 64)
    assert (settings.participants, settings.images_per_round) == (None, None)


@pytest.mark.parametrize("name", isofed.DATASETS)
def test_organs_and_chests_are_never_mirrored(name: str) -> None:
    views = experiment_of(Cell(name, 0.8, 2, "isofed", 1), TINY).data.views
    assert views == ("upright" if name in ("organa", "pneumonia") else "mirrored")


def test_a_cell_is_evaluated_on_all_test_images(out: Path) -> None:
    result = json.loads(result_file(out, CELL).read_text())
    assert (result["rounds"], result["passes"], result["images_at_most"]) == (8, 9, 16)
    assert round(result["accuracy"] * 20 / 100, 6).is_integer()  # of the file's 20 test images
    assert result["uploads"] == 7 * 2 + 4


def test_a_cell_runs_once_on_the_same_images(data: Path, copied: Path) -> None:
    before = result_file(copied, CELL).stat().st_mtime_ns
    isofed.run([CELL], TINY, data, copied, workers=1)
    assert result_file(copied, CELL).stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match=r"--data: expected .*data\d*, found .*others"):
        isofed.run([CELL], TINY, copied / "others", copied, workers=1)


def test_a_cell_fails_with_a_site_that_fails_not_one_declining(data: Path, copied: Path) -> None:
    log = result_file(copied, CELL).parent / "run" / "rounds.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert any("took no step" in reason for row in rows for reason in row["failed"].values())
    rows[-1]["failed"]["site-4"] = "no image can be read"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RunError, match="found site-4: no image can be read"):
        run_cell(CELL, TINY, data, copied)


def test_sites_have_all_labels_or_none_and_hold_no_test_image(data: Path, tmp_path: Path) -> None:
    from fedward.sites import load_site

    cell = Cell("pneumonia", 0.5, 1, "mt_wfedavg", 2)
    run_cell(cell, TINY, data, tmp_path / "out")
    folder = result_file(tmp_path / "out", cell).parent / "sites"
    spec = experiment_of(cell, TINY).data
    sites = [load_site(folder / f"site-{index}.yaml", spec) for index in range(1, 5)]
    assert [bool(len(site.labelled)) for site in sites] == [True, False, False, False]
    assert [bool(len(site.unlabelled)) for site in sites] == [False, True, True, True]
    assert sum(len(site.labelled) + len(site.unlabelled) for site in sites) == 120
    assert [len(site.val) for site in sites] == [20] * 4
    assert [len(site.test) for site in sites] == [0] * 4


def test_the_judge_refuses_to_choose_its_test_images(data: Path, tmp_path: Path) -> None:
    arrays = dict(np.load(data / "pneumoniamnist.npz"))
    arrays["test_images"][0] = 0
    np.savez(tmp_path / "pneumoniamnist.npz", **arrays)
    with pytest.raises(DataError, match="every test image usable"):
        run_cell(Cell("pneumonia", 0.8, 2, "lower", 1), TINY, tmp_path, tmp_path / "out")


def test_the_table_shows_means_paper_values_and_differences(tmp_path: Path) -> None:
    accuracies = {("isofed", 1): 80.0, ("isofed", 2): 84.0, ("rscfed", 1): 79.0, ("rscfed", 2): 81.0}
    for (row, seed), accuracy in accuracies.items():
        file = result_file(tmp_path, cell := Cell("blood", 0.8, 2, row, seed))
        file.parent.mkdir(parents=True)
        scores = Scores(accuracy, 90.0, 70.0, 60.0)._asdict()
        file.write_text(json.dumps({**cell.__dict__, **scores}))
    wanted = cells(["blood"], [0.8], [2], ["rscfed", "isofed", "mt_wfedavg"], [1, 2])
    text = table(read_results(wanted, partial(result_file, tmp_path)))
    assert "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|" in text, "settings and methods to the left"
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    (ours,) = (line for line in lines if line[:3] == ["2:2", "0.8", "IsoFed"])
    assert ours[3:] == ["2", "82.0 ± 2.8", "80.5", "90.0 ± 0.0", "97.2", "70.0 ± 0.0", "77.1", "60.0 ± 0.0", "78.1"]
    (compared,) = (line for line in lines if line[:2] == ["blood", "RSCFed"])
    assert compared[2:4] == ["2", "80.0"]
    assert compared[5].startswith("+2.0 [")  # 80 - 79 and 84 - 81
    assert compared[6] == "", "IsoFed w/o PT has not run"
    assert not any("MT+wFedAvg" in line for line in lines), "what has not run is not shown"


def test_adaptation_is_compared_at_the_last_common_round(data: Path, copied: Path) -> None:
    twins = [CELL, replace(CELL, row="isofed_wo_pt")]
    run_cell(twins[1], TINY, data, copied)
    curves = [Run.load(result_file(copied, cell).parent / "run").series("val", "accuracy") for cell in twins]
    with_it, without = (100 * sum(line[8] for line in curve.values()) / 4 for curve in curves)
    line = adaptation(copied, twins).splitlines()[-1]
    assert line == f"| pneumonia | 1 | 8 | {with_it:.1f} | {without:.1f} | {with_it - without:+.1f} |"


@pytest.mark.parametrize(
    "arguments", [[], ["--dataset", "blood", "--methods", "isofed", "magic"], ["--table", "1", "--data", "nowhere"]]
)
def test_wrong_use_is_told(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paper.main(["isofed", *arguments, "--out", str(tmp_path)]) == 2
    text = capsys.readouterr().err
    assert any(word in text for word in ("neither --table nor --dataset", "magic", "bloodmnist.npz"))


def test_a_table_and_data_sets_are_not_asked_for_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        paper.main(["isofed", "--table", "2", "--dataset", "blood"])
    assert "--dataset: not allowed with argument --table" in capsys.readouterr().err


def test_a_missing_file_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"organamnist\.npz"):
        isofed.run([Cell("organa", 0.8, 2, "isofed", 1)], TINY, tmp_path, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
