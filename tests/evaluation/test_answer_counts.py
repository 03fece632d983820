"""Counts that sites send add up, obey the small-count rule, and give the exact scores' numbers."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asking import rules_of
from fedward.errors import WireError
from fedward.evaluation import classification_metrics
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.histograms import EDGES, INTERVALS
from fedward.evaluation.intervals import Share, proportion_interval
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.protocol.binned_checks import check_binned
from fedward.protocol.messages import BinnedCounts, MetricValue


def drawn(counts, seed=0, sharp=2.0):
    """Draw probabilities and labels of images of each class.

    The larger ``sharp``, the better the model.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    logits = rng.normal(0, 1.5, (len(labels), len(counts)))
    logits[np.arange(len(labels)), labels] += sharp
    odds = np.exp(logits)
    return odds / odds.sum(axis=1, keepdims=True), labels


def counted(counts, seed=0, sharp=2.0):
    probabilities, labels = drawn(counts, seed, sharp)
    found = AnswerCounts.of_one_answer(probabilities, labels)
    assert found is not None
    return probabilities, labels, found


SPLITS = st.lists(st.integers(0, 30), min_size=2, max_size=5).filter(
    lambda counts: max(counts) >= SMALLEST_COUNT
)


@given(SPLITS, st.integers(0, 9), st.floats(-1, 5))
def test_what_is_told_passes_the_wire_and_names_no_rare_class(counts, seed, sharp):
    """Of images that all are evaluated, as synthetic ones, all count where no class is named."""
    probabilities, labels = drawn(counts, seed, sharp)
    told = json.loads(json.dumps(AnswerCounts.of_one_answer(probabilities, labels).to_wire()))
    found = AnswerCounts.from_wire(told)
    assert found.to_wire() == told
    assert found.confusion.images.tolist() == [
        count if count >= SMALLEST_COUNT else 0 for count in counts
    ]
    for values in (found.confusion.images, found.cells, found.scores.images):
        assert not ((values > 0) & (values < SMALLEST_COUNT)).any()
    assert not ((found.confidence.images > 0) & (found.confidence.images < SMALLEST_COUNT)).any()
    given_class = probabilities.argmax(axis=1)
    is_rare = np.array(counts) < SMALLEST_COUNT
    named = (found.confusion.images, found.confusion.true_positives, found.cells.T)
    assert not any(numbers[..., is_rare].any() for numbers in (*named, found.scores.inside.T))
    assert found.confidence.total == len(labels)
    assert found.confidence.right.sum() == (given_class == labels).sum()
    wrong = np.bincount(given_class[given_class != labels], minlength=len(counts))
    assert found.confusion.false_positives.tolist() == wrong.tolist()
    row = MetricValue(split="test", name="accuracy", value=0.5, n=len(labels), classes=[])
    sent = BinnedCounts.model_validate(told)
    rules = rules_of(classes=range(len(counts)))
    check_binned("counts", sent, [row], rules, synthetic=True)
    if is_rare[labels].any():
        # A hospital evaluates no such image, so that its counts hold none.
        with pytest.raises(WireError, match="counts, sure"):
            check_binned("counts", sent, [row], rules)


def test_nothing_is_told_where_all_classes_are_rare():
    assert AnswerCounts.of_one_answer(*drawn([4, 4, 0])) is None
    assert AnswerCounts.of_one_answer(np.zeros((0, 3)), np.zeros(0, np.int64)) is None


def test_rates_and_matrix_are_those_of_the_answers():
    probabilities, labels, counts = counted([40, 25, 60])
    given_class = probabilities.argmax(axis=1)
    for place in range(3):
        inside = labels == place
        said = given_class == place
        found = counts.confusion.rates(place)
        for share, hits, of in (
            (found.sensitivity, said, inside),
            (found.specificity, ~said, ~inside),
            (found.positive, inside, said),
            (found.negative, ~inside, ~said),
        ):
            assert share is not None
            assert (share.n, share.value) == (of.sum(), pytest.approx(hits[of].mean()))
            assert (share.low, share.high) == proportion_interval(share.value, share.n)
        for other in set(range(3)) - {place}:
            number = int((inside & (given_class == other)).sum())
            assert counts.cells[place, other] == (number if number >= SMALLEST_COUNT else 0)
    assert counts.confusion.accuracy.value == pytest.approx((given_class == labels).mean())
    rows = {
        row["name"]: row["value"] for row in classification_metrics(probabilities, labels, "abc")
    }
    assert counts.confusion.balanced_accuracy.value == pytest.approx(rows["balanced_accuracy"])


