"""What images of patients are worth in intervals: by hand, by a loop, and by simulation."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.clusters import ClusterCounts, effective_images
from fedward.evaluation.confusion import ConfusionCounts
from fedward.evaluation.intervals import proportion_interval


def naive(images: list[int], right: list[int]) -> float:
    """Return the same number by a loop over the module's formula."""
    total, patients = sum(images), len(images)
    share = sum(right) / total
    scatter = 0.0
    squares = 0
    for here, of_these in zip(images, right, strict=True):
        scatter += ((sum(right) - of_these) / (total - here) - share) ** 2
        squares += here**2
    effect = scatter * (patients - 1) / patients / (share * (1 - share) / total)
    freedom = min(patients - 1, total**2 / squares)
    ratio = t.ppf(0.975, total - 1) / t.ppf(0.975, freedom)
    return float(total / max(effect, 1) * ratio**2)


def test_numbers_by_hand():
    # Patients with an image each are independent images.
    assert effective_images(np.ones(9, int), np.array([1] * 4 + [0] * 5)) == 9
    # 10 patients with 4 images that are all alike: d = 4 · 10/9, so 9 images, less for t with 9
    # degrees of freedom in place of 39.
    alike = effective_images(np.full(10, 4), np.array([4, 0] * 5))
    assert alike == pytest.approx(9 * (t.ppf(0.975, 39) / t.ppf(0.975, 9)) ** 2)
    # All right: as if a patient's images were the same.
    all_right = effective_images(np.full(10, 4), np.full(10, 4))
    assert all_right == pytest.approx(10 * (t.ppf(0.975, 39) / t.ppf(0.975, 9)) ** 2)
    assert effective_images(np.array([7]), np.array([3])) == 1


def test_equal_to_a_loop_and_at_most_all_images():
    rng = np.random.default_rng(0)
    for _ in range(30):
        images = rng.integers(1, 6, rng.integers(5, 30))
        right = rng.binomial(images, rng.beta(2, 2, len(images)))
        if 0 < right.sum() < images.sum() and images.max() > 1:
            worth = effective_images(images, right)
            assert worth == pytest.approx(naive(images.tolist(), right.tolist()))
            assert 0 < worth <= images.sum()


def test_what_images_are_worth_is_rounded_down_by_class_and_together():
    """Patients have two images each: 15 all of them right, of 10 both right or both wrong."""
    labels = np.repeat([0, 1], [30, 20])
    inside = labels[:, None] == [0, 1]
    patient = np.arange(50) // 2
    answers = np.where((labels == 1) & (patient % 2 == 0), 0, labels)
    owners = [f"p{number}" for number in patient]
    right = answers[:, None] == [0, 1]
    clusters = ClusterCounts.of_answers(owners, inside, right, exclusive=True)
    all_right = 15 * (t.ppf(0.975, 29) / t.ppf(0.975, 14)) ** 2
    alike = 9 * (t.ppf(0.975, 19) / t.ppf(0.975, 9)) ** 2
    assert (all_right, alike) == pytest.approx((13.64, 7.70), abs=0.01)
    assert clusters.effective.tolist() == [13, 7]
    assert clusters.all_effective == int(naive([2] * 25, [2] * 15 + [2, 0] * 5))
    several = ClusterCounts.of_answers(owners, inside, right, exclusive=False)
    assert several.effective.tolist() == [13, 7]
    assert several.all_effective == 0, "images have no answer in common"


def test_counts_are_in_fives_and_hide_few_patients():
    labels = np.repeat([0, 1, 2], [14, 12, 6])
    inside = labels[:, None] == np.arange(3)
    # Seven patients of two images, four of three, and the same four again.
    owners = [f"a{number // 2}" for number in range(14)]
    owners += [f"b{number % 4}" for number in range(18)]
    clusters = ClusterCounts.of_answers(owners, inside, inside, exclusive=True)
    assert clusters.patients.tolist() == [5, 0, 0]
    assert clusters.effective[0] > 0
    assert clusters.effective[1:].tolist() == [0, 0]
    # The others are in no number, not even in that of all patients.
    assert (clusters.all_patients, clusters.all_effective) == (5, clusters.effective[0])
    assert ClusterCounts.from_wire(clusters.to_wire()).to_wire() == clusters.to_wire()


@pytest.mark.proves(
    "lead",
    "the patients of a class of fewer than five, as those of all classes less the others, by the "
    "answers of models of its choice",
    "messages are the same for 1 to 4 patients",
)
def test_no_number_says_how_many_patients_a_class_of_few_has():
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], [30, 8])
    inside = labels[:, None] == [0, 1]
    rounds = [rng.integers(0, 2, 38)[:, None] == [0, 1] for _ in range(6)]
    messages = []
    for few in range(1, 5):
        owners = [f"a{number // 2}" for number in range(30)]
        owners += [f"b{number % few}" for number in range(8)]
        counted = [ClusterCounts.of_answers(owners, inside, right, True) for right in rounds]
        messages.append([clusters.to_wire() for clusters in counted])
    assert all(message == messages[0] for message in messages)
    assert all(message["effective"][0] > 0 for message in messages[0])
    assert all(message["effective"][1] == 0 for message in messages[0])


