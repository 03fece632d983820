"""The ways of choosing rounds, and means over runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.errors import ConfigError
from fedward.evaluation import (
    MetricRow,
    best_global,
    best_per_site,
    classification_metrics,
    last_round,
    last_rounds,
    mean_and_interval,
    mean_over_sites,
    paired_difference,
)
from fedward.evaluation.selection import judged_by_most, kept_round, latest_best


def rows(table, metric="accuracy"):
    """{(round, site): (val, test)} -> metric rows."""
    return [
        MetricRow(round_, site, split, metric, value)
        for (round_, site), pair in table.items()
        for split, value in zip(("val", "test"), pair, strict=True)
    ]


TABLE = {
    (0, "x"): (0.2, 0.1),
    (0, "y"): (0.5, 0.6),
    (1, "x"): (0.6, 0.5),
    (1, "y"): (0.7, 0.4),
    (2, "x"): (0.9, 0.7),
    (2, "y"): (0.4, 0.3),
    (3, "x"): (0.8, 0.9),
    (3, "y"): (0.5, 0.8),
}
"""Means of val: .35, .65, .65, .65. Best of x: round 2, of y: round 1."""


def test_best_per_site_takes_each_sites_own_round():
    chosen = best_per_site(rows(TABLE), "accuracy")
    assert [(c.site, c.round, c.val, c.test) for c in chosen.sites] == [
        ("x", 2, 0.9, 0.7),
        ("y", 1, 0.7, 0.4),
    ]
    assert chosen.round is None
    assert chosen.test == pytest.approx(0.55)


def test_best_global_takes_the_latest_of_equal_means():
    chosen = best_global(rows(TABLE), "accuracy")
    assert chosen.round == 3
    assert [(c.site, c.val, c.test) for c in chosen.sites] == [("x", 0.8, 0.9), ("y", 0.5, 0.8)]
    assert chosen.val == pytest.approx(0.65)
    assert chosen.test == pytest.approx(0.85)


def test_last_round_chooses_nothing():
    chosen = last_round(rows(TABLE), "accuracy")
    assert (chosen.round, chosen.test) == (3, pytest.approx(0.85))


def test_last_rounds_are_means_of_the_last_three_evaluations():
    """x: (.5 + .7 + .9) / 3 = .7 on test, (.6 + .9 + .8) / 3 on val; y: (.4 + .3 + .8) / 3 = .5."""
    chosen = last_rounds(rows(TABLE | {(0, "x"): (1.0, 1.0)}), "accuracy")
    assert (chosen.protocol, chosen.rounds, chosen.round) == ("last_rounds", (1, 2, 3), 3)
    assert [(c.site, c.round) for c in chosen.sites] == [("x", 3), ("y", 3)]
    assert [c.test for c in chosen.sites] == pytest.approx([0.7, 0.5])
    assert chosen.sites[0].val == pytest.approx(2.3 / 3)
    assert chosen.test == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ((0,), (0,)),
        ((0, 5), (5,)),
        ((0, 5, 10), (5, 10)),
        ((0, 2, 4, 6, 8), (4, 6, 8)),
        ((3,), (3,)),
    ],
)
def test_the_untrained_model_is_no_last_round(measured, expected):
    assert (
        last_rounds(rows({(r, "x"): (0.5, r / 10) for r in measured}), "accuracy").rounds
        == expected
    )


def test_a_site_that_missed_an_evaluation_counts_with_others():
    table = {(r, "x"): (0.5, 0.6) for r in (1, 2, 3)} | {
        (1, "y"): (0.5, 0.2),
        (3, "y"): (None, 0.4),
    }
    chosen = last_rounds(rows(table), "accuracy")
    assert [c.test for c in chosen.sites] == pytest.approx([0.6, 0.3])
    assert chosen.sites[1].val == 0.5


def counted(name, told):
    """{(round, site): (test value, images)} -> metric rows."""
    return [MetricRow(r, site, "test", name, value, n) for (r, site), (value, n) in told.items()]


def test_pooled_accuracy_counts_each_image_once():
    """Nine of ten are right at x and one of thirty at y: ten of forty.

    The mean over sites is .4667.
    """
    told = {(1, "x"): (0.9, 10), (1, "y"): (1 / 30, 30), (1, "z"): (None, 0)}
    chosen = last_round(counted("accuracy", told), "accuracy")
    assert chosen.pooled == pytest.approx(0.25)
    assert chosen.test == pytest.approx((0.9 + 1 / 30) / 2)
    assert last_round(counted("recall_weighted", told), "recall_weighted").pooled == pytest.approx(
        0.25
    )
    assert last_round(counted("f1_macro", told), "f1_macro").pooled is None
    assert last_round(rows(TABLE), "accuracy").pooled is None, "without numbers of images"


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=9),
        min_size=1,
        max_size=4,
    )
)
def test_pooled_values_are_those_of_all_images_together(sites):
    """Each site has images, (label, prediction), of four classes."""
    told = []
    for place, images in enumerate(sites):
        labels, said = (np.array(column) for column in zip(*images, strict=True))
        found = {
            row["name"]: row for row in classification_metrics(np.eye(4)[said], labels, "abcd")
        }
        for name in ("accuracy", "recall_weighted"):
            told += counted(name, {(1, f"site-{place}"): (found[name]["value"], found[name]["n"])})
    together = [label == said for images in sites for label, said in images]
    for name in ("accuracy", "recall_weighted"):
        assert last_rounds(told, name).pooled == pytest.approx(sum(together) / len(together))


def test_images_are_those_of_the_newest_tested_round():
    """As many images as were tested last, whatever the validation images and earlier rounds."""
    told = {(1, "x"): (0.2, 10), (2, "x"): (0.6, 30), (1, "y"): (1.0, 10)}
    validated = [MetricRow(round_, "x", "val", "accuracy", 0.5, 70) for round_ in (1, 2, 3)]
    chosen = last_rounds([*counted("accuracy", told), *validated], "accuracy")
    assert chosen.rounds == (1, 2, 3)
    assert [choice.images for choice in chosen.sites] == [30, 10]
    assert chosen.pooled == pytest.approx((30 * 0.4 + 10 * 1.0) / 40)


def test_equal_sizes_make_pooled_and_mean_equal():
    told = {
        (r, site): (value, 20)
        for r, site, value in ((1, "x", 0.3), (2, "x", 0.5), (1, "y", 0.7), (2, "y", 0.1))
    }
    for choose in (last_rounds, last_round):
        chosen = choose(counted("accuracy", told), "accuracy")
        assert chosen.pooled == pytest.approx(chosen.test)


def test_test_values_never_choose():
    flipped = {key: (val, 1 - test) for key, (val, test) in TABLE.items()}
    assert (
        best_global(rows(flipped), "accuracy").round == best_global(rows(TABLE), "accuracy").round
    )


def test_each_site_counts_once_whatever_its_size():
    big = [
        MetricRow(0, "x", "val", "accuracy", 1.0, n=1000),
        MetricRow(0, "y", "val", "accuracy", 0.0, n=1),
    ]
    assert mean_over_sites(big, "accuracy") == {0: 0.5}


def test_a_round_seen_by_half_the_sites_or_fewer_cannot_win():
    table = {(0, site): (0.5, 0.5) for site in "wxyz"} | {(1, site): (1.0, 1.0) for site in "wx"}
    assert best_global(rows(table), "accuracy").round == 0
    assert best_global(rows(table | {(1, "y"): (0.9, 0.9)}), "accuracy").round == 1


def test_sites_with_nothing_to_evaluate_have_no_say():
    """IsoFed's two sites of four without labels: they answer every round, with no value."""
    table = {(r, site): (value, value) for r, value in ((0, 0.2), (1, 0.6)) for site in "wx"}
    silent = {(r, site): (None, None) for r in (0, 1) for site in "yz"}
    assert best_global(rows(table | silent), "accuracy", "wxyz").round == 1
    assert best_global(rows(table | silent), "accuracy").round == 1
    assert best_global(rows(table), "accuracy", "wxyz").round is None, (
        "sites not heard might have had a value"
    )


