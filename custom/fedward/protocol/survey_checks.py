"""The check of what a site's survey tells: as many numbers as there should be, and no more images
than there are.
"""

from collections.abc import Sequence
from typing import NoReturn

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
from fedward.protocol.fields import refusal
from fedward.protocol.messages import SurveyCounts


def check_survey(where: str, sent: SurveyCounts, classes: int) -> None:
    """Raise RefusedError unless counts are possible ones of a site's images; ``classes``: how many
    the job has.
    """
    for name in ("labelled", "val", "test"):
        _length(f"{where}, {name}", getattr(sent, name), classes)
    most = _at_most([*sent.labelled, sent.unlabelled, *sent.val, *sent.test])
    lengths = {"sides": len(SIDES) - 1, "brightness": LEVELS, "contrast": LEVELS}
    for name, length in lengths.items():
        _length(f"{where}, {name}", getattr(sent, name), length)
        _sum(f"{where}, {name}", getattr(sent, name), most)
    rounded = most + SMALLEST_COUNT  # to the nearest
    _sum(f"{where}, grey and colour", [sent.grey, sent.colour], rounded)
    _sum(f"{where}, repeated", [sent.repeated], _at_most([*sent.val, *sent.test]))
    _check_sizes(f"{where}, sizes", sent, rounded)
    _check_patients(f"{where}, patients", sent)
    if len(sent.columns) > MOST_COLUMNS or not all(map(is_short, sent.columns)):
        _refuse(f"{where}, columns", f"at most {MOST_COLUMNS} columns with short names")
    for counts in sent.columns.values():
        if len(counts) > MOST_VALUES + 1 or not all(map(is_short, counts)) or 0 in counts.values():
            _refuse(f"{where}, columns", f"at most {MOST_VALUES} short values, each with images")
        _sum(f"{where}, columns", [*counts.values()], rounded)


def _check_sizes(where: str, sent: SurveyCounts, most: int) -> None:
    if (
        len({(size.width, size.height) for size in sent.sizes}) < len(sent.sizes)
        or len(sent.sizes) > MOST_SIZES
    ):
        _refuse(where, f"at most {MOST_SIZES} different ones")
    _sum(where, [size.images for size in sent.sizes], most)


def _check_patients(where: str, sent: SurveyCounts) -> None:
    if not sent.patients:
        return
    _length(where, sent.patients, 3)
    for found, images in zip(
        sent.patients, ([*sent.labelled, sent.unlabelled], sent.val, sent.test), strict=True
    ):
        _sum(where, [found], _at_most(images))


def _at_most(told: Sequence[int]) -> int:
    """Return how many images there may be in fives where each of some counts was rounded down and
    is told if not 0.
    """
    return in_fives(sum(told) + (SMALLEST_COUNT - 1) * sum(count > 0 for count in told))


def _sum(where: str, counts: Sequence[int], most: int) -> None:
    if sum(counts) > most:
        _refuse(where, f"at most the {most} images that there may be")


def _length(where: str, values: Sequence[object], length: int) -> None:
    if len(values) != length:
        _refuse(where, f"{length} values")


def _refuse(where: str, expected: str) -> NoReturn:
    raise refusal(where, expected, "others")
