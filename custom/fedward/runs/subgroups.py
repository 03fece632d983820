"""How good a model is in groups of patients or images, such as women or the images of a camera."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.intervals import joint_interval
from fedward.evaluation.subgroups import NOT_STATED, SubgroupCounts
from fedward.runs.measured import Measured, lowest_first


def title_of_group(column: str, group: str) -> str:
    """Return what pages call a group, such as ``65+ (age)``."""
    return f"{group} ({column})"


@dataclass(frozen=True)
class Subgroup:
    """The share of right answers in one group, such as women, at the sites that count it."""

    column: str
    """Such as sex."""
    measured: Measured
    """Share of its test images that are answered rightly, in [0, 1]; of a model that may name
    several classes, the share of its findings that are found. Its name is that of the group. The
    intervals of all groups hold at once in 95 % of cases, because the worst of many groups is
    singled out."""
    expected: float
    """That share, in [0, 1], if its images were as easy as all those of the same class and site."""
    classes: tuple[Measured, ...]
    """Sensitivity of each class in the group, the lowest first. Each interval holds by itself in
    95 % of cases, and not together with those of other classes or groups."""
    sites: tuple[str, ...]
    """Sites with counts of it."""

    @property
    def title(self) -> str:
        """Group and column, such as ``65+ (age)``."""
        return title_of_group(self.column, self.measured.name)

    @property
    def shortfall(self) -> float:
        """How far it is below what is expected."""
        return self.expected - self.measured.value

    @property
    def is_below(self) -> bool:
        """Whether its whole interval is below what is expected."""
        return self.measured.high is not None and self.measured.high < self.expected


@dataclass(frozen=True)
class _Pooled:
    """Counts of one group of K classes at all sites together."""

    column: str
    group: str
    images: NDArray[np.int64]
    """(K,) test images of each class."""
    right: NDArray[np.int64]
    """(K,) right answers to them."""
    expected: float
    """Right answers to expect of these images, a number of images."""
    inflated: float
    """Sum over its images of their sites' design effects."""
    sites: tuple[str, ...]
    """Sites with images of it; empty without images."""


@dataclass(frozen=True)
class Subgroups:
    """The sites' counts by subgroup, for :class:`Verdict`."""

    classes: Sequence[str]
    """K names."""
    counts: Mapping[str, AnswerCounts]
    """Site -> counts of its answers by class alone."""
    columns: Mapping[str, Sequence[SubgroupCounts]]
    """Site -> its counts by each of its columns."""

    @property
    def untested(self) -> tuple[str, ...]:
        """Titles of the groups without numbers at any site.

        The images whose group is not stated are left out: no site says whether it has any.
        """
        titles = dict.fromkeys(
            title_of_group(counted.column, group)
            for columns in self.columns.values()
            for counted in columns
            for group in counted.groups
            if group != NOT_STATED
        )
        tested = {one.title for one in self.measured()}
        return tuple(title for title in titles if title not in tested)

    def measured(self) -> list[Subgroup]:
        """Return the groups with numbers, the one furthest below what is expected first.

        Expected of a group is the share of right answers to all images of the same class and site:
        ``Σ n_sc p_sc / Σ n_sc``, with the n_sc images of the group in class c at site s, and the
        share p_sc of right answers to all images of that class at that site.
        Its interval takes the design effect of all images of its sites, and holds together with
        those of the other groups: see :func:`~fedward.evaluation.intervals.joint_interval`.
        """
        keys = dict.fromkeys(
            (counted.column, group)
            for columns in self.columns.values()
            for counted in columns
            for group in counted.groups
        )
        pooled = [self._pooled(column, group) for column, group in keys]
        counts = [group for group in pooled if group.sites]
        subgroups = [self._subgroup(group, number_of_groups=len(counts)) for group in counts]
        return sorted(subgroups, key=lambda one: -one.shortfall)

    def _pooled(self, column: str, group: str) -> _Pooled:
        """Return a group's counts of all sites together."""
        images = np.zeros(len(self.classes), np.int64)
        right = np.zeros_like(images)
        expected = 0.0
        inflated = 0.0
        sites = []
        for site, columns in self.columns.items():
            confusion = self.counts[site].confusion
            for counted in columns:
                if counted.column != column or group not in counted.groups:
                    continue
                place = counted.groups.index(group)
                of_site = counted.images[:, place]
                if not of_site.any():
                    continue
                sites.append(site)
                images += of_site
                right += counted.right[:, place]
                shares = confusion.true_positives / np.maximum(confusion.images, 1)
                expected += float(of_site @ shares)
                inflated += int(of_site.sum()) * confusion.design_effect()
        return _Pooled(column, group, images, right, expected, inflated, tuple(sites))

    def _subgroup(self, pooled: _Pooled, number_of_groups: int) -> Subgroup:
        """Return a group's numbers, whose interval holds together with those of all groups.

        Args:
            pooled: counts of a group with images.
            number_of_groups: groups with images in all columns.
        """
        total = int(pooled.images.sum())
        effect = pooled.inflated / total
        share = int(pooled.right.sum()) / total
        low, high = joint_interval(share, max(total / effect, 1.0), number_of_groups)
        return Subgroup(
            pooled.column,
            Measured(pooled.group, share, low, high, total),
            pooled.expected / total,
            lowest_first(
                Measured.of_counts(name, int(right), int(images), effect)
                for name, right, images in zip(
                    self.classes, pooled.right, pooled.images, strict=True
                )
                if images
            ),
            pooled.sites,
        )
