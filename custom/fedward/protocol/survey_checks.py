"""The checks of a survey: it has as many counts as it should, and they agree with each other."""

from collections.abc import Sequence

from fedward.evaluation.in_fives import (
    LEVELS,
    MOST_COLUMNS,
    MOST_SIZES,
    MOST_VALUES,
    SIDES,
    in_fives,
    is_short,
)
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.protocol.fields import require, require_length
from fedward.protocol.messages import SurveyCounts


def check_survey(where: str, sent: SurveyCounts, classes: int) -> None:
    """Raise RefusedError unless counts are possible ones of a site's images.

    Args:
        where: beginning of the place that an error names.
        sent: the counts.
        classes: the number of classes of the job.
    """
    require_length(f"{where}, labelled", sent.labelled, classes)
    require_length(f"{where}, val", sent.val, classes)
    require_length(f"{where}, test", sent.test, classes)
    most_images = _most_images([*sent.labelled, sent.unlabelled, *sent.val, *sent.test])
    _check_intervals(f"{where}, sides", sent.sides, len(SIDES) - 1, most_images)
    _check_intervals(f"{where}, brightness", sent.brightness, LEVELS, most_images)
    _check_intervals(f"{where}, contrast", sent.contrast, LEVELS, most_images)
    _check_sum(f"{where}, dark", [sent.dark], most_images)
    # These counts are rounded to the nearest, so their sum may be a little more.
    most_rounded = most_images + SMALLEST_COUNT
    _check_sum(f"{where}, grey and colour", [sent.grey, sent.colour], most_rounded)
    most_evaluated = _most_images([*sent.val, *sent.test])
    _check_sum(f"{where}, repeated", [sent.repeated], most_evaluated)
    _check_sizes(f"{where}, sizes", sent, most_rounded)
    _check_patients(f"{where}, patients", sent)
    _check_columns(f"{where}, columns", sent, most_rounded)


def _check_sizes(where: str, sent: SurveyCounts, most_images: int) -> None:
    different_sizes = {(size.width, size.height) for size in sent.sizes}
    are_different = len(different_sizes) == len(sent.sizes)
    are_few = len(sent.sizes) <= MOST_SIZES
    require(where, are_different and are_few, f"at most {MOST_SIZES} different ones")
    _check_sum(where, [size.images for size in sent.sizes], most_images)


def _check_patients(where: str, sent: SurveyCounts) -> None:
    if not sent.patients:
        return
    require_length(where, sent.patients, 3)
    training, validation, testing = sent.patients
    _check_sum(where, [training], _most_images([*sent.labelled, sent.unlabelled]))
    _check_sum(where, [validation], _most_images(sent.val))
    _check_sum(where, [testing], _most_images(sent.test))


def _check_columns(where: str, sent: SurveyCounts, most_images: int) -> None:
    are_few = len(sent.columns) <= MOST_COLUMNS
    have_short_names = all(is_short(name) for name in sent.columns)
    require(where, are_few and have_short_names, f"at most {MOST_COLUMNS} columns with short names")
    for counts in sent.columns.values():
        # One value more is for all the values that are not listed.
        are_few = len(counts) <= MOST_VALUES + 1
        are_short = all(is_short(value) for value in counts)
        have_images = 0 not in counts.values()
        expected = f"at most {MOST_VALUES} short values, each with images"
        require(where, are_few and are_short and have_images, expected)
        _check_sum(where, list(counts.values()), most_images)


def _most_images(counts: Sequence[int]) -> int:
    """Return the most images, in fives, that counts may stand for.

    Each count was rounded down, and is 0 or at least the smallest count.
    """
    reported = [count for count in counts if count > 0]
    return in_fives(sum(reported) + (SMALLEST_COUNT - 1) * len(reported))


def _check_intervals(where: str, counts: Sequence[int], length: int, most_images: int) -> None:
    require_length(where, counts, length)
    _check_sum(where, counts, most_images)


def _check_sum(where: str, counts: Sequence[int], most_images: int) -> None:
    expected = f"at most the {most_images} images that there may be"
    require(where, sum(counts) <= most_images, expected)
