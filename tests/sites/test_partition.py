import csv
import shutil
from collections import Counter

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.seeds import numpy_generator
from fedward.sites import load_site
from fedward.sites.partition import (
    FEDPERL_SOURCES,
    SERVER_SOURCE,
    Sample,
    by_source,
    dirichlet,
    fedperl_layout,
    read_skin,
    write_isolated_site_files,
    write_site_files,
)


@given(st.lists(st.sampled_from("abc"), max_size=40))
def test_by_source_takes_every_row_once(sources):
    parts = by_source(sources)
    assert sorted(row for rows in parts.values() for row in rows) == list(range(len(sources)))
    assert all(sources[row] == name for name, rows in parts.items() for row in rows)


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
        dirichlet(np.zeros(9, np.int64), 4, 1.0, rng, at_least=3, tries=5)


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
def test_even_dirichlet_equals_a_plain_loop(labels, sites, gamma, seed):
    found = dirichlet(labels, sites, gamma, np.random.default_rng(seed), at_least=2, even=True)
    expected = plain_even_dirichlet(labels, sites, gamma, np.random.default_rng(seed), 2)
    assert [rows.tolist() for rows in found] == expected
    assert all(rows.dtype == np.int64 for rows in found)


@given(some_labels, st.integers(1, 5), st.sampled_from([0.3, 1.0, 20.0]), st.integers(0, 99))
def test_even_sites_that_hold_their_share_get_no_further_class(labels, sites, gamma, seed):
    parts = dirichlet(labels, sites, gamma, np.random.default_rng(seed), even=True)
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
            parts = dirichlet(labels, 3, gamma, np.random.default_rng(seed), even=True)
            assert sorted(row for rows in parts for row in rows) == list(range(60))
            for rows in parts:
                counts = np.bincount(labels[rows], minlength=6)
                before = np.cumsum(counts) - counts
                assert not counts[before >= 20].any()


def test_even_is_even_and_without_it_nothing_changes():
    labels = np.repeat(np.arange(10), 100)

    def sizes(seed, **options):
        return [len(rows) for rows in dirichlet(labels, 4, 0.3, np.random.default_rng(seed), **options)]

    even, plain = (np.mean([np.std(sizes(seed, even=choice)) for seed in range(20)]) for choice in (True, False))
    assert even < 0.7 * plain
    for seed in range(5):
        unsaid, said = (dirichlet(labels, 4, 0.3, np.random.default_rng(seed), **o) for o in ({}, {"even": False}))
        assert all(np.array_equal(a, b) for a, b in zip(unsaid, said, strict=True))


def test_one_even_site_gets_everything():
    labels = np.array([2, 0, 1, 0, -1])
    (rows,) = dirichlet(labels, 1, 0.5, np.random.default_rng(0), even=True)
    assert rows.tolist() == [0, 1, 2, 3, 4]


@pytest.fixture
def samples(hospital):
    """Every source has 24 images of 8 lesions; one lesion of the server's source is also at a site."""
    sources = [source for part in FEDPERL_SOURCES.values() for source in part[0]] + [SERVER_SOURCE]
    images = [row[1] for row in hospital.rows]
    made = [
        Sample(f"{source}-{index}", images[index], "NV" if index < 18 else "MEL", f"{source}-{index // 3}", source)
        for source in sources
        for index in range(24)
    ]
    shared = Sample("shared", images[30], "MEL", "vidir_modern-7", SERVER_SOURCE)
    return [*made, shared]


def test_fedperl_layout_is_five_three_two_and_a_server(samples):
    layout = fedperl_layout(samples)
    assert list(layout) == [f"site-{index}" for index in range(1, 11)] + ["server"]
    sources = {site: {sample.source for sample in part} for site, part in layout.items()}
    assert all(source.startswith("isic2017") for index in range(1, 6) for source in sources[f"site-{index}"])
    assert all(sources[f"site-{index}"] == {"vidir_modern"} for index in (6, 7, 8))
    assert [sources[site] for site in ("site-9", "site-10", "server")] == [
        {"rosendahl"},
        {"vienna_dias"},
        {SERVER_SOURCE},
    ]
    used = Counter(sample.sample_id for part in layout.values() for sample in part)
    assert max(used.values()) == 1
    assert {sample.sample_id for sample in samples} - set(used) == {"shared"}
    places = Counter(group for group, _ in {(s.group, site) for site, part in layout.items() for s in part})
    assert max(places.values()) == 1


def test_a_source_without_images_is_named(samples):
    with pytest.raises(DataError, match="rosendahl"):
        fedperl_layout([sample for sample in samples if sample.source != "rosendahl"])


def test_site_files_load_without_copies(samples, hospital, tmp_path):
    layout = fedperl_layout(samples)
    files = write_site_files(layout, hospital.folder, tmp_path / "out", labelled={**dict.fromkeys(layout, 0.5)})
    assert [file.stem for file in files] == list(layout)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv", ".yaml"}
    for file in files:
        data = load_site(file, DataSpec(classes=("MEL", "NV"), image_size=16))
        expected = sorted(sample.sample_id for sample in layout[file.stem])
        found = [i for name in ("labelled", "unlabelled", "val", "test") for i in getattr(data, name).ids]
        assert sorted(found) == expected
        if file.stem == "server":
            assert len(data.val) == len(expected)


def test_read_skin_groups_an_image_without_lesion_alone(tmp_path):
    rows = [("sample_id", "image", "diagnosis", "lesion_id", "source"), ("a", "a.jpg", "NV", "", "s")]
    with (tmp_path / "m.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert read_skin(tmp_path / "m.csv") == [Sample("a", "a.jpg", "NV", "a", "s")]
    with (tmp_path / "m.csv").open("a") as file:
        file.write("b,b.jpg\n")
    with pytest.raises(DataError, match="line 3"):
        read_skin(tmp_path / "m.csv")


def test_what_is_no_skin_data_set_is_refused_in_its_own_terms(tmp_path):
    (tmp_path / "m.csv").write_text("sample_id,image\n")
    for name, place, found in (("none.csv", "", "No such file"), ("m.csv", ", line 1", "missing: diagnosis")):
        with pytest.raises(DataError, match=f"{name}{place}: .*{found}.*Name the folder of a pooled skin") as caught:
            read_skin(tmp_path / name)
        assert "site file" not in str(caught.value)


def test_other_site_files_are_kept_and_nothing_is_written(tmp_path):
    layout = {name: [Sample(name, f"{name}.jpg", "NV", name, "s")] for name in ("site-1", "site-2")}
    first = write_site_files(layout, tmp_path, tmp_path / "out")
    assert write_site_files(layout, tmp_path, tmp_path / "out") == first
    mended = tmp_path / "out" / "site-2.yaml"
    mended.write_text(mended.read_text() + "processes: 2\n")
    (tmp_path / "out" / "site-1.yaml").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(ConfigError, match=r"site-2\.yaml: .*mended by hand"):
        write_site_files(layout, tmp_path, tmp_path / "out")
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


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
    expected = dirichlet(labels["train"], sites, 1.0, numpy_generator(5, "dirichlet"), at_least=10, even=True)
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
        assert data.set_aside == ()


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
