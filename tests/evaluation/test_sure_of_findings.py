"""Answers yes and no to one class of several: from counts, against a loop over images."""

import numpy as np
import pytest

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.histograms import EDGES
from fedward.evaluation.performance import answered

HALF = EDGES.index(0.5)


def drawn(images: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = (rng.random((images, 2)) < (0.3, 0.1)).astype(int)
    return rng.beta(1 + 2 * truth, 3 - 2 * truth), truth


def sent(scores: np.ndarray, truth: np.ndarray) -> AnswerCounts:
    counts = AnswerCounts.of_each_class(scores, truth)
    assert counts is not None
    return counts


def test_an_answer_is_as_sure_as_yes_or_no() -> None:
    scores, truth = drawn()
    for place in (0, 1):
        counts = sent(scores, truth)
        found = counts.scores.answers(place)
        sure = np.maximum(scores, 1 - scores)[:, place]
        right = (scores >= 0.5)[:, place] == (truth[:, place] == 1)
        for index in range(
            HALF, len(EDGES) - 3
        ):  # above, intervals have too few images and are merged
            above = sure >= EDGES[index]
            assert found.images[index:].sum() == above.sum()
            assert found.right[index:].sum() == right[above].sum()
        assert not found.images[:HALF].any()
        told = counts.confusion.accuracy_of(place)
        assert told is not None
        assert (told.value, told.n) == (pytest.approx(right.mean()), len(truth))


def test_a_probability_is_set_against_what_images_show() -> None:
    scores, truth = drawn()
    points = sent(scores, truth).scores.reliability(0)
    within = (scores[:, 0] >= 0.3) & (scores[:, 0] < 0.4)
    share = next(share for at, share in points if at == pytest.approx(0.35))
    assert (share.value, share.n) == (pytest.approx(truth[within, 0].mean()), within.sum())
    assert [at for at, _ in points] == sorted(at for at, _ in points)


def test_what_to_refer_reaches_what_is_wanted() -> None:
    scores, truth = drawn()
    answers = sent(scores, truth).scores.answers(0)
    part = answers.referred_for(0.95)
    assert part is not None
    sure = np.maximum(scores, 1 - scores)[:, 0]
    right = (scores >= 0.5)[:, 0] == (truth[:, 0] == 1)
    kept = sure >= np.quantile(sure, part)
    assert right[kept].mean() >= 0.95
    assert answers.referred_for(0.5) == 0


def test_an_answer_yes_is_not_merged_with_answers_no() -> None:
    """Thirty answers, all of them right: few are yes, and of these two are less sure."""
    scores = np.array([0.997] * 5 + [0.6] * 2 + [0.01] * 23)[:, None]
    shown = (scores > 0.5).astype(np.int64)
    counts = sent(np.concatenate([scores, scores], axis=1), np.concatenate([shown, shown], axis=1))
    answers = counts.scores.answers(0)
    assert (answers.total, int(answers.right.sum())) == (30, 30)
    images = counts.scores.images[0]
    assert all(number == 0 or number >= 5 for number in images.tolist())


def test_calibration_of_yes_and_no_by_hand() -> None:
    scores = np.repeat([0.8, 0.3], 10)
    shown = np.array([1] * 6 + [0] * 4 + [1] * 3 + [0] * 7)
    found = answered(scores, shown)
    assert found["calibration_error"] == pytest.approx(
        (10 * abs(0.6 - 0.8) + 10 * abs(0.7 - 0.7)) / 20
    )
    below = {row["below"]: row for row in found["referral"]}
    assert (below[0.7]["referred"], below[0.8]["referred"], below[0.9]["referred"]) == (0, 0.5, 1)
    assert below[0.8]["accuracy"]["value"] == 0.6
    assert below[0.9]["accuracy"] is None


def test_counts_of_a_finding_tell_no_few_images() -> None:
    rng = np.random.default_rng(1)
    for images in range(10, 60, 3):
        scores = rng.random((images, 1))
        truth = (np.arange(images)[:, None] % 2).astype(int)
        found = sent(scores, truth).scores.answers(0)
        assert found.images[found.images > 0].min() >= 5
        assert found.images.sum() == images
