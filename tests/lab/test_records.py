"""A study's runs and results: from run folders into lines, compared with them, and shown."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedward.cli import main
from fedward.errors import ConfigError, RunError
from fedward.evaluation import last_rounds, mean_over_sites
from fedward.lab.bench.notes import notes
from fedward.lab.bench.page import check_page, write_page
from fedward.lab.bench.recording import check_records, record
from fedward.lab.bench.records import Curve, Drawn, ImageDigests, Record, add_records, read_records
from fedward.lab.bench.results import Results
from fedward.lab.bench.runs import Bench
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Cell, Row
from fedward.lab.bench.tables import further_tables, tables, value_table
from fedward.runs.metrics import Metrics
from fedward.runs.run import Run
from fedward.storage.rows import QueryRow

STUDY = {
    "title": "Tiny",
    "settings": {
        **{
            "rounds": 8,
            "images_per_round": 16,
            "batch": 16,
            "participants": 2,
            "synthetic.images": 40,
            "synthetic.sites": 2,
        },
        **{"data.image_size": 16, "evaluate_every": 1},
    },
    "rows": {
        "lower": {"title": "Lower", "job": "fedavg"},
        "local": {
            "title": "Each site alone",
            "job": "fedavg",
            "alone": True,
            "settings": {"participants": None},
        },
        "ssfl": {"title": "SSFL", "job": "ssfl"},
        "warm": {
            "title": "SSFL from Lower",
            "job": "ssfl",
            "init": "lower",
            "settings": {"rounds": 8},
        },
        "upper": {"title": "Upper", "job": "fedavg_full"},
    },
    "own": "ssfl",
    "lower": "lower",
    "upper": "upper",
    "compare": [["ssfl", "lower"], ["ssfl", "local"]],
    "seeds": [1, 2],
}
ALONE = Cell("all", "local", 1)


def recorded(cell: Cell, run: Run) -> Record:
    """Return the line of a run whose images no other repetition has."""
    return record(cell, [run], Drawn(ImageDigests("test", "labels"), "data and weights"))


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("study") / "tiny.json"
    file.write_text(json.dumps(STUDY))
    return file


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, without_report: None) -> Bench:
    out = tmp_path_factory.mktemp("out")
    made = Bench(Study.model_validate(STUDY), out, out / "sites", out / "results.jsonl", {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.lab.bench.runs.rewrite_report", lambda folder, compared: None)
        for cell in made.study.cells():
            made.run_cell(cell)
    return made


@pytest.fixture
def file(work: Bench, tmp_path: Path) -> Path:
    copy = tmp_path / "results.jsonl"
    copy.write_bytes(work.file.read_bytes())
    return copy


def test_a_line_says_what_the_run_folder_says(work: Bench, file: Path) -> None:
    lines = read_records(file)
    assert list(lines) == sorted(work.study.cells())
    cell = Cell("all", "ssfl", 2)
    result = lines[cell]
    (run,) = work.runs(cell)
    assert (result.rounds, result.trainings, result.curve.round) == (8, 16, tuple(range(1, 9)))
    found = last_rounds(run.metrics.named("f1_macro"), "f1_macro").test
    assert result.test["last"]["f1_macro"] == pytest.approx(found, abs=1e-5)
    assert (
        json.loads((run.folder / "audit.jsonl").read_text().splitlines()[-1])["hash"]
        == result.audit
    )
    assert set(result.pseudo_labels) == {"kept", "kept_right", "right"}
    assert set(lines[Cell("all", "lower", 1)].pseudo_labels) == set()


def test_reports_of_the_pages_row_compare_few_labels_and_sites_alone(work: Bench) -> None:
    baselines = [Cell("all", "lower", 1), ALONE]
    folders = {folder for cell in baselines for folder in work.folders(cell).values()}
    compared = work.compared(Cell("all", "ssfl", 1))
    assert len(compared) == len(folders) == 3
    assert set(compared) == folders
    assert work.compared(Cell("all", "upper", 1)) == []


def test_sites_that_are_alone_count_once_each(work: Bench, file: Path) -> None:
    runs = {site: Run.load(folder) for site, folder in work.folders(ALONE).items()}
    assert {site: run.info.sites for site, run in runs.items()} == {
        "site-1": ("site-1",),
        "site-2": ("site-2",),
    }
    each = [last_rounds(run.metrics.named("accuracy"), "accuracy").test for run in runs.values()]
    result = read_records(file)[ALONE]
    assert None not in each
    assert result.test["last"]["accuracy"] == pytest.approx(sum(filter(None, each)) / 2, abs=1e-5)
    assert result.trainings == 16


def test_all_rows_stop_at_the_best_validation_round_by_one_metric(work: Bench, file: Path) -> None:
    """Sites that are alone choose each its own round, by its own validation images."""
    for cell in (ALONE, Cell("all", "ssfl", 2)):
        values = []
        for run in work.runs(cell):
            means = mean_over_sites(run.metrics.named("f1_weighted"), "f1_weighted")
            best = max(means, key=lambda round_: (round(means[round_], 12), round_))
            tested = run.series("test", "f1_macro")
            values += [by_round[best] for by_round in tested.values()]
        result = read_records(file)[cell]
        assert result.metric == work.experiment(cell).key_metric == "f1_weighted"
        assert result.test["global"]["f1_macro"] == pytest.approx(
            sum(values) / len(values), abs=1e-5
        )
        assert [site["f1_macro"] for site in result.sites.values()] == pytest.approx(
            values, abs=1e-5
        )


def test_a_line_names_the_rounds_that_validation_chose(work: Bench, file: Path) -> None:
    lines = read_records(file)
    joined = Cell("all", "ssfl", 2)
    means = mean_over_sites(work.runs(joined)[0].metrics.named("f1_weighted"), "f1_weighted")
    best = max(means, key=lambda round_: (round(means[round_], 12), round_))
    assert lines[joined].best_round == {"site-1": best, "site-2": best}
    assert lines[joined].best_val == pytest.approx(means[best], abs=1e-5)
    of_sites = []
    for run in work.runs(ALONE):
        own = mean_over_sites(run.metrics.named("f1_weighted"), "f1_weighted")
        assert own[lines[ALONE].best_round[run.info.sites[0]]] == max(own.values())
        of_sites.append(max(own.values()))
    assert lines[ALONE].best_val == pytest.approx(sum(of_sites) / 2, abs=1e-5)


def test_a_site_that_is_not_asked_keeps_its_labels(work: Bench) -> None:
    """Two of the sites take turns, and have all their labels by round 4."""
    cell = Cell("all", "lower", 1)
    (run,) = work.runs(cell)
    asked = [(2, "site-1", 10), (3, "site-2", 10), (4, "site-1", 20), (6, "site-2", 10)]
    queries = tuple(
        QueryRow(round_, site, 0, 0, 0, 0, 0, known, 0, None) for round_, site, known in asked
    )
    rows = [
        replace(row, value=1 - abs(row.round - 5) / 100 if row.split == "val" else row.value)
        for row in run.metrics
    ]
    found = recorded(cell, replace(run, queries=queries, metrics=Metrics(rows)))
    assert found.curve.labels == (0, 10, 20, 30, 30, 30, 30, 30)
    assert set(found.best_round.values()) == {5}


@pytest.mark.parametrize(
    ("labels", "first"),
    [
        ({1: 10, 3: 20, 5: 30, 7: 30}, 5),
        ({1: 30, 3: 30, 5: 30}, 0),
        ({1: 10, 3: 30, 5: 10, 7: 30}, 7),
        ({}, 0),
    ],
    ids=["rising", "all at once", "a site missing for a while", "none bought"],
)
def test_a_row_that_buys_labels_counts_when_it_has_all_of_them(
    labels: dict[int, int], first: int, work: Bench
) -> None:
    cell = Cell("all", "lower", 1)
    (run,) = work.runs(cell)
    queries = tuple(
        QueryRow(round_, site, 0, 0, 0, 0, 0, known // 2, 0, None)
        for round_, known in labels.items()
        for site in run.info.sites
    )
    means = mean_over_sites(run.metrics.named("f1_weighted"), "f1_weighted")
    # Validation is best before training, so that it would choose fewer labels.
    rows = [
        replace(row, value=1 - row.round / 100 if row.split == "val" else row.value)
        for row in run.metrics
    ]
    found = recorded(cell, replace(run, queries=queries, metrics=Metrics(rows)))
    assert 0 in means
    assert found.best_round == {"site-1": first, "site-2": first}
    tested = mean_over_sites(run.metrics.named("f1_macro"), "f1_macro", "test")
    assert found.test["global"]["f1_macro"] == pytest.approx(tested[first], abs=1e-5)
    assert found.best_val == pytest.approx(1 - first / 100)


def test_values_of_a_row_that_buys_labels_are_those_of_its_run_without_a_round(
    work: Bench, tmp_path: Path
) -> None:
    """Whoever raises them may leave the round out as well, as in older lines."""
    cell = Cell("all", "lower", 1)
    (run,) = work.runs(cell)
    labels = {1: 10, 8: 20}
    queries = tuple(
        QueryRow(round_, "site-1", 0, 0, 0, 0, 0, known, 0, None)
        for round_, known in labels.items()
    )
    bought = replace(run, queries=queries)
    true = recorded(cell, bought)
    assert true.best_round == {"site-1": 8, "site-2": 8}
    assert recorded(cell, run).best_round != {"site-1": 8, "site-2": 8}
    file = tmp_path / "results.jsonl"
    older = replace(true, best_round={}, best_val=None)
    add_records(file, [older])
    assert check_records(file, lambda cell: [bought]) == [cell]
    better = {name: value + 0.1 for name, value in older.test["global"].items()}
    sites = {
        site: {name: value if name == "images" else value + 0.1 for name, value in values.items()}
        for site, values in older.sites.items()
    }
    add_records(file, [replace(older, test={**older.test, "global": better}, sites=sites)])
    with pytest.raises(RunError, match="found other test, sites"):
        check_records(file, lambda cell: [bought])


def test_test_images_are_resampled_by_the_answers_of_the_audited_run(work: Bench) -> None:
    cell = Cell("all", "lower", 1)
    (run,) = work.runs(cell)
    deviation = recorded(cell, run).by_group["accuracy"]["deviation"]
    assert 0.01 < deviation < 0.5, "some twenty test images"
    answers = next(run.folder.glob("sites/site-1/test_answers/*.jsonl"))
    before = answers.read_text()
    lines = [json.loads(line) for line in before.splitlines()]
    count = len(lines[0]["answers"].split())
    broken = {
        "an accuracy of": " ".join(["6"] * count),
        f"a class from 0 to 7 for each of {count} test images": "6 6",
        "a class from 0 to 7 for": " ".join(["8"] * count),
    }
    try:
        for expected, said in broken.items():
            changed = [json.dumps({**line, "answers": said}) for line in lines]
            answers.write_text("".join(f"{line}\n" for line in changed))
            with pytest.raises(RunError, match=f"answers of site-1: expected {expected}"):
                recorded(cell, run)
    finally:
        answers.write_text(before)


def test_a_row_may_begin_with_the_weights_of_another(work: Bench) -> None:
    (warm,) = work.runs(Cell("all", "warm", 2))
    (lower,) = work.runs(Cell("all", "lower", 2))
    assert (warm.info.init or {})["folder"] == str(lower.folder)


def test_results_are_compared_with_their_folders(work: Bench, file: Path) -> None:
    assert check_records(file, work.finished_runs) == sorted(work.study.cells())
    assert check_records(file, lambda cell: []) == []
    wrong = read_records(file)[ALONE]
    add_records(file, [replace(wrong, test={**wrong.test, "last": {"accuracy": 1.0}})])
    with pytest.raises(RunError, match="other test"):
        check_records(file, work.finished_runs)


def test_a_value_that_is_not_the_mean_of_its_sites_is_noticed(
    study_file: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the run folders are not there."""
    command = ["bench", str(study_file), "--out", str(tmp_path), "--results", str(file), "--verify"]
    assert main(command) == 0
    kept = read_records(file)[Cell("all", "ssfl", 2)]
    better = {**kept.test["global"], "f1_macro": kept.test["global"]["f1_macro"] + 0.01}
    add_records(file, [replace(kept, test={**kept.test, "global": better})])
    assert main(command) == 2
    assert "expected f1_macro to be the mean of its sites, 0." in capsys.readouterr().err


