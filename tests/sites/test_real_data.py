import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedward.config import DataSpec
from fedward.lab.bench.bench import cut
from fedward.lab.bench.study_file import read_study
from fedward.lab.bench.study_parts import Cell
from fedward.lab.partition.fedperl import fedperl_layout, read_skin, write_site_files
from fedward.sites import load_site

DATA = Path(os.environ.get("FEDWARD_DATA", ""))
STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(
        "FEDWARD_DATA" not in os.environ, reason="FEDWARD_DATA names no folder with the real data"
    ),
]


@pytest.fixture(scope="module")
def layout():
    return fedperl_layout(read_skin(DATA / "skin" / "manifest.csv"))


def test_the_skin_layout_has_these_sizes_and_no_lesion_twice(layout):
    sizes = {site: len(samples) for site, samples in layout.items()}
    assert list(sizes.values()) == [1023, 1021, 1020, 1018, 1015, 756, 752, 751, 1000, 439, 1016]
    places = Counter(
        group for group, _ in {(s.group, site) for site, part in layout.items() for s in part}
    )
    assert max(places.values()) == 1


def test_sites_of_a_community_have_all_its_diagnoses(layout):
    everything = {"AK", "BCC", "BKL", "DF", "MEL", "NV", "VASC"}
    for site in ("server", *(f"site-{index}" for index in range(1, 6))):
        assert {sample.label for sample in layout[site]} - {""} == everything, site
    for site in ("site-6", "site-7", "site-8"):
        assert {sample.label for sample in layout[site]} >= everything - {"VASC"}, site


def test_the_skin_sites_load_whole(layout, tmp_path):
    small = {site: layout[site] for site in ("site-1", "site-10", "server")}
    for file in write_site_files(small, DATA / "skin", tmp_path / "sites"):
        data = load_site(file, DataSpec(), tmp_path / "cache")
        assert not [row for row in data.rejected if "blank" in row.reason or "whole" in row.reason]
        train = len(data.labelled) + len(data.unlabelled)
        assert train + len(data.val) + len(data.test) + len(data.rejected) == len(layout[file.stem])
        if file.stem == "server":
            assert train + len(data.test) == 0
        else:
            assert train == pytest.approx(0.6 * len(layout[file.stem]), abs=8)
            assert len(data.labelled) == pytest.approx(0.1 * train, abs=6)


@pytest.mark.parametrize(
    ("name", "sites"), [("heads_skin", 10), ("fedal_whole", 4), ("pneumonia", 3)]
)
def test_the_images_of_a_study_are_cut(name, sites, tmp_path):
    """With each way to cut: FedPerl's sites, a column of a CSV, parts of an npz file."""
    study = read_study(STUDIES / f"{name}.json")
    cell = Cell(study.first_variant, study.lower, 31)
    cut(study, [cell], tmp_path, DATA)
    written = {path.stem for path in (tmp_path / study.folder(cell)).glob("*.yaml")}
    assert len(written - {"server"}) == sites


def test_a_medmnist_file_is_cut_into_sites_that_cover_it(tmp_path):
    file = DATA / "medmnist" / "pneumoniamnist.npz"
    spec = DataSpec(name="pneumonia", classes=("normal", "pneumonia"), image_size=28, channels=1)
    files = [tmp_path / f"site-{index}.yaml" for index in (1, 2, 3)]
    sizes = {"train": 4708, "val": 524, "test": 624}
    for index, path in enumerate(files):
        labels = dict(enumerate(spec.classes))
        content = {
            "kind": "npz",
            "file": str(file),
            "labels": labels,
            "labelled": 0.1,
            "indices": {split: list(range(index, size, 3)) for split, size in sizes.items()},
        }
        path.write_text(yaml.safe_dump(content))
    loaded = [load_site(path, spec) for path in files]
    counts = np.array(
        [[len(d.labelled) + len(d.unlabelled), len(d.val), len(d.test)] for d in loaded]
    )
    aside = [row for data in loaded for row in data.rejected]
    assert counts.sum() + len(aside) == sum(sizes.values())
