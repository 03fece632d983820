"""Who gets which images of a pool: by a Dirichlet law, evenly, or by a column."""

import doctest
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.errors import ConfigError
from fedward.lab.partition import dirichlet as dirichlet_module
from fedward.lab.partition.dirichlet import dirichlet
from fedward.lab.partition.divide import column_sites, divide, divide_by, split_off_server
from fedward.lab.partition.pool import Listing, Pool
from fedward.seeds import numpy_generator
from fedward.sites.rendering import Rendering, Slices


@given(st.lists(st.integers(-1, 4), min_size=30, max_size=90), st.integers(1, 4), st.integers(0, 9))
def test_dirichlet_uses_each_row_once_and_fills_every_site(labels, sites, seed):
    parts = dirichlet(
        np.array(labels, np.int64), sites, 1.0, np.random.default_rng(seed), at_least=2
    )
    assert sorted(row for rows in parts for row in rows) == list(range(len(labels)))
    assert min(map(len, parts)) >= 2


def test_dirichlet_gamma_is_a_concentration():
    labels = np.repeat(np.arange(5), 400)

    def spread(gamma):
        parts = dirichlet(labels, 4, gamma, np.random.default_rng(0))
        return np.std([np.bincount(labels[rows], minlength=5) for rows in parts])

    assert spread(1000.0) < 10
    assert spread(0.1) > 100


def test_the_example_of_dirichlet_prints_what_it_says():
    results = doctest.testmod(dirichlet_module)
    assert (results.attempted, results.failed) == (5, 0)


def test_dirichlet_refuses_what_cannot_be():
    rng = np.random.default_rng(0)
    for sites, gamma in ((0, 1.0), (3, 0.0)):
        with pytest.raises(ConfigError, match="Name a number above 0"):
            dirichlet(np.zeros(9, np.int64), sites, gamma, rng)
    with pytest.raises(ConfigError, match="4 sites of at least 3 rows"):
        dirichlet(np.zeros(9, np.int64), 4, 1.0, rng, at_least=3)


def plain_even_dirichlet(labels, sites, gamma, rng, at_least):
    """Li et al., ICDE 2022, row by row: a class is handed out in a random order, to sites that hold
    less than N / K.
    """
    while True:
        found: list[list[int]] = [[] for _ in range(sites)]
        for label in sorted(set(labels.tolist())):
            order = rng.permutation(
                [row for row, other in enumerate(labels.tolist()) if other == label]
            )
            shares = rng.dirichlet([gamma] * sites)
            open_ = [len(part) < len(labels) / sites for part in found]
            total = sum(share for share, is_open in zip(shares, open_, strict=True) if is_open)
            ends = []
            reached = 0.0
            for share, is_open in zip(shares, open_, strict=True):
                reached += share / total if is_open else 0.0
                ends.append(reached)
            last = max(site for site in range(sites) if open_[site])
            for place, row in enumerate(order):
                middle = (place + 0.5) / len(order)
                found[next((site for site in range(sites) if middle <= ends[site]), last)].append(
                    int(row)
                )
        if min(map(len, found)) >= at_least:
            return [sorted(part) for part in found]


some_labels = st.lists(st.integers(-1, 4), min_size=30, max_size=120).map(
    lambda labels: np.array(labels, np.int64)
)


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


# --- a pool

SPLITS = ("train", "val", "test")


def pool(labels, groups=None, splits=None, **columns):
    labels = np.asarray(labels, np.int64)
    return Pool(
        name="toy",
        classes=("A", "B", "C"),
        labels=labels,
        groups=[f"{index}" for index in range(len(labels))] if groups is None else groups,
        splits=["train"] * len(labels) if splits is None else splits,
        side=28,
        channels=1,
        listing=lambda site, mine, out: Listing({}, {}),
        columns=columns,
        alone=[groups is None] * len(labels),
    )


def rows_of(cut):
    return [int(row) for mine in cut.values() for rows in mine.values() for row in rows]


def places(cut, groups):
    """Return group -> the (site, split) pairs that it is at."""
    found = {}
    for site, mine in cut.items():
        for split, rows in mine.items():
            for row in rows:
                found.setdefault(groups[row], set()).add((site, split))
    return found


@given(
    st.lists(st.integers(-1, 2), min_size=200, max_size=300),
    st.integers(1, 3),
    st.sampled_from([None, 1.0, 50.0]),
    st.integers(0, 9),
)
def test_groups_stay_whole_and_labelled_images_have_a_place(labels, sites, gamma, seed):
    groups = [f"g{index // 3}" for index in range(len(labels))]
    data = pool(labels, groups)
    try:
        cut = divide(data, sites, gamma, seed)
    except ConfigError:
        return  # too uneven a draw, which is refused
    assert list(cut) == [f"site-{index}" for index in range(1, sites + 1)]
    rows = rows_of(cut)
    assert len(rows) == len(set(rows))
    left = set(range(len(labels))) - set(rows)
    assert all(labels[row] == -1 for row in left)
    assert all(len(where) == 1 for where in places(cut, groups).values())
    for mine in cut.values():
        assert all(labels[row] >= 0 for split in ("val", "test") for row in mine[split])


