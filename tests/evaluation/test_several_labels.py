"""Metrics and counts of images that show several classes, or none."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from asking import rules_of
from fedward.errors import DataError, WireError
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.names import MULTI_LABEL
from fedward.evaluation.performance import multi_label_performance
from fedward.evaluation.several_labels import multi_label_metrics
from fedward.evaluation.small_counts import common_findings, withhold_small_counts
from fedward.label_kinds import SEVERAL_LABELS, kind_of_field
from fedward.protocol.binned_checks import check_binned
from fedward.protocol.fields import parse
from fedward.protocol.messages import BinnedCounts, MetricValue
from fedward.protocol.metric_checks import check_metrics

CLASSES = ("A", "B", "C", "D")


def answered(images: int, seed: int, rare: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return informative probabilities with ties, and labels.

    The numbers say how many images show D; B is common.
    """
    rng = np.random.default_rng(seed)
    labels = (rng.random((images, 4)) < (0.3, 0.8, 0.5, 0.0)).astype(np.int64)
    labels[rng.permutation(images)[:rare], 3] = 1
    return (0.4 * labels + 0.6 * rng.random((images, 4))).round(2), labels


def values(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float | None]:
    return {
        row["name"]: row["value"] for row in multi_label_metrics(probabilities, labels, CLASSES)
    }


@settings(deadline=None, max_examples=25)
@given(images=st.integers(60, 120), seed=st.integers(0, 10_000))
def test_metrics_are_those_of_scikit_learn(images, seed):
    scores, truth = answered(images, seed)
    three = [0, 1, 2]
    # A class that almost all images show is left out by the small-count rule.
    assume(common_findings(truth)[three].all())
    found = values(scores, truth)
    y = truth[:, three]
    p = scores[:, three]
    said = (p >= 0.5).astype(int)
    assert found["auroc_macro"] == pytest.approx(sk.roc_auc_score(y, p, average="macro"))
    assert found["auprc_macro"] == pytest.approx(sk.average_precision_score(y, p, average="macro"))
    assert found["f1_macro"] == pytest.approx(sk.f1_score(y, said, average="macro"))
    assert found["hamming_accuracy"] == pytest.approx(1 - sk.hamming_loss(y, said))
    assert found["exact_match"] == pytest.approx(sk.accuracy_score(y, said))
    for place, name in enumerate("ABC"):
        assert found[f"auroc/{name}"] == pytest.approx(sk.roc_auc_score(y[:, place], p[:, place]))
        assert found[f"auprc/{name}"] == pytest.approx(
            sk.average_precision_score(y[:, place], p[:, place])
        )
        assert found[f"f1/{name}"] == pytest.approx(sk.f1_score(y[:, place], said[:, place]))
        assert found[f"support/{name}"] == y[:, place].sum()


def test_numbers_by_hand():
    """Of ten images five show A, and all answers to it but the last two are right.

    All answers to B are right.
    """
    labels = np.array([[1, 0]] * 5 + [[0, 1]] * 5)
    scores = np.where(labels == 1, 0.5, 0.4)
    scores[-2:, 0] = 0.9
    found = {row["name"]: row["value"] for row in multi_label_metrics(scores, labels, ("A", "B"))}
    assert found["hamming_accuracy"] == pytest.approx(18 / 20)
    assert found["exact_match"] == pytest.approx(8 / 10)
    assert found["f1/A"] == pytest.approx(10 / 12)
    assert found["auroc/A"] == pytest.approx(3 / 5)
    assert found["f1_macro"] == pytest.approx((10 / 12 + 1) / 2)


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
@pytest.mark.parametrize("flipped", [False, True])
def test_a_rare_answer_is_in_no_number(flipped):
    """Of 0 to 4 images that show D, or do not: all that leaves is the same."""
    scores, truth = answered(80, 5)
    told = []
    for rare in range(5):
        labels = truth.copy()
        labels[:rare, 3] = 1
        labels[:, 3] = 1 - labels[:, 3] if flipped else labels[:, 3]
        scores[:, 3] = labels[:, 3]  # the model knows
        rows = withhold_small_counts(
            [{"split": "test", **row} for row in multi_label_metrics(scores, labels, CLASSES)]
        )
        counts = AnswerCounts.of_each_class(scores, labels)
        told.append(json.dumps([rows, counts.to_wire()]))
        assert {row["name"] for row in rows if row["value"] is None} == {f"{k}/D" for k in KINDS}
        assert all(row["classes"] == ["A", "B", "C"] for row in rows)
    assert len(set(told)) == 1


