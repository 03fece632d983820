"""The verdict on a run's model: what was tested, how good it is, and where it fails.

It is computed once, from a run folder, with one denominator: every test image that was evaluated.
Console, report, clinician's sheet, model card and notebooks show these numbers and no others;
:mod:`fedward.runs.verdict_words` puts them into sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from statistics import fmean
from typing import Literal, TypeAlias

from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.clusters import ClusterCounts
from fedward.evaluation.histograms import ConfidenceHistogram
from fedward.evaluation.intervals import Interval, mean_and_interval
from fedward.evaluation.subgroups import SubgroupCounts
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.measured import Measured, lowest_first
from fedward.runs.over_sites import OverSites, over_sites
from fedward.runs.run import Run
from fedward.runs.site_lines import SiteLine, site_lines
from fedward.runs.subgroups import Subgroup, Subgroups
from fedward.storage.info import Leaks
from fedward.storage.rows import BinnedRow

Level: TypeAlias = Literal["good", "mixed", "poor"]

RIGHT_ENOUGH = 0.95
"""Share of right answers, by the whole interval, at which no human need read them."""
FOUND_ENOUGH = 0.9
"""Sensitivity that a class must be shown to have for that."""
WANTED = (0.9, RIGHT_ENOUGH)
"""Shares of right answers for which pages say how many images to refer to a human."""
CHANCE = 0.5
"""AUROC of guessing."""
UNNAMED = "too rare to name"
"""Name of the images of classes with fewer than five at their site."""
_NORMAL = 1.96
"""Standard errors in half a 95 % interval."""
_HALF = 0.5
"""Sensitivity below which a model misses more images of a class than it finds."""


@dataclass(frozen=True)
class Tested:
    """What was tested and what was not."""

    images: int
    """Test images, or patients, of all sites that were evaluated."""
    classes: tuple[str, ...]
    """Classes with numbers from one site or more, in the job's order."""
    untested: tuple[str, ...]
    """Classes without any number."""
    partly: tuple[str, ...]
    """Tested classes of which some evaluated site has no test image, or too few to name them."""
    unnamed: int
    """Evaluated images of classes too rare at their site to have numbers. Hospitals have none."""
    sites: tuple[str, ...]
    """All sites of the run."""
    trained: tuple[str, ...]
    """Sites whose training was used in some round."""
    evaluated: tuple[str, ...]
    """Sites that evaluated the model."""
    without_training_images: tuple[str, ...] = ()
    """Sites that only evaluate, for they have no training images."""
    trains_at_sites: bool = True
    """Whether the run needs its sites to train; False where the server alone has labels."""

    @property
    def not_trained(self) -> tuple[str, ...]:
        """Sites that the model should have learned from, and did not."""
        if not self.trains_at_sites:
            return ()
        known = {*self.trained, *self.without_training_images}
        return tuple(site for site in self.sites if site not in known)

    @property
    def not_evaluated(self) -> tuple[str, ...]:
        """Sites whose images are in no number."""
        return tuple(site for site in self.sites if site not in self.evaluated)

    @property
    def all_classes(self) -> bool:
        """Whether every class has numbers, and no image of one may have been left out of them."""
        return not (self.untested or self.partly or self.unnamed)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing: no class, no image and no site."""
        return self.all_classes and not self.not_evaluated and not self.not_trained


@dataclass(frozen=True)
class Against:
    """A model beside another one, paired over sites with the same test images."""

    other: str
    """What the model is compared with."""
    metric: str
    """Title of the metric."""
    difference: Interval
    """This model's values minus the other's."""

    @property
    def is_better(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.difference.low is not None and self.difference.low > 0

    @property
    def is_worse(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.difference.high is not None and self.difference.high < 0


@dataclass(frozen=True)
class Finding:
    """The answers yes and no to one class of a model that may name several."""

    name: str
    right: Measured
    """Right answers, yes or no, to all images on which the class was evaluated."""
    found: Measured
    """Images of the class that it finds: its sensitivity."""
    referred: tuple[float | None, ...]
    """Share of images to refer for each of :data:`WANTED`; None where no share is enough."""


@dataclass(frozen=True)
class Verdict:
    """How good one model of a run is; see :meth:`of`."""

    level: Level
    round: int
    """The round whose model is judged."""
    unit: str
    """``image`` or ``patient``."""
    own_models: bool
    """Whether each site kept a model of its own, so that no model is common to them."""
    exclusive: bool
    """Whether each image has one answer."""
    tested: Tested
    overall: Measured | None
    """Right answers to all evaluated images; None where an image may show several classes."""
    auroc: OverSites | None
    """Macro AUROC over sites."""
    luck: float
    """How far from 0.5 the macro AUROC of guessing may be by chance alone; 0 where each image has
    one answer, and where the AUROC has an interval over sites."""
    common: Measured | None
    """The commonest class: how often always answering it would be right."""
    classes: tuple[Measured, ...]
    """Sensitivity of each tested class, the lowest first; empty without counts of answers."""
    unnamed: Measured | None
    """Right answers to images of classes too rare at their site to have numbers, together."""
    sites: tuple[Measured, ...]
    """Right answers at each site, or its macro AUROC, the lowest first."""
    never: tuple[str, ...]
    """Tested classes that the model never predicts."""
    missed: Mapping[str, int]
    """Other tested classes of which it recognises no image -> their test images."""
    guessed: tuple[str, ...]
    """Classes of several whose mean AUROC is no better than guessing."""
    alarms: tuple[str, ...]
    """Classes of several that it names for more than half of the images without them."""
    unimproved: bool
    """Whether it is the model before training: no round has a better one by validation."""
    tells_apart: bool
    """Whether its balanced accuracy over sites is above that of guessing."""
    confidence: ConfidenceHistogram | None
    """All evaluated images by confidence; None where counts leave some out, or are missing."""
    design_effect: float
    """Test images for each independent one; 1 where images are independent."""
    findings: tuple[Finding, ...]
    """For a model that may name several classes."""
    subgroups: tuple[Subgroup, ...]
    """Groups with counts, the one that is furthest below what is expected first."""
    untested_subgroups: tuple[str, ...]
    """Groups that sites name, and of which none may report numbers."""
    by_patient: tuple[str, ...]
    """Sites that say how images of patients or lesions cluster, so that intervals allow for it."""
    few_patients: tuple[str, ...]
    """Classes whose images are of fewer than five patients at such a site: they count as one."""
    leaks: Mapping[str, Leaks]
    """``picture`` or ``patient`` -> what was found in several of training, validation and test."""
    compared: tuple[Against, ...]

    @classmethod
    def of(
        cls, run: Run, round_: int | None = None, compared: Sequence[Against] = ()
    ) -> "Verdict | None":
        """Judge the model of a run; None where it was not measured or not trained.

        Levels where each image has one answer:

        - good: the accuracy's whole interval is above always answering the commonest class, no
          class is found in fewer than half of its images, no group of images is worse off, nothing
          is missing, no test image or patient is also in training, some round of
          training improved it, and no compared run is better
        - poor: the interval is not above it, nor the balanced accuracy above guessing
        - mixed: everything else

        Where an image may show several classes, the macro AUROC over sites is compared with that
        of guessing, and a model that is not above it is poor. A good one also predicts each class,
        above chance, and names none for most images without it.

        Args:
            run: the run.
            round_: the round to judge; the one that reports describe by default.
            compared: other runs beside this one.
        """
        if round_ is None:
            round_ = Choices.of(run, run.key_metric).reported
        if round_ is None or run.info.untrained:
            return None
        return _Judge(run, round_).verdict(tuple(compared))

    @property
    def tested_on_training(self) -> tuple[str, ...]:
        """What is in both training and test: ``image``, ``patient``, both or nothing."""
        kinds = {"picture": "image", "patient": "patient"}
        return tuple(
            kinds.get(name, name)
            for name, number in self.leaks.items()
            if number.in_training_and_test
        )

    @property
    def worst_class(self) -> Measured | None:
        """The class with the lowest sensitivity; those that are too rare to name count as one.

        None without counts, and where all of several classes are found as often.
        """
        parts = self.parts
        if not parts or (len(parts) > 1 and parts[0].value == parts[-1].value):
            return None
        return parts[0]

    @property
    def parts(self) -> tuple[Measured, ...]:
        """All images by class, those of classes too rare to name as one, the lowest first."""
        unnamed = (self.unnamed,) if self.unnamed else ()
        return lowest_first((*self.classes, *unnamed))

    @property
    def worst_subgroup(self) -> Subgroup | None:
        """The group furthest below what is expected of its images; None if none is below."""
        if not self.subgroups or self.subgroups[0].shortfall <= 0:
            return None
        return self.subgroups[0]

    @property
    def low_subgroups(self) -> tuple[Subgroup, ...]:
        """Groups whose whole intervals are below what is expected."""
        return tuple(one for one in self.subgroups if one.is_below)

    @property
    def worst_site(self) -> Measured | None:
        """The site with the lowest value; None where no two sites differ."""
        if len(self.sites) < 2 or self.sites[0].value == self.sites[-1].value:
            return None
        return self.sites[0]

    @property
    def weak(self) -> tuple[Measured, ...]:
        """Classes of which it misses more images than it finds, but not all, the lowest first."""
        blind = {*self.never, *self.missed}
        return tuple(one for one in self.classes if one.value < _HALF and one.name not in blind)

    @property
    def is_above_baseline(self) -> bool:
        """Whether the whole interval is above always answering one class, or above guessing."""
        if not self.exclusive:
            return self.auroc is not None and (
                self.auroc.is_above(CHANCE) and self.auroc.mean > CHANCE + self.luck
            )
        low = self.overall.low if self.overall else None
        return low is not None and self.common is not None and low > self.common.value

    @property
    def is_below_baseline(self) -> bool:
        """Whether the whole interval is below always answering one class, or below guessing."""
        if not self.exclusive:
            return self.auroc is not None and (
                self.auroc.is_below(CHANCE) and self.auroc.mean < CHANCE - self.luck
            )
        high = self.overall.high if self.overall else None
        return high is not None and self.common is not None and high < self.common.value

    @property
    def doubtful(self) -> tuple[Measured, ...]:
        """Classes that it is not shown to find in 90 of 100 images, the lowest first."""
        return tuple(one for one in self.classes if (one.low or 0) < FOUND_ENOUGH)

    @property
    def is_right_enough(self) -> bool:
        """Whether a good model's answers are right for 95 of 100, by the whole interval."""
        low = self.overall.low if self.overall else None
        return self.level == "good" and low is not None and low >= RIGHT_ENOUGH

    @property
    def needs_no_human(self) -> bool:
        """Whether it is right enough, and is shown to find each class, also one of few images."""
        return self.is_right_enough and not self.doubtful

    @property
    def referred(self) -> tuple[tuple[float, float | None], ...]:
        """For each of :data:`WANTED` that all answers are not shown to reach, the share to refer.

        The share is None where none is enough. Empty without counts of confidence.
        """
        if self.confidence is None:
            return ()
        shares = []
        for wanted in WANTED:
            share = self.confidence.referred_for(wanted, self.design_effect)
            if share != 0:
                shares.append((wanted, share))
        return tuple(shares)


