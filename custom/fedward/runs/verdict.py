"""The verdict on a run's model: what was tested, how good it is, and where it fails.

It has one denominator: every test image that was evaluated. :func:`fedward.runs.judge.judge` makes
it from a run folder. Console, report, clinician's sheet, model card and notebooks show its numbers
and no others; :mod:`fedward.runs.verdict_words` puts them into sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedward.evaluation.histograms import ConfidenceHistogram
from fedward.evaluation.intervals import Interval
from fedward.runs.measured import Measured, lowest_first
from fedward.runs.over_sites import OverSites
from fedward.runs.subgroups import Subgroup
from fedward.storage.info import Leaks

Level: TypeAlias = Literal["good", "mixed", "poor"]

RIGHT_ENOUGH = 0.95
"""Share of right answers, by the whole interval, at which no human need read them."""
FOUND_ENOUGH = 0.9
"""Sensitivity that a class must be shown to have for that."""
WANTED = (0.9, RIGHT_ENOUGH)
"""Shares of right answers for which pages say how many images to refer to a human."""
CHANCE = 0.5
"""AUROC of guessing."""
UNNAMED = "classes too rare to name"
"""What the classes with fewer than five images at their site are called together."""
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
    """How good one model of a run is."""

    level: Level
    """What :func:`fedward.runs.judge.judge` decides by all the rest."""
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
    clustered_sites: tuple[str, ...]
    """Sites that say how images of patients or lesions cluster, so that intervals allow for it."""
    classes_of_few_patients: tuple[str, ...]
    """Classes whose images are of fewer than five patients at such a site: they count as one."""
    leaks: Mapping[str, Leaks]
    """``picture`` or ``patient`` -> what was found in several of training, validation and test."""
    compared: tuple[Against, ...]

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