KINDS = ("f1", "auroc", "auprc", "support")


@pytest.mark.proves(
    "lead",
    "a model that always gives the same set of findings, to count that set by exact matches",
    "fewer than five are not reported",
)
def test_exact_match_counts_no_rare_set():
    """Four images show A and B alone; a model that says so of every image would count them."""
    labels = np.array([[1, 1, 0]] * 4 + [[1, 0, 1]] * 8 + [[0, 1, 1]] * 8 + [[0, 0, 0]] * 8)
    always = np.tile([1.0, 1.0, 0.0], (len(labels), 1))
    found = {
        row["name"]: row["value"] for row in multi_label_metrics(always, labels, ("A", "B", "C"))
    }
    assert found["exact_match"] is None
    told = multi_label_performance(always, labels, ("A", "B", "C"), np.random.default_rng(0))
    assert told["overall"]["exact_match"] is None
    none = {
        row["name"]: row["value"]
        for row in multi_label_metrics(0 * always, labels, ("A", "B", "C"))
    }
    assert none["exact_match"] == pytest.approx(8 / 28)


@pytest.mark.proves(
    "lead",
    "two models that tell bright images from dark ones, whose exact matches differ by a rare set",
    "**not covered**: for findings that are common by themselves, the difference "
    "counts images with both",
)
def test_two_exact_matches_count_a_rare_set():
    """One image, a dark one, shows A and B alone; nobody shows nothing."""
    labels = np.array([[1, 1, 0]] + [[1, 0, 1]] * 8 + [[0, 1, 1]] * 8)
    dark = np.arange(len(labels)) < 9
    matches = list[float]()
    for guess in ([1.0, 1.0, 0.0], [0.0, 0.0, 0.0]):
        said = np.where(dark[:, None], guess, [0.0, 1.0, 1.0])
        found = {
            row["name"]: row["value"] for row in multi_label_metrics(said, labels, ("A", "B", "C"))
        }
        matches.append(len(labels) * float(found["exact_match"] or 0))
    assert matches[0] - matches[1] == pytest.approx(1)


@pytest.mark.parametrize("images", [0, 4, 9])
def test_too_few_images_are_none(images):
    labels = np.ones((images, 4), np.int64)
    labels[: images // 2] = 0
    rows = multi_label_metrics(np.full((images, 4), 0.5), labels, CLASSES)
    assert [row["name"] for row in rows[: len(MULTI_LABEL)]] == list(MULTI_LABEL)
    assert all((row["value"], row["n"], row["classes"]) == (None, 0, []) for row in rows)
    assert AnswerCounts.of_each_class(np.full((images, 4), 0.5), labels) is None


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        (np.zeros((3, 4)), np.zeros(3, int)),
        (np.zeros((3, 3)), np.zeros((3, 3), int)),
        (np.zeros((3, 4)), np.full((3, 4), -1)),
        (np.full((3, 4), np.nan), np.zeros((3, 4), int)),
        (np.full((3, 4), 2.0), np.zeros((3, 4), int)),
    ],
)
def test_other_input_is_refused(scores, labels):
    with pytest.raises(DataError):
        multi_label_metrics(scores, labels, CLASSES)


def test_counts_are_those_of_each_class_against_its_rest():
    scores, truth = answered(90, 3, rare=3)
    counts = AnswerCounts.of_each_class(scores, truth)
    for place in range(3):
        said = scores[:, place] >= 0.5
        there = truth[:, place] == 1
        found = counts.confusion.rates(place)
        assert found.sensitivity.value == pytest.approx(said[there].mean())
        assert found.specificity.value == pytest.approx(1 - said[~there].mean())
        assert found.positive.value == pytest.approx(there[said].mean())
        assert found.negative.value == pytest.approx(1 - there[~said].mean())
        x, y = counts.scores.ranking(place).roc()
        assert np.trapezoid(y, x) == pytest.approx(
            sk.roc_auc_score(there, scores[:, place]), abs=0.05
        )
    assert not counts.scores.images[3].any()
    assert counts.scores.ranking(3).roc() is None


