"""The study of FedAL on a whole network: its rows run by name, and its centralised bound."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedward.config import DataSpec
from fedward.lab.bench.bench import cut
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell
from fedward.runs.run import Run
from fedward.sites import load_site, named_sites
from fedward.storage.model_files import StoredState
from running import run_local

STUDY = Path(__file__).parents[2] / "benchmarks" / "studies" / "fedal_whole.json"
CLASSES = ("NV", "BKL", "MEL")
TINY = {
    "data.image_size": 16,
    "rounds": 2,
    "local_epochs": 1,
    "batch": 16,
    "query_every": 1,
    "steps": 1,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hospitals with 108 images each, a third of each class, as the study's data set."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "skin").mkdir()
    rng = np.random.default_rng(3)
    rows = [("sample_id", "image", "diagnosis", "lesion_id", "fedal_hospital")]
    for number in range(216):
        label = number % 3
        pixels = rng.integers(0, 120, (20, 26, 3), np.uint8)
        pixels[..., label] += 120
        Image.fromarray(pixels).save(folder / "skin" / f"{number}.png")
        hospital = "AB"[number // 108]
        rows.append((f"s{number}", f"{number}.png", CLASSES[label], f"l{number}", hospital))
    with (folder / "skin" / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of the study with few rounds on these images; site files are in ``sites``."""
    out = tmp_path_factory.mktemp("bench")
    study = read_study(STUDY)
    cells = [Cell("all", row, 11) for row in ("aift", "mcdal", "pooled")]
    cut(study, cells, out / "sites", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.lab.simulation.write_report", lambda folder: None)
        for cell in cells:
            files = out / "sites" / study.folder(cell)
            experiment = study.experiment(cell, TINY)
            run_local(experiment, out / cell.row, sites=named_sites(files), site_folders=[files])
    return out


def test_rows_run_by_name_and_buy_the_same_number_of_labels(runs: Path) -> None:
    bought = {}
    for row in ("aift", "mcdal"):
        run = Run.load(runs / row)
        bought[row] = [(query.round, query.site, query.bought) for query in run.queries]
        model = StoredState(run.folder / "model.safetensors")
        assert any(name.startswith("features.") for name in model), "the whole network is trained"
        assert any(name.startswith("auxiliary.") for name in model) == (row == "mcdal")
    assert bought["aift"] == bought["mcdal"]
    assert any(number for _, _, number in bought["aift"])


def split_ids(site_file: Path, cache: Path) -> dict[str, set[str]]:
    spec = DataSpec(name="skin", classes=CLASSES, image_size=16)
    site = load_site(site_file, spec, cache)
    parts: dict[str, Sequence[str]] = {
        "train": site.labelled.ids,
        "val": site.val.ids,
        "test": site.test.ids,
    }
    return {split: set(ids) for split, ids in parts.items()}


def test_one_site_trains_on_the_images_of_all_and_the_hospitals_evaluate_their_own(
    runs: Path, tmp_path: Path
) -> None:
    assert Run.load(runs / "pooled").info.sites == ("A", "B", "pooled")
    site_files = runs / "sites"
    train: set[str] = set()
    for site in ("A", "B"):
        apart = split_ids(site_files / "hospitals" / f"{site}.yaml", tmp_path)
        together = split_ids(site_files / "pooled" / f"{site}.yaml", tmp_path)
        assert together == {**apart, "train": set()}
        train |= apart["train"]
    pooled = split_ids(site_files / "pooled" / "pooled.yaml", tmp_path)
    assert pooled == {"train": train, "val": set(), "test": set()}
    fields = json.loads((site_files / "pooled" / "data.json").read_text())
    assert fields["classes"] == list(CLASSES)
