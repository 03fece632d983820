"""What is said of a model on one set of images: by hand, and as the metrics of a run have it."""

import json
import math
from typing import Any

import numpy as np
import pytest

from fedward.errors import ConfigError, DataError
from fedward.evaluation.class_groups import fold, group_places
from fedward.evaluation.intervals import bootstrap_intervals, proportion_interval
from fedward.evaluation.one_label import classification_metrics
from fedward.evaluation.performance import counted, multi_label_performance, performance

CLASSES = ("MEL", "NV", "BCC")


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def drawn(images: int = 300, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Predictions that are right more often than not."""
    source = np.random.default_rng(1)
    labels = source.integers(0, classes, images)
    powers = np.exp(source.normal(0, 1, (images, classes)) + 1.5 * np.eye(classes)[labels])
    return powers / powers.sum(axis=1, keepdims=True), labels


def said(
    truth: list[int], predicted: list[int], classes: tuple[str, ...] = CLASSES
) -> dict[str, Any]:
    probabilities = 0.2 / len(classes) + 0.8 * np.eye(len(classes))[predicted]
    return performance(probabilities, np.array(truth), classes, rng())


def share(part: int, of: int) -> dict[str, float]:
    low, high = proportion_interval(part / of, of)
    return {"value": part / of, "low": low, "high": high, "n": of}


def test_one_class_against_the_others_by_hand() -> None:
    """Of 10 MEL 8 are found; of 20 others 5 are called MEL."""
    found = said([0] * 10 + [1] * 20, [0] * 8 + [1] * 2 + [0] * 5 + [1] * 15)
    mel = found["classes"]["MEL"]
    assert (mel["images"], mel["sensitivity"], mel["specificity"]) == (
        10,
        share(8, 10),
        share(15, 20),
    )
    assert (mel["positive"], mel["negative"]) == (share(8, 13), share(15, 17))
    assert found["overall"]["accuracy"] == share(23, 30)
    assert list(found["classes"]) == ["MEL", "NV"], "BCC has no image"
    assert mel["auroc_from_answers"] == pytest.approx((8 / 10 + 15 / 20) / 2)
    # Lines from (0, 1) over recall 8/10 at precision 8/13 to (1, 10/30).
    expected = 0.8 * (1 + 8 / 13) / 2 + 0.2 * (8 / 13 + 10 / 30) / 2
    assert mel["auprc_from_answers"] == pytest.approx(expected)
    assert found["confusion"] == {"MEL": [8, None, None], "NV": [5, 15, None]}


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5])
def test_numbers_of_a_model_that_has_diverged_are_none(value: float) -> None:
    one_label = np.full((12, 2), 0.5)
    one_label[7, 1] = value
    labels = np.arange(12) % 2
    with pytest.raises(DataError, match="1 of 12 images have numbers that are not probabilities"):
        performance(one_label, labels, ("a", "b"), np.random.default_rng(0))
    with pytest.raises(DataError, match="1 of 12 images have numbers that are not probabilities"):
        multi_label_performance(
            one_label, np.stack([labels, labels], axis=1), ("a", "b"), np.random.default_rng(0)
        )


def test_numbers_are_those_of_a_runs_metrics() -> None:
    probabilities, labels = drawn()
    found = performance(probabilities, labels, CLASSES, rng())
    known = {
        row["name"]: row["value"] for row in classification_metrics(probabilities, labels, CLASSES)
    }
    assert len(found["overall"]) == 5
    for name, estimate in found["overall"].items():
        assert estimate["value"] == pytest.approx(known[name])
        assert estimate["low"] < estimate["value"] < estimate["high"]
    for name, of in found["classes"].items():
        assert (of["images"], of["auroc"]["value"]) == (
            known[f"support/{name}"],
            pytest.approx(known[f"auroc/{name}"]),
        )
        assert of["auroc"]["low"] < of["auroc"]["value"] < of["auroc"]["high"]
        assert of["auprc"]["value"] == pytest.approx(known[f"auprc/{name}"])
    adaptive = found["adaptive_bins"]
    assert round(adaptive["calibration_error"], 4) == known["ece_adaptive"]
    assert round(adaptive["largest_calibration_error"], 4) == known["mce_adaptive"]
    assert round(found["risk_coverage_area"], 4) == known["aurc"]
    assert found["calibration_error"] == counted(probabilities, labels).confidence.calibration_error
    assert json.loads(json.dumps(found)) == found


def test_a_model_without_errors_has_no_bootstrap_interval() -> None:
    """No resample has an error either, and an interval from 1 to 1 would look certain."""
    labels = np.repeat([0, 1], 6)
    overall = performance(np.eye(2)[labels], labels, ["a", "b"], rng())["overall"]
    assert (
        overall["f1_macro"] == overall["auroc_macro"] == {"value": 1.0, "low": None, "high": None}
    )
    assert overall["balanced_accuracy"]["low"] < 0.8


def test_a_finding_that_some_resample_lacks_has_no_interval() -> None:
    """Images are resampled by their rarest finding; the commoner seventh may be drawn nowhere."""
    rarer = np.repeat(np.eye(7, dtype=np.int64)[:6], 5, axis=0)
    rarer[::5, 6] = 1
    labels = np.concatenate([rarer, np.zeros((10, 7), np.int64)])
    probabilities = np.random.default_rng(0).uniform(size=labels.shape)
    classes = [f"finding {index}" for index in range(7)]
    without = []
    for seed in range(8):
        found = multi_label_performance(probabilities, labels, classes, np.random.default_rng(seed))
        json.dumps(found, allow_nan=False)
        auroc = found["classes"]["finding 6"]["auroc"]
        without.append((auroc["low"], auroc["high"]) == (None, None))
        assert 0 < auroc["value"] < 1
    assert any(without)


def test_one_class_alone_has_no_others() -> None:
    found = said([1] * 6, [1] * 5 + [0])
    assert (found["classes"]["NV"]["specificity"], found["classes"]["NV"]["auroc"]) == (None, None)
    assert found["overall"]["auroc_macro"] is None
    assert found["overall"]["f1_macro"]["value"] == pytest.approx(10 / 11)


def test_referring_by_hand() -> None:
    """Of 10 sure images all are right, of 10 doubtful ones half."""
    doubtful = [0.55, 0.45]
    sure = [0.96, 0.04]
    found = performance(
        np.array([doubtful] * 10 + [sure] * 10), np.array([0, 1] * 5 + [0] * 10), CLASSES[:2], rng()
    )
    by_threshold = {row["below"]: (row["referred"], row["accuracy"]) for row in found["referral"]}
    assert by_threshold[0.5] == (0, share(15, 20))
    assert by_threshold[0.6] == by_threshold[0.95] == (0.5, share(10, 10))
    assert by_threshold[0.99] == (1, None)


def test_at_most_four_images_too_many_are_referred() -> None:
    probabilities, labels = drawn(83)
    for row in performance(probabilities, labels, CLASSES, rng())["referral"]:
        exactly = int((probabilities.max(axis=1) < row["below"]).sum())
        assert 0 <= round(row["referred"] * 83) - exactly <= 4


def test_a_bootstrap_of_a_mean_is_near_its_formula() -> None:
    values = rng().random(2000)
    low, high = bootstrap_intervals(
        lambda index: values[index].mean(keepdims=True), np.zeros(2000, int), rng()
    )[:, 0]
    half = 1.96 * values.std() / 2000**0.5
    assert (low, high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.15 * half
    )


def test_no_resample_lacks_a_class() -> None:
    labels = np.array([0] * 50 + [1] * 2)
    shares = bootstrap_intervals(
        lambda index: np.array([(labels[index] == 1).mean()]), labels, rng()
    )
    assert shares[:, 0].tolist() == [2 / 52, 2 / 52]


def test_equal_seeds_give_equal_intervals() -> None:
    assert performance(*drawn(60), CLASSES, rng()) == performance(*drawn(60), CLASSES, rng())


def test_a_group_sums_its_classes() -> None:
    """MEL and BCC are malignant: together they are more likely than NV, which is predicted."""
    probabilities, labels = fold(
        np.array([[0.3, 0.4, 0.3], [0.1, 0.9, 0.0]]), np.array([2, 1]), [0, 1, 0]
    )
    np.testing.assert_allclose(probabilities, [[0.6, 0.4], [0.1, 0.9]])
    assert labels.tolist() == [0, 1]


def test_groups_have_every_class_once() -> None:
    assert group_places({"malignant": ["MEL", "BCC"], "benign": ["NV"]}, CLASSES) == [0, 1, 0]


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        ({"a": ["MEL"], "b": ["NV"]}, "BCC 0 times"),
        ({"a": ["MEL", "NV"], "b": ["NV", "BCC"]}, "NV 2 times"),
        ({"a": ["MEL", "NV"], "b": ["BCC", "SCC"]}, "SCC, which is no class"),
        ({"a": ["MEL", "NV", "BCC"]}, "one group alone"),
    ],
)
def test_other_groups_are_refused(groups: dict[str, list[str]], found: str) -> None:
    with pytest.raises(ConfigError, match=f"found .*{found}"):
        group_places(groups, CLASSES)
