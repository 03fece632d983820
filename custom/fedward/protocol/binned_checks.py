"""The check of a site's counts of a model's answers.

The counts must obey the small-count rule and fit together.
"""

from collections.abc import Mapping, Sequence

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.arrays import Counts
from fedward.evaluation.histograms import INTERVALS
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.protocol.answer_rules import AnswerRules
from fedward.protocol.fields import require, require_length
from fedward.protocol.messages import BinnedCounts, MetricValue
from fedward.protocol.subgroup_checks import check_further_counts

_LARGEST_CONFIDENCE = 1.001
"""Largest mean confidence of an interval: float32 may round a probability up to a little over 1."""


def check_binned(
    where: str,
    sent: BinnedCounts,
    metrics: Sequence[MetricValue],
    rules: AnswerRules,
    synthetic: bool = False,
) -> None:
    """Raise RefusedError unless counts are possible ones of the test images of the metrics.

    Args:
        where: beginning of the place that an error names.
        sent: the counts.
        metrics: rows of the same answer.
        rules: what answers of the job may hold.
        synthetic: whether fedward drew the site's images. Those of rare classes are then counted
            where no class is named; a hospital's are in no count.
    """
    _check_form(where, sent, len(rules.classes))
    counts = AnswerCounts.from_wire(sent.model_dump())
    test_images = max((row.n for row in metrics if row.split == "test"), default=0)
    if rules.exclusive:
        _check_one_answer_an_image(where, sent, counts, test_images, synthetic)
    else:
        _check_each_class(where, sent, counts, test_images)
    check_further_counts(where, sent, counts, rules)


def _check_one_answer_an_image(
    where: str, sent: BinnedCounts, counts: AnswerCounts, test_images: int, synthetic: bool
) -> None:
    """Refuse counts of images that each have one class and one answer."""
    confusion = counts.confusion
    confidence = counts.confidence
    total = confidence.total
    images_of_classes = int(confusion.images.sum())
    unnamed = total - images_of_classes
    unnamed_right = int(confidence.right.sum() - confusion.true_positives.sum())
    wrong = confusion.images - confusion.true_positives
    largest_total = max(total, images_of_classes)
    expected = f"no more images than the {test_images} of the metrics"
    require(where, largest_total <= test_images, expected)
    _require_no_small_count(f"{where}, images", confusion.images)
    _require_no_small_count(f"{where}, scores", counts.scores.images)
    _require_no_small_count(f"{where}, sure", confidence.images)
    images_of_cells = [cell[2] for cell in sent.cells]
    smallest_cell = min(images_of_cells, default=SMALLEST_COUNT)
    require(f"{where}, cells", smallest_cell >= SMALLEST_COUNT, "five images or more")

    cells_of_class = counts.cells.sum(axis=1)
    cells_of_answer = counts.cells.sum(axis=0)
    cells_fit_classes = (cells_of_class <= wrong).all()
    cells_fit_answers = (cells_of_answer <= confusion.false_positives).all()
    right_fits_sure = (confidence.right <= confidence.images).all()
    right_fits_found = 0 <= unnamed_right <= unnamed
    fits = {
        "sure": unnamed >= 0 and (synthetic or unnamed == 0),
        "found": (wrong >= 0).all(),
        "right": right_fits_sure and right_fits_found,
        "mistaken": confusion.false_positives.sum() == total - confidence.right.sum(),
        "cells": cells_fit_classes and cells_fit_answers,
        "scores": (confusion.total == total).all(),
        "inside": _inside_fits(counts),
    }
    _require_all(where, fits)
    are_shares = all(0 <= value <= _LARGEST_CONFIDENCE for value in sent.confidence)
    require(f"{where}, confidence", are_shares, "numbers from 0 to 1")


def _check_each_class(
    where: str, sent: BinnedCounts, counts: AnswerCounts, test_images: int
) -> None:
    """Refuse counts of images that may have several classes.

    Each class is counted against its rest, on all test images or on none.
    """
    confusion = counts.confusion
    others = confusion.total - confusion.images
    is_counted = confusion.total > 0
    for name, images in (("images", confusion.images), ("others", others)):
        is_large = (images[is_counted] >= SMALLEST_COUNT).all()
        is_empty_elsewhere = not images[~is_counted].any()
        expected = f"{SMALLEST_COUNT} images or more of each class that is counted"
        require(f"{where}, {name}", bool(is_large and is_empty_elsewhere), expected)
    _require_no_small_count(f"{where}, scores", counts.scores.images)
    fits = {
        "scores": (confusion.total[is_counted] == test_images).all(),
        "found": (confusion.true_positives <= confusion.images).all(),
        "mistaken": (confusion.false_positives <= others).all(),
        "inside": _inside_fits(counts),
    }
    _require_all(where, fits)
    # These exist only where an image has one answer.
    for name in ("cells", "sure", "right", "confidence"):
        require(f"{where}, {name}", not any(getattr(sent, name)), "none in a multi-label job")


def _inside_fits(counts: AnswerCounts) -> bool:
    """Return whether the images of a class in each interval fit the class and the interval."""
    fits_intervals = (counts.scores.inside <= counts.scores.images).all()
    fits_classes = (counts.scores.inside.sum(axis=1) == counts.confusion.images).all()
    return bool(fits_intervals and fits_classes)


def _check_form(where: str, sent: BinnedCounts, class_count: int) -> None:
    for name in ("images", "found", "mistaken", "scores", "inside"):
        require_length(f"{where}, {name}", getattr(sent, name), class_count)
    for name in ("scores", "inside"):
        for row in getattr(sent, name):
            require_length(f"{where}, {name}", row, INTERVALS)
    for name in ("sure", "right", "confidence"):
        require_length(f"{where}, {name}", getattr(sent, name), INTERVALS)
    pairs = [tuple(cell[:2]) for cell in sent.cells if len(cell) == 3]
    are_possible = all(max(pair) < class_count and pair[0] != pair[1] for pair in pairs)
    are_distinct = len(set(pairs)) == len(sent.cells)
    expected = "two different classes of the job and their images, each pair once"
    require(f"{where}, cells", are_possible and are_distinct, expected)


def _require_no_small_count(where: str, counts: Counts) -> None:
    is_small = (counts > 0) & (counts < SMALLEST_COUNT)
    require(where, not is_small.any(), f"0, or {SMALLEST_COUNT} images or more")


def _require_all(where: str, fits: Mapping[str, object]) -> None:
    for name, holds in fits.items():
        require(f"{where}, {name}", bool(holds), "counts that fit the others")
