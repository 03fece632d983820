"""Clinical numbers of the selected model per class, of all sites together and of each site."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import NamedTuple

from markupsafe import Markup

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.confusion import Rates
from fedward.evaluation.intervals import Share
from fedward.evaluation.names import ERRORS
from fedward.evaluation.selection import mean
from fedward.label_kinds import LabelKind
from fedward.report import clinical_figures as figures
from fedward.report.shades import shade
from fedward.runs.measured import Measured
from fedward.runs.run import Run
from fedward.runs.site_counts import SiteCounts
from fedward.runs.subgroups import Subgroup
from fedward.runs.verdict import WANTED

_CURVES = 20
"""Number of classes that have curves, those with the most images."""


@dataclass(frozen=True)
class ClassRates:
    """One class against all others."""

    name: str
    images: int
    rates: Rates


class Areas(NamedTuple):
    """Areas under both curves of one class, as means over the sites where they are defined."""

    name: str
    auroc: float | None
    """Area under the ROC curve of the probabilities; None where no site has one."""
    auroc_from_answers: float | None
    """Area under the ROC curve of the answers alone."""
    auprc: float | None
    """Average precision of the probabilities."""
    auprc_from_answers: float | None
    """Area under the precision-recall curve of the answers alone, by trapezoids."""


class CalibrationLine(NamedTuple):
    """How far answers can be trusted; None where a number is not reported."""

    name: str
    """Of the site, or of the sites together."""
    ece: float | None
    """Expected calibration error over fixed intervals."""
    mce: float | None
    """Maximum calibration error over fixed intervals."""
    ece_adaptive: float | None
    mce_adaptive: float | None
    aurc: float | None
    """Area under the risk-coverage curve."""


@dataclass(frozen=True)
class ClassTrust:
    """The answers yes and no to one class of a multi-label model."""

    name: str
    right: Share | None
    referred: tuple[float | None, ...]
    """Share of images to refer for each of :data:`WANTED`.

    0 where all answers reach it, and None where no share is enough.
    """


class MatrixCell(NamedTuple):
    """The images of one class that were given another, or the same."""

    images: int | None
    """None where fewer than five, and the answers are wrong."""
    style: str
    """Classes of the style sheet: how dark the cell is, and whether its answers are right."""


@dataclass(frozen=True)
class MatrixRow:
    """What images of one class were given."""

    name: str
    cells: tuple[MatrixCell, ...]
    """By the class given, in the job's order."""
    rest: int
    """Images in cells that are withheld."""


