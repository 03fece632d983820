"""FedAL's benchmark: its site files, its cells, its choice of a round; tables and figures from results by hand."""

import csv
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import paper
from fedward.config import Experiment
from fedward.errors import ConfigError, DataError, RunError
from fedward.local import LocalTransport
from fedward.methods import method_of
from fedward.report.run import Run
from fedward.sites import SiteData, load_site
from fedward.storage.rows import QueryRow
from papers import fedal
from papers.fedal import ROWS, SCALES, Cell, cells, experiment_of, result_file, run_cell, site_folder
from papers.fedal_figure import curves, draw, numbers
from papers.fedal_paper import HOSPITALS, METRICS, TABLE_3, TABLE_4, Score
from papers.fedal_results import Schedule, classes_bought, curve_of, scores_of
from papers.fedal_sites import CLASSES, COLUMNS, POOL, federation, pooled, site_of, write_site_files
from papers.fedal_table import bought_table, curve_table, table_3, table_4

IMAGES = 60
"""Of each class at each hospital; the first four show two lesions."""
TRAIN = 3 * 42
"""Training images of a hospital that is split by image."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hospitals whose classes differ in brightness, and an image that is none of theirs."""
    folder, rng = tmp_path_factory.mktemp("skin"), np.random.default_rng(0)
    (folder / "images").mkdir()
    rows = []
    for hospital in (*HOSPITALS, ""):
        for label, name in enumerate(CLASSES):
            for index in range(IMAGES if hospital else 1):
                sample = f"{hospital}{name}{index:02d}"
                pixels = rng.integers(0, 100, (24, 24, 3)) + 70 * label
                Image.fromarray(pixels.astype("u1")).save(folder / "images" / f"{sample}.png")
                lesion = f"{hospital}{name}L{index // 2}" if index < 4 else ""
                rows.append([sample, f"images/{sample}.png", lesion, name, hospital])
    with (folder / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return folder


# --- the paper


def test_the_papers_tables_agree_with_each_other() -> None:
    """Table 3's macro-F1 is the mean over hospitals, rounded there to one digit."""
    assert TABLE_3["fedal"] == {
        "accuracy": Score(86.17, 0.62),
        "f1_macro": Score(78.50, 1.08),
        "auroc_macro": Score(91.43, 0.47),
    }
    assert set(TABLE_3) == set(fedal.TABLES[3])
    assert set(TABLE_4) == set(fedal.TABLES[4])
    for row, numbers_of in TABLE_4.items():
        assert np.mean([numbers_of[name] for name in HOSPITALS]) == pytest.approx(numbers_of["mean"], abs=0.06)
        if row in TABLE_3:
            assert TABLE_3[row]["f1_macro"].mean == pytest.approx(numbers_of["mean"], abs=0.06)


# --- hospitals


def loaded(files: Path, sites: tuple[str, ...]) -> dict[str, SiteData]:
    spec = experiment_of(Cell("tiny", "images", "fedal", 1)).data
    return {site: load_site(files / f"{site}.yaml", spec) for site in sites}


def ids(site: SiteData) -> dict[str, set[str]]:
    return {"train": set(site.labelled.ids), "val": set(site.val.ids), "test": set(site.test.ids)}


def test_hospitals_are_split_by_image_into_70_10_20_percent(data: Path, tmp_path: Path) -> None:
    write_site_files(data, "images", 1, tmp_path)
    for site in loaded(*federation(tmp_path)).values():
        assert (len(site.labelled), len(site.val), len(site.test)) == (TRAIN, 18, 36)
        assert site.annotation == "oracle"
        for part in (site.labelled, site.val, site.test):
            assert len(set(part.labels.tolist())) == 3


def test_another_seed_cuts_anew_and_the_same_seed_alike(data: Path, tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_site_files(data, "images", seed, tmp_path / name)
        found.append(ids(loaded(*federation(tmp_path / name))["hospital-B"]))
    assert found[0] == found[1] != found[2]
    assert set.union(*found[0].values()) == set.union(*found[2].values())


def test_only_a_split_by_lesion_keeps_each_lesion_in_one_part(data: Path, tmp_path: Path) -> None:
    with (data / "manifest.csv").open() as file:
        lesion = {row["sample_id"]: row["lesion_id"] or row["sample_id"] for row in csv.DictReader(file)}
    shared = {"images": 0, "lesions": 0}
    for split in shared:
        for seed in (1, 2, 3):
            write_site_files(data, split, seed, tmp_path / split / str(seed))
            for site in loaded(*federation(tmp_path / split / str(seed))).values():
                parts = [{lesion[name] for name in part} for part in ids(site).values()]
                shared[split] += sum(map(len, parts)) - len(set.union(*parts))
    assert shared["lesions"] == 0
    assert shared["images"] > 0


def test_the_pool_trains_on_all_and_is_evaluated_by_hospital(data: Path, tmp_path: Path) -> None:
    write_site_files(data, "lesions", 3, tmp_path)
    apart, together = (loaded(*sites(tmp_path)) for sites in (federation, pooled))
    assert ids(together[POOL])["train"] == set.union(*(ids(site)["train"] for site in apart.values()))
    assert not len(together[POOL].val)
    assert not len(together[POOL].test)
    for name, site in apart.items():
        assert ids(together[name]) == {**ids(site), "train": set()}


def test_a_split_that_lacks_a_class_is_refused(data: Path, tmp_path: Path) -> None:
    lines = [line for line in (data / "manifest.csv").read_text().splitlines() if "CMEL" not in line]
    (tmp_path / "manifest.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"hospital C, split by images, seed 4: .* none of MEL in train"):
        write_site_files(tmp_path, "images", 4, tmp_path / "sites")


def test_a_broken_row_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.csv").write_text((data / "manifest.csv").read_text() + "one cell\n")
    with pytest.raises(DataError, match="expected 5 cells, found 1"):
        write_site_files(tmp_path, "images", 1, tmp_path / "sites")


# --- cells


def test_cells_are_every_row_once_for_each_split_and_seed() -> None:
    found = cells("small", ["images", "lesions"], fedal.TABLES[3], [1, 2])
    assert len(found) == len(set(found)) == 2 * 2 * 7
    assert [cell.seed for cell in found] == sorted(cell.seed for cell in found)


@pytest.mark.parametrize("row", ROWS)
def test_rows_differ_only_in_sampler_and_unlabelled_images(row: str) -> None:
    for scale in SCALES:
        check_row(scale, row)


def check_row(scale: str, row: str) -> None:
    experiment = experiment_of(Cell(scale, "images", row, 7))
    settings = method_of(experiment).settings
    shares = (settings.initial_fraction, settings.target_fraction)
    assert shares == ((1.0, 1.0) if row in ("centralised", "full", "localised") else (0.1, 0.5))
    same = experiment_of(Cell(scale, "lesions", "fedal", 7))
    if each := SCALES[scale].images_per_round:
        assert settings.images_per_round == each * (4 if row == "centralised" else 1)
    changed = {"sampler", "initial_fraction", "target_fraction", "images_per_round"}
    options = [{key: value for key, value in each.options.items() if key not in changed} for each in (experiment, same)]
    assert options[0] == options[1]
    assert experiment.model_copy(update={"options": {}}) == same.model_copy(update={"options": {}})


def test_the_papers_schedule_is_that_of_the_paper() -> None:
    both = (method_of(experiment_of(Cell(scale, "images", "fedal", 1))) for scale in ("small", "paper"))
    small, paper = (method.settings for method in both)
    for settings in (small, paper):
        assert (settings.steps, settings.weight_decay, settings.class_weighting) == (10, 5e-4, "none")
    assert (paper.rounds, paper.query_every, paper.local_epochs, paper.learning_rate) == (25, 2, 5, 2e-4)


def test_each_number_of_queries_is_evaluated_before_the_next() -> None:
    """Queries come at the start of rounds 3, 5, ..., 21; models are judged after rounds 2, 4, ..., 24, and 25."""
    schedule = SCALES["paper"].schedule
    assert [schedule.queries_before(round_) for round_ in (0, 1, 2, 3, 4, 20, 21, 25)] == [-1, 0, 0, 1, 1, 9, 10, 10]
    settings = method_of(experiment_of(Cell("paper", "images", "fedal", 1))).settings
    method = method_of(experiment_of(Cell("paper", "images", "fedal", 1))).active
    due = [method.wanted(round_, 1144, 114) for round_ in range(settings.rounds + 1)]
    made = np.cumsum(np.diff(due) > 0)
    assert [schedule.queries_before(round_) for round_ in range(1, settings.rounds + 1)] == made.tolist()


# --- runs


ROWS_RUN = ("fedal", "random", "full", "centralised", "localised")


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a few tiny cells."""
    folder = tmp_path_factory.mktemp("out")
    write_site_files(data, "lesions", 1, site_folder(folder, "lesions", 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.local.write_report", lambda path: None)
        for row in ROWS_RUN:
            run_cell(Cell("tiny", "lesions", row, 1), folder)
    return folder


def result(out: Path, row: str) -> dict:
    return json.loads(result_file(out, Cell("tiny", "lesions", row, 1)).read_text())


def run_of(out: Path, row: str, name: str = "run") -> Run:
    return Run.load(result_file(out, Cell("tiny", "lesions", row, 1)).parent / name)


@pytest.mark.parametrize("row", ["fedal", "full", "centralised"])
def test_a_result_holds_scores_of_the_best_and_the_last_round(out: Path, row: str) -> None:
    run, found = run_of(out, row), result(out, row)
    validation = run.series("val", "f1_macro")
    late = {round_: np.mean([validation[site_of(name)][round_] for name in HOSPITALS]) for round_ in (3, 4)}
    best = 4 if late[4] > late[3] + 1e-12 else 3
    assert found["round"] == best
    for protocol, round_ in (("chosen", best), ("last", 4)):
        for hospital in HOSPITALS:
            rows = run.at(site_of(hospital), "test", round_)
            assert found[protocol][hospital] == {name: 100 * rows[name].value for name in METRICS}


def test_samplers_buy_equally_many_labels_and_the_bounds_none(out: Path) -> None:
    labels = {row: [point["percent"] for point in result(out, row)["curve"]] for row in ("fedal", "random", "full")}
    assert labels["fedal"] == labels["random"] == pytest.approx([10, 30, 50], abs=2)
    assert labels["full"] == [100, 100, 100]
    assert result(out, "fedal")["curve"][-1]["round"] == result(out, "fedal")["round"]
    bought = {(row.site, row.round): row.bought for row in run_of(out, "fedal").queries}
    assert bought == {(row.site, row.round): row.bought for row in run_of(out, "random").queries}


def test_a_result_tells_the_classes_of_the_labels_bought(out: Path) -> None:
    """All labels: of each class a third of the training images at each hospital. Else as many as the queries bought."""
    assert result(out, "full")["bought"] == {name: dict.fromkeys(CLASSES, TRAIN // 3) for name in HOSPITALS}
    for row in ("fedal", "random"):
        last = {query.site: query.bought for query in run_of(out, row).queries if query.round == 4}
        found = {site_of(name): sum(classes.values()) for name, classes in result(out, row)["bought"].items()}
        assert found == last
    assert result(out, "centralised")["bought"] == result(out, "localised")["bought"] == {}


def test_the_pool_alone_trains_where_images_are_centralised(out: Path) -> None:
    assert {row.replied for row in run_of(out, "centralised").rounds} == {(POOL,)}
    assert all(len(row.replied) == 4 for row in run_of(out, "full").rounds)


def test_localised_hospitals_have_own_runs_and_a_common_round(out: Path) -> None:
    found = result(out, "localised")
    assert found["curve"] == []
    for hospital in HOSPITALS:
        run = run_of(out, "localised", f"run-{site_of(hospital)}")
        assert run.info.sites == (site_of(hospital),)
        accuracy = run.at(run.info.sites[0], "test", found["round"])["accuracy"].value
        assert found["chosen"][hospital]["accuracy"] == 100 * accuracy


def test_a_killed_cell_resumes_to_the_undisturbed_result(
    data: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = LocalTransport.exchange

    def killed(self: LocalTransport, requests: dict, timeout: int, deliver: Callable) -> None:
        if next(iter(requests.values())).meta["round"] == 3:
            raise KeyboardInterrupt
        exchange(self, requests, timeout, deliver)

    monkeypatch.setattr("fedward.local.write_report", lambda path: None)
    write_site_files(data, "lesions", 1, site_folder(tmp_path, "lesions", 1))
    cell = Cell("tiny", "lesions", "fedal", 1)
    with monkeypatch.context() as patch:
        patch.setattr(LocalTransport, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            run_cell(cell, tmp_path)
    assert not result_file(tmp_path, cell).exists()
    run_cell(cell, tmp_path)
    folder = result_file(tmp_path, cell).parent
    assert (folder / "run.txt").read_text().count("resumed") == 1
    resumed, straight = (json.loads(result_file(each, cell).read_text()) for each in (tmp_path, out))
    assert {**resumed, "seconds": 0} == {**straight, "seconds": 0}


def test_finished_cells_are_shown_and_not_run_again(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = result_file(out, Cell("tiny", "lesions", "fedal", 1))
    before = file.stat().st_mtime_ns
    arguments = ["--scale", "tiny", "--split", "lesions", "--seeds", "1", "--data", "nowhere", "--out", str(out)]
    assert paper.main(["fedal", *arguments, "--methods", *ROWS_RUN]) == 0
    assert file.stat().st_mtime_ns == before
    text = capsys.readouterr().out
    titles = (
        "### Table 3, split by lesions",
        "### Table 4, macro-F1, split by lesions",
        "### Labels by class, split by lesions",
        "### Figure 2",
        "### Figure 3",
    )
    assert all(title in text for title in titles)
    assert paper.main(["fedal", *arguments, "--methods", *ROWS, "--show"]) == 0
    assert capsys.readouterr().out == text, "rows that have not run are neither run nor shown"
    assert (out / "tiny" / "lesions" / "figure-2.svg").read_text().count("FedAL") == 1


def test_a_cell_runs_in_a_process_of_its_own(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell("tiny", "images", "random", 2)
    fedal.run([cell], data, tmp_path, workers=1)
    assert "1/1 tiny, split by images, random seed 2: macro-F1 " in capsys.readouterr().out
    assert len(json.loads(result_file(tmp_path, cell).read_text())["curve"]) == 3


# --- choice of a round, by hand


SMALL = Schedule(rounds=5, query_every=2, steps=1)
"""A query at the start of round 3; judged after rounds 2, 4 and 5."""


def hand_run(folder: Path, validation: dict[int, float], site: str = "hospital-A") -> Run:
    """A run of one hospital whose test scores tell the round: 0.01 for each."""
    folder.mkdir(exist_ok=True)
    experiment: Experiment = experiment_of(Cell("tiny", "images", "fedal", 1))
    head = {"format": 3, "method": "fedal", "experiment": experiment.model_dump(mode="json"), "versions": {}, "seed": 1}
    head |= {"id": "0" * 32, "sites": [site], "started": "", "engine": "local", "status": "finished"}
    (folder / "run.json").write_text(json.dumps(head))
    rows = [
        {"round": round_, "site": site, "split": split, "name": name, "value": value, "n": 9, "classes": []}
        for round_, chosen in validation.items()
        for split, value in (("val", chosen), ("test", round_ / 100))
        for name in METRICS
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = {field.name: 0 for field in fields(QueryRow)}
    queries = [
        {**counts, "round": round_, "site": site, "labelled": 1 if round_ < 3 else 3, "unlabelled": 6}
        for round_ in validation
    ]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    return Run.load(folder)


def test_a_round_before_the_last_labels_is_never_chosen(tmp_path: Path) -> None:
    run = hand_run(tmp_path, {0: 0.9, 2: 0.8, 4: 0.6, 5: 0.5})
    scores = scores_of([run], SMALL)
    assert scores["round"] == 4
    assert scores["chosen"]["A"] == pytest.approx(dict.fromkeys(METRICS, 4.0))
    assert scores["last"]["A"] == pytest.approx(dict.fromkeys(METRICS, 5.0))


def test_hospitals_that_are_alone_have_one_round_in_common(tmp_path: Path) -> None:
    """Each would choose another one by itself; on average round 4 is best."""
    alone = [
        hand_run(tmp_path / "A", {2: 0.9, 4: 0.6, 5: 0.7}, "hospital-A"),
        hand_run(tmp_path / "B", {2: 0.9, 4: 0.8, 5: 0.1}, "hospital-B"),
    ]
    scores = scores_of(alone, SMALL)
    assert scores["round"] == 4
    assert scores["chosen"] == {name: pytest.approx(dict.fromkeys(METRICS, 4.0)) for name in "AB"}
    assert scores["last"]["A"] == pytest.approx(dict.fromkeys(METRICS, 5.0))


def test_bought_labels_that_are_gone_are_missed_aloud(tmp_path: Path) -> None:
    run = hand_run(tmp_path, {2: 0.9, 4: 0.6})
    assert classes_bought(run) == {}, "it has bought none"
    bought = replace(run, queries=tuple(replace(row, bought=2) for row in run.queries))
    with pytest.raises(RunError, match=r"hospital-A: expected the labels .* found none"):
        classes_bought(bought)


def test_the_curve_has_one_point_for_each_number_of_queries(tmp_path: Path) -> None:
    """One of 7 images, then 3 of 9; the best of rounds 4 and 5 stands for the latter."""
    points = curve_of(hand_run(tmp_path, {0: 0.9, 2: 0.3, 4: 0.6, 5: 0.7}), SMALL)
    assert [(point["queries"], point["round"]) for point in points] == [(0, 2), (1, 5)]
    assert [point["percent"] for point in points] == pytest.approx([100 / 7, 100 / 3])
    assert [point["val"]["f1_macro"] for point in points] == pytest.approx([30, 70])
    assert [point["test"]["accuracy"] for point in points] == pytest.approx([2, 5])


# --- tables and figures, by hand


def fake(row: str, seed: int, score: float, split: str = "images") -> dict:
    """Hospital scores of which ``score`` is the mean, 1 below it after the last round."""
    spread = dict(zip(HOSPITALS, (-2.0, -1.0, 1.0, 2.0), strict=True))
    chosen = {name: dict.fromkeys(METRICS, score + gap) for name, gap in spread.items()}
    last = {name: dict.fromkeys(METRICS, score + gap - 1) for name, gap in spread.items()}
    percents = [100, 100] if ROWS[row].everything else [10, 50]
    curve = [
        {
            "queries": queries,
            "round": 2 * queries + 2,
            "percent": percent,
            "val": {},
            "test": dict.fromkeys(METRICS, at),
        }
        for queries, (percent, at) in enumerate(zip(percents, (score - 10, score), strict=True))
    ]
    bought = {name: {"NV": 6, "BKL": 3, "MEL": seed} for name in HOSPITALS}
    result = {"row": row, "seed": seed, "split": split, "chosen": chosen, "last": last, "curve": curve}
    return {**result, "bought": {} if row == "centralised" else bought}


RESULTS = [fake("fedal", 1, 80), fake("fedal", 2, 82), fake("random", 1, 79), fake("random", 2, 79)]
RESULTS += [fake("full", 1, 84), fake("fedal", 1, 50, "lesions")]


def lines_of(text: str, title: str) -> list[list[str]]:
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] == title]


def test_table_3_has_means_paper_values_and_p_against_fedal() -> None:
    """Random is 1 and 3 below: mean -2, sd sqrt 2, t = -2 with one degree of freedom; p = 1 - 2 atan(2) / pi.

    The interval is -2 +- 12.706.
    """
    text = table_3(RESULTS, "images")
    ours, last = (line for line in lines_of(text, "FedAL"))
    scores = ("81.00 ± 1.41", "86.17 ± 0.62", "81.00 ± 1.41", "78.50 ± 1.08", "81.00 ± 1.41", "91.43 ± 0.47")
    assert ours == ["FedAL", "50 %", "2", *scores]
    assert last[3] == "80.00 ± 1.41"
    gaps = lines_of(text, "FedAvg + random")[1]
    assert gaps == ["FedAvg + random", "2", *("-2.00 [-14.71, +10.71]", "0.295") * 3]
    assert lines_of(text, "FedAvg, all labels")[1] == ["FedAvg, all labels", "1", *("+4.00", "-") * 3]
    assert not lines_of(text, "FedAvg + SA"), "what has not run is not shown"


def test_equal_differences_have_no_p() -> None:
    results = [fake("fedal", seed, 80.0 + seed) for seed in (1, 2)] + [fake("sa", seed, 79.0 + seed) for seed in (1, 2)]
    assert lines_of(table_3(results, "images"), "FedAvg + SA")[1][3] == "-"


def test_labels_are_counted_by_hospital_and_class() -> None:
    """6, 3 and 1 of 10, then 6, 3 and 2 of 11; the bound with all images in one place has no hospitals."""
    text = bought_table([*RESULTS, fake("centralised", 1, 90)], "images")
    assert lines_of(text, "FedAL") == [["FedAL", "2", "42 ± 3", "57.3 ± 3.9", "28.6 ± 1.9", "14.1 ± 5.8"]]
    assert not lines_of(text, "Centralised")


def test_along_the_curve_the_common_start_does_not_count() -> None:
    """A point at the start, 10 lower, and one later; random has 79 twice, FedAL 80 and 82."""
    text = curve_table(RESULTS, "images")
    assert lines_of(text, "FedAL") == [["FedAL", "2", *("81.00 ± 1.41", "+2.00 [-10.71, +14.71]") * 3]]
    assert lines_of(text, "FedAvg + random") == [["FedAvg + random", "2", *("79.00 ± 0.00", "-") * 3]]
    assert not lines_of(text, "FedAvg, all labels"), "it has no curve"


def test_splits_do_not_mix() -> None:
    assert lines_of(table_3(RESULTS, "lesions"), "FedAL")[0][2:4] == ["1", "50.00"]


def test_table_4_has_each_hospital_and_the_mean() -> None:
    text = table_4(RESULTS, "images")
    scores = ["82.0", "78.3", "83.0", "82.7", "85.0", "82.9", "86.0", "70.1", "84.0", "78.5"]
    chosen, last = lines_of(text, "FedAvg, all labels")
    assert chosen == ["FedAvg, all labels", "100 %", "1", *scores]
    assert last[3::2] == ["81.0", "82.0", "84.0", "85.0", "83.0"]
    assert lines_of(text, "FedAvg + random")[0][3:5] == ["77.0 ± 0.0", "76.0"]


def test_curves_are_means_over_seeds_and_all_labels_one_level(tmp_path: Path) -> None:
    found = {line.row: line for line in curves(RESULTS, "images")}
    assert list(found) == ["full", "fedal", "random"]
    assert (found["fedal"].seeds, found["fedal"].percents) == (2, (10, 50))
    assert found["fedal"].values["f1_macro"] == (71, 81)
    assert (found["full"].percents, found["full"].values["accuracy"]) == ((100,), (84,))
    draw(list(found.values()), tmp_path / "new" / "figure.svg")
    picture = (tmp_path / "new" / "figure.svg").read_text()
    assert all(text in picture for text in ("FedAvg, all labels", "FedAvg + random", "test Macro-F1, %"))
    draw(list(found.values()), tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == picture


def test_the_figures_numbers_stand_under_their_share_of_labels() -> None:
    text = numbers(curves(RESULTS, "images"))
    assert text.count("| method | seeds | 10 % | 50 % | 100 % |") == len(METRICS)
    assert lines_of(text, "FedAL")[0] == ["FedAL", "2", "71.00", "81.00", ""]
    assert lines_of(text, "FedAvg, all labels")[0] == ["FedAvg, all labels", "1", "", "", "84.00"]


# --- the command


def test_what_is_asked_for_decides_which_rows_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[Cell]] = []
    monkeypatch.setattr(fedal, "run", lambda todo, *_: asked.append(todo))
    for arguments in (["--fig", "3"], ["--table", "4"], [], ["--methods", "bald", "margin"]):
        assert paper.main(["fedal", *arguments, "--seeds", "1", "--out", str(tmp_path)]) == 0
    rows = [{cell.row for cell in todo} for todo in asked]
    assert rows[0] == {"full", "fedal", "local_entropy", "global_entropy"}
    assert rows[1] == {*fedal.TABLES[4]}
    assert rows[2] == set(ROWS) - {"margin", "bald", "core_set"}
    assert rows[3] == {"bald", "margin"}
    assert {cell.split for cell in asked[0]} == {"images", "lesions"}
    assert not list(tmp_path.rglob("*.svg")), "nothing has finished"


@pytest.mark.parametrize(("arguments", "word"), [(["--methods", "magic"], "magic"), (["--data", "nowhere"], "nowhere")])
def test_wrong_use_of_the_fedal_benchmark_is_told(
    arguments: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert paper.main(["fedal", *arguments, "--out", str(tmp_path)]) == 2
    assert word in capsys.readouterr().err


def test_missing_data_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"manifest\.csv"):
        fedal.run([Cell("tiny", "images", "fedal", 1)], tmp_path, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
