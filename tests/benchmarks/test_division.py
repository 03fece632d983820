"""IsoFed's division of a MedMNIST file: by a Dirichlet law, and into sites with all labels or none."""

import shutil

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedward.config import DataSpec
from fedward.errors import ConfigError
from fedward.seeds import numpy_generator
from fedward.sites import load_site
from papers.division import dirichlet, write_isolated_site_files


@given(st.lists(st.integers(-1, 4), min_size=30, max_size=90), st.integers(1, 4), st.integers(0, 9))
def test_dirichlet_uses_each_row_once_and_fills_every_site(labels, sites, seed):
    parts = dirichlet(np.array(labels, np.int64), sites, 1.0, np.random.default_rng(seed), at_least=2)
    assert sorted(row for rows in parts for row in rows) == list(range(len(labels)))
    assert min(map(len, parts)) >= 2


def test_dirichlet_gamma_is_a_concentration():
    labels = np.repeat(np.arange(5), 400)

    def spread(gamma):
        parts = dirichlet(labels, 4, gamma, np.random.default_rng(0))
        return np.std([np.bincount(labels[rows], minlength=5) for rows in parts])

    assert spread(1000.0) < 10
    assert spread(0.1) > 100


def test_dirichlet_refuses_what_cannot_be():
    rng = np.random.default_rng(0)
    for sites, gamma in ((0, 1.0), (3, 0.0)):
        with pytest.raises(ConfigError, match="sites >= 1"):
            dirichlet(np.zeros(9, np.int64), sites, gamma, rng)
    with pytest.raises(ConfigError, match="4 sites of at least 3 rows"):
        dirichlet(np.zeros(9, np.int64), 4, 1.0, rng, at_least=3)


def plain_even_dirichlet(labels, sites, gamma, rng, at_least):
    """Li et al., ICDE 2022, row by row: a class is handed out in a random order, to sites that hold less than N / K."""
    while True:
        found: list[list[int]] = [[] for _ in range(sites)]
        for label in sorted(set(labels.tolist())):
            order = rng.permutation([row for row, other in enumerate(labels.tolist()) if other == label])
            shares = rng.dirichlet([gamma] * sites)
            open_ = [len(part) < len(labels) / sites for part in found]
            total = sum(share for share, is_open in zip(shares, open_, strict=True) if is_open)
            ends, reached = [], 0.0
            for share, is_open in zip(shares, open_, strict=True):
                reached += share / total if is_open else 0.0
                ends.append(reached)
            last = max(site for site in range(sites) if open_[site])
            for place, row in enumerate(order):
                middle = (place + 0.5) / len(order)
                found[next((site for site in range(sites) if middle <= ends[site]), last)].append(int(row))
        if min(map(len, found)) >= at_least:
            return [sorted(part) for part in found]


some_labels = st.lists(st.integers(-1, 4), min_size=30, max_size=120).map(lambda labels: np.array(labels, np.int64))


@given(some_labels, st.integers(1, 4), st.sampled_from([0.3, 1.0, 20.0]), st.integers(0, 99))
def test_dirichlet_equals_a_plain_loop(labels, sites, gamma, seed):
    found = dirichlet(labels, sites, gamma, np.random.default_rng(seed), at_least=2)
    expected = plain_even_dirichlet(labels, sites, gamma, np.random.default_rng(seed), 2)
    assert [rows.tolist() for rows in found] == expected
    assert all(rows.dtype == np.int64 for rows in found)


@given(some_labels, st.integers(1, 5), st.sampled_from([0.3, 1.0, 20.0]), st.integers(0, 99))
def test_sites_that_hold_their_share_get_no_further_class(labels, sites, gamma, seed):
    parts = dirichlet(labels, sites, gamma, np.random.default_rng(seed))
    assert sorted(row for rows in parts for row in rows) == list(range(len(labels)))
    assert min(map(len, parts)) >= 1
    for rows in parts:
        held = 0
        for label in np.unique(labels):
            mine = int((labels[rows] == label).sum())
            assert not (mine and held >= len(labels) / sites)
            held += mine


@pytest.mark.parametrize("gamma", [0.01, 0.05])
def test_few_classes_a_site_still_leave_no_row_to_a_full_one(gamma):
    """Shares may be so small that they round to 0, at the only site that is not full as well."""
    labels = np.repeat(np.arange(6), 10)
    with np.errstate(divide="raise", invalid="raise"):
        for seed in range(300):
            parts = dirichlet(labels, 3, gamma, np.random.default_rng(seed))
            assert sorted(row for rows in parts for row in rows) == list(range(60))
            for rows in parts:
                counts = np.bincount(labels[rows], minlength=6)
                before = np.cumsum(counts) - counts
                assert not counts[before >= 20].any()


def test_one_even_site_gets_everything():
    labels = np.array([2, 0, 1, 0, -1])
    (rows,) = dirichlet(labels, 1, 0.5, np.random.default_rng(0))
    assert rows.tolist() == [0, 1, 2, 3, 4]


# --- sites with all labels, or none

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


def indices(files, split):
    return [yaml.safe_load(file.read_text())["indices"].get(split, []) for file in files]


@pytest.mark.parametrize(("sites", "labelled_sites"), [(4, 1), (3, 2), (2, 0), (1, 1)])
def test_isolated_sites_divide_the_training_images(toy, tmp_path, sites, labelled_sites):
    path, labels = toy
    files = write_isolated_site_files(path, CLASSES, tmp_path / "out", sites, labelled_sites, 1.0, seed=5)
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
    files = write_isolated_site_files(path, CLASSES, tmp_path, sites, 1, 1.0)
    val = indices(files, "val")
    assert sorted(row for rows in val for row in rows) == list(range(33))
    whole = np.bincount(labels["val"], minlength=3)
    for rows in val:
        assert (np.abs(np.bincount(labels["val"][rows], minlength=3) - whole / sites) < 1).all()
    assert indices(files, "test") == [[]] * sites


def test_isolated_sites_load_with_all_their_labels_or_none(toy, tmp_path):
    path, labels = toy
    files = write_isolated_site_files(path, CLASSES, tmp_path, 4, 2, 1.0)
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
    write_isolated_site_files(tmp_path / "data" / "toy.npz", CLASSES, tmp_path / "sites", 3, 1, 1.0)
    shutil.move(tmp_path / "data" / "toy.npz", tmp_path / "elsewhere" / "data" / "toy.npz")
    shutil.move(tmp_path / "sites", tmp_path / "elsewhere" / "sites")
    assert len(load_site(tmp_path / "elsewhere" / "sites" / "site-1.yaml", SPEC).labelled) >= 10


def test_equal_seeds_give_equal_isolated_sites(toy, tmp_path):
    def written(name, seed):
        files = write_isolated_site_files(toy[0], CLASSES, tmp_path / name, 3, 1, 1.0, seed)
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
    one, two = (write_isolated_site_files(toy[0], CLASSES, tmp_path / f"{m}", 3, m, 1.0) for m in (1, 2))
    for split in ("train", "val"):
        assert indices(one, split) == indices(two, split)


def test_too_many_isolated_sites_are_refused(toy, tmp_path):
    with pytest.raises(ConfigError, match="13 sites of at least 10 rows"):
        write_isolated_site_files(toy[0], CLASSES, tmp_path, 13, 1, 1.0)
    assert list(tmp_path.iterdir()) == []
