"""Numbers that compare two rows in the repetitions that both have."""

from collections.abc import Mapping

from fedward.evaluation import paired_difference
from fedward.evaluation.intervals import Interval, percent_more
from fedward.lab.bench.results import Results


def in_common(
    ours: Mapping[int, float], theirs: Mapping[int, float]
) -> tuple[list[float], list[float]]:
    """Return the values of the seeds that both have, in the order of the seeds.

    Args:
        ours: seed -> value.
        theirs: likewise.
    """
    seeds = sorted(set(ours) & set(theirs))
    return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]


def paired_gap(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return the difference ours - theirs, paired by seed; None if no seed has both.

    Args:
        ours: seed -> value.
        theirs: likewise.
    """
    our_values, their_values = in_common(ours, theirs)
    return paired_difference(our_values, their_values) if our_values else None


def relative_improvement(
    results: Results, variant: str, ours: str, theirs: str, metric: str
) -> float | None:
    """Return by how many percent a row is better than another one, over their common seeds.

    None if no seed has both, or if the other row's mean is 0.
    """
    our_values = results.test_values(variant, ours, metric)
    their_values = results.test_values(variant, theirs, metric)
    return percent_more(*in_common(our_values, their_values))


def additional_cost(results: Results, variant: str, ours: str, theirs: str) -> float | None:
    """Return by how many percent a row moves more data than another one, over common seeds.

    None if they do not begin with the same weights, or if sites are alone in one of them: data
    moved by another run would be missing, or would not be moved by a site that is alone.
    """
    our_row = results.study.rows[ours]
    their_row = results.study.rows[theirs]
    if our_row.init != their_row.init or our_row.alone or their_row.alone:
        return None
    our_megabytes = _megabytes(results, variant, ours)
    their_megabytes = _megabytes(results, variant, theirs)
    return percent_more(*in_common(our_megabytes, their_megabytes))


def _megabytes(results: Results, variant: str, row: str) -> dict[int, float]:
    """Return seed -> traffic of a row's run."""
    return {seed: record.megabytes for seed, record in results.by_seed(variant, row).items()}
