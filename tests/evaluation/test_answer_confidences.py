"""Adaptive bins and the area under risk and coverage: by hand, by a loop, with no few images."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.evaluation.answer_confidences import AnswerConfidences
from fedward.evaluation.small_counts import SMALLEST_COUNT


def drawn(images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw confidences, and answers that are a little less often right than confident."""
    rng = np.random.default_rng(seed)
    confidence = 0.2 + 0.8 * rng.beta(rng.uniform(0.5, 4), 1.2, images)
    return confidence, rng.random(images) < confidence**1.3


def sizes_of(answers: AnswerConfidences) -> list[int]:
    return [end - start for start, end in answers.adaptive_bins]


def test_area_of_risks_by_hand() -> None:
    """Of the surest answer none is wrong, of the surest two one, and of all three one."""
    answers = AnswerConfidences.of_answers(np.array([0.7, 0.9, 0.8]), np.array([True, True, False]))
    assert answers.aurc == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)


def test_equal_confidences_have_the_mean_area_of_their_orders() -> None:
    """Right before wrong has risks 0 and 1/2, wrong before right 1 and 1/2."""
    answers = AnswerConfidences.of_answers(np.array([0.8, 0.8]), np.array([False, True]))
    assert answers.aurc == pytest.approx(((0 + 1 / 2) / 2 + (1 + 1 / 2) / 2) / 2)


def test_no_images_have_no_numbers() -> None:
    nobody = AnswerConfidences.of_answers(np.zeros(0), np.zeros(0, bool))
    assert (nobody.ece_adaptive, nobody.mce_adaptive, nobody.aurc) == (None, None, None)
    one = AnswerConfidences.of_answers(np.array([0.8]), np.array([False]))
    assert (one.ece_adaptive, one.mce_adaptive, one.aurc) == (pytest.approx(0.8), 0.8, 1.0)


def test_confidences_that_hardly_differ_are_one_bin() -> None:
    hardly = AnswerConfidences.of_answers(np.array([1e-200, 0.0]), np.ones(2, bool))
    assert hardly.ece_adaptive == 1


def test_adaptive_bins_are_those_of_the_released_code() -> None:
    """The numbers are those that AdaptiveBinning.py of Ding et al. returns for these answers."""
    place = np.arange(300)
    confidence = 0.25 + 0.75 * (37 * place % 300 / 299) ** 0.4
    is_right = 7 * place % 10 < 10 * (0.2 + 0.75 * confidence**2)
    answers = AnswerConfidences.of_answers(confidence, is_right)
    assert sizes_of(answers) == [84, 72, 60, 84]
    assert answers.ece_adaptive == pytest.approx(0.048448991873972336)
    assert answers.mce_adaptive == pytest.approx(0.09097579687636848)


@pytest.mark.parametrize(("lowest", "sizes"), [(0.56, [46]), (0.54, [5, 41])])
def test_another_bin_begins_if_more_than_a_twentieth_is_left(
    lowest: float, sizes: list[int]
) -> None:
    """Five confidences from 1 to 0.6 fill a bin."""
    confidence = np.concatenate([np.linspace(1, 0.6, 5), np.linspace(0.59, lowest, 41)])
    assert sizes_of(AnswerConfidences.of_answers(confidence, np.ones(46, bool))) == sizes


def naive(confidence: list[float], is_right: list[bool]) -> tuple[float, float, float]:
    """Return both calibration errors and the area, image by image; confidences fall."""
    n = len(confidence)
    bins: list[list[int]] = [[]]
    needed = float("inf")
    for image in range(n):
        current = bins[-1]
        enough = len(current) > needed and len(current) >= 5
        if enough and n - image > 40 and confidence[current[-1]] - confidence[-1] > 0.05:
            bins.append([])
        bins[-1].append(image)
        width = confidence[bins[-1][0]] - confidence[image]
        needed = 0.25 * (1.645 / width) ** 2 if width > 0 else float("inf")
    missing = needed - len(bins[-1])
    sizes = [len(images) for images in bins]
    if 0 < missing < float("inf"):
        given = int(missing * sizes[-1] / n)
        sizes = [max(5, size - given) for size in sizes[:-1]]
        sizes.append(n - sum(sizes))
    expected, largest, start = 0.0, 0.0, 0
    for size in sizes:
        images = range(start, start + size)
        accuracy = sum(is_right[image] for image in images) / size
        gap = abs(accuracy - sum(confidence[image] for image in images) / size)
        expected += size / n * gap
        largest = max(largest, gap)
        start += size
    wrong, area = 0, 0.0
    for image in range(n):
        wrong += not is_right[image]
        area += wrong / (image + 1) / n
    return expected, largest, area


@given(st.integers(1, 400), st.integers(0, 99))
def test_equal_to_a_loop_over_images_in_any_order(images: int, seed: int) -> None:
    confidence, is_right = drawn(images, seed)
    order = np.random.default_rng(seed).permutation(images)
    answers = AnswerConfidences.of_answers(confidence[order], is_right[order])
    fallen = np.argsort(-confidence)
    expected = naive(confidence[fallen].tolist(), is_right[fallen].tolist())
    assert (answers.ece_adaptive, answers.mce_adaptive, answers.aurc) == pytest.approx(expected)
    assert answers.ece_adaptive <= answers.mce_adaptive + 1e-12


@pytest.mark.proves(
    "server",
    "a model so sure of one patient that an adaptive bin would hold it alone",
    "no bin of fewer than five images",
)
@pytest.mark.parametrize("others", [0.2, 0.6])
def test_no_adaptive_bin_holds_fewer_than_five_images(others: float) -> None:
    """A pair as far apart as 1 and 0.1 fills a bin of the released code at once."""
    confidence = np.concatenate([[1.0, 0.1], np.linspace(others, 0.02, 200)])
    for is_right in (np.zeros(202, bool), np.arange(202) == 0):
        answers = AnswerConfidences.of_answers(confidence, is_right)
        assert min(sizes_of(answers)) >= SMALLEST_COUNT
        assert sum(sizes_of(answers)) == 202
    crowd = AnswerConfidences.of_answers(np.repeat([0.9, 0.5], [6, 44]), np.ones(50, bool))
    assert min(sizes_of(crowd)) >= SMALLEST_COUNT