@pytest.mark.parametrize(
    ("values", "sites", "may"),
    [
        ({"w": 0.5, "x": 0.5, "y": 0.5}, "wxyz", True),
        ({"w": 0.5, "x": 0.5}, "wxyz", False),
        ({"w": 0.5, "x": 0.5, "y": None}, "wxyz", True),
        ({"w": 0.0, "x": None, "y": None, "z": None}, "wxyz", True),
        ({"w": None, "x": None}, "wx", False),
        ({"w": 0.5, "x": None}, "wxyz", False),
        ({}, "wx", False),
    ],
)
def test_more_than_half_of_the_judging_sites_need_a_value(values, sites, may):
    assert judged_by_most(values, sites) is may
    told = [MetricRow(0, site, "val", "accuracy", value) for site, value in values.items()]
    assert best_global(told, "accuracy", sites).round == (0 if may else None)


def test_the_kept_round_stands_in_place_of_the_best():
    chosen = kept_round(rows(TABLE), "accuracy", 3)
    assert (chosen.protocol, chosen.round, chosen.test) == ("best_global", 3, pytest.approx(0.85))
    assert kept_round(rows(TABLE), "accuracy", None).test is None


def test_rounding_alone_puts_no_round_ahead():
    assert latest_best({2: 0.1 + 0.2, 4: 0.3, 1: 0.1}) == 4
    assert latest_best({}) is None