def answered(right: list[int], images: int) -> AnswerCounts:
    """Return the counts of so many right answers of each class; others are given the next class."""
    labels = np.repeat(range(len(right)), images)
    wrong = np.concatenate([np.arange(images) >= each for each in right])
    return AnswerCounts.of_one_answer(np.eye(len(right))[(labels + wrong) % len(right)], labels)


def test_balanced_accuracy_covers_the_truth_of_few_images():
    """Three classes of ten images, each right with probability 95 %.

    A normal interval covers that in 79 % of the cases.
    """
    right = np.random.default_rng(5).binomial(10, 0.95, (1000, 3)).tolist()
    found = [answered(each, 10).confusion.balanced_accuracy for each in right]
    assert np.mean([share.low <= 0.95 <= share.high for share in found]) > 0.9
    whole = answered([5, 5], 5).confusion.balanced_accuracy
    low = proportion_interval(1.0, 5)[0]
    assert (whole.value, whole.low, whole.high) == (
        1.0,
        pytest.approx(1 - (1 - low) / np.sqrt(2)),
        1.0,
    )
    even = answered([8, 8], 10).confusion.balanced_accuracy
    share = proportion_interval(0.8, 10)
    assert (even.high - even.low) == pytest.approx((share[1] - share[0]) / np.sqrt(2))


def test_a_class_without_images_is_in_no_balanced_accuracy():
    labels = np.repeat([0, 1], 10)
    given_class = np.where(np.arange(20) % 10 < 7, labels, 1 - labels)
    two, three = (
        AnswerCounts.of_one_answer(np.eye(classes)[given_class], labels) for classes in (2, 3)
    )
    assert three.confusion.balanced_accuracy == two.confusion.balanced_accuracy
    assert two.confusion.balanced_accuracy.value == pytest.approx(0.7)


def test_a_rate_of_fewer_than_five_images_is_not_told():
    """Three answers are given the second class: what share of them is right, is not said."""
    probabilities = np.tile([0.9, 0.1], (20, 1))
    probabilities[:3] = [0.1, 0.9]
    counts = AnswerCounts.of_one_answer(probabilities, np.repeat([1, 0], 10))
    found = counts.confusion.rates(1)
    assert found.positive is None
    assert found.sensitivity.value == pytest.approx(0.3)


def test_curves_have_the_area_of_the_exact_scores():
    """Twenty intervals lose little of a thousand images."""
    probabilities, labels, counts = counted([300, 200, 500], sharp=1.0)
    rows = {
        row["name"]: row["value"] for row in classification_metrics(probabilities, labels, "abc")
    }
    for place, name in enumerate("abc"):
        x, y = counts.scores.ranking(place).roc()
        assert ((x[0], y[0]), (x[-1], y[-1])) == ((0, 0), (1, 1))
        assert np.trapezoid(y, x) == pytest.approx(rows[f"auroc/{name}"], abs=0.01)
        recall, precision = counts.scores.ranking(place).precision_recall()
        assert np.diff(recall, prepend=0) @ precision == pytest.approx(
            rows[f"auprc/{name}"], abs=0.03
        )


def test_curves_need_images_of_the_class_and_others():
    _, _, counts = counted([20, 0])
    assert counts.scores.ranking(0).roc() is None
    assert counts.scores.ranking(1).roc() is None
    assert counts.scores.ranking(1).precision_recall() is None


