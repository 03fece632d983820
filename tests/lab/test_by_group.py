"""The bootstrap over groups of test images: it counts patients, not images."""

import numpy as np
import pytest

from fedward.evaluation import classification_metrics
from fedward.evaluation.names import OF_ANSWERS
from fedward.lab.bench.by_group import Answered, bootstrap_standard_errors, metrics_of

RNG = np.random.default_rng(2)


def answered(groups: int, images_of_each: int) -> Answered:
    """Return images whose answers are right for whole groups, with 80 %, or wrong for them."""
    labels = np.arange(groups) % 3
    right = np.arange(groups) % 5 > 0
    answers = np.where(right, labels, (labels + 1) % 3)
    each = [np.repeat(values, images_of_each) for values in (labels, np.arange(groups), answers)]
    return Answered(*each)


def test_metrics_of_a_resample_are_those_of_every_evaluation() -> None:
    labels = RNG.integers(0, 3, 60)
    answers = np.where(RNG.random(60) < 0.6, labels, RNG.integers(0, 4, 60))
    classes = ("a", "b", "c", "absent")
    right = labels[labels == answers]
    counts = [np.bincount(values, minlength=4)[None] for values in (labels, right, answers)]
    found = metrics_of(*counts)
    rows = classification_metrics(np.eye(4)[answers], labels, classes)
    expected = {row["name"]: row["value"] for row in rows}
    for metric in OF_ANSWERS:
        assert found[metric][0] == pytest.approx(expected[metric])


def test_the_deviation_is_that_of_independent_groups_whatever_their_size() -> None:
    single = bootstrap_standard_errors([answered(400, 1)], 3)
    assert single["accuracy"]["deviation"] == pytest.approx(np.sqrt(0.8 * 0.2 / 400), rel=0.1)
    grouped = bootstrap_standard_errors([answered(100, 4)], 3)["accuracy"]["deviation"]
    assert grouped == pytest.approx(2 * single["accuracy"]["deviation"], rel=0.15), (
        "four images of a patient say no more than one"
    )


def test_sites_are_resampled_within_and_equal_answers_have_equal_deviations() -> None:
    site = answered(200, 2)
    alone = bootstrap_standard_errors([site], 3)["f1_macro"]["deviation"]
    four = bootstrap_standard_errors([site] * 4, 3)
    assert four["f1_macro"]["deviation"] == pytest.approx(alone / 2, rel=0.15)
    assert bootstrap_standard_errors([site] * 4, 3) == four
    assert bootstrap_standard_errors([], 3) == {}
