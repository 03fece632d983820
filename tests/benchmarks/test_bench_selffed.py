"""SelfFed's benchmark: its splits, cells and shared pre-trainings; tables from results by hand; one cell runs whole."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import paper
from fedward.bench.runs import require_same_images
from fedward.config import DataSpec
from fedward.errors import ConfigError, RunError
from fedward.jobs import site_names
from fedward.methods import method_of
from fedward.report.run import Run
from fedward.sites import load_site
from papers import selffed
from papers.isofed import DATASETS
from papers.selffed import (
    COMPARED,
    GAMMAS,
    OTHER_ROWS,
    ROWS,
    SCALES,
    SHARES,
    Cell,
    Pretraining,
    cells,
    experiment_of,
    pretraining_experiment,
    pretraining_of,
    rows_of,
)
from papers.selffed_runs import pretrain, pretraining_folder, result_file, run, run_cell, write_sites
from papers.selffed_sites import POOL, SERVER, DataSet, divide, write_npz, write_skin
from papers.selffed_table import draw, figure_table, rows_table

SITES = site_names(5)
CLASSES = DATASETS["blood"].classes


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file like BloodMNIST, whose classes differ in brightness, in the folder where it is looked for."""
    rng, arrays = np.random.default_rng(0), {}
    for split, count in (("train", 240), ("val", 240), ("test", 400)):
        labels = np.arange(count) % len(CLASSES)
        pixels = rng.integers(0, 60, (count, 28, 28, 3)) + 24 * labels[:, None, None, None]
        arrays |= {f"{split}_images": pixels.astype("u1"), f"{split}_labels": labels[:, None]}
    folder = tmp_path_factory.mktemp("data")
    (folder / "medmnist").mkdir()
    np.savez(folder / "medmnist" / "bloodmnist.npz", **arrays)
    return folder


# --- splits


def rows_like(lesions: int, each: int = 1) -> DataSet:
    """``lesions`` training lesions of four classes with so many images, and 40 more for validation and test each."""
    names = [f"lesion-{index}" for index in range(lesions) for _ in range(each)]
    labels = [index % 4 for index in range(lesions) for _ in range(each)]
    others = [f"{split}-{index}" for split in ("val", "test") for index in range(40)]
    return DataSet(
        np.array(labels + [index % 4 for index in range(80)], np.int64),
        names + others,
        ["train"] * len(names) + ["val"] * 40 + ["test"] * 40,
    )


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("each", [1, 3])
def test_every_image_is_at_one_place_and_a_lesion_at_one_site(gamma: float, each: int) -> None:
    found = divide(data := rows_like(300, each), gamma, seed=1)
    assert set(found) == {*SITES, SERVER, POOL}
    train = np.concatenate([found[site]["train"] for site in SITES])
    assert sorted(train) == found[POOL]["train"].tolist()
    assert sorted([*train, *found[SERVER]["train"]]) == list(range(300 * each))
    for split, first in (("val", 300 * each), ("test", 300 * each + 40)):
        assert sorted(np.concatenate([found[site][split] for site in SITES])) == list(range(first, first + 40))
        assert {len(found[site][split]) for site in SITES} == {8}
    assert set(found[SERVER]) == set(found[POOL]) == {"train"}
    holders = {data.groups[row]: name for name in (*SITES, SERVER) for row in found[name]["train"]}
    assert all(holders[data.groups[row]] == name for name in (*SITES, SERVER) for row in found[name]["train"])
    assert len(found[SERVER]["train"]) == pytest.approx(30 * each, abs=4 * each)
    assert min(len({data.groups[row] for row in found[site]["train"]}) for site in SITES) >= 10


def test_smaller_concentration_gives_fewer_classes_a_site() -> None:
    data = rows_like(2000)

    def unevenness(gamma: float, seed: int) -> float:
        found = divide(data, gamma, seed)
        counts = [np.bincount(data.labels[found[site]["train"]], minlength=4) for site in SITES]
        return float(np.mean([np.std(own / own.sum()) for own in counts]))

    even, moderate, severe = (np.mean([unevenness(gamma, seed) for seed in range(20)]) for gamma in GAMMAS)
    assert even < 0.05 < moderate < severe
    assert unevenness(1.0, 0) == unevenness(1.0, 0) != unevenness(1.0, 1)


