"""Clinical numbers of the selected model, per class: of all sites together by adding their counts,
and of each site.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from fedward.evaluation import clinical
from fedward.evaluation.binned import Binned
from fedward.evaluation.clinical import Rates, Share
from fedward.label_kinds import LabelKind
from fedward.report import clinical_figures as figures
from fedward.runs.run import Run

WANTED = (0.9, 0.95)
"""Shares of right answers for which a report says how many images to refer."""
_CURVES = 20
"""So many classes have curves, those with the most images first."""


@dataclass(frozen=True)
class ClassRates:
    """One class against all others."""

    name: str
    images: int
    rates: Rates


@dataclass(frozen=True)
class Trust:
    """The answers yes and no to one class of several that an image may show."""

    name: str
    right: Share | None
    refer: tuple[float | None, ...]
    """Share of images to refer for each of :data:`WANTED`, 0 where all answers reach it; None: no
    share is enough.
    """


@dataclass(frozen=True)
class MatrixRow:
    """What images of one class were given."""

    name: str
    images: int
    cells: tuple[int | None, ...]
    """Images by the class given, in the job's order; None where fewer than five."""
    rest: int
    """Images in cells that are not told."""
    place: int
    """Of the class itself among the cells."""

    def level(self, place: int) -> int:
        """Return from 0 to 4 how large a share of the row a cell is: how dark it is shown."""
        number = self.cells[place] or 0
        return -(-4 * number // self.images)


@dataclass(frozen=True)
class Answers:
    """The selected model's answers on the test images of a site, or of all."""

    name: str
    classes: tuple[str, ...]
    counts: Binned

    @cached_property
    def lines(self) -> list[ClassRates]:
        """A line for each class with test images."""
        places = [place for place, images in enumerate(self.counts.images) if images]
        return [self._line(place) for place in places]

    def rates(self, name: str) -> Rates | None:
        """Return the rates of a class; None without test images of it."""
        return next((line.rates for line in self.lines if line.name == name), None)

    @property
    def matrix(self) -> list[MatrixRow]:
        """The confusion matrix: a row for each class with test images."""
        return [self._row(self.classes.index(line.name)) for line in self.lines]

    @property
    def accuracy(self) -> Share | None:
        """Share of right answers."""
        return clinical.accuracy(self.counts)

    @property
    def balanced(self) -> Share | None:
        """Mean sensitivity of the classes."""
        return clinical.balanced_accuracy(self.counts)

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error."""
        return clinical.calibration_error(self.counts)

    @property
    def confidence(self) -> float:
        """Mean of the highest probabilities."""
        return float(self.counts.confidence.sum() / self.counts.total)

    @property
    def referred(self) -> list[tuple[float, float | None]]:
        """Return (wanted share of right answers, share of images to refer for it), of those not
        reached by all.
        """
        found = self.accuracy
        return [
            (share, clinical.referred_for(self.counts, share))
            for share in WANTED
            if found and found.value < share
        ]

    @property
    def trust(self) -> list[Trust]:
        """A line for each class of a multi-label model with test images."""
        each = {
            line.name: clinical.of_finding(self.counts, self.classes.index(line.name))
            for line in self.lines
        }
        return [
            Trust(
                name,
                clinical.accuracy(of),
                tuple(clinical.referred_for(of, wanted) for wanted in WANTED),
            )
            for name, of in each.items()
        ]

    @property
    def never(self) -> list[str]:
        """Classes with test images that the model never predicts."""
        said = self.counts.found + self.counts.mistaken
        return [line.name for line in self.lines if not said[self.classes.index(line.name)]]

    def _line(self, place: int) -> ClassRates:
        return ClassRates(
            self.classes[place], int(self.counts.images[place]), clinical.rates(self.counts, place)
        )

    def _row(self, place: int) -> MatrixRow:
        found = int(self.counts.found[place])
        images = int(self.counts.images[place])
        cells: list[int | None] = [int(number) or None for number in self.counts.cells[place]]
        cells[place] = found
        return MatrixRow(
            self.classes[place], images, tuple(cells), images - sum(filter(None, cells)), place
        )


@dataclass(frozen=True)
class Clinical:
    """What a report shows of one model's answers."""

    pooled: Answers
    sites: Sequence[Answers]

    @classmethod
    def of(cls, run: Run, round_: int | None) -> "Clinical | None":
        """Read the counts of the model after ``round_`` rounds; None where no site told any of the
        run's classes.
        """
        rows = [row for row in run.binned(round_) if len(row.images) == len(run.classes)]
        told = {row.site: Binned.read(vars(row)) for row in rows}
        if not told:
            return None
        sites = [Answers(site, run.classes, told[site]) for site in run.info.sites if site in told]
        return cls(Answers("All sites", run.classes, Binned.added(list(told.values()))), sites)

    def pictures(self, label_kind: LabelKind) -> Mapping[str, Markup | dict[str, Markup]]:
        """Return the figures of all sites together; those of the highest probability where there is
        one right class.
        """
        counts = self.pooled.counts
        place = self.pooled.classes.index
        names = sorted((line.images, line.name) for line in self.pooled.lines)[-_CURVES:]
        shown = [line.name for line in self.pooled.lines if (line.images, line.name) in names]
        roc = {name: clinical.roc(counts, place(name)) for name in shown}
        recall = {name: clinical.precision_recall(counts, place(name)) for name in shown}
        curves = {
            "roc": figures.roc({name: curve for name, curve in roc.items() if curve}),
            "recall": figures.precision_recall(
                {name: curve for name, curve in recall.items() if curve}
            ),
        }
        if not label_kind.exclusive:
            points = {name: clinical.reliability_of(counts, place(name)) for name in shown}
            return {**curves, "reliability": figures.reliabilities(points)}
        return {
            **curves,
            "reliability": figures.reliability(clinical.reliability(counts)),
            "referral": figures.referral(*clinical.risk_coverage(counts)),
        }