@dataclass(frozen=True)
class _Judge:
    """Reads the numbers of one round's model from a run."""

    run: Run
    round: int

    def verdict(self, compared: tuple[Against, ...]) -> Verdict | None:
        """Return the verdict; None without a test value."""
        exclusive = self.run.label_kind.exclusive
        accuracies = self._accuracies
        aurocs = site_test_values(self.run, "auroc_macro", self.round)
        if not (accuracies if exclusive else aurocs):
            return None
        if exclusive and not self.class_images:
            return None
        overall = None
        if exclusive:
            right = sum(site.right for site in accuracies)
            overall = Measured.of_counts("", right, self.tested.images, self._design_effect)
        sites = accuracies if exclusive else self._ranked_sites(aurocs)
        auroc = over_sites(list(aurocs.values()), "auroc_macro")
        undecided = Verdict(
            level="mixed",
            round=self.round,
            unit=self.run.unit,
            own_models=self.run.info.models_stay_at_sites,
            exclusive=exclusive,
            tested=self.tested,
            overall=overall,
            auroc=auroc,
            luck=0.0 if exclusive or (auroc and auroc.is_interval) else self._luck(aurocs),
            common=self._common() if exclusive else None,
            classes=lowest_first(self._classes()),
            unnamed=self._unnamed(overall),
            sites=lowest_first(sites),
            never=self._never(),
            missed=self._missed(),
            guessed=() if exclusive else self._guessed(),
            alarms=() if exclusive else self._alarms(),
            unimproved=self.round == 0 and not self.run.server_labels,
            tells_apart=self._tells_apart(),
            confidence=self._confidence(overall),
            design_effect=self._design_effect,
            findings=() if exclusive else tuple(self._findings()),
            subgroups=tuple(self._subgroups.measured()),
            untested_subgroups=self._subgroups.untested,
            by_patient=tuple(row.site for row in self.rows if row.clusters),
            few_patients=self._few_patients(),
            leaks=self.run.info.leaks,
            compared=compared,
        )
        return replace(undecided, level=_level(undecided))

    @cached_property
    def counts(self) -> AnswerCounts | None:
        """Counts of the answers of all sites that report some; None without any."""
        if not self.counts_by_site:
            return None
        return AnswerCounts.merged(list(self.counts_by_site.values()))

    @property
    def _design_effect(self) -> float:
        return self.counts.confusion.design_effect() if self.counts else 1.0

    @cached_property
    def rows(self) -> Sequence[BinnedRow]:
        """The sites' rows of counts, those of other classes left out."""
        return rows_of_counts(self.run, self.round)

    @cached_property
    def counts_by_site(self) -> Mapping[str, AnswerCounts]:
        """Site -> counts of its answers."""
        return {row.site: _counts(row) for row in self.rows}

    @cached_property
    def _subgroups(self) -> "Subgroups":
        columns = {
            row.site: [SubgroupCounts.from_wire(vars(column)) for column in row.subgroups or ()]
            for row in self.rows
        }
        return Subgroups(self.run.classes, self.counts_by_site, columns)

    @cached_property
    def class_images(self) -> dict[str, int]:
        """Class -> its test images at the sites that report them, for classes with some."""
        if self.counts is not None:
            counted = zip(self.run.classes, self.counts.confusion.images.tolist(), strict=True)
            return {name: number for name, number in counted if number}
        images = {}
        for name in self.run.classes:
            support = site_test_values(self.run, f"support/{name}", self.round)
            if any(support.values()):
                images[name] = round(sum(support.values()))
        return images

    @cached_property
    def lines(self) -> Sequence[SiteLine]:
        """What each site brought."""
        return site_lines(self.run)

    @cached_property
    def tested(self) -> Tested:
        """What was tested."""
        run = self.run
        rows = run.metrics.test_rows(run.label_kind.metric_names[0], self.round)
        evaluated = tuple(
            site for site in run.info.sites if site in rows and rows[site].value is not None
        )
        images = sum(rows[site].n for site in evaluated)
        classes = tuple(name for name in run.classes if name in self.class_images)
        untold = self._classes_not_reported(evaluated)
        unnamed = 0
        if run.label_kind.exclusive:
            unnamed = images - sum(self.class_images.values())
        return Tested(
            images=images,
            classes=classes,
            untested=tuple(name for name in run.classes if name not in classes),
            partly=tuple(name for name in classes if name in untold),
            unnamed=max(unnamed, 0),
            sites=run.info.sites,
            trained=tuple(line.site for line in self.lines if line.trained),
            evaluated=evaluated,
            without_training_images=tuple(
                line.site for line in self.lines if line.labelled == 0 and line.unlabelled == 0
            ),
            trains_at_sites=not run.server_labels,
        )

    def _classes_not_reported(self, evaluated: Iterable[str]) -> set[str]:
        """Return the classes of which a site says neither how many images it has, nor that none."""
        classes = set()
        for name in self.run.classes:
            support = self.run.metrics.values("test", f"support/{name}", self.round)
            if any(support.get(site) is None for site in evaluated):
                classes.add(name)
        return classes

    @cached_property
    def _accuracies(self) -> list[Measured]:
        rows = self.run.metrics.test_rows("accuracy", self.round)
        sites = []
        for site in self.run.info.sites:
            row = rows.get(site)
            if row and row.value is not None and row.n:
                counts = self.counts_by_site.get(site)
                effect = counts.confusion.design_effect() if counts else 1.0
                right = round(row.value * row.n)
                sites.append(Measured.of_counts(site, right, row.n, effect))
        return sites

    def _ranked_sites(self, aurocs: Mapping[str, float]) -> list[Measured]:
        rows = self.run.metrics.test_rows("auroc_macro", self.round)
        return [Measured(site, value, None, None, rows[site].n) for site, value in aurocs.items()]

    def _common(self) -> Measured:
        name = max(self.class_images, key=self.class_images.__getitem__)
        return Measured.of_counts(name, self.class_images[name], self.tested.images)

    def _classes(self) -> list[Measured]:
        """Return the sensitivity of each class with counts."""
        if self.counts is None:
            return []
        confusion = self.counts.confusion
        return [
            Measured.of_counts(
                name,
                int(confusion.true_positives[place]),
                int(confusion.images[place]),
                confusion.design_effect(place),
            )
            for place, name in enumerate(self.run.classes)
            if confusion.images[place]
        ]

    def _unnamed(self, overall: Measured | None) -> Measured | None:
        """Return the right answers to images that no class's numbers hold; None without any."""
        classes = self._classes()
        if overall is None or not classes or not self.tested.unnamed:
            return None
        right = overall.right - sum(one.right for one in classes)
        images = overall.n - sum(one.n for one in classes)
        if images < 1 or not 0 <= right <= images:
            return None
        return Measured.of_counts(UNNAMED, right, images)

    def _never(self) -> tuple[str, ...]:
        if self.counts is None:
            return ()
        confusion = self.counts.confusion
        predicted = confusion.true_positives + confusion.false_positives
        return tuple(
            name
            for name, images, answers in zip(
                self.run.classes, confusion.images, predicted, strict=True
            )
            if images and not answers
        )

    def _missed(self) -> dict[str, int]:
        """Return class -> test images, for predicted classes of which no image is recognised."""
        never = self._never()
        found = {one.name: one.right for one in self._classes()}
        missed = {}
        for name, images in self.class_images.items():
            if name in found:
                is_recognised = found[name] > 0
            else:
                f1 = site_test_values(self.run, f"f1/{name}", self.round)
                is_recognised = any(f1.values())
            if not is_recognised and name not in never:
                missed[name] = images
        return missed

    def _guessed(self) -> tuple[str, ...]:
        guessed = []
        for name in self.run.classes:
            values = site_test_values(self.run, f"auroc/{name}", self.round).values()
            if values and sum(values) / len(values) <= CHANCE:
                guessed.append(name)
        return tuple(guessed)

    def _alarms(self) -> tuple[str, ...]:
        if self.counts is None:
            return ()
        confusion = self.counts.confusion
        others = confusion.total - confusion.images
        is_alarm = confusion.false_positives > _HALF * others
        return tuple(name for name, alarm in zip(self.run.classes, is_alarm, strict=True) if alarm)

    def _luck(self, sites: Iterable[str]) -> float:
        """Return 1.96 standard errors of the mean macro AUROC of a model that guesses.

        The variance of a class's AUROC is that of Mann and Whitney's statistic without ties,
        (n + 1) / (12 a b) for a images with the class and b = n - a without, times the site's
        design effect of right answers, as images of one patient are not independent. Classes are
        taken to err together, which is the widest case, and sites independently. Without the number
        of images of any class at a site nothing is shown.
        """
        rows = self.run.metrics.test_rows("auroc_macro", self.round)
        squares = []
        for site in sites:
            images = rows[site].n
            counts = self.counts_by_site.get(site)
            effect = counts.confusion.design_effect() if counts else 1.0
            errors = []
            for name in self.run.classes:
                shown = self.run.metrics.values("test", f"support/{name}", self.round).get(site)
                if shown and shown < images:
                    errors.append(sqrt(effect * (images + 1) / (12 * shown * (images - shown))))
            if not errors:
                # Guessing may then reach any AUROC: none is above 0.5 by more than 0.5.
                return 1 - CHANCE
            squares.append(fmean(errors) ** 2)
        return _NORMAL * sqrt(sum(squares)) / max(len(squares), 1)

    def _tells_apart(self) -> bool:
        """Return whether the balanced accuracy's interval is above that of guessing.

        The interval is over sites; of one site it is that of its images.
        """
        gains = []
        for site, value in site_test_values(self.run, "balanced_accuracy", self.round).items():
            classes = self.run.at(site, "test", self.round)["balanced_accuracy"].classes
            # Guessing among K classes has a balanced accuracy of 1 / K.
            gains.append(value - 1 / max(len(classes), 1))
        if not gains:
            return False
        gain = mean_and_interval(gains)
        if gain.low is not None:
            return gain.low > 0
        balanced = self.counts.confusion.balanced_accuracy if self.counts else None
        return balanced is not None and balanced.low > 1 / len(self.class_images)

    def _confidence(self, overall: Measured | None) -> ConfidenceHistogram | None:
        if overall is None or self.counts is None:
            return None
        confidence = self.counts.confidence
        # A site may have failed to count: what is said of confidence would be of other images.
        is_of_all = confidence.total == overall.n
        is_right_for_as_many = int(confidence.right.sum()) == overall.right
        return confidence if is_of_all and is_right_for_as_many else None

    def _few_patients(self) -> tuple[str, ...]:
        """Return the classes whose images are of fewer than five patients at some site."""
        names = []
        for place, name in enumerate(self.run.classes):
            if any(
                row.clusters and row.images[place] and not row.clusters.effective[place]
                for row in self.rows
            ):
                names.append(name)
        return tuple(names)

    def _findings(self) -> list[Finding]:
        if self.counts is None:
            return []
        findings = []
        for one in self._classes():
            place = self.run.classes.index(one.name)
            right = self.counts.confusion.accuracy_of(place)
            if right is None:
                continue
            answers = self.counts.scores.answers(place)
            findings.append(
                Finding(
                    one.name,
                    Measured(one.name, right.value, right.low, right.high, right.n),
                    one,
                    tuple(answers.referred_for(wanted, self._design_effect) for wanted in WANTED),
                )
            )
        return findings