def test_a_larger_share_keeps_the_labels_of_a_smaller_one(data: Path, tmp_path: Path) -> None:
    spec = DataSpec(name="blood", classes=CLASSES, image_size=28, views="mirrored")
    known: list[set[str]] = []
    for share in SHARES:
        write_npz(data / "medmnist" / "bloodmnist.npz", CLASSES, tmp_path / f"{share}", 1.0, share, seed=3)
        sites = {name: load_site(tmp_path / f"{share}" / f"{name}.yaml", spec) for name in (*SITES, SERVER, POOL)}
        known.append({name for site in SITES for name in sites[site].labelled.ids})
        assert not len(sites[SERVER].labelled)
        assert not len(sites[POOL].labelled)
        images = [len(sites[site].labelled) + len(sites[site].unlabelled) for site in SITES]
        assert sum(images) == len(sites[POOL].unlabelled) == 240 - len(sites[SERVER].unlabelled)
        assert sum(len(sites[site].test) for site in SITES) == 400
    assert known[0] < known[1] < known[2]
    assert len(known[2]) == pytest.approx(0.7 * sum(images), rel=0.1)


def test_no_lesion_is_in_two_site_files(tmp_path: Path) -> None:
    source, rng = tmp_path / "skin", np.random.default_rng(0)
    (source / "images").mkdir(parents=True)
    with (source / "manifest.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sample_id", "image", "diagnosis", "lesion_id", "source"])
        for index in range(360):
            name = f"image-{index:03d}"
            Image.fromarray(rng.integers(0, 255, (8, 8, 3)).astype("u1")).save(source / "images" / f"{name}.png")
            label, lesion = ("NV", "MEL", "BKL")[index // 2 % 3], f"lesion-{index // 2}" if index < 120 else ""
            writer.writerow([name, f"images/{name}.png", label, lesion, "somewhere"])
    write_skin(source, selffed.SKIN, tmp_path / "sites", 100.0, 0.3, seed=1)
    spec = DataSpec(name="skin", classes=selffed.SKIN, image_size=16)
    found = {name: load_site(tmp_path / "sites" / f"{name}.yaml", spec) for name in (*SITES, SERVER)}
    holders: dict[str, set[tuple[str, str]]] = {}
    for name, site in found.items():
        parts = (("train", site.labelled), ("train", site.unlabelled), ("val", site.val), ("test", site.test))
        for split, images in parts:
            for sample in images.ids:
                index = int(sample.removeprefix("image-"))
                lesion = f"lesion-{index // 2}" if index < 120 else sample
                holders.setdefault(lesion, set()).add((name if split == "train" else "", split))
    assert all(len(places) == 1 for places in holders.values())
    assert sum(len(site.test) for site in found.values()) == pytest.approx(0.2 * 360, abs=6)


# --- cells


def test_figures_vary_one_thing_and_share_their_usual_cells() -> None:
    both, seeds = cells("small", [3, 6], None, [1, 2]), (1, 2)
    assert len(both) == len(set(both)) == len(COMPARED) * (3 + 3 - 1) * len(seeds)
    assert {(cell.gamma, cell.share) for cell in both} == {*((g, 0.1) for g in GAMMAS), *((1.0, s) for s in SHARES)}
    assert [cell.seed for cell in both] == sorted(cell.seed for cell in both)
    assert "imagenet" in rows_of(3, "paper")
    assert "imagenet" not in rows_of(3, "small")
    assert {cell.row for cell in cells("small", ["ablation"], None, [1])} == set(OTHER_ROWS["ablation"])
    assert {cell.row for cell in cells("small", [6], ["mae"], [1])} == {"mae"}


@pytest.mark.parametrize("row", ROWS)
def test_rows_do_equal_work_on_equal_networks(row: str) -> None:
    for name in SCALES:
        check_work(row, name)


def check_work(row: str, name: str) -> None:
    experiment = experiment_of(Cell(name, 1.0, 0.1, row, 7))
    settings, scale = method_of(experiment).settings, SCALES[name]
    further = {"tiny": 4, "small": 160, "paper": 1600}[name] if ROWS[row].long else 0
    assert (settings.rounds, settings.batch) == (scale.rounds + further, scale.batch)
    assert settings.images_per_round == scale.images or row.startswith("fedperl")
    assert (settings.learning_rate, settings.optimizer) == (scale.learning_rate, "adamw")
    assert (settings.weight_decay, settings.class_weighting) == (0.05, "none")
    assert experiment.net.removeprefix("masked_") == f"swin_{scale.image_size}"
    assert (experiment.seed, experiment.evaluate_every) == (7, max(1, settings.rounds // 6))
    assert experiment.pretrained == (row == "imagenet")
    assert ROWS[row].method == "fedperl" or settings.pretraining_rounds == 0


def test_ablations_cross_weights_contrast_and_participation() -> None:
    rows = [row for row in OTHER_ROWS["ablation"] if ROWS[row].start == "masked"]
    settings = [method_of(experiment_of(Cell("small", 1.0, 0.1, row, 1))).settings for row in rows]
    crossed = {(own.contrastive, own.participants, own.beta) for own in settings if own.upload == "model"}
    few = {(contrastive, 3, beta) for contrastive in ("off", "server", "client") for beta in (0.9, 1.0)}
    assert crossed == few | {("off", None, 1.0), ("server", None, 0.9), ("client", None, 0.9)}


def test_fine_tunings_share_the_pre_training_they_begin_with() -> None:
    own = {row: pretraining_of(Cell("small", 0.5, 0.3, row, 2)) for row in ROWS}
    assert own["scratch"] is own["imagenet"] is own["fedperl"] is None
    assert own["mae"] == own["selffed"] == own["fedperl_masked"] == Pretraining("small", 0.5, "masked", 2)
    assert own["moco"] == Pretraining("small", 0.5, "contrastive", 2)
    assert own["pooled"] == Pretraining("small", 1.0, "pooled", 2)
    assert {row.against for row in ROWS.values()} < set(ROWS)


def test_federated_and_pooled_pre_training_do_equal_work() -> None:
    images = {
        start: method_of(pretraining_experiment(Pretraining("small", 1.0, start, 1))).settings.images_per_round
        for start in ("masked", "contrastive", "pooled")
    }
    assert images == {"masked": 1024, "contrastive": 1024, "pooled": 5 * 1024}
    assert method_of(pretraining_experiment(Pretraining("paper", 1.0, "pooled", 1))).settings.images_per_round is None
    method = method_of(pretraining_experiment(Pretraining("small", 0.5, "contrastive", 2)))
    assert method.settings.pretraining_rounds == method.settings.rounds == 40
    assert method.settings.pretext == "contrastive"


def test_who_contrasts_has_more_images_than_queue_keys(real_data: Path) -> None:
    """An image would else be its own negative."""
    with np.load(real_data / "medmnist" / "bloodmnist.npz") as file:
        labels = {split: file[f"{split}_labels"].ravel() for split in ("train", "val", "test")}
    names = [f"{split}-{row}" for split, own in labels.items() for row in range(len(own))]
    data = DataSet(np.concatenate([*labels.values()]), names, [name.split("-")[0] for name in names])
    for gamma in GAMMAS:
        found = divide(data, gamma, seed=1)
        assert all(len(found[name]["train"]) > SCALES["small"].queue for name in (*SITES, SERVER))


# --- runs


RUN = Cell("tiny", 1.0, 0.3, "selffed", 1)
"""Its labelled share is not that of the site files of its pre-training."""


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory, without_report: None) -> Path:
    """A cell that has run from its pre-training, and a pre-training on pooled images; never written to."""
    folder = tmp_path_factory.mktemp("out")
    for begins in (pretraining_of(RUN), pretraining_of(replace(RUN, row="pooled"))):
        assert begins
        write_sites(RUN, data, folder)
        pretrain(begins, folder)
    run_cell(RUN, folder)
    require_same_images(folder, "--data", data)
    return folder


@pytest.fixture
def copied(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, as far from the data as ``out``."""
    return Path(shutil.copytree(out, tmp_path_factory.mktemp("copied"), dirs_exist_ok=True))


def test_a_cell_runs_from_its_pre_training(out: Path) -> None:
    begins, result = pretraining_of(RUN), json.loads(result_file(out, RUN).read_text())
    assert begins
    assert round(result["accuracy"] * 400 / 100, 6).is_integer()  # of the file's 400 test images
    about = json.loads((result_file(out, RUN).parent / "run" / "run.json").read_text())
    assert about["init"]["folder"] == str(pretraining_folder(out, begins).resolve())
    assert any(name.startswith("encoder.") for name in about["init"]["taken"])


def test_the_pool_pre_trains_alone(out: Path) -> None:
    assert Run.load(pretraining_folder(out, Pretraining("tiny", 1.0, "pooled", 1))).info.sites == (POOL,)


def test_a_cell_runs_once(data: Path, copied: Path) -> None:
    before = result_file(copied, RUN).stat().st_mtime_ns
    run([RUN], data, copied, workers=1)
    assert result_file(copied, RUN).stat().st_mtime_ns == before


def test_a_result_hangs_on_images_weights_and_settings(data: Path, copied: Path) -> None:
    """The weights and settings of its pre-training."""
    with pytest.raises(ConfigError, match=r"--data: expected .*, found .*others"):
        run([RUN], copied / "others", copied, workers=1)
    pre_training = pretraining_folder(copied, Pretraining("tiny", 1.0, "masked", 1))
    shutil.copy(result_file(copied, RUN).parent / "run" / "model.safetensors", pre_training)
    with pytest.raises(ConfigError, match=r"selffed/seed-1/run: expected one from the weights in .*pre-training"):
        run([RUN], data, copied, workers=1)
    about = json.loads((pre_training / "run.json").read_text())
    about["experiment"]["options"]["pretraining_rate"] = 9e-3
    (pre_training / "run.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError, match="masked/seed-1: expected a run with the settings that are asked for"):
        run([RUN], data, copied, workers=1)


def test_a_failed_pre_training_costs_only_its_own_cells(
    data: Path, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other cell and its pre-training were interrupted after their last round."""
    lost, kept = replace(RUN, seed=2), RUN
    pre_training = pretraining_folder(copied, Pretraining("tiny", 1.0, "masked", 2))
    pre_training.mkdir(parents=True)
    (pre_training / "somebody's").touch()
    before = result_file(copied, kept).read_text()
    result_file(copied, kept).unlink()
    with pytest.raises(RunError, match="masked/seed-2: expected a new or empty folder"):
        run([lost, kept], data, copied, workers=2)
    assert result_file(copied, kept).read_text() == before
    assert not result_file(copied, lost).parent.exists()
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith(("1/2 ", "2/2 "))]) == 4


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bloodmnist\.npz"):
        run([Cell("tiny", 1.0, 0.1, "mae", 1)], tmp_path, tmp_path / "out", workers=1)


# --- tables


def result(row: str, seed: int, accuracy: float, gamma: float = 1.0, share: float = 0.1) -> dict[str, Any]:
    cell = {"row": row, "seed": seed, "gamma": gamma, "share": share}
    return {**cell, "accuracy": accuracy, "last": accuracy - 1}


def test_a_figure_has_a_line_for_each_row_and_paired_distances() -> None:
    results = [
        *(result("mae", seed, 70.0 + seed, gamma) for seed in (1, 2) for gamma in (100.0, 1.0)),
        *(result("selffed", seed, 72.0 + seed, gamma) for seed in (1, 2) for gamma in (100.0, 1.0)),
        result("selffed", 1, 99.0, 1.0, 0.7),  # of the other figure
    ]
    text = figure_table(results, 3)
    assert "| method | seeds | Dir(100) | Dir(1) | Dir(0.5) | minus federated MAE [95 %] |" in text
    own = next(line for line in text.splitlines() if line.startswith("| SelfFed |"))
    assert own.startswith("| SelfFed | 2 | 73.5 ± 0.7 | 73.5 ± 0.7 |")
    assert own.endswith("| +2.0 [+2.0, +2.0] |")  # from two numbers, one for each seed
    assert next(line for line in text.splitlines() if line.startswith("| federated MAE |")).endswith("| - |")
    _, seeds = text.split("seed by seed")
    assert "| SelfFed | +2.0, +2.0 | +2.0, +2.0 |" in seeds
    assert "| federated MAE |" not in seeds
    assert "99.0" in figure_table(results, 6)
    assert "99.0" not in text


def test_rows_are_compared_with_one_of_them() -> None:
    text = rows_table([result("fedperl", 1, 60.0), result("fedperl_masked", 1, 64.0)], "FedPerl")
    assert "| FedPerl from a SelfFed encoder | 1 | 64.0 | 63.0 | +4.0 | FedPerl, no pre-training |" in text


def test_a_figure_is_drawn_with_what_is_there(tmp_path: Path) -> None:
    draw([result("mae", 1, 70.0), result("mae", 1, 75.0, share=0.7)], 6, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    draw([], 6, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text() == text, "without results the picture stays"
    assert "federated MAE" in text
    assert "labelled share" in text
    assert "70%" in text


def test_the_command_shows_what_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell("small", 1.0, 0.1, "mae", 1)
    file = result_file(tmp_path, cell)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**result("mae", 1, 71.25), "scale": "small"}))
    assert paper.main(["selffed", "--show", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "| federated MAE | 1 |" in shown
    assert "### Ablations" in shown
    assert (tmp_path / "small" / "figure-6.svg").exists()


def test_a_seed_named_twice_is_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = result_file(tmp_path, Cell("small", 1.0, 0.1, "mae", 1))
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**result("mae", 1, 71.25), "scale": "small"}))
    show = ["selffed", "--init", "--show", "--out", str(tmp_path), "--methods", "mae", "--seeds"]
    assert paper.main([*show, "1"]) == 0
    once = capsys.readouterr().out
    assert paper.main([*show, "1", "1"]) == 0
    assert capsys.readouterr().out == once
    assert "| federated MAE | 1 | 71.2 |" in once
