"""Judges the model of a run: reads its numbers from the run folder and decides how good it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from statistics import fmean

from fedward.evaluation.histograms import ConfidenceHistogram
from fedward.evaluation.intervals import mean_and_interval
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.measured import Measured, lowest_first
from fedward.runs.over_sites import over_sites
from fedward.runs.run import Run
from fedward.runs.site_counts import SiteCounts
from fedward.runs.tested import images_by_class, tested_of
from fedward.runs.verdict import CHANCE, UNNAMED, WANTED, Against, Finding, Level, Tested, Verdict

_NORMAL = 1.96
"""Standard errors in half a 95 % interval."""


def judge(run: Run, round_: int | None = None, compared: Sequence[Against] = ()) -> Verdict | None:
    """Judge the model of a run; None where it was not measured or not trained.

    Levels where each image has one answer:

    - good: the accuracy's whole interval is above always answering the commonest class, no class is
      found in fewer than half of its images, no group of images is worse off, nothing is missing,
      no test image or patient is also in training, some round of training improved it, and no
      compared run is better
    - poor: the interval is not above it, nor the balanced accuracy above guessing
    - mixed: everything else

    Where an image may show several classes, the macro AUROC over sites is compared with that of
    guessing, and a model that is not above it is poor. A good one also predicts each class, above
    chance, and names none for most images without it.

    Args:
        run: the run.
        round_: the round to judge; the one that reports describe by default.
        compared: other runs beside this one.
    """
    if round_ is None:
        round_ = Choices.of(run, run.key_metric).reported
    if round_ is None or run.info.untrained:
        return None
    undecided = _Judge(run, round_).undecided_verdict(tuple(compared))
    if undecided is None:
        return None
    return replace(undecided, level=_level(undecided))


@dataclass(frozen=True)
class _Judge:
    """Reads the numbers of one round's model from a run."""

    run: Run
    round: int

    def undecided_verdict(self, compared: tuple[Against, ...]) -> Verdict | None:
        """Return the verdict with all but its level, which is mixed; None without a test value."""
        exclusive = self.run.label_kind.exclusive
        accuracies = self._accuracies()
        aurocs = site_test_values(self.run, "auroc_macro", self.round)
        if not (accuracies if exclusive else aurocs):
            return None
        if exclusive and not self._class_images:
            return None
        overall = self._overall(accuracies) if exclusive else None
        auroc = over_sites(list(aurocs.values()), "auroc_macro")
        return Verdict(
            level="mixed",
            round=self.round,
            unit=self.run.unit,
            own_models=self.run.info.models_stay_at_sites,
            exclusive=exclusive,
            tested=self._tested,
            overall=overall,
            auroc=auroc,
            luck=0.0 if exclusive or (auroc and auroc.is_interval) else self._luck(aurocs),
            common=self._commonest_class() if exclusive else None,
            classes=lowest_first(self._counts.sensitivities),
            unnamed=self._unnamed(overall),
            sites=lowest_first(accuracies if exclusive else self._site_aurocs(aurocs)),
            never=self._never_predicted,
            missed=self._missed(),
            guessed=() if exclusive else self._guessed(),
            alarms=() if exclusive else self._counts.false_for_most,
            unimproved=self.round == 0 and not self.run.server_labels,
            tells_apart=self._tells_apart(),
            confidence=self._confidence(overall),
            design_effect=self._counts.design_effect,
            findings=() if exclusive else tuple(self._findings()),
            subgroups=tuple(self._counts.subgroups.measured()),
            untested_subgroups=self._counts.subgroups.untested,
            clustered_sites=self._counts.clustered_sites,
            classes_of_few_patients=self._counts.classes_of_few_patients,
            leaks=self.run.info.leaks,
            compared=compared,
        )

    @cached_property
    def _counts(self) -> SiteCounts:
        return SiteCounts.of(self.run, self.round)

    @cached_property
    def _class_images(self) -> Mapping[str, int]:
        return images_by_class(self.run, self.round)

    @cached_property
    def _tested(self) -> Tested:
        return tested_of(self.run, self.round, self._class_images)

    def _accuracies(self) -> list[Measured]:
        """Return the share of right answers at each site that has one."""
        rows = self.run.metrics.test_rows("accuracy", self.round)
        accuracies = []
        for site in self.run.info.sites:
            row = rows.get(site)
            if row and row.value is not None and row.n:
                right = round(row.value * row.n)
                effect = self._counts.design_effect_at(site)
                accuracies.append(Measured.of_counts(site, right, row.n, effect))
        return accuracies

    def _overall(self, accuracies: Iterable[Measured]) -> Measured:
        """Return the share of right answers to the images of all sites."""
        right = sum(site.right for site in accuracies)
        return Measured.of_counts("", right, self._tested.images, self._counts.design_effect)

    def _site_aurocs(self, aurocs: Mapping[str, float]) -> list[Measured]:
        """Return the macro AUROC of each site with its number of images; it has no interval."""
        rows = self.run.metrics.test_rows("auroc_macro", self.round)
        return [Measured(site, value, None, None, rows[site].n) for site, value in aurocs.items()]

    def _commonest_class(self) -> Measured:
        name = max(self._class_images, key=self._class_images.__getitem__)
        return Measured.of_counts(name, self._class_images[name], self._tested.images)

    def _unnamed(self, overall: Measured | None) -> Measured | None:
        """Return the right answers to images that no class's numbers hold; None without any."""
        classes = self._counts.sensitivities
        if overall is None or not classes or not self._tested.unnamed:
            return None
        right = overall.right - sum(one.right for one in classes)
        images = overall.n - sum(one.n for one in classes)
        if images < 1 or not 0 <= right <= images:
            return None
        return Measured.of_counts(UNNAMED, right, images)

    @cached_property
    def _never_predicted(self) -> tuple[str, ...]:
        """Classes that no answer names; none where the counts of an evaluating site are missing."""
        if not set(self._tested.evaluated) <= set(self._counts.by_site):
            return ()
        return self._counts.never_predicted

    def _missed(self) -> dict[str, int]:
        """Return class -> test images, for other classes of which no image is recognised."""
        missed = {}
        for name, images in self._class_images.items():
            # Unlike counts, which may be missing, each evaluating site has this metric.
            f1 = site_test_values(self.run, f"f1/{name}", self.round)
            if not any(f1.values()) and name not in self._never_predicted:
                missed[name] = images
        return missed

    def _guessed(self) -> tuple[str, ...]:
        """Return the classes whose mean AUROC over sites is no better than guessing."""
        guessed = []
        for name in self.run.classes:
            values = site_test_values(self.run, f"auroc/{name}", self.round).values()
            if values and sum(values) / len(values) <= CHANCE:
                guessed.append(name)
        return tuple(guessed)

    def _luck(self, sites: Iterable[str]) -> float:
        """Return 1.96 standard errors of the mean macro AUROC of a model that guesses.

        The variance of a class's AUROC is ``(n + 1) / (12 p (n - p))`` for n images, of which p
        show the class: that of Mann and Whitney's statistic without ties. It is multiplied by the
        site's design effect of right answers, as images of one patient are not independent.
        Classes are taken to err together, which is the widest case, and sites independently.

        Args:
            sites: those with a macro AUROC.

        Returns:
            A number >= 0. It is 0.5 where a site says of no class how many images show it.
        """
        rows = self.run.metrics.test_rows("auroc_macro", self.round)
        squares = []
        for site in sites:
            images = rows[site].n
            effect = self._counts.design_effect_at(site)
            errors = []
            for name in self.run.classes:
                positive = self.run.metrics.values("test", f"support/{name}", self.round).get(site)
                if positive and positive < images:
                    pairs = positive * (images - positive)
                    errors.append(sqrt(effect * (images + 1) / (12 * pairs)))
            if not errors:
                # For all that is known, guessing may reach any AUROC, up to 1.
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
        merged = self._counts.merged
        balanced = merged.confusion.balanced_accuracy if merged else None
        return balanced is not None and balanced.low > 1 / len(self._class_images)

    def _confidence(self, overall: Measured | None) -> ConfidenceHistogram | None:
        """Return all evaluated images by confidence; None where counts leave some out."""
        if overall is None or self._counts.merged is None:
            return None
        confidence = self._counts.merged.confidence
        # A site may have failed to count: what is said of confidence would be of other images.
        is_of_all = confidence.total == overall.n
        is_right_for_as_many = int(confidence.right.sum()) == overall.right
        return confidence if is_of_all and is_right_for_as_many else None

    def _findings(self) -> list[Finding]:
        """Return the answers to each class with counts, of a model that may name several."""
        if self._counts.merged is None:
            return []
        findings = []
        for sensitivity in self._counts.sensitivities:
            place = self.run.classes.index(sensitivity.name)
            right = self._counts.merged.confusion.accuracy_of(place)
            if right is None:
                continue
            answers = self._counts.merged.scores.answers(place)
            effect = self._counts.design_effect
            findings.append(
                Finding(
                    sensitivity.name,
                    Measured(sensitivity.name, right.value, right.low, right.high, right.n),
                    sensitivity,
                    tuple(answers.referred_for(wanted, effect) for wanted in WANTED),
                )
            )
        return findings


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