def test_a_data_set_without_splits_gets_those_of_a_site_file():
    """15 % for validation, 25 % for testing, by class, and each class evenly at all sites."""
    labels = np.repeat([0, 1, 2], [400, 200, 100])
    cut = divide(pool(labels), 4)
    for mine in cut.values():
        counts = {split: np.bincount(labels[mine[split]], minlength=3) for split in SPLITS}
        assert (np.abs(counts["train"] - [60, 30, 15]) <= 1).all()
        assert (np.abs(counts["val"] - [15, 7.5, 3.75]) <= 1).all()
        assert (np.abs(counts["test"] - [25, 12.5, 6.25]) <= 1).all()


def test_splits_of_a_data_set_are_kept_a_missing_one_is_made():
    splits = ["train"] * 300 + ["test"] * 60
    data = pool(np.arange(360) % 3, splits=splits)
    cut = divide(data, 3, gamma=1.0)
    tests = sorted(row for mine in cut.values() for row in mine["test"])
    assert tests == list(range(300, 360))
    for mine in cut.values():
        assert (np.abs(np.bincount(mine["test"] % 3) - 20 / 3) < 1).all()
    assert sum(len(mine["val"]) for mine in cut.values()) == 45


def test_dirichlet_moves_training_images_alone():
    labels = np.arange(600) % 3
    even = divide(pool(labels), 3)
    uneven = divide(pool(labels), 3, gamma=0.3)
    for split in ("val", "test"):
        assert all((even[site][split] == uneven[site][split]).all() for site in even)
    assert np.std([len(mine["train"]) for mine in even.values()]) < 2
    train = np.sort(np.concatenate([mine["train"] for mine in uneven.values()]))
    parts = dirichlet(labels[train], 3, 0.3, numpy_generator(0, "dirichlet"), at_least=10)
    assert [mine["train"].tolist() for mine in uneven.values()] == [
        train[rows].tolist() for rows in parts
    ]


def test_groups_are_spread_by_their_commonest_class():
    """Groups of one image are rows; a group of several is one draw."""
    labels = np.repeat(np.arange(60) % 3, 4)
    groups = [f"g{index // 4}" for index in range(240)]
    splits = ["train"] * 240
    splits[-8:] = ["val"] * 4 + ["test"] * 4
    cut = divide(pool(labels, groups, splits), 2, gamma=1.0, seed=3)
    parts = dirichlet(labels[:232:4], 2, 1.0, numpy_generator(3, "dirichlet"))
    expected = [
        [row for group in part for row in range(4 * group, 4 * group + 4)] for part in parts
    ]
    assert [mine["train"].tolist() for mine in cut.values()] == expected


def test_equal_seeds_give_equal_cuts():
    data = pool(np.arange(300) % 3)

    def rows(seed, gamma):
        return [
            rows.tolist()
            for mine in divide(data, 3, gamma, seed).values()
            for rows in mine.values()
        ]

    for gamma in (None, 0.5):
        assert rows(1, gamma) == rows(1, gamma) != rows(2, gamma)


@pytest.mark.parametrize(
    ("sites", "gamma"), [(0, None), (-1, None), (40, None), (40, 1.0), (3, 0.0)]
)
def test_a_cut_that_cannot_be_is_refused(sites, gamma):
    with pytest.raises(ConfigError, match=r"--sites|at least 10|number above 0"):
        divide(pool(np.arange(300) % 3), sites, gamma)


def test_a_column_makes_a_site_of_each_value():
    hospitals = ["b 10", "b 2", "A", ""]
    values = [hospitals[index % 4] for index in range(400)]
    labels = np.arange(400) // 4 % 3
    data = pool(labels, hospital=values)
    cut = divide_by(data, column_sites(data, "hospital"), seed=1)
    assert list(cut) == ["A", "b-2", "b-10"]
    for site, value in (("A", "A"), ("b-2", "b 2"), ("b-10", "b 10")):
        mine = np.sort(np.concatenate(list(cut[site].values())))
        assert mine.tolist() == [row for row in range(400) if values[row] == value]
        for split, share in (("train", 0.6), ("val", 0.15), ("test", 0.25)):
            assert (
                np.abs(np.bincount(labels[cut[site][split]], minlength=3) - share * 33.3) < 1.5
            ).all()