@dataclass(frozen=True)
class Answers:
    """The selected model's answers on the test images of a site, or of all sites."""

    name: str
    classes: tuple[str, ...]
    counts: AnswerCounts

    @cached_property
    def lines(self) -> list[ClassRates]:
        """A line for each class with test images."""
        places = [place for place, images in enumerate(self.counts.confusion.images) if images]
        return [self._line(place) for place in places]

    def most_frequent(self, most: int) -> list[str]:
        """Return the classes with the most images, at most ``most``, in the job's order."""
        ranked = sorted((line.images, line.name) for line in self.lines)
        frequent = {name for _, name in ranked[-most:]}
        return [line.name for line in self.lines if line.name in frequent]

    def rates(self, name: str) -> Rates | None:
        """Return the rates of a class; None without test images of it."""
        return next((line.rates for line in self.lines if line.name == name), None)

    @property
    def matrix(self) -> list[MatrixRow]:
        """The confusion matrix: a row for each class with test images."""
        return [self._row(self.classes.index(line.name)) for line in self.lines]

    @property
    def accuracy(self) -> Share | None:
        """Share of right answers to all counted images, where each has one."""
        confidence = self.counts.confidence
        effect = self.counts.confusion.design_effect()
        return Share.of(int(confidence.right.sum()), confidence.total, effect)

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error."""
        return self.counts.confidence.calibration_error

    @property
    def largest_calibration_error(self) -> float | None:
        """Maximum calibration error."""
        return self.counts.confidence.largest_calibration_error

    @property
    def trust_by_class(self) -> list[ClassTrust]:
        """A line for each class of a multi-label model with test images."""
        lines = []
        effect = self.counts.confusion.design_effect()
        for line in self.lines:
            place = self.classes.index(line.name)
            answers = self.counts.scores.answers(place)
            referred = tuple(answers.referred_for(wanted, effect) for wanted in WANTED)
            right = self.counts.confusion.accuracy_of(place)
            lines.append(ClassTrust(line.name, right, referred))
        return lines

    def _line(self, place: int) -> ClassRates:
        confusion = self.counts.confusion
        return ClassRates(self.classes[place], int(confusion.images[place]), confusion.rates(place))

    def _row(self, place: int) -> MatrixRow:
        of_class = int(self.counts.confusion.images[place])
        numbers: list[int | None] = [int(number) or None for number in self.counts.cells[place]]
        numbers[place] = int(self.counts.confusion.true_positives[place])
        cells = []
        for given, images in enumerate(numbers):
            style = f"level-{shade(images or 0, of_class)}"
            if given == place:
                style += " own"
            cells.append(MatrixCell(images, style))
        told = sum(images or 0 for images in numbers)
        return MatrixRow(self.classes[place], tuple(cells), rest=of_class - told)


class CurvePanel(NamedTuple):
    """What stands above both curves of a class."""

    auroc: str
    """Exact area, mean over sites."""
    auprc: str
    images: int
    """Test images of the class."""


def curve_panel(answers: Answers, areas: Mapping[str, Areas], name: str) -> CurvePanel:
    """Return the exact areas of a class and its number of images."""
    area = areas[name]
    images = next(line.images for line in answers.lines if line.name == name)
    return CurvePanel(
        "n/a" if area.auroc is None else f"{area.auroc:.3f}",
        "n/a" if area.auprc is None else f"{area.auprc:.3f}",
        images,
    )


def _operating_point(answers: Answers, name: str) -> tuple[float, float] | None:
    """Return 1 - specificity and sensitivity of the model's answers; None without either."""
    rates = answers.rates(name)
    if rates is None or rates.sensitivity is None or rates.specificity is None:
        return None
    return 1 - rates.specificity.value, rates.sensitivity.value


@dataclass(frozen=True)
class Figures:
    """Figures of the answers of all sites together."""

    roc: Mapping[str, Markup]
    """Class -> its ROC curve."""
    recall: Mapping[str, Markup]
    """Class -> its curve of precision and recall."""
    panels: Mapping[str, CurvePanel]
    """Class -> what stands above its curves."""
    reliability: Markup | Mapping[str, Markup]
    """Calibration of the highest probability; of a multi-label model that of each class."""
    referral: Markup | None
    """What referring to a human brings; None for a multi-label model."""

    @classmethod
    def of(cls, answers: Answers, label_kind: LabelKind, areas: Mapping[str, Areas]) -> "Figures":
        """Draw the figures of the classes with the most images.

        ``areas``: class -> its exact areas. Curves of counts have coarser ones.
        """
        counts = answers.counts
        roc = {}
        recall = {}
        calibration = {}
        for name in answers.most_frequent(_CURVES):
            place = answers.classes.index(name)
            ranking = counts.scores.ranking(place)
            roc_curve = ranking.roc()
            if roc_curve:
                roc[name] = roc_curve
            recall_curve = ranking.precision_recall()
            if recall_curve:
                recall[name] = recall_curve
            if not label_kind.exclusive:
                calibration[name] = counts.scores.reliability(place)
        reliability: Markup | Mapping[str, Markup]
        if label_kind.exclusive:
            reliability = figures.reliability(counts.confidence.reliability())
            referral = figures.referral(*counts.confidence.risk_coverage())
        else:
            reliability = figures.reliabilities(calibration)
            referral = None
        points = {name: _operating_point(answers, name) for name in roc}
        panels = {name: curve_panel(answers, areas, name) for name in {**roc, **recall}}
        return cls(
            figures.roc(roc, points, {name: panel.auroc for name, panel in panels.items()}),
            figures.precision_recall(recall, {name: p.auprc for name, p in panels.items()}),
            panels,
            reliability,
            referral,
        )