def test_images_of_few_patients_are_worth_one():
    clusters = ClusterCounts(np.array([10, 0]), np.array([15, 0]), 10, 15)
    by_class, of_all = clusters.inflated(np.array([30, 8]), 38)
    assert by_class.tolist() == [60, 64]
    assert of_all == 60 + 64
    nothing = ClusterCounts(np.array([0, 0]), np.array([0, 0]), 0, 0)
    assert nothing.inflated(np.array([30, 8]), 38)[1] == 38**2


def test_of_several_labels_all_images_are_as_alike_as_those_of_the_classes():
    """76 of 38 images with a class: each of all 100 counts twice, too."""
    clusters = ClusterCounts(np.array([10, 5]), np.array([15, 4]), 15, 0)
    by_class, of_all = clusters.inflated(np.array([30, 8]), 100)
    assert by_class.tolist() == [60, 16]
    assert of_all == 200


def test_each_rate_has_the_design_effect_of_its_images():
    """Images of the class count for two, and all images for three."""
    counts = ConfusionCounts(
        total=np.array([100, 100]),
        images=np.array([60, 40]),
        true_positives=np.array([45, 30]),
        false_positives=np.array([10, 15]),
        inflated=np.array([120.0, 160.0]),
        all_inflated=300.0,
    )
    rates = counts.rates(0)
    for share, hits, images, effect in (
        (rates.sensitivity, 45, 60, 2),
        (rates.specificity, 30, 40, 3),
        (rates.positive, 45, 55, 3),
        (rates.negative, 30, 45, 3),
        (counts.accuracy, 75, 100, 3),
        (counts.accuracy_of(0), 75, 100, 3),
    ):
        assert share
        assert (share.value, share.n) == (hits / images, images)
        assert (share.low, share.high) == proportion_interval(hits / images, images / effect)


def simulated(
    rng: np.random.Generator, patients: int, most: int, alike: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return images and right answers of patients; the expected share of right answers is 0.8."""
    images = rng.integers(1, most + 1, patients)
    shares = rng.beta(0.8 * (1 / alike - 1), 0.2 * (1 / alike - 1), patients)
    return images, rng.binomial(images, shares)


def bootstrap(
    images: NDArray[np.int64], right: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return a percentile interval over resampled patients."""
    drawn = rng.integers(0, len(images), (400, len(images)))
    shares = right[drawn].sum(axis=1) / images[drawn].sum(axis=1)
    ends: NDArray[np.float64] = np.percentile(shares, [2.5, 97.5])
    return ends


def test_intervals_cover_where_those_of_independent_images_do_not():
    rng = np.random.default_rng(5)
    covers = {"clusters": 0, "independent": 0, "bootstrap": 0}
    trials = 600
    widths = []
    for _ in range(trials):
        images, right = simulated(rng, patients=60, most=8, alike=0.5)
        total = int(images.sum())
        share = right.sum() / total
        intervals = {
            "clusters": proportion_interval(share, effective_images(images, right)),
            "independent": proportion_interval(share, total),
            "bootstrap": bootstrap(images, right, rng),
        }
        for name, (low, high) in intervals.items():
            covers[name] += low <= 0.8 <= high
        ours, by_patients = (np.subtract(*intervals[name]) for name in ("clusters", "bootstrap"))
        widths.append(ours / by_patients)
    coverage = {name: number / trials for name, number in covers.items()}
    assert 0.93 <= coverage["clusters"] <= 0.98
    assert coverage["independent"] < 0.85
    assert coverage["clusters"] >= coverage["bootstrap"] - 0.01
    assert np.median(widths) == pytest.approx(1, abs=0.1)


def test_intervals_cover_where_one_patient_has_most_images():
    rng = np.random.default_rng(2)
    images = np.array([100] + [1] * 20)
    covers = 0
    for _ in range(200):
        right = rng.binomial(images, rng.beta(0.07, 0.05, 21))
        share = right.sum() / images.sum()
        low, high = proportion_interval(share, max(effective_images(images, right), 1.0))
        covers += low <= 0.07 / 0.12 <= high
    assert covers >= 190


def test_sites_are_strata_and_class_and_balanced_intervals_widen():
    labels = np.repeat([0, 1], 60)
    inside = labels[:, None] == [0, 1]
    answers = labels.copy()
    answers[:20] = 1
    answers[70:80] = 0
    right = answers[:, None] == [0, 1]
    probabilities = np.eye(2)[answers]
    owners = [f"p{number // 5}" for number in range(120)]
    counts = AnswerCounts.of_one_answer(probabilities, labels)
    assert counts
    sent = counts.to_wire()
    clusters = ClusterCounts.of_answers(owners, inside, right, exclusive=True)
    plain = AnswerCounts.from_wire(sent).confusion
    clustered = AnswerCounts.from_wire(sent).of_patients(clusters).confusion
    _is_wider(clustered, plain)
    # A second site of single images halves the excess of the design effect.
    both = clustered.merge(plain)
    for place in (0, 1, None):
        alone = clustered.design_effect(place)
        assert alone > 2
        assert both.design_effect(place) == pytest.approx((alone + 1) / 2)
    _is_wider(both, plain.merge(plain))
    assert plain.merge(plain).inflated is None


def _is_wider(clustered: ConfusionCounts, plain: ConfusionCounts) -> None:
    for one, other in (
        (clustered.rates(0).sensitivity, plain.rates(0).sensitivity),
        (clustered.balanced_accuracy, plain.balanced_accuracy),
        (clustered.accuracy, plain.accuracy),
    ):
        assert one
        assert other
        assert (one.value, one.n) == (other.value, other.n)
        assert one.low < other.low
        assert one.high > other.high