def test_a_hospital_may_have_the_number_99():
    values = [("7", "99", "-1")[index % 3] for index in range(300)]
    data = pool(np.arange(300) // 3 % 2, hospital=values)
    cut = divide_by(data, column_sites(data, "hospital"))
    assert list(cut) == ["7", "99"]
    assert {values[row] for row in rows_of(cut)} == {"7", "99"}, "-1 is nobody"


def test_a_group_of_two_hospitals_stays_where_most_of_it_is():
    groups = [f"g{index // 2}" for index in range(100)]
    values = ["a"] * 50 + ["b"] * 50
    groups[50:52] = ["g0", "g50"]
    data = pool(np.arange(100) % 2, groups, hospital=values)
    cut = divide_by(data, column_sites(data, "hospital"))
    assert set(range(100)) - set(rows_of(cut)) == {50}
    assert all(len({site for site, _ in where}) == 1 for where in places(cut, groups).values())


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["a"] * 60, "'a'"),
        ([""] * 60, "none"),
        (["a", "server"] * 30, "'server'"),
        (["a b", "a/b", "c"] * 20, "found 'a b' beside 'a/b'. "),
        (["a", "///"] * 30, "'///'"),
        (["a"] * 45 + ["b"] * 15, "1 of 2 with fewer, as b with 9"),
        (["a", "Server"] * 30, "'Server'"),
        (["a", "b" * 300] * 30, "found 'bbb"),
        ([f"image {index}" for index in range(60)], "found 60 of 60 with fewer, as image-0 with 1"),
    ],
)
def test_columns_that_make_no_sites_are_refused(values, found):
    data = pool(np.zeros(60), hospital=values)
    with pytest.raises(ConfigError, match=found):
        divide_by(data, column_sites(data, "hospital"))


def test_a_site_too_small_tells_what_is_counted():
    """Volumes are counted as files, and patients are told beside them."""
    values = ["a"] * 51 + ["b"] * 9
    patients = [f"p{index // 5}" for index in range(60)]
    volumes = pool(np.arange(60) // 5 % 2, patients, hospital=values)
    with pytest.raises(
        ConfigError, match=r"10 training images at each.*as b with 9 \(groups, as patients: 2\)"
    ):
        divide_by(volumes, column_sites(volumes, "hospital"))
    volumes = replace(volumes, rendering=Rendering(slices=Slices(at_most=4)))
    with pytest.raises(
        ConfigError, match="10 training files, however many images each becomes, at each site"
    ):
        divide_by(volumes, column_sites(volumes, "hospital"))


def test_an_unknown_column_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"a column of the data \(hospital\), found clinic"):
        column_sites(pool(np.zeros(60), hospital=["a"] * 60), "clinic")


@given(
    st.lists(st.integers(-1, 2), min_size=200, max_size=300),
    st.sampled_from([0.1, 0.3, 0.5]),
    st.integers(0, 9),
)
def test_public_images_are_at_the_server_alone_and_groups_stay_whole(labels, share, seed):
    groups = [f"g{index // 2}" for index in range(len(labels))]
    data = pool(labels, groups)
    cut = divide(data, 2, seed=seed)
    kept, public = split_off_server(data, cut, share, seed)
    both = {**kept, "server": public}
    rows = rows_of(both)
    assert len(rows) == len(set(rows))
    assert all(len(where) == 1 for where in places(both, groups).values())
    assert all(labels[row] == -1 for row in set(rows_of(cut)) - set(rows))
    assert all(labels[row] >= 0 for row in public["val"])
    assert len(public["test"]) == 0
    for site, site_rows in cut.items():
        for split in ("val", "test"):
            assert kept[site][split].tolist() == site_rows[split].tolist()


def test_public_images_are_a_share_of_each_class_of_each_site():
    """Of 60 training images of a class at a site, a tenth goes; a fifth of these for validation."""
    labels = np.repeat([0, 1, 2], 300)
    data = pool(labels)
    cut = divide(data, 3)
    kept, public = split_off_server(data, cut, 0.1, seed=4)
    for site_rows in kept.values():
        assert np.bincount(labels[site_rows["train"]]).tolist() == [54, 54, 54]
    for split, expected in (("train", 14.4), ("val", 3.6)):
        counts = np.bincount(labels[public[split]], minlength=3)
        assert (np.abs(counts - expected) < 1).all()
    _, others = split_off_server(data, cut, 0.1, seed=5)
    assert set(others["train"]) != set(public["train"])


def test_what_is_left_over_of_a_rare_class_counts_at_the_next_site():
    """A tenth of 4 images is none at each of two sites, and of all 8 it is one, of either site."""
    labels = np.tile([0, 1, 2], 8)
    nothing = np.zeros(0, np.int64)
    rows = {"site-1": np.arange(12), "site-2": np.arange(12, 24)}
    cut = {site: {"train": mine, "val": nothing, "test": nothing} for site, mine in rows.items()}
    kept, public = split_off_server(pool(labels), cut, 0.1)
    assert np.bincount(labels[public["train"]]).tolist() == [1, 1, 1]
    assert [len(mine["train"]) for mine in kept.values()] == [11, 10]
    with pytest.raises(ConfigError, match=r"--server 0.05: .*none in 0.05 of each class, of 24"):
        split_off_server(pool(labels), cut, 0.05)


def test_a_server_that_leaves_sites_too_few_images_is_refused():
    data = pool(np.arange(300) % 3)
    with pytest.raises(ConfigError, match=r"found 3 of 3 with fewer.*smaller share \(--server\)"):
        split_off_server(data, divide(data, 3), 0.9)
