"""Looks for a cut of a data set whose sites measure more."""

from dataclasses import replace
from typing import NamedTuple

from fedward.errors import ConfigError
from fedward.evaluation.evaluated_images import fewest_measured
from fedward.lab.partition.all_sites import EVALUATED, Division, divided, evaluated_together
from fedward.lab.partition.divide import ColumnSites
from fedward.lab.partition.pool import Cut, Pool
from fedward.lab.partition.summary import compares_classes, measured_somewhere
from fedward.lab.partition.wanted import Wanted

_LARGER_SHARES = (
    (0.15, 0.25),
    (0.2, 0.25),
    (0.25, 0.25),
    (0.25, 0.3),
    (0.3, 0.3),
    (0.3, 0.4),
    (0.0, 0.4),
    (0.0, 0.45),
    (0.0, 0.5),
)
"""Shares of validation and test images that are tried, in this order."""


def better_cut(pool: Pool, division: Division, wanted: Wanted) -> Wanted | None:
    """Return a cut of the data that measures more; None without need, or if none does.

    There is need if the sites measure too few classes in validation or in test, or none of them
    measures enough to tell classes apart. Tried are cuts with larger shares, and with all sites'
    images evaluated together. The best one is that with the largest :class:`_Worth` of those that
    measure enough classes in test.
    """
    if wanted.pooled:  # It evaluates what the same cut evaluates without a pooled site.
        return None
    cut = division.cut
    needed = fewest_measured(pool.label_kind)
    measures_enough = all(
        len(measured_somewhere(pool, cut, split)) >= needed for split in EVALUATED
    )
    best_worth = _worth(pool, cut)
    if measures_enough and best_worth.telling_splits == len(EVALUATED):
        return None
    best: Wanted | None = None
    for together in (False, True):
        for val, test in [(wanted.val, wanted.test), *_LARGER_SHARES]:
            other = replace(wanted, val=val, test=test, evaluate_together=together)
            other_cut = _cut_of(pool, other, division.by)
            if other_cut is None:
                continue
            tested_classes = len(measured_somewhere(pool, other_cut, "test"))
            worth = _worth(pool, other_cut)
            if tested_classes >= needed and worth > best_worth:
                best_worth = worth
                best = other
    return best


def _cut_of(pool: Pool, wanted: Wanted, by: ColumnSites | None) -> Cut | None:
    """Return the sites of a cut without a pooled site.

    It is None if too few images are left for training, or the splits are given.

    Args:
        pool: what is cut.
        wanted: how.
        by: the sites of the column that is named; None: none is.
    """
    try:
        cut = divided(pool, wanted, by).cut
        return evaluated_together(cut, wanted) if wanted.evaluate_together else cut
    except ConfigError:
        return None


class _Worth(NamedTuple):
    """What orders cuts by what they measure: the larger, the better."""

    telling_splits: int
    """Number of splits, of validation and test, in which some site can tell classes apart.

    A site that measures a single class says nothing of a model that always answers it.
    """
    classes: int
    """Number of classes measured in validation, and of those in test, together."""


def _worth(pool: Pool, cut: Cut) -> _Worth:
    return _Worth(
        telling_splits=sum(compares_classes(pool, cut, split) for split in EVALUATED),
        classes=sum(len(measured_somewhere(pool, cut, split)) for split in EVALUATED),
    )