def test_calibration_is_worked_by_hand():
    """Ten answers of 0.85, six of them right, and ten of 0.65, eight of them right.

    Confidence and accuracy are 0.2 apart on average.
    """
    sure = np.repeat([0.85, 0.65], 10)
    labels = np.array([0] * 6 + [1] * 4 + [0] * 8 + [1] * 2)
    counts = AnswerCounts.of_one_answer(np.stack([sure, 1 - sure], axis=1), labels)
    assert counts.confidence.calibration_error == pytest.approx((0.25 + 0.15) / 2)
    assert [
        (round(at, 4), share.value, share.n) for at, share in counts.confidence.reliability()
    ] == [
        (0.65, 0.8, 10),
        (0.85, 0.6, 10),
    ]
    coverage, right = counts.confidence.risk_coverage()
    assert coverage.tolist() == [0.5, 1.0]
    assert right.tolist() == [0.6, 0.7]
    # The interval of 14 right answers of 20 begins at 0.48, that of 6 of 10 at 0.31.
    assert counts.confidence.referred_for(0.48) == 0.0
    assert counts.confidence.referred_for(0.49) is None


def test_calibration_errors_are_those_of_netcal():
    """240 answers surer than 0.41 and less sure than 0.89, where intervals are tenths.

    The numbers are those of ``netcal.metrics.ECE(bins=10)`` and ``MCE(bins=10)``, netcal 1.4.0.
    """
    place = np.arange(240)
    sure = 0.41 + 0.48 * (37 * place % 240) / 240
    probabilities = np.stack([sure, (1 - sure) * 0.6, (1 - sure) * 0.4], axis=1)
    labels = np.where(7 * place % 10 < 9 * sure, 0, 1 + place % 2)
    turned = (np.arange(3) - place[:, None]) % 3
    counts = AnswerCounts.of_one_answer(
        np.take_along_axis(probabilities, turned, axis=1), (labels + place) % 3
    )
    assert counts.confidence.calibration_error == pytest.approx(0.03708333333333331, abs=1e-4)
    assert counts.confidence.largest_calibration_error == pytest.approx(0.072272727272727, abs=1e-4)


def test_the_largest_calibration_error_is_that_of_the_worst_interval():
    """Ten answers of 0.85, six of them right, and thirty of 0.65, all of them right."""
    sure = np.repeat([0.85, 0.65], [10, 30])
    labels = np.repeat([0, 1, 0], [6, 4, 30])
    # A fifth image of class 1 lets it be counted; its answer is among those of 0.65.
    labels[-1] = 1
    counts = AnswerCounts.of_one_answer(np.stack([sure, 1 - sure], axis=1), labels)
    assert counts.confidence.largest_calibration_error == pytest.approx(29 / 30 - 0.65)
    assert counts.confidence.calibration_error == pytest.approx(
        0.25 * 0.25 + 0.75 * (29 / 30 - 0.65)
    )


def test_referring_the_least_sure_leaves_better_answers():
    _, _, counts = counted([300, 300], sharp=1.0)
    coverage, right = counts.confidence.risk_coverage()
    assert (np.diff(coverage) > 0).all()
    assert coverage[-1] == 1.0
    wanted = right[-1] + 0.05
    referred = counts.confidence.referred_for(wanted)
    assert 0 < referred < 1

    def lower_end(share: float, effect: float = 1.0) -> float:
        kept = round(counts.confidence.total * (1 - share))
        right_of_kept = round(float(right[np.isclose(coverage, 1 - share)][0]) * kept)
        found = Share.of(right_of_kept, kept, effect)
        assert found
        return found.low

    assert lower_end(referred) >= wanted
    fewer = [1 - share for share in coverage if 1 - share < referred]
    assert all(lower_end(share) < wanted for share in fewer)
    # Images that come five at a time from one patient show less.
    of_patients = counts.confidence.referred_for(wanted, design_effect=5.0)
    assert of_patients is None or of_patients > referred


