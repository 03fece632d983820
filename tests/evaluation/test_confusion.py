"""Areas under curves of the answers alone, which are not those of the probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, precision_recall_curve, roc_auc_score

from fedward.evaluation.confusion import ConfusionCounts


def test_a_rare_class_by_hand() -> None:
    """Of 200 images of a class among 20000 eleven are found, and eleven others are given it."""
    counts = ConfusionCounts(np.array([20000]), np.array([200]), np.array([11]), np.array([11]))
    assert counts.f1[0] == pytest.approx(22 / 222)
    assert counts.auroc_from_answers[0] == pytest.approx((0.055 + 1 - 11 / 19800) / 2)
    area = 0.055 * 1.5 / 2 + 0.945 * (0.5 + 0.01) / 2
    assert counts.auprc_from_answers[0] == pytest.approx(area)
    assert area > 0.28, "though its average precision is below 0.04"


def test_a_class_never_given_and_one_of_all_images() -> None:
    counts = ConfusionCounts(
        np.array([10, 10]), np.array([4, 10]), np.array([0, 7]), np.array([0, 0])
    )
    assert counts.auroc_from_answers.tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert counts.auprc_from_answers.tolist() == pytest.approx([(1 + 0.4) / 2, np.nan], nan_ok=True)


@given(st.integers(2, 5), st.integers(2, 60), st.integers(0, 99))
def test_areas_of_answers_are_those_of_scikit_learn(classes: int, images: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    true_class = rng.integers(0, classes, images)
    given_class = np.where(rng.random(images) < 0.5, true_class, rng.integers(0, classes, images))
    counts = ConfusionCounts.of_one_answer(true_class, given_class, classes)
    for place in range(classes):
        inside = true_class == place
        answered = given_class == place
        if not inside.any() or inside.all():
            assert np.isnan(counts.auroc_from_answers[place])
            assert np.isnan(counts.auprc_from_answers[place])
            continue
        assert counts.auroc_from_answers[place] == pytest.approx(roc_auc_score(inside, answered))
        precision, recall, _ = precision_recall_curve(inside, answered)
        assert counts.auprc_from_answers[place] == pytest.approx(auc(recall, precision))


def test_merged_counts_are_those_of_all_images() -> None:
    rng = np.random.default_rng(0)
    true_class, given_class = rng.integers(0, 3, (2, 50))
    whole = ConfusionCounts.of_one_answer(true_class, given_class, 3)
    parts = [
        ConfusionCounts.of_one_answer(true_class[part], given_class[part], 3)
        for part in (slice(0, 20), slice(20, 50))
    ]
    merged = parts[0].merge(parts[1])
    for name in ("total", "images", "true_positives", "false_positives"):
        assert getattr(merged, name).tolist() == getattr(whole, name).tolist()