def test_two_sites_add_up_where_one_withholds_a_class():
    first = answered(60, 1, rare=3)
    second = answered(60, 2, rare=20)
    counts = AnswerCounts.merged([AnswerCounts.of_each_class(*site) for site in (first, second)])
    assert counts.confusion.images[3] == 20
    assert counts.scores.images[3].sum() == 60, "those of the second site alone"
    assert counts.confusion.rates(3).specificity.n == 40
    assert counts.confusion.rates(0).specificity.n == 120 - counts.confusion.images[0]


SENT = AnswerCounts.of_each_class(*answered(60, 4, rare=3)).to_wire()
RULES = rules_of(classes="ABCD", kind=SEVERAL_LABELS)
ROW = [MetricValue(split="test", name="auroc_macro", value=0.5, n=60, classes=["A", "B", "C"])]


def test_a_sites_counts_pass():
    check_binned("counts", parse(BinnedCounts, SENT, "counts"), ROW, RULES)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"images": [3, *SENT["images"][1:]]}, "images"),
        ({"images": [56, *SENT["images"][1:]]}, "others"),
        ({"images": [*SENT["images"][:3], 7]}, "images"),
        ({"found": [SENT["images"][0] + 1, *SENT["found"][1:]]}, "found"),
        ({"mistaken": [60, *SENT["mistaken"][1:]]}, "mistaken"),
        ({"scores": [[60, *[0] * 19], [61, *[0] * 19], *SENT["scores"][2:]]}, "scores"),
        ({"scores": [[58, 2, *[0] * 18], *SENT["scores"][1:]]}, "scores"),
        ({"inside": [[0] * 20, *SENT["inside"][1:]]}, "inside"),
        ({"right": [5, *[0] * 19]}, "right"),
        ({"cells": [[0, 1, 5]]}, "cells"),
        ({"sure": [5, *[0] * 19]}, "sure"),
        ({"confidence": [0.5, *[0.0] * 19]}, "confidence"),
    ],
)
def test_other_counts_are_refused(changed, where):
    with pytest.raises(WireError, match=rf"counts, {where}"):
        check_binned(
            "counts",
            parse(BinnedCounts, {**SENT, **changed}, "counts"),
            ROW,
            rules_of(classes="ABCD", kind=SEVERAL_LABELS),
        )


def supports(*images: int) -> list[MetricValue]:
    """Return rows that say how many of 60 images show the first classes."""
    return [
        MetricValue(split="val", name=f"support/{name}", value=count, n=60, classes=["A", "B"])
        for name, count in zip("AB", images, strict=False)
    ]


def test_a_finding_that_almost_all_images_show_is_in_no_metric():
    """Fewer than five images lack it. Findings together may be more than the images."""
    check_metrics("metrics", supports(55, 55), True, RULES)
    for images in (56, 60):
        with pytest.raises(WireError, match=f"a count from 5 to the images less 5.*{images} of 60"):
            check_metrics("metrics", supports(images), True, RULES)


def test_counts_of_one_kind_are_not_those_of_the_other():
    scores, truth = answered(60, 4, rare=3)
    softmax = scores / scores.sum(axis=1, keepdims=True)
    single = AnswerCounts.of_one_answer(softmax, truth.argmax(axis=1)).to_wire()
    for sent, several in ((SENT, False), (single, True)):
        with pytest.raises(WireError):
            check_binned(
                "counts",
                parse(BinnedCounts, sent, "counts"),
                ROW,
                rules_of(classes="ABCD", kind=kind_of_field(several)),
            )


def test_intervals_hold_their_numbers():
    scores, truth = answered(100, 6, rare=4)
    found = multi_label_performance(scores, truth, CLASSES, np.random.default_rng(0))
    plain = values(scores, truth)
    assert set(found["classes"]) == {"A", "B", "C"}
    for name in MULTI_LABEL:
        told = found["overall"][name]
        assert told["value"] == pytest.approx(plain[name])
        assert told["low"] <= told["value"] <= told["high"]
    for name, told in found["classes"].items():
        assert told["auroc"]["value"] == pytest.approx(plain[f"auroc/{name}"])
        assert told["images"] == plain[f"support/{name}"]