def test_sites_add_up_to_all_images():
    sites = [counted([30, 40, 8], seed)[2] for seed in range(3)]
    whole = AnswerCounts.merged(sites)
    assert whole.confidence.total == 3 * 78
    for part, names in (
        ("confusion", ("total", "images", "true_positives", "false_positives")),
        ("scores", ("images", "inside")),
        ("confidence", ("images", "right", "confidence")),
    ):
        for name in names:
            of_sites = [getattr(getattr(site, part), name) for site in sites]
            assert getattr(getattr(whole, part), name) == pytest.approx(sum(of_sites))
    assert AnswerCounts.merged(sites[:1]).cells.tolist() == sites[0].cells.tolist()


def test_intervals_begin_at_their_lower_end():
    assert len(EDGES) == INTERVALS + 1
    probabilities = np.repeat([[0.9, 0.1], [0.5, 0.5], [1.0, 0.0]], 5, axis=0)
    told = AnswerCounts.of_one_answer(probabilities, np.zeros(15, np.int64)).to_wire()
    assert {EDGES[place]: n for place, n in enumerate(told["sure"]) if n} == {
        0.5: 5,
        0.9: 5,
        0.995: 5,
    }


TOLD = AnswerCounts.of_one_answer(*drawn([40, 25, 60], sharp=0.5)).to_wire()


@pytest.mark.proves(
    "site",
    "impossible counts, or counts of 1 to 4 images or patients",
    "refused",
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": [40, 25]}, "images: expected 3 values"),
        ({"images": [40, 25, 3]}, "images: expected 0, or 5 images or more"),
        ({"images": [400, 25, 60]}, "no more images than the 125"),
        ({"found": [41, 0, 0]}, "found: expected counts that fit"),
        ({"mistaken": [0, 0, 0]}, "mistaken: expected counts that fit"),
        ({"cells": [[0, 1, 4]]}, "cells: expected five images or more"),
        ({"cells": [[0, 0, 9]]}, "cells: expected two different classes"),
        ({"cells": [[0, 3, 9]]}, "cells: expected two different classes"),
        ({"cells": [[0, 1, 9], [0, 1, 9]]}, "cells: expected two different classes"),
        ({"cells": [[0, 1]]}, "cells: expected two different classes"),
        ({"cells": [[0, 1, 40]]}, "cells: expected counts that fit"),
        # Of class 2 so many answers are wrong, but only 26 are given class 0.
        ({"cells": [[2, 0, 30]]}, "cells: expected counts that fit"),
        ({"scores": TOLD["scores"][:2]}, "scores: expected 3 values"),
        ({"scores": [row[:-1] for row in TOLD["scores"]]}, f"scores: expected {INTERVALS} values"),
        ({"scores": [[124, 1] + [0] * 18] * 3}, "scores: expected 0, or 5 images or more"),
        ({"scores": [[5, *row[1:]] for row in TOLD["scores"]]}, "scores: expected counts that fit"),
        ({"inside": [[0] * INTERVALS] * 3}, "inside: expected counts that fit"),
        # As many images of each class, but in intervals without as many images.
        ({"inside": [row[::-1] for row in TOLD["inside"]]}, "inside: expected counts that fit"),
        ({"sure": [0] * INTERVALS}, "sure: expected counts that fit"),
        (
            {"sure": [*TOLD["sure"][:10], 42, 2, *TOLD["sure"][12:]]},
            "sure: expected 0, or 5 images or more",
        ),
        ({"right": [0] * INTERVALS}, "right: expected counts that fit"),
        ({"right": TOLD["right"][::-1]}, "right: expected counts that fit"),
        ({"confidence": [2.0] * INTERVALS}, "confidence: expected numbers from 0 to 1"),
        ({"confidence": [-0.1] * INTERVALS}, "confidence: expected numbers from 0 to 1"),
    ],
)
def test_counts_that_break_a_rule_are_refused(change, message):
    row = MetricValue(split="test", name="accuracy", value=0.5, n=125, classes=[])
    with pytest.raises(WireError, match=message):
        check_binned(
            "counts",
            BinnedCounts.model_validate({**TOLD, **change}),
            [row],
            rules_of(classes="ABC"),
        )
