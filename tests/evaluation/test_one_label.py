"""Metrics against numbers worked by hand and naive counting oracles."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_fscore_support, roc_auc_score

from fedward.errors import DataError
from fedward.evaluation import classification_metrics

NAMES = ("a", "b", "c")
OVERALL = (
    "accuracy",
    "balanced_accuracy",
    "f1_weighted",
    "f1_macro",
    "precision_weighted",
    "recall_weighted",
)


def values(probabilities, labels, classes=NAMES):
    rows = classification_metrics(
        np.asarray(probabilities, dtype=float), np.asarray(labels, dtype=int), classes
    )
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row["value"] for row in rows}


def sure(predicted, k=3):
    """Probabilities that put everything on one class."""
    return np.eye(k)[predicted]


def test_overall_metrics_worked_by_hand():
    """Truth a a a a b c, predicted a a a b b a.

    Correct 4 of 6. Recall: a 3/4, b 1, c 0. Precision: a 3/4 (of four predicted a), b 1/2, c 0
    (never predicted).
    F1: a 3/4, b 2/3, c 0. Weights 4/6, 1/6, 1/6.
    """
    found = values(sure([0, 0, 0, 1, 1, 0]), [0, 0, 0, 0, 1, 2])
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["balanced_accuracy"] == pytest.approx((3 / 4 + 1 + 0) / 3)
    assert found["f1_macro"] == pytest.approx((3 / 4 + 2 / 3) / 3)
    assert found["f1_weighted"] == pytest.approx(3 / 4 * 4 / 6 + 2 / 3 / 6)
    assert found["precision_weighted"] == pytest.approx(3 / 4 * 4 / 6 + 1 / 2 / 6)
    assert found["precision_macro"] == pytest.approx((3 / 4 + 1 / 2) / 3)
    assert found["recall_weighted"] == pytest.approx(4 / 6)
    assert [found[f"f1/{name}"] for name in NAMES] == pytest.approx([3 / 4, 2 / 3, 0])
    assert [found[f"support/{name}"] for name in NAMES] == [4, 1, 1]


def test_ranking_metrics_worked_by_hand():
    """Scores of class a: .9 (a), .6 (b), .6 (a), .2 (b).

    Pairs (a, b): .9>.6, .9>.2, .6=.6 (half), .6>.2, so AUROC 3.5/4. Average precision by thresholds
    .9, .6, .2: recall rises 0 -> 1/2 at precision 1 and 1/2 -> 1 at precision 2/3, so 1/2 + 1/3.
    """
    found = values([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.2, 0.8]], [0, 1, 0, 1], ("a", "b"))
    assert found["auroc/a"] == pytest.approx(3.5 / 4)
    assert found["auprc/a"] == pytest.approx(1 / 2 + 1 / 3)
    assert found["auroc/b"] == pytest.approx(3.5 / 4)
    assert found["auroc_macro"] == pytest.approx(3.5 / 4)


def test_an_absent_class_is_left_out_and_never_zero():
    """Truth has no c, though c is predicted once: averages run over a and b."""
    found = values(sure([0, 0, 1, 2]), [0, 0, 1, 1])
    assert found["f1/c"] is None
    assert found["auroc/c"] is None
    assert found["auprc/c"] is None
    assert found["support/c"] == 0
    assert found["f1_macro"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["balanced_accuracy"] == pytest.approx((1 + 1 / 2) / 2)
    rows = classification_metrics(sure([0, 0, 1, 2]), np.array([0, 0, 1, 1]), NAMES)
    assert all(row["classes"] == ["a", "b"] and row["n"] == 4 for row in rows)


def test_a_class_of_every_image_has_no_ranking():
    found = values(sure([0, 0, 1]), [0, 0, 0])
    assert found["auroc/a"] is None
    assert found["auprc/a"] is None
    assert found["auroc_macro"] is None
    assert found["auprc_macro"] is None
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["f1_macro"] == pytest.approx(0.8)


def test_no_images_give_every_row_without_a_value():
    empty = classification_metrics(np.zeros((0, 3)), np.zeros(0, dtype=int), NAMES)
    full = classification_metrics(sure([0, 1, 2]), np.array([0, 1, 2]), NAMES)
    assert [row["name"] for row in empty] == [row["name"] for row in full]
    assert all(row["n"] == 0 and row["classes"] == [] for row in empty)
    assert {row["value"] for row in empty if not row["name"].startswith("support/")} == {None}
    assert {row["value"] for row in empty if row["name"].startswith("support/")} == {0.0}


def test_equal_scores_go_to_the_first_class():
    assert values([[0.5, 0.5, 0.0]], [0])["accuracy"] == 1
    assert values([[0.5, 0.5, 0.0]], [1])["accuracy"] == 0


@pytest.mark.parametrize(
    ("probabilities", "labels", "match"),
    [
        ([[np.nan, 0, 1]], [0], "lower the learning rate"),
        ([[np.inf, 0, 1]], [0], "1 of 1 images"),
        ([[0.2, 0.3, 0.5], [3.0, -2.0, 0.0]], [0, 1], "softmax"),
        ([[-0.4, -1.5, -2.2]], [0], "softmax"),
        ([[0.2, 0.3, 0.5]], [3], "labels 0..2"),
        ([[0.2, 0.3, 0.5]] * 2, [0, 3], "labels 0..2"),
        ([[0.2, 0.3, 0.5]], [-1], "labelled images only"),
        ([[0.2, 0.3, 0.5]] * 2, [-1, 0], "labelled images only"),
        ([[0.2, 0.8]], [0], r"\(N, 3\)"),
        ([[0.2, 0.3, 0.5]], [0, 1], "one row of probabilities"),
        ([[0.2, 0.3, 0.5]], [[0]], r"\(1, 3\) and \(1, 1\)"),
    ],
)
def test_what_cannot_be_measured_is_refused(probabilities, labels, match):
    with pytest.raises(DataError, match=match):
        values(probabilities, labels)


def test_a_probability_may_be_rounded_beyond_its_bounds():
    """In half precision, by less than a thousandth."""
    assert values([[1.0005, -0.0005, 0.0]], [0])["accuracy"] == 1
    for probabilities in ([1.002, 0.0, 0.0], [1.0, -0.002, 0.0]):
        with pytest.raises(DataError, match="not probabilities"):
            values([probabilities], [0])


def test_a_metric_of_another_package_is_a_share_or_none():
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6]])

    def value_of(metric, images=2):
        rows = classification_metrics(
            probabilities[:images], np.array([0, 1])[:images], ("a", "b"), {"mine": metric}
        )
        found = {row["name"]: row["value"] for row in rows}
        assert found["accuracy"] == (1 if images else None)
        return found["mine"]

    def spoiling(scores, labels):
        scores[:] = 0
        labels[:] = 0
        return 0.25

    assert value_of(spoiling) == 0.25
    assert value_of(lambda scores, labels: None) is None
    assert value_of(lambda scores, labels: 0.25, images=0) is None
    for value in (1.01, -0.01, np.nan):
        with pytest.raises(DataError, match=r"metric mine: expected a number in \[0, 1\], or None"):
            value_of(lambda scores, labels, value=value: value)


def naive(scores, truth, k):
    """Every metric from its definition, in plain loops."""
    n = len(truth)
    present = sorted(set(truth))
    predicted = [max(range(k), key=lambda j, row=row: (row[j], -j)) for row in scores]
    per = {}
    for c in present:
        hit = sum(p == c == t for p, t in zip(predicted, truth, strict=True))
        said = predicted.count(c)
        have = truth.count(c)
        precision = hit / said if said else 0.0
        recall = hit / have
        f1 = 2 * hit / (said + have)
        inside = [row[c] for row, t in zip(scores, truth, strict=True) if t == c]
        outside = [row[c] for row, t in zip(scores, truth, strict=True) if t != c]
        per[c] = (
            precision,
            recall,
            f1,
            naive_auroc(inside, outside),
            naive_average_precision(inside, outside),
        )

    def macro(i):
        there = [per[c][i] for c in present if per[c][i] is not None]
        return sum(there) / len(there) if there else None

    def weighted(i):
        return sum(per[c][i] * truth.count(c) for c in present) / n

    return {
        "accuracy": sum(p == t for p, t in zip(predicted, truth, strict=True)) / n,
        "balanced_accuracy": macro(1),
        "f1_weighted": weighted(2),
        "f1_macro": macro(2),
        "precision_weighted": weighted(0),
        "precision_macro": macro(0),
        "recall_weighted": weighted(1),
        "auroc_macro": macro(3),
        "auprc_macro": macro(4),
    }


def naive_auroc(inside, outside):
    if not outside:
        return None
    return sum((a > b) + 0.5 * (a == b) for a in inside for b in outside) / (
        len(inside) * len(outside)
    )


def naive_average_precision(inside, outside):
    if not outside:
        return None
    total = 0.0
    before = 0.0
    for threshold in sorted({*inside, *outside}, reverse=True):
        hits = sum(a >= threshold for a in inside)
        said = sum(x >= threshold for x in [*inside, *outside])
        total += (hits / len(inside) - before) * hits / said
        before = hits / len(inside)
    return total


@st.composite
def problems(draw):
    k = draw(st.integers(2, 5))
    n = draw(st.integers(1, 12))
    # Few distinct values, so that ties happen.
    weights = draw(
        st.lists(st.lists(st.integers(0, 3), min_size=k, max_size=k), min_size=n, max_size=n)
    )
    scores = (np.array(weights, dtype=float) + 0.5) / (
        np.array(weights).sum(1, keepdims=True) + 0.5 * k
    )
    return scores, draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)), k


@given(problems())
def test_equal_to_counting(problem):
    scores, truth, k = problem
    found = values(scores, truth, [f"c{i}" for i in range(k)])
    for name, expected in naive(scores.tolist(), truth, k).items():
        assert found[name] == (None if expected is None else pytest.approx(expected, abs=1e-12)), (
            name
        )


@given(problems(), st.randoms(use_true_random=False))
def test_names_of_classes_and_order_of_images_do_not_matter(problem, random):
    """Equal top scores are decided by the order of classes, so scores are made distinct first."""
    scores, truth, k = problem
    # Different scores differ by far more than what tells equal ones apart.
    scores = 0.9 * scores + 1e-6 * np.arange(scores.size).reshape(scores.shape)
    classes = list(range(k))
    images = list(range(len(truth)))
    random.shuffle(classes)
    random.shuffle(images)
    names = [f"c{i}" for i in range(k)]
    before = values(scores, truth, names)
    moved = scores[images][:, classes]
    labels = [classes.index(truth[i]) for i in images]
    after = values(moved, labels, [names[c] for c in classes])
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] == (None if value is None else pytest.approx(value, abs=1e-12)), name


@given(problems())
def test_every_value_is_a_share_and_weighted_recall_is_accuracy(problem):
    scores, truth, k = problem
    found = values(scores, truth, [f"c{i}" for i in range(k)])
    assert all(
        0 <= v <= 1
        for name, v in found.items()
        if v is not None and not name.startswith("support/")
    )
    assert found["recall_weighted"] == pytest.approx(found["accuracy"])
    assert sum(v for name, v in found.items() if name.startswith("support/")) == len(truth)


@st.composite
def odd_problems(draw):
    """Labels of few classes, with probabilities that are constant, tied, tiny or almost equal."""
    k = draw(st.integers(2, 9))
    n = draw(st.integers(1, 40))
    labels = draw(st.lists(st.integers(0, draw(st.integers(0, k - 1))), min_size=n, max_size=n))
    levels = st.sampled_from(
        [0.0, 1e-300, 1e-16, 0.1, 0.1 + 1e-16, 0.1 + 1e-12, 0.5, 1 - 1e-16, 1.0]
    )
    levels = draw(st.sampled_from([levels, st.just(0.5), st.floats(0, 1)]))
    return (
        np.array(draw(st.lists(st.lists(levels, min_size=k, max_size=k), min_size=n, max_size=n))),
        labels,
        k,
    )


@given(odd_problems())
def test_equal_to_scikit_learn(problem):
    scores, truth, k = problem
    present = np.unique(truth)
    guesses = scores.argmax(axis=1)
    found = values(scores, truth, [f"c{i}" for i in range(k)])
    table = precision_recall_fscore_support(
        truth, guesses, labels=present, average=None, zero_division=0.0
    )
    for kind, column in zip(("precision", "recall", "f1"), table[:3], strict=True):
        expected = np.average(column, weights=table[3])
        assert found[f"{kind}_weighted"] == pytest.approx(expected, abs=1e-14), kind
    assert found["precision_macro"] == pytest.approx(table[0].mean(), abs=1e-14)
    for index, f1 in zip(present, table[2], strict=True):
        assert found[f"f1/c{index}"] == pytest.approx(f1, abs=1e-14)
        one = np.array(truth) == index
        if not one.all():
            assert found[f"auroc/c{index}"] == pytest.approx(
                roc_auc_score(one, scores[:, index]), abs=1e-14
            )
            assert found[f"auprc/c{index}"] == pytest.approx(
                average_precision_score(one, scores[:, index]), abs=1e-14
            )


def test_evaluation_stays_light():
    """A process that evaluates must not wait for scikit-learn, scipy or torch."""
    code = (
        "import sys, numpy as np, fedward.evaluation as e\n"
        "e.classification_metrics(np.eye(2), np.arange(2), 'ab')\n"
        "print(sorted({'sklearn', 'scipy', 'torch'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