def test_undefined_values_are_left_out():
    table = {(0, "x"): (None, 0.5), (0, "y"): (0.4, None), (1, "y"): (0.3, 0.9)}
    chosen = best_per_site(rows(table), "accuracy")
    assert [(c.site, c.round, c.test) for c in chosen.sites] == [("x", None, None), ("y", 0, None)]
    assert chosen.test is None
    assert mean_over_sites(rows(table), "accuracy") == {0: 0.4, 1: 0.3}


def test_nothing_measured_chooses_nothing():
    for choose in (best_per_site, best_global, last_round, last_rounds):
        chosen = choose([MetricRow(1, "x", "train", "loss", 0.3)], "accuracy")
        assert (chosen.round, chosen.sites, chosen.test) == (None, (), None)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 5), st.sampled_from("xyz")), st.tuples(*[st.floats(0, 1)] * 2)
    )
)
def test_no_round_beats_the_chosen_one(table):
    made = rows(table)
    for choice in best_per_site(made, "accuracy").sites:
        own = {r: val for (r, site), (val, _) in table.items() if site == choice.site}
        assert choice.val == own[choice.round]
        assert choice.val == pytest.approx(max(own.values()), abs=1e-11)
        assert all(val < choice.val for r, val in own.items() if r > choice.round)


def test_interval_worked_by_hand():
    """1, 2, 3: mean 2, sd 1, t(.975, 2) = 4.302653, half width 4.302653 / sqrt(3) = 2.484138."""
    found = mean_and_interval([1, 2, 3])
    assert (found.mean, found.sd, found.n) == (2, 1, 3)
    assert (found.low, found.high) == (
        pytest.approx(2 - 2.484138, abs=1e-6),
        pytest.approx(2 + 2.484138, abs=1e-6),
    )


def test_intervals_of_scores_end_at_0_and_1():
    wide = mean_and_interval([0.1, 0.5, 0.9])
    assert (wide.low < 0, wide.high > 1) == (True, True)
    told = wide.of_score("f1_weighted")
    assert (told.low, told.mean, told.high) == (0, 0.5, 1)
    assert mean_and_interval([0.55, 0.56]).of_score("accuracy") == mean_and_interval([0.55, 0.56])
    assert wide.of_score("kappa_of_a_package") == wide
    assert mean_and_interval([0.7]).of_score("f1_macro").low is None


def test_one_run_has_no_interval():
    found = mean_and_interval([0.7])
    assert (found.mean, found.sd, found.low, found.high, found.n) == (0.7, None, None, None, 1)


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf]])
def test_missing_runs_are_not_dropped(values):
    with pytest.raises(ConfigError, match="mean over runs"):
        mean_and_interval(values)


def test_paired_difference_removes_what_pairs_share():
    """Seeds differ by whole units and methods by .1 ± .01.

    Paired, the interval is as narrow as the difference between the methods.
    """
    found = paired_difference([1.11, 2.10, 3.09], [1.0, 2.0, 3.0])
    assert found.mean == pytest.approx(0.1)
    assert found.sd == pytest.approx(0.01)
    assert found.low is not None
    assert found.low == pytest.approx(0.1 - 0.02484138, abs=1e-7)


def test_pairs_must_match():
    with pytest.raises(ConfigError, match="2 and 1"):
        paired_difference([1, 2], [1])
