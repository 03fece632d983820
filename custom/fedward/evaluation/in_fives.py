"""Counts in fives: what a survey reports of a site's images, so that differences reveal no few.

Every count is 0 or a multiple of five. What fewer than five patients have is in no count by class,
and no value of theirs is reported; where a site does not say whose images are, each image counts as
a patient. Images by value and by interval are counted as groups of five.

Not protected: someone who compares two surveys of a site taken before and after one image arrived
may see a count rise by five. Someone who knows the exact number of labelled images, as from a
training, may bound how many of them are of rare classes.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.small_counts import SMALLEST_COUNT

SIDES = (1, 32, 64, 128, 256, 512, 1024, 2048, 65536)
"""Ends of the intervals of an image's shorter side, in pixels."""
LEVELS = 20
"""Equal intervals of brightness, from 0 (black) to 1 (white), and of contrast, from 0 to 0.5."""
BRIGHTNESS = tuple(level / LEVELS for level in range(LEVELS + 1))
"""Ends of the intervals of brightness."""
CONTRAST = tuple(level / (2 * LEVELS) for level in range(LEVELS + 1))
"""Ends of the intervals of contrast."""
MOST_SIZES = 5
"""Sizes of images that are reported at most, the commonest."""
MOST_COLUMNS = 10
"""Columns of a manifest that are reported at most."""
MOST_VALUES = 20
"""Values of a column that are reported at most, the commonest."""
OTHERS = "(others)"
"""Stands for all values of a column that are not reported."""
LONGEST_TEXT = 60
"""Characters of a column's name or value at most."""


def in_fives(count: int) -> int:
    """Return a count of 0 or more, rounded down to a multiple of five."""
    return count - count % SMALLEST_COUNT


def common(values: Sequence[Hashable], owners: Sequence[str]) -> set[Hashable]:
    """Return the values that five owners or more have.

    ``values`` and ``owners``: of the same images, in the same order.
    """
    owners_of_value = Counter(value for value, _ in set(zip(values, owners, strict=True)))
    return {value for value, count in owners_of_value.items() if count >= SMALLEST_COUNT}


def by_value(values: Sequence[str], owners: Sequence[str], most: int) -> dict[str, int]:
    """Return how many images have each of the commonest values, as groups of five.

    Images are put in the order of the values that are reported, all others last, and each group of
    five counts for its middle image. A value of fewer than five owners is not reported, nor one
    that is empty or long: such images are :data:`OTHERS`. If these have fewer than five owners in
    all, they count for the last value.

    Args:
        values: of N images.
        owners: of the same images.
        most: values that are reported at most.

    Returns:
        Value -> images, sorted by value. All are multiples of five above 0, and sum to N rounded to
        the nearest, so that nobody sees whether 0 to 4 images have another value. Nothing where no
        value can be reported.
    """
    common_values = common(values, owners)
    counts = Counter(value for value in values if value in common_values and is_short(value))
    commonest_first = sorted(counts, key=lambda value: (-counts[value], value))
    reported = sorted(commonest_first[:most])
    if not reported:
        return {}
    other_owners = {
        owner for value, owner in zip(values, owners, strict=True) if value not in reported
    }
    # Places of the last image of each value, counted from 1.
    ends = list(accumulate(counts[value] for value in reported))
    if len(other_owners) < SMALLEST_COUNT:
        ends[-1] = len(values)
    else:
        reported.append(OTHERS)
        ends.append(len(values))
    # A group belongs to a value if its third image does.
    groups = [0, *((end + SMALLEST_COUNT // 2) // SMALLEST_COUNT for end in ends)]
    return {
        value: SMALLEST_COUNT * (after - before)
        for value, (before, after) in zip(reported, pairwise(groups), strict=True)
    }


def by_interval(values: NDArray[np.floating], edges: Sequence[float]) -> list[int]:
    """Return how many values are in each interval, as groups of five neighbours by size.

    ``n_b = 5 |{groups whose middle value lies in interval b}|``

    Args:
        values: (N,), finite.
        edges: B + 1 rising ends of the intervals; values outside count in the first and the last.

    Returns:
        B multiples of five that sum to ``5 ⌊N / 5⌋``: up to four of the largest values are not
        counted. An interval with a single value looks empty, as that value is counted where the
        middle one of its group lies.
    """
    grouped = in_fives(len(values))
    groups = np.sort(values)[:grouped].reshape(-1, SMALLEST_COUNT)
    middle_values = groups[:, SMALLEST_COUNT // 2]
    last_interval = len(edges) - 2
    interval = np.clip(np.searchsorted(edges, middle_values, side="right") - 1, 0, last_interval)
    groups_in_interval = np.bincount(interval, minlength=len(edges) - 1)
    return [SMALLEST_COUNT * int(number) for number in groups_in_interval]


def is_short(text: str) -> bool:
    """Return whether a text may be reported as a column's name or value.

    It must be printable, not empty, and at most :data:`LONGEST_TEXT` characters long.
    """
    return 0 < len(text) <= LONGEST_TEXT and text.isprintable()