@dataclass(frozen=True)
class Clinical:
    """What a report shows of one model's answers."""

    pooled: Answers
    """Answers of all sites together."""
    sites: Sequence[Answers]
    """Answers of each site that reports some."""
    calibration: Sequence[CalibrationLine]
    """A line for each of these sites."""
    areas: Sequence[Areas]
    """A line for each class with test images."""
    label_kind: LabelKind

    @classmethod
    def of(cls, run: Run, round_: int | None) -> "Clinical | None":
        """Read the counts of the model after ``round_`` rounds; None where no site reports any."""
        by_site = SiteCounts.of(run, round_).by_site
        if not by_site:
            return None
        pooled = Answers("All sites", run.classes, AnswerCounts.merged(list(by_site.values())))
        sites = [Answers(site, run.classes, counts) for site, counts in by_site.items()]
        calibration = [_calibration(run, round_, answers) for answers in sites]
        areas = [_areas(run, round_, line.name, sites) for line in pooled.lines]
        return cls(pooled, sites, calibration, areas, run.label_kind)

    @property
    def mean_calibration(self) -> CalibrationLine:
        """The mean of each number over the sites that report it."""
        return CalibrationLine(
            "Mean over sites",
            ece=mean(line.ece for line in self.calibration),
            mce=mean(line.mce for line in self.calibration),
            ece_adaptive=mean(line.ece_adaptive for line in self.calibration),
            mce_adaptive=mean(line.mce_adaptive for line in self.calibration),
            aurc=mean(line.aurc for line in self.calibration),
        )

    @property
    def pooled_calibration(self) -> CalibrationLine:
        """The numbers of all answers together, without those that need each answer by itself."""
        return CalibrationLine(
            self.pooled.name,
            ece=self.pooled.calibration_error,
            mce=self.pooled.largest_calibration_error,
            ece_adaptive=None,
            mce_adaptive=None,
            aurc=None,
        )

    def sensitivities(self, group: Subgroup) -> list[Measured | None]:
        """Return a group's sensitivity for each class with test images, in the job's order.

        It is None for a class of which the group has no number.
        """
        of_class = {measured.name: measured for measured in group.classes}
        return [of_class.get(line.name) for line in self.pooled.lines]

    @cached_property
    def figures(self) -> Figures:
        """The figures of all sites together; only the report draws them."""
        areas = {line.name: line for line in self.areas}
        return Figures.of(self.pooled, self.label_kind, areas)


def _calibration(run: Run, round_: int | None, answers: Answers) -> CalibrationLine:
    """Return a site's line; numbers over fixed intervals come from its counts, others from rows."""
    rows = run.metrics.at(answers.name, "test", round_)
    errors = {name: rows[name].value for name in ERRORS if name in rows}
    return CalibrationLine(
        answers.name,
        ece=answers.counts.confidence.calibration_error,
        mce=answers.counts.confidence.largest_calibration_error,
        ece_adaptive=errors.get("ece_adaptive"),
        mce_adaptive=errors.get("mce_adaptive"),
        aurc=errors.get("aurc"),
    )


def _areas(run: Run, round_: int | None, name: str, sites: Sequence[Answers]) -> Areas:
    """Return a class's line; areas of probabilities come from rows, those of answers from counts.

    Curves of counts would be too coarse for a class whose scores a site has in one interval.
    """
    place = run.classes.index(name)
    confusions = [answers.counts.confusion for answers in sites]
    return Areas(
        name,
        auroc=mean(run.metrics.values("test", f"auroc/{name}", round_).values()),
        auroc_from_answers=mean(_defined(one.auroc_from_answers[place]) for one in confusions),
        auprc=mean(run.metrics.values("test", f"auprc/{name}", round_).values()),
        auprc_from_answers=mean(_defined(one.auprc_from_answers[place]) for one in confusions),
    )


def _defined(value: float) -> float | None:
    return None if isnan(value) else float(value)
