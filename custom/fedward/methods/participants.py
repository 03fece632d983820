"""The sites that take part in a round."""

from collections.abc import Sequence

from fedward.seeds import numpy_generator


def draw_participants(
    names: Sequence[str], count: int | None, seed: int, *purpose: str | int
) -> list[str]:
    """Return ``count`` sites drawn uniformly without replacement, sorted.

    All sites are returned where there are no more than ``count``, or where it is None. ``purpose``
    separates the draws of a run, as in :func:`fedward.seeds.derive`; usually it is the round.
    """
    # A permutation of indices, so that a seed draws the same places whatever the sites' names are.
    order = numpy_generator(seed, "participants", *purpose).permutation(len(names))
    return sorted(names[index] for index in order[:count])
