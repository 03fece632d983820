"""Counts in fives: what a survey tells of a site's images, so that differences tell nothing of four
or fewer.

Every count is 0 or a multiple of five. What fewer than five patients have (images, where nobody
says whose they are) is in no count by class, and no value of theirs is told. Images by value and by
interval are counted as groups of five.

Not protected: who has two surveys of a site, between which one image came, may see a count go up by
five. Who knows the exact number of labelled images, as from a training, may bound how many of them
are of rare classes.
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
CONTRAST = tuple(level / (2 * LEVELS) for level in range(LEVELS + 1))
MOST_SIZES = 5
MOST_COLUMNS = 10
MOST_VALUES = 20
"""Sizes of images that are told, columns of a manifest, and values of a column: the commonest."""
OTHERS = "(others)"
"""Stands for all values of a column that are not told."""
LONGEST_TEXT = 60
"""Characters of a column's name or value."""


def in_fives(count: int) -> int:
    """Return a count of 0 or more, rounded down to a multiple of five."""
    return count - count % SMALLEST_COUNT


def common(values: Sequence[Hashable], owners: Sequence[str]) -> set[Hashable]:
    """Return the values that five owners or more have; ``values`` and ``owners`` are of the same
    images.
    """
    counts = Counter(value for value, _ in set(zip(values, owners, strict=True)))
    return {value for value, count in counts.items() if count >= SMALLEST_COUNT}


def by_value(values: Sequence[str], owners: Sequence[str], most: int) -> dict[str, int]:
    """Return how many images have each of the ``most`` commonest values, as groups of five, sorted
    by value.

    Images are put in the order of these values, all others last, and each group of five counts for
    its middle one. A value of fewer than five owners is not told, nor one that is empty or long:
    such images are :data:`OTHERS`. Those of fewer than five owners count for the last value. So of
    N images nobody sees whether there are 0 to 4 such ones.

    Returns:
        Multiples of five, none of them 0, which sum to N rounded to the nearest. Nothing where no
        value can be told.
    """
    known = common(values, owners)
    counts = Counter(value for value in values if value in known and is_short(value))
    told = sorted(sorted(counts, key=lambda value: (-counts[value], value))[:most])
    if not told:
        return {}
    rest = {owner for value, owner in zip(values, owners, strict=True) if value not in told}
    ends = list(accumulate(counts[value] for value in told))
    if len(rest) < SMALLEST_COUNT:
        ends[-1] = len(values)
    else:
        told = [*told, OTHERS]
        ends = [*ends, len(values)]
    groups = [0, *((end + SMALLEST_COUNT // 2) // SMALLEST_COUNT for end in ends)]
    return {
        value: SMALLEST_COUNT * (after - before)
        for value, (before, after) in zip(told, pairwise(groups), strict=True)
    }


def by_interval(values: NDArray[np.floating], edges: Sequence[float]) -> list[int]:
    """Return how many values are in each interval, as groups of five neighbours by size.

    ``n_b = 5 |{groups whose middle value lies in interval b}|``

    Args:
        values: (N,), finite.
        edges: B + 1 rising ends of the intervals; values outside count in the first and the last.

    Returns:
        B multiples of five that sum to ``5 ⌊N / 5⌋``: of the largest values up to four are not
        counted. An interval with one value alone looks empty, as that value is counted where the
        middle one of its group lies.
    """
    whole = in_fives(len(values))
    middle = np.sort(values)[:whole].reshape(-1, SMALLEST_COUNT)[:, SMALLEST_COUNT // 2]
    place = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, len(edges) - 2)
    return [SMALLEST_COUNT * int(groups) for groups in np.bincount(place, minlength=len(edges) - 1)]


def is_short(text: str) -> bool:
    """Return whether a text may be told as the name or a value of a column: printable, not empty
    and not long.
    """
    return 0 < len(text) <= LONGEST_TEXT and text.isprintable()