def counts_by_site(run: Run, round_: int | None) -> dict[str, AnswerCounts]:
    """Return site -> counts of its answers after a round, in the run's order of sites.

    Empty for a run without counts, or with counts of other classes.
    """
    return {row.site: _counts(row) for row in rows_of_counts(run, round_)}


def _counts(row: BinnedRow) -> AnswerCounts:
    counts = AnswerCounts.from_wire(vars(row))
    if row.clusters is None:
        return counts
    return counts.of_patients(ClusterCounts.from_wire(vars(row.clusters)))


def rows_of_counts(run: Run, round_: int | None) -> list[BinnedRow]:
    """Return each site's row of counts after a round, in the run's order of sites.

    Rows with counts of other classes are left out.
    """
    rows = {row.site: row for row in run.binned(round_) if len(row.images) == len(run.classes)}
    return [rows[site] for site in run.info.sites if site in rows]


def _level(verdict: Verdict) -> Level:
    if not verdict.is_above_baseline:
        return "mixed" if verdict.exclusive and verdict.tells_apart else "poor"
    has_exceptions = (
        verdict.never
        or verdict.missed
        or verdict.weak
        or verdict.guessed
        or verdict.alarms
        or verdict.unimproved
        or verdict.tested_on_training
        or any(one.is_worse for one in verdict.compared)
        or verdict.low_subgroups
    )
    return "mixed" if has_exceptions or not verdict.tested.complete else "good"