def test_a_folder_that_was_changed_is_noticed(work: Bench, file: Path) -> None:
    log = work.folders(Cell("all", "lower", 1))[""] / "metrics.jsonl"
    before = log.read_bytes()
    log.write_bytes(before.replace(b'"accuracy", "value": 0', b'"accuracy", "value": 1', 1))
    try:
        with pytest.raises(RunError):
            check_records(file, work.finished_runs)
    finally:
        log.write_bytes(before)


def test_recorded_cells_do_not_run_again(
    work: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    order: dict[str, list[str]] = {}

    def note(
        calls: Mapping[str, partial[str]], workers: int, after: Mapping[str, list[str]]
    ) -> None:
        ran.extend(calls)
        order.update(after)

    monkeypatch.setattr("fedward.lab.bench.runs.run_all", note)
    work.run(work.study.cells(), 1)
    assert ran == [f"references of all lower seed {seed}" for seed in (1, 2)]
    other = Bench(work.study, tmp_path, work.site_files, work.file, {"learning_rate": 0.5})
    ran.clear()
    other.run([Cell("all", row, seed) for row in ("warm", "lower") for seed in (1, 2)], 1)
    one_seed = ["all warm seed {}", "all lower seed {}", "references of all lower seed {}"]
    assert ran == [name.format(seed) for seed in (1, 2) for name in one_seed]
    assert order["all warm seed 2"] == ["all lower seed 2"], "its first weights"


def removed(work: Bench, settings: dict[str, Any], folder: Path) -> Bench:
    """Return a bench whose row ssfl had settings that fedward no longer has."""
    row = work.study.rows["ssfl"].model_copy(update={"settings": settings, "removed": "0123456"})
    rows = {**work.study.rows, "ssfl": row}
    study = work.study.model_copy(update={"rows": rows})
    return Bench(study, folder, work.site_files, folder / "results.jsonl", {})


def test_a_removed_rows_lines_count_and_it_does_not_run_again(work: Bench, tmp_path: Path) -> None:
    cell = Cell("all", "ssfl", 1)
    before = read_records(work.file)[cell]
    gone = {"pseudo_labels": "magic"}
    settings = {**before.settings, "options": {**before.settings["options"], **gone}}
    kept = replace(before, settings=settings)
    with pytest.raises(ConfigError, match="pseudo_labels"):
        work.study.model_copy(
            update={"rows": {"ssfl": Row(title="S", job="ssfl", settings=gone)}}
        ).experiment(cell)
    bench = removed(work, gone, tmp_path)
    assert bench.is_current(kept)
    assert not bench.is_current(before), "it was another row's"
    assert not removed(work, {"pseudo_labels": "other"}, tmp_path).is_current(kept)
    slower = {**settings, "options": {**settings["options"], "learning_rate": 0.5}}
    assert not bench.is_current(replace(kept, settings=slower)), "its other settings are checked"
    assert cell not in bench.missing(bench.study.cells())
    assert Cell("all", "lower", 1) in bench.missing(bench.study.cells())


def test_a_recorded_cell_runs_again_if_another_begins_with_its_lost_run(
    work: Bench, tmp_path: Path
) -> None:
    """Recorded lines may come without run folders."""
    lower, warm, upper = (Cell("all", row, 1) for row in ("lower", "warm", "upper"))
    kept = [record for cell, record in read_records(work.file).items() if cell not in (warm, upper)]
    other = Bench(work.study, tmp_path, tmp_path / "sites", tmp_path / "results.jsonl", {})
    add_records(other.file, kept)
    cells = work.study.cells()
    assert set(other.missing(cells)) == {lower, warm, upper}
    assert other.missing([upper]) == [upper]
    (run,) = work.runs(lower)
    shutil.copytree(run.folder, other.folders(lower)[""])
    assert set(other.missing(cells)) == {warm, upper}


def test_a_setting_that_is_new_counts_as_its_default(work: Bench, file: Path) -> None:
    result = read_records(file)[ALONE]
    asked = work.experiment(ALONE)
    older = {name: value for name, value in result.settings.items() if name != "update_dtype"}
    assert replace(result, settings=older).is_of(asked)
    named = {**older, "options": {**older["options"], "momentum": 0.9}}
    assert replace(result, settings=named).is_of(asked), "the method's default"
    assert not replace(result, settings={**older, "update_dtype": "float16"}).is_of(asked)
    assert not replace(result, settings={**older, "net": "none"}).is_of(asked)


def test_synthetic_images_of_a_job_count_only_where_there_are_no_site_files(
    work: Bench, file: Path
) -> None:
    result = read_records(file)[ALONE]
    asked = work.experiment(ALONE)
    other = replace(result, settings={**result.settings, "synthetic": {"sites": 3}})
    assert not other.is_of(asked)
    assert other.is_of(asked, site_files=True)


@pytest.mark.parametrize(
    ("failed", "cell"), [(ALONE, ALONE), (Cell("all", "lower", 1), Cell("all", "warm", 1))]
)
def test_a_run_in_which_a_site_failed_is_of_no_use(work: Bench, failed: Cell, cell: Cell) -> None:
    """Neither in a table, nor for another row that would begin with its weights."""
    folder = next(iter(work.folders(failed).values()))
    before = (folder / "rounds.jsonl").read_bytes()
    (folder / "rounds.jsonl").write_bytes(
        before.replace(b'"failed": {}', b'"failed": {"site-1": "no file"}', 1)
    )
    try:
        with pytest.raises(RunError, match="expected all sites to train, found site-1: no file"):
            work.run_cell(cell)
    finally:
        (folder / "rounds.jsonl").write_bytes(before)


def test_runs_without_validation_images_are_in_no_table(
    work: Bench, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No round is the best one there: a page could show no value."""
    without = replace(read_records(file)[ALONE], test={"global": {}, "last": {"f1_weighted": 0.5}})
    monkeypatch.setattr("fedward.lab.bench.runs.record", lambda *arguments: without)
    before = file.read_bytes()
    study = work.study.model_copy(update={"metrics": ("f1_weighted",)})
    with pytest.raises(RunError, match=r"test values of f1_weighted.*labelled validation images"):
        Bench(study, work.out, work.site_files, file, {}).run_cell(Cell("all", "lower", 1))
    assert file.read_bytes() == before


def test_a_metric_without_a_value_is_in_no_table(work: Bench, file: Path) -> None:
    study = work.study.model_copy(update={"metrics": ("accuracy", "sensitivity")})
    before = file.read_bytes()
    with pytest.raises(
        RunError,
        match=r"seed-1: expected test values of sensitivity, found none\. Name other metrics",
    ):
        Bench(study, work.out, work.site_files, file, {}).run_cell(Cell("all", "lower", 1))
    assert file.read_bytes() == before


VALUES = {"lower": 0.6, "local": 0.5, "ssfl": 0.7, "warm": 0.7, "upper": 0.8}


def results_of(file: Path) -> Results:
    """Return results with values that are easily checked."""
    study = Study.model_validate(STUDY)
    found = dict[Cell, Record]()
    for cell, result in read_records(file).items():
        metrics = ("accuracy", "balanced_accuracy", "f1_macro", "f1_weighted", "pooled")
        best = dict.fromkeys(metrics, VALUES[cell.row] + cell.seed / 100)
        last = {name: value - 0.001 for name, value in best.items()}
        curve = Curve(tuple(range(1, 9)), (0.5,) * 8, {}, ())
        test = {"global": best, "last": last}
        found[cell] = replace(result, curve=curve, test=test, by_group={})
    return Results(study, found)


def rows_of(text: str) -> dict[str, list[str]]:
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {cells[0]: cells for cells in reversed(lines)}


def test_the_table_has_means_and_paired_differences(file: Path) -> None:
    """Two seeds, 0.61 and 0.62: their interval is 0.615 ± 12.706 x 0.005."""
    rows = rows_of(value_table(results_of(file)))
    value = "0.615 [0.551, 0.679]"
    assert rows["Lower"][1:] == ["2 (few)", value, "0.614", value, "0.614", ""]
    further = further_tables(results_of(file))
    assert rows_of(further)["SSFL minus Lower"][1].startswith("+0.100 [")
    bounded = further[further.index("minus lower bound") :]
    assert rows_of(bounded)["Each site alone"][1].startswith("-0.100 [")
    assert rows_of(further)["Lower"][1:] == [value], "accuracy of all test images"


def test_tables_of_differences_are_folded(file: Path) -> None:
    open_text = re.sub(r"<details.*?</details>", "", tables(results_of(file)), flags=re.DOTALL)
    assert "| work of a run |" in open_text
    for words in ("minus", "relative improvement", "+0.1"):
        assert words in tables(results_of(file))
        assert words not in open_text


def test_pairs_are_compared_in_percent_as_papers_do(file: Path) -> None:
    results = results_of(file)
    rows = rows_of(tables(results))
    megabytes = {
        row: sum(results.records[Cell("all", row, seed)].megabytes for seed in (1, 2))
        for row in ("ssfl", "lower")
    }
    cost = 100 * (megabytes["ssfl"] / megabytes["lower"] - 1)
    improvement = f"{100 * (0.715 - 0.615) / 0.615:+.1f}"
    assert rows["SSFL over Lower"][1:] == [improvement, improvement, f"{cost:+.1f}"]
    assert rows["SSFL over Each site alone"][3] == "", "sites that are alone move no data"


def test_sites_have_a_mean_a_median_and_a_deviation(file: Path) -> None:
    """Sites of accuracy 0.2, 0.4 and 0.9; those of the second seed are 0.02 higher."""
    records = results_of(file).records
    with_sites = {}
    for cell, result in records.items():
        above = 0.02 * (cell.seed - 1)
        sites = {}
        for value in (0.2, 0.4, 0.9):
            values = dict.fromkeys(("accuracy", "f1_macro"), value + above)
            sites[f"site-{value}"] = {"images": 10.0, **values}
        with_sites[cell] = replace(result, sites=sites)
    text = tables(Results(Study.model_validate(STUDY), with_sites))
    assert "| **SSFL** | 0.510 (0.410) ± 0.361 | 0.510 (0.410) ± 0.361 |" in text


def test_nothing_is_shown_where_the_bounds_are_not_apart(file: Path) -> None:
    results = results_of(file)
    lower, upper = (
        results.records[Cell("all", row, seed)] for row, seed in (("lower", 1), ("upper", 2))
    )
    low = {**results.records, upper.cell: replace(upper, test=lower.test)}
    rows = rows_of(tables(Results(results.study, low)))
    why = "withheld: Accuracy: all labels are not shown to beat few"
    for title in ("Lower", "**SSFL**", "Upper"):
        assert rows[title][2].startswith(f"{why}, +0.095 [")
    assert "upper bound: the best row with all labels" not in rows


def test_a_second_metric_is_refused_alone(file: Path) -> None:
    results = results_of(file)
    upper, lower = (
        results.records[Cell("all", row, seed)] for row, seed in (("upper", 2), ("lower", 1))
    )
    best = {**upper.test["global"], "f1_macro": lower.test["global"]["f1_macro"]}
    test = {**upper.test, "global": best}
    mixed = {**results.records, Cell("all", "upper", 2): replace(upper, test=test)}
    rows = rows_of(value_table(Results(results.study, mixed)))
    value = "0.615 [0.551, 0.679]"
    assert rows["Lower"][2:6] == [value, "0.614", "withheld", "withheld"]
    assert rows["upper bound: the best row with all labels"][4] == "withheld"
    further = rows_of(further_tables(Results(results.study, mixed)))
    assert further["SSFL minus Lower"][2] == "withheld"


def test_labels_that_came_last_begin_the_curve_that_is_judged() -> None:
    assert Curve((1, 2, 3, 4), (0.1, 0.2, 0.3, 0.4), {}, (10, 20, 20, 20)).val_since_labels == (
        0.2,
        0.3,
        0.4,
    )
    assert Curve((1, 2), (0.1, 0.2), {}, ()).val_since_labels == (0.1, 0.2)
    taken_back = Curve((1, 2, 3, 4), (0.1, 0.2, 0.3, 0.4), {}, (20, 10, 20, 20))
    assert taken_back.val_since_labels == (0.3, 0.4)


def test_a_page_is_written_between_its_lines_and_checked(
    file: Path, study_file: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    results = results_of(file)
    page.write_text("# Before\n\n<!-- study tiny -->\nold\n<!-- end tiny -->\n\nAfter.\n")
    write_page(page, study_file, results, [results])
    text = page.read_text()
    assert text.startswith("# Before\n\n<!-- study tiny -->\n\n**No difference between methods is")
    assert "(tiny.svg)" in text
    assert "(tiny_curves.svg)" in text
    link = "[Further metrics, differences of rows, work of a run](tables/tiny.md)"
    assert text.endswith(f"{link}\n\n<!-- end tiny -->\n\nAfter.\n")
    further = tmp_path / "tables" / "tiny.md"
    assert further.read_text().startswith(
        "# Tiny: further tables\n\nThe values are on [their page](../page.md).\n\n"
    )
    assert "| work of a run |" in further.read_text()
    assert "\nold\n" not in text
    svg = (tmp_path / "tiny.svg").read_text()
    assert svg.startswith("<?xml")
    assert "prefers-color-scheme: dark" in svg
    check_page(page, study_file, results, [results])
    page.write_text(text.replace("0.615", "0.715", 1))
    with pytest.raises(ConfigError, match=r"what the results of tiny\.json say"):
        check_page(page, study_file, results, [results])
    page.write_text(text)
    further.write_text(further.read_text().replace("work", "play"))
    with pytest.raises(ConfigError, match=r"tiny\.md does not say what the results"):
        check_page(page, study_file, results, [results])
    further.unlink()
    write_page(page, study_file, results, [results])
    (tmp_path / "tiny_curves.svg").unlink()
    with pytest.raises(ConfigError, match=r"tiny_curves\.svg does not say what the results"):
        check_page(page, study_file, results, [results])


def test_a_file_with_bytes_that_are_no_text_is_named(
    file: Path, study_file: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    results = results_of(file)
    page.write_text("<!-- study tiny -->\n<!-- end tiny -->\n")
    write_page(page, study_file, results, [results])
    for damaged in (page, tmp_path / "tables" / "tiny.md", tmp_path / "tiny.svg"):
        content = damaged.read_bytes()
        damaged.write_bytes(content + b"\xff")
        with pytest.raises(ConfigError, match=re.escape(f"{damaged}")):
            check_page(page, study_file, results, [results])
        damaged.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"page .*none\.md: expected a page in markdown, found no"
    ):
        check_page(tmp_path / "none.md", study_file, results, [results])
    (tmp_path / "damaged.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(
        RunError, match=r"damaged\.jsonl: .* found bytes that are not text in UTF-8"
    ):
        read_records(tmp_path / "damaged.jsonl")


BEGIN, END = "<!-- study tiny -->", "<!-- end tiny -->"


@pytest.mark.parametrize(
    "text",
    [
        "no lines",
        f"{BEGIN} \n{END}\n",
        f"{END}\n{BEGIN}\n",
        f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n",
        f"{BEGIN}\n",
        f"{BEGIN}\n<!-- study other -->\n{END}\n<!-- end other -->\n",
        f"see {BEGIN}\n{END}\n",
    ],
)
def test_a_page_without_one_place_for_a_study_stays_as_it_is(
    text: str, file: Path, study_file: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    results = results_of(file)
    page.write_text(text)
    with pytest.raises(ConfigError, match="once each, in this order"):
        write_page(page, study_file, results, [results])
    assert page.read_text() == text


def test_the_command_shows_and_verifies(
    work: Bench, study_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", str(study_file), "--out", str(work.out), "--results", str(work.file)]
    assert main([*command, "--show"]) == 0
    results = Results(work.study, read_records(work.file))
    assert capsys.readouterr().out == f"{tables(results)}\n\n{notes(results, [results])}\n"
    assert main([*command, "--verify"]) == 0
    assert (
        "10 results have the study's settings, 10 are those of runs in" in capsys.readouterr().out
    )
    assert main([*command, "--verify", "--seeds", "1", "2", "3"]) == 2
    missing = "expected a result of every run of the study, found none of 5 runs, such as all lower"
    assert missing in capsys.readouterr().err
    assert main([*command, "--verify", "--set", "learning_rate=0.5"]) == 2
    assert "expected the settings of the study, found others" in capsys.readouterr().err
    assert main([*command, "--cost", "--set", "learning_rat=0.5"]) == 2
    assert "settings that some row's method has, found learning_rat" in capsys.readouterr().err
    alone = ["bench", str(study_file), "--out", str(tmp_path / "new"), "--rows", "warm"]
    assert main(alone) == 2
    begins = "all warm seed 1: expected the run that it begins with, all lower seed 1, found none"
    assert begins in capsys.readouterr().err
    assert main([*command, "--rows", "fedperl"]) == 2
    assert (
        "expected some of lower, local, ssfl, warm, upper, found fedperl" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--show", "--rows", "ssfl"], "bench --show: .* found --rows"),
        (["--page", "page.md", "--seeds", "1"], "bench --page: .* found --seeds"),
        (["--page", "page.md", "--set", "rounds=2"], "bench --page: .* found --set"),
        (["--verify", "--variants", "all"], "bench --verify: .* found --variants"),
        (["--verify", "--page", "page.md", "--seeds", "1"], "bench --page: .* found --seeds"),
        (["--verify", "--set", "learning_rat=0.5"], "method has, found learning_rat"),
        (["--verify", "--set", "seed=3"], "no seed, which is that of the repetition, found seed=3"),
        (["--show", "--verify"], "found --show and --verify"),
        (["--cost", "--page", "page.md"], "found --cost and --page"),
    ],
)
def test_options_that_would_change_nothing_are_refused(
    options: list[str], found: str, study_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(study_file), *options]) == 2
    assert re.search(found, capsys.readouterr().err)


def test_site_files_that_nobody_cut_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.json"
    rows = {"lower": {"title": "Lower", "job": "fedavg", "sites": "few"}}
    file.write_text(
        json.dumps({**STUDY, "rows": rows, "own": "", "lower": "", "upper": "", "compare": []})
    )
    assert main(["bench", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "no such folder" in capsys.readouterr().err
