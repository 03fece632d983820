import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.sites.split import group_split, labelled_share, owners

ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 4)), max_size=120)
SHARES = st.sampled_from([(0.6, 0.15, 0.25), (1.0,), (0.5, 0.5), (0.0, 1.0, 0.0), (0.2,) * 5])


def split(rows, shares, seed):
    groups = [f"g{group}" for group, _ in rows]
    return group_split(groups, np.array([label for _, label in rows], np.int64), shares, seed)


@given(ROWS, SHARES, st.integers(0, 3))
def test_no_group_is_in_two_parts(rows, shares, seed):
    parts = split(rows, shares, seed)
    assert len(parts) == len(rows)
    assert len({(group, part) for (group, _), part in zip(rows, parts, strict=True)}) == len(
        {g for g, _ in rows}
    )


@given(ROWS, SHARES, st.integers(0, 3), st.randoms(use_true_random=False))
def test_row_order_does_not_matter(rows, shares, seed, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    shuffled = split([rows[index] for index in order], shares, seed)
    assert shuffled.tolist() == split(rows, shares, seed)[order].tolist()


@given(ROWS, SHARES)
def test_a_part_without_a_share_stays_empty(rows, shares):
    used = set(split(rows, shares, 0).tolist())
    assert all(shares[part] > 0 for part in used)


def test_single_images_are_stratified_to_within_one():
    labels = np.repeat(np.arange(4), [100, 40, 20, 4]).astype(np.int64)
    parts = group_split([f"i{i}" for i in range(164)], labels, (0.6, 0.15, 0.25), 0)
    for label, count in enumerate([100, 40, 20, 4]):
        found = np.bincount(parts[labels == label], minlength=3)
        assert (np.abs(found - count * np.array([0.6, 0.15, 0.25])) <= 1).all()


def test_another_seed_gives_another_split():
    groups = [f"i{i}" for i in range(60)]
    labels = np.zeros(60, np.int64)
    assert (
        group_split(groups, labels, (0.5, 0.5), 0) != group_split(groups, labels, (0.5, 0.5), 1)
    ).any()


def test_the_only_group_of_a_class_trains():
    assert group_split(["a", "a"], np.array([3, 3]), (0.6, 0.15, 0.25), 9).tolist() == [0, 0]


@pytest.mark.parametrize("shares", [(0.5, 0.4), (1.5, -0.5)])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        group_split(["a"], np.array([0]), shares, 0)


LABELS = st.lists(st.integers(-1, 5), max_size=200).map(lambda labels: np.array(labels, np.int64))


@given(LABELS, st.floats(0, 1), st.integers(0, 5))
def test_labelled_share_is_exact_up_to_the_floor_of_one(labels, share, seed):
    seen = labelled_share(labels, share, np.random.default_rng(seed))
    known = int((labels >= 0).sum())
    assert not seen[labels < 0].any()
    if share == 0:
        assert not seen.any()
        return
    counts = np.bincount(labels[labels >= 0])
    taken = np.bincount(labels[seen], minlength=len(counts))
    assert (taken[counts > 0] >= 1).all()
    assert (taken <= counts).all()
    floors = np.maximum(np.floor(share * counts), counts > 0)
    assert taken.sum() == max(round(share * known), int(floors.sum()))
    assert ((taken - floors >= 0) & (taken - floors <= 1)).all()


def test_labelled_share_by_hand():
    """Quotas of 10 % of (26, 15, 3): 2.6, 1.5, 0.3, the last raised to 1; round(4.4) = 4 is reached
    by 2 + 1 + 1.
    """
    labels = np.repeat([0, 1, 2], [26, 15, 3])
    seen = labelled_share(labels, 0.1, np.random.default_rng(0))
    assert np.bincount(labels[seen]).tolist() == [2, 1, 1]


def test_a_larger_share_keeps_the_labels_of_a_smaller_one():
    labels = np.repeat([0, 1, 2, -1], [60, 40, 20, 5])
    tenth, third, most = (
        labelled_share(labels, share, np.random.default_rng(3)) for share in (0.1, 0.3, 0.7)
    )
    assert [seen.sum() for seen in (tenth, third, most)] == [12, 36, 84]
    assert third[tenth].all()
    assert most[third].all()


def test_labelled_share_of_all_and_of_none():
    labels = np.array([0, 1, -1, 1])
    assert labelled_share(labels, 1.0, np.random.default_rng(0)).tolist() == [
        True,
        True,
        False,
        True,
    ]
    assert not labelled_share(labels, 0.0, np.random.default_rng(0)).any()
    with pytest.raises(ValueError, match="share"):
        labelled_share(labels, 1.1, np.random.default_rng(0))


def test_a_row_alone_never_takes_the_name_of_a_group():
    groups = ["7", "", "7 (alone)", ""]
    assert owners(groups, ["a", "7", "b", "c"]) == ["7", "7 (alone) (alone)", "7 (alone)", "c"]
    assert owners(["7", ""], ["7", "8"]) == ["7", "8"]
