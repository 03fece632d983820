"""The upper bound of a study: the best of all rows and references with all labels."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedward.evaluation import paired_difference


@dataclass(frozen=True)
class Candidate:
    """A row or reference that may be the best one."""

    title: str
    values: Mapping[int, float]
    """Seed -> test value."""
    validation: Mapping[int, float]
    """Seed -> metric that chooses rounds, on validation images in the best one, where it has one.

    It chooses a candidate as well, in whichever metric test values are.
    """


@dataclass(frozen=True)
class Best:
    """The best of some candidates in each repetition; empty if nothing can choose one."""

    values: Mapping[int, float]
    """Seed -> test value of the candidate that was chosen for it."""
    chosen: Mapping[str, int]
    """Title of a candidate -> in how many repetitions it was chosen."""
    by_validation: bool
    """Whether validation images chose; else test values of the other repetitions did."""


def best_of(candidates: Sequence[Candidate]) -> Best:
    """Return the best candidate of each repetition, chosen without the test value that then counts.

    The largest of several test values is too high by chance, so a repetition's own test value must
    not choose. Validation chooses where every candidate has a validation value in each common
    repetition. Where one has none, the largest mean test value over the *other* repetitions chooses
    (leave-one-out), and a single repetition has no best candidate. Repetitions on the same test
    images are not independent of each other; that is why no difference counts as shown there.

    Args:
        candidates: compared in the seeds that all of them have. One without any value is omitted.
            Of equally good ones the first is chosen.
    """
    present = [candidate for candidate in candidates if candidate.values]
    if not present:
        return Best({}, {}, by_validation=False)
    seeds = sorted(set.intersection(*(set(candidate.values) for candidate in present)))
    by_validation = all(set(seeds) <= set(candidate.validation) for candidate in present)
    if not by_validation and len(present) > 1 and len(seeds) == 1:
        return Best({}, {}, by_validation=False)
    values: dict[int, float] = {}
    chosen = Counter[str]()
    for seed in seeds:
        best = present[0]
        if len(present) > 1:
            scores = [_score(candidate, seed, seeds, by_validation) for candidate in present]
            best = present[scores.index(max(scores))]
        values[seed] = best.values[seed]
        chosen[best.title] += 1
    return Best(values, chosen, by_validation)


def _score(candidate: Candidate, seed: int, seeds: Sequence[int], by_validation: bool) -> float:
    """Return how good a candidate is in a repetition, whatever its test value there."""
    if by_validation:
        return candidate.validation[seed]
    return fmean(candidate.values[other] for other in seeds if other != seed)


def apart(upper: Sequence[float], lower: Sequence[float]) -> bool:
    """Return whether the 95 % interval of the paired difference upper - lower lies above 0."""
    low = paired_difference(upper, lower).low
    return low is not None and low > 0
