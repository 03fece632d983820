"""IsoFed's sites of a MedMNIST file: divided by a Dirichlet law, with all their labels or none."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedward.config import DataSpec
from fedward.errors import ConfigError
from fedward.seeds import numpy_generator
from fedward.sites import load_site
from fedward.sites.partition.divide import dirichlet
from fedward.sites.partition.write import write_files
from papers.isofed import isolated_sites

CLASSES = ("A", "B", "C")
SPEC = DataSpec(classes=CLASSES, image_size=16)
COUNTS = {"train": 120, "val": 33, "test": 24}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A file in the MedMNIST layout, with a rarer third class."""
    rng, arrays = np.random.default_rng(0), {}
    for split, count in COUNTS.items():
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, 16, 16, 3), np.uint8)
        arrays[f"{split}_labels"] = np.minimum(np.arange(count) % 7 // 3, 2).astype(np.uint8)[:, None]
    path = tmp_path_factory.mktemp("toy") / "toy.npz"
    np.savez(path, **arrays)
    return path, {split: arrays[f"{split}_labels"][:, 0].astype(np.int64) for split in COUNTS}


def isolated(npz, classes, folder, sites, labelled_sites, gamma, seed=0) -> list[Path]:
    texts = isolated_sites(npz, classes, folder, sites, labelled_sites, gamma, seed)
    write_files(texts)
    return list(texts)


def indices(files, split):
    return [yaml.safe_load(file.read_text())["indices"].get(split, []) for file in files]


@pytest.mark.parametrize(("sites", "labelled_sites"), [(4, 1), (3, 2), (2, 0), (1, 1)])
def test_isolated_sites_divide_the_training_images(toy, tmp_path, sites, labelled_sites):
    path, labels = toy
    files = isolated(path, CLASSES, tmp_path / "out", sites, labelled_sites, 1.0, seed=5)
    assert files == [tmp_path / "out" / f"site-{index}.yaml" for index in range(1, sites + 1)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [file.name for file in files]
    train = indices(files, "train")
    assert sorted(row for rows in train for row in rows) == list(range(120))
    assert min(map(len, train)) >= 10
    expected = dirichlet(labels["train"], sites, 1.0, numpy_generator(5, "dirichlet"), at_least=10)
    assert train == [rows.tolist() for rows in expected]
    shares = [yaml.safe_load(file.read_text())["labelled"] for file in files]
    assert shares == [1.0] * labelled_sites + [0.0] * (sites - labelled_sites)


@pytest.mark.parametrize("sites", [1, 2, 4])
def test_isolated_sites_share_validation_images_by_class(toy, tmp_path, sites):
    path, labels = toy
    files = isolated(path, CLASSES, tmp_path, sites, 1, 1.0)
    val = indices(files, "val")
    assert sorted(row for rows in val for row in rows) == list(range(33))
    whole = np.bincount(labels["val"], minlength=3)
    for rows in val:
        assert (np.abs(np.bincount(labels["val"][rows], minlength=3) - whole / sites) < 1).all()
    assert indices(files, "test") == [[]] * sites


def test_isolated_sites_load_with_all_their_labels_or_none(toy, tmp_path):
    path, labels = toy
    files = isolated(path, CLASSES, tmp_path, 4, 2, 1.0)
    for number, (file, train, val) in enumerate(
        zip(files, indices(files, "train"), indices(files, "val"), strict=True)
    ):
        data = load_site(file, SPEC)
        seen, hidden = (data.labelled, data.unlabelled) if number < 2 else (data.unlabelled, data.labelled)
        assert len(hidden) == len(data.test) == 0
        assert sorted(seen.ids) == sorted(f"train-{row}" for row in train)
        assert sorted(data.val.ids) == sorted(f"val-{row}" for row in val)
        real = [int(labels["train"][int(name.split("-")[1])]) for name in seen.ids]
        assert seen.labels[:].tolist() == (real if number < 2 else [-1] * len(train))
        assert data.val.labels[:].tolist() == [int(labels["val"][int(name.split("-")[1])]) for name in data.val.ids]
        assert data.rejected == ()


def test_isolated_site_files_name_the_data_by_a_relative_path(toy, tmp_path):
    """Both folders can move together."""
    for folder in ("data", "elsewhere/data"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(toy[0], tmp_path / "data" / "toy.npz")
    isolated(tmp_path / "data" / "toy.npz", CLASSES, tmp_path / "sites", 3, 1, 1.0)
    shutil.move(tmp_path / "data" / "toy.npz", tmp_path / "elsewhere" / "data" / "toy.npz")
    shutil.move(tmp_path / "sites", tmp_path / "elsewhere" / "sites")
    assert len(load_site(tmp_path / "elsewhere" / "sites" / "site-1.yaml", SPEC).labelled) >= 10


def test_equal_seeds_give_equal_isolated_sites(toy, tmp_path):
    def written(name, seed):
        files = isolated(toy[0], CLASSES, tmp_path / name, 3, 1, 1.0, seed)
        return [file.read_text() for file in files]

    np.random.seed(1)
    first = written("a", 4)
    np.random.seed(2)
    assert written("b", 4) == first == written("a", 4)
    other = written("c", 5)
    assert all(one != another for one, another in zip(first, other, strict=True))
    splits = [
        [yaml.safe_load(text)["indices"][split] for text in texts]
        for texts in (first, other)
        for split in ("train", "val")
    ]
    assert splits[0] != splits[2]
    assert splits[1] != splits[3]


def test_the_number_of_labelled_sites_moves_no_image(toy, tmp_path):
    one, two = (isolated(toy[0], CLASSES, tmp_path / f"{m}", 3, m, 1.0) for m in (1, 2))
    for split in ("train", "val"):
        assert indices(one, split) == indices(two, split)


def test_too_many_isolated_sites_are_refused(toy, tmp_path):
    with pytest.raises(ConfigError, match="13 sites of at least 10 rows"):
        isolated(toy[0], CLASSES, tmp_path, 13, 1, 1.0)
    assert list(tmp_path.iterdir()) == []
