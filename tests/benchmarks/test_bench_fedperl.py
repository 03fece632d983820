"""The table of FedPerl's benchmark, from runs of a few steps."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import paper
from fedward.errors import ConfigError, RunError
from fedward.evaluation import best_global, best_per_site, last_rounds
from fedward.evaluation.selection import MetricRow
from fedward.jobs import load_experiment
from fedward.report.run import Run
from fedward.storage.pseudo_labels import noted
from papers import fedperl
from papers.fedperl import Cell, Changes, run_cell, run_folder, score, table

FEW = ("rounds=2", "images_per_round=16", "synthetic.images=40", "data.image_size=16", "synthetic.sites=2")
CHANGES = Changes(FEW, ("warm_up=1",))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    for cell in (Cell("lower", 1), Cell("lower", 2), Cell("fedperl", 1), Cell("fedperl", 2), Cell("upper", 1)):
        run_cell(cell, CHANGES, folder, None)
    return folder


def lines_of(text: str, title: str) -> list[list[str]]:
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] == title]


def test_rows_differ_from_the_shipped_jobs_by_what_is_asked(out: Path) -> None:
    fedperl_run, lower, upper = (Run.load(run_folder(Cell(row, 1), out)) for row in ("fedperl", "lower", "upper"))
    assert fedperl_run.info.experiment["options"] == {**lower.info.experiment["options"], "warm_up": 1}
    few, every = (run.info.experiment["synthetic"]["labelled"] for run in (lower, upper))
    assert few == load_experiment("fedavg", []).synthetic.labelled < every == 1.0
    assert lower.info.sites == ("site-1", "site-2")


def test_the_table_has_means_and_paired_differences(out: Path) -> None:
    cells = [Cell(row, seed) for row in ("lower", "fedperl", "upper", "ssfl") for seed in (1, 2)]
    text = table(cells, out)
    assert text.count("### Test set") == len(fedperl.PROTOCOLS)
    runs = {cell: Run.load(run_folder(cell, out)) for cell in cells if run_folder(cell, out).exists()}
    values = {cell: score(run, "accuracy", last_rounds) for cell, run in runs.items()}
    ours = lines_of(text, "FedPerl")[0]
    assert ours[1] == "2"
    assert ours[2].startswith(f"{(values[Cell('fedperl', 1)] + values[Cell('fedperl', 2)]) / 2:.3f} ± ")
    gaps = [values[Cell("fedperl", seed)] - values[Cell("lower", seed)] for seed in (1, 2)]
    assert ours[7].startswith(f"{sum(gaps) / 2:+.3f} [")
    assert ours[8] == "-", "SSFL has not run"
    assert lines_of(text, "Lower (FedAvg, few labels)")[0][7] == ""
    assert lines_of(text, "Upper (FedAvg, all labels)")[-1][1] == "1"
    assert not lines_of(text, "SSFL (FedAvg + FixMatch)")
    *titles, last = [line.removeprefix("### Test set, ") for line in text.splitlines() if line.startswith("###")]
    assert titles == list(fedperl.PROTOCOLS)
    assert last == "### Unlabelled images, last three rounds of training"
    assert list(fedperl.PROTOCOLS.values()) == [last_rounds, best_global, best_per_site]


def test_the_quality_of_pseudo_labels_is_shown(out: Path) -> None:
    """Both rounds are among the last three; federated averaging makes no pseudo-labels, but has models of its own."""
    run = Run.load(run_folder(Cell("fedperl", 1), out))
    rows = [row for rows in noted(run.folder, run.info.id).values() for row in rows]
    assert len(rows) == sum(len(row.replied) for row in run.rounds)
    text = table([Cell("fedperl", 1), Cell("lower", 1), Cell("upper", 1)], out)
    shown = lines_of(text, "FedPerl")[-1]
    kept = sum(sum(row.kept.values()) for row in rows)
    assert shown[1:3] == ["1", f"{kept / sum(row.labelled for row in rows):.3f}"]
    assert shown[4] == f"{sum(row.right for row in rows) / sum(row.labelled for row in rows):.3f}"
    assert shown[5] == f"{sum(row.accuracy for row in rows) / len(rows):.3f}"
    lower = lines_of(text, "Lower (FedAvg, few labels)")[-1]
    assert (lower[2:5], lower[6]) == (["-"] * 3, "-")
    assert float(lower[5]) >= 0
    assert len(lines_of(text, "Upper (FedAvg, all labels)")) == len(fedperl.PROTOCOLS), "nothing is hidden"


def test_each_image_counts_once_in_the_pooled_column(out: Path) -> None:
    run = Run.load(run_folder(Cell("upper", 1), out))
    rows = [row for row in run.metrics.named("accuracy") if row.split == "test" and row.round in (1, 2)]
    right, images = (sum(row.n * weight(row) for row in rows) for weight in (lambda row: row.value, lambda row: 1))
    assert lines_of(table([Cell("upper", 1)], out), "Upper (FedAvg, all labels)")[0][6] == f"{right / images:.3f}"


def test_the_reported_metric_chooses_the_round(out: Path, tmp_path: Path) -> None:
    """Accuracy is best before training and macro F1 after it, on validation images."""
    shutil.copytree(run_folder(Cell("lower", 1), out), folder := tmp_path / "run")
    rows = [
        MetricRow(round_, "site-1", split, name, value, 10).__dict__ | {"classes": []}
        for name, best in (("accuracy", 0), ("f1_macro", 2))
        for round_ in (0, 1, 2)
        for split, value in (("val", float(round_ == best)), ("test", round_ / 10))
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Run.load(folder)
    for choose in (best_global, best_per_site):
        assert (score(run, "accuracy", choose), score(run, "f1_macro", choose)) == (0.0, 0.2)


def test_finished_runs_are_shown_and_not_run_again(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run_folder(Cell("lower", 1), out) / "run.json").stat().st_mtime_ns
    arguments = ["fedperl", "--out", str(out), "--methods", "lower", "--seeds", "1", "2"]
    assert paper.main([*arguments, *(word for change in FEW for word in ("--set", change))]) == 0
    assert len(lines_of(capsys.readouterr().out, "Lower (FedAvg, few labels)")) == len(fedperl.PROTOCOLS) + 1
    assert (run_folder(Cell("lower", 1), out) / "run.json").stat().st_mtime_ns == before


def changed(file: Path, change: Any) -> None:
    """Change each row of a log."""
    rows = [change(json.loads(line)) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_run_in_which_a_site_never_trained_is_in_no_table(out: Path, tmp_path: Path) -> None:
    cell = Cell("lower", 1)
    shutil.copytree(run_folder(cell, out), folder := run_folder(cell, tmp_path))
    changed(folder / "rounds.jsonl", lambda row: {**row, "failed": {"site-2": "no file of its own"}})
    for use in (lambda: table([cell], tmp_path), lambda: run_cell(cell, CHANGES, tmp_path, None)):
        with pytest.raises(RunError, match="expected all sites to train, found site-2: no file of its own"):
            use()


def test_a_metric_without_any_value_is_named_with_its_run(out: Path, tmp_path: Path) -> None:
    cell = Cell("lower", 1)
    shutil.copytree(run_folder(cell, out), folder := run_folder(cell, tmp_path))
    undefined = {"test": {"value": None}}
    changed(
        folder / "metrics.jsonl",
        lambda row: row | (undefined.get(row["split"], {}) if row["name"] == "auroc_macro" else {}),
    )
    with pytest.raises(RunError, match="lower/seed-1, auroc_macro: expected a value on some site's test images"):
        table([cell], tmp_path)


def test_an_unknown_row_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert paper.main(["fedperl", "--methods", "magic"]) == 2
    assert "magic" in capsys.readouterr().err


def test_results_of_other_settings_are_refused_not_shown_as_new(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert paper.main(["fedperl", "--out", str(out), "--methods", "lower", "--seeds", "1"]) == 2
    shown = capsys.readouterr()
    assert "lower/seed-1: expected a run with the settings that are asked for" in shown.err
    assert not shown.out


def test_one_table_shows_runs_on_the_same_images(tmp_path: Path) -> None:
    out, sites = tmp_path / "out", tmp_path / "sites"
    fedperl.run([], CHANGES, out, sites, 1)
    fedperl.run([], CHANGES, out, sites, 1)
    for others in (None, tmp_path / "others"):
        with pytest.raises(ConfigError, match=r"--site-files: expected \.\./sites, found"):
            fedperl.run([], CHANGES, out, others, 1)
    out.rename(tmp_path / "moved")
    fedperl.run([], CHANGES, tmp_path / "moved", sites, 1)
