import csv
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.sites import load_site
from fedward.sites.partition import (
    FEDPERL_SOURCES,
    SERVER_SOURCE,
    Sample,
    by_source,
    dirichlet,
    fedperl_layout,
    read_skin,
    write_site_files,
)


@given(st.lists(st.sampled_from("abc"), max_size=40))
def test_by_source_takes_every_row_once(sources):
    parts = by_source(sources)
    assert sorted(row for rows in parts.values() for row in rows) == list(range(len(sources)))
    assert all(sources[row] == name for name, rows in parts.items() for row in rows)


@given(st.lists(st.integers(-1, 4), min_size=30, max_size=90), st.integers(1, 4), st.integers(0, 9))
def test_dirichlet_takes_every_row_once_and_leaves_no_site_empty(labels, sites, seed):
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


def test_read_skin_makes_an_image_without_lesion_a_group_of_its_own(tmp_path):
    rows = [("sample_id", "image", "diagnosis", "lesion_id", "source"), ("a", "a.jpg", "NV", "", "s")]
    with (tmp_path / "m.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert read_skin(tmp_path / "m.csv") == [Sample("a", "a.jpg", "NV", "a", "s")]
    with (tmp_path / "m.csv").open("a") as file:
        file.write("b,b.jpg\n")
    with pytest.raises(DataError, match="line 3"):
        read_skin(tmp_path / "m.csv")
