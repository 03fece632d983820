"""How good a model is in groups of patients or images, such as women or the images of a camera."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.intervals import joint_interval
from fedward.evaluation.subgroups import NOT_STATED, SubgroupCounts
from fedward.runs.measured import Measured, lowest_first


def title_of_group(column: str, group: str) -> str:
    """Return what pages call a group, such as ``65+ (age)``."""
    return f"{group} ({column})"


@dataclass(frozen=True)
class Subgroup:
    """Right answers to the test images of one group, such as women, at the sites that count it."""

    column: str
    """Such as sex."""
    measured: Measured
    """Right answers to all of its images; of a model that may name several classes, the share of
    its findings that are found. Its name is that of the group. The intervals of all groups hold at
    once in 95 % of cases, because the worst of many groups is singled out."""
    expected: float
    """Right answers if its images were as easy as all those of the same class and site."""
    classes: tuple[Measured, ...]
    """Sensitivity of each class in the group, the lowest first."""
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
        """Groups without numbers at any site.

        Whether somebody's group is not stated at all, no site says.
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

        What is expected of a group are the right answers to all images of the same class and site:
        ``Σ n_sc p_sc / Σ n_sc`` with the group's n images and all images' share p of right answers.
        Its interval takes the design effect of all images of its sites, and holds together with
        those of the other groups: see :func:`~fedward.evaluation.intervals.joint_interval`.
        """
        keys = dict.fromkeys(
            (counted.column, group)
            for columns in self.columns.values()
            for counted in columns
            for group in counted.groups
        )
        with_numbers = sum(self._one(column, group) is not None for column, group in keys)
        subgroups = [self._one(column, group, with_numbers) for column, group in keys]
        found = [one for one in subgroups if one is not None]
        return sorted(found, key=lambda one: -one.shortfall)

    def _one(self, column: str, group: str, together: int = 1) -> Subgroup | None:
        """Return a group of a column, one of ``together``; None without numbers at any site."""
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
        total = int(images.sum())
        if not total:
            return None
        effect = inflated / total
        share = int(right.sum()) / total
        low, high = joint_interval(share, max(total / effect, 1.0), together)
        return Subgroup(
            column,
            Measured(group, share, low, high, total),
            expected / total,
            lowest_first(
                Measured.of_counts(name, int(found), int(number), effect)
                for name, found, number in zip(self.classes, right, images, strict=True)
                if number
            ),
            tuple(sites),
        )
