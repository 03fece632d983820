"""The sites' counts of a model's answers to test images, and what follows from them alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.clusters import ClusterCounts
from fedward.evaluation.subgroups import SubgroupCounts
from fedward.runs.measured import Measured
from fedward.runs.run import Run
from fedward.runs.subgroups import Subgroups
from fedward.storage.rows import BinnedRow


@dataclass(frozen=True)
class SiteCounts:
    """The counts of one model's answers at all sites that report some, perhaps at none."""

    classes: Sequence[str]
    """The run's K classes."""
    rows: Sequence[BinnedRow]
    """A row for each of these sites, in the run's order of sites."""

    @classmethod
    def of(cls, run: Run, round_: int | None) -> "SiteCounts":
        """Read the counts after a round; rows with counts of other classes are left out."""
        row_of = {
            row.site: row for row in run.binned(round_) if len(row.images) == len(run.classes)
        }
        return cls(run.classes, [row_of[site] for site in run.info.sites if site in row_of])

    @cached_property
    def by_site(self) -> dict[str, AnswerCounts]:
        """Site -> counts of its answers."""
        return {row.site: _counts(row) for row in self.rows}

    @cached_property
    def merged(self) -> AnswerCounts | None:
        """Counts of the answers of all sites together; None without any."""
        return AnswerCounts.merged(list(self.by_site.values())) if self.by_site else None

    @cached_property
    def design_effect(self) -> float:
        """Test images for each independent one, over all sites; 1 without counts."""
        return self.merged.confusion.design_effect() if self.merged else 1.0

    def design_effect_at(self, site: str) -> float:
        """Return the same for one site."""
        counts = self.by_site.get(site)
        return counts.confusion.design_effect() if counts else 1.0

    @cached_property
    def sensitivities(self) -> Sequence[Measured]:
        """The sensitivity of each class with counted images, in the run's order of classes."""
        if self.merged is None:
            return ()
        confusion = self.merged.confusion
        return [
            Measured.of_counts(
                name,
                int(confusion.true_positives[place]),
                int(confusion.images[place]),
                confusion.design_effect(place),
            )
            for place, name in enumerate(self.classes)
            if confusion.images[place]
        ]

    @cached_property
    def never_predicted(self) -> tuple[str, ...]:
        """Classes with counted images that no answer names."""
        if self.merged is None:
            return ()
        confusion = self.merged.confusion
        predicted = confusion.true_positives + confusion.false_positives
        return tuple(
            name
            for name, images, answers in zip(self.classes, confusion.images, predicted, strict=True)
            if images and not answers
        )

    @property
    def false_for_most(self) -> tuple[str, ...]:
        """Classes that answers name for more than half of the images without them."""
        if self.merged is None:
            return ()
        confusion = self.merged.confusion
        images_without = confusion.total - confusion.images
        is_named_for_most = 2 * confusion.false_positives > images_without
        return tuple(
            name for name, named in zip(self.classes, is_named_for_most, strict=True) if named
        )

    @property
    def subgroups(self) -> Subgroups:
        """The counts by the columns of each site, such as sex."""
        columns = {
            row.site: [SubgroupCounts.from_wire(vars(column)) for column in row.subgroups or ()]
            for row in self.rows
        }
        return Subgroups(self.classes, self.by_site, columns)

    @property
    def clustered_sites(self) -> tuple[str, ...]:
        """Sites that say how images of patients or lesions cluster."""
        return tuple(row.site for row in self.rows if row.clusters)

    @property
    def classes_of_few_patients(self) -> tuple[str, ...]:
        """Classes whose images are of fewer than five patients at some clustered site."""
        names = []
        for place, name in enumerate(self.classes):
            if any(
                row.clusters and row.images[place] and not row.clusters.effective[place]
                for row in self.rows
            ):
                names.append(name)
        return tuple(names)


def _counts(row: BinnedRow) -> AnswerCounts:
    counts = AnswerCounts.from_wire(vars(row))
    if row.clusters is None:
        return counts
    return counts.of_patients(ClusterCounts.from_wire(vars(row.clusters)))
