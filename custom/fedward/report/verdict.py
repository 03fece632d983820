"""Judges a run's model for its readers: is it of use, on whose images, and where does it fail?"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fedward.evaluation.intervals import Interval, mean_and_interval, proportion_interval
from fedward.evaluation.selection import Selection, kept_round, mean
from fedward.report.comparison import ComparedRun
from fedward.report.words import named
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.run import Run
from fedward.runs.titles import title_of
from fedward.text import count

_CHANCE = 0.5
"""AUROC of guessing."""
_MOST_COMPARED = 5
"""Number of other runs that get a sentence each, at most."""


@dataclass(frozen=True)
class Baseline:
    """The selected model's accuracy on all test images, beside that of one constant answer."""

    round: int
    """Round of the selected model."""
    accuracy: float
    low: float
    """Lower end of the 95 % interval (Wilson) of the accuracy."""
    high: float
    """Upper end of that interval."""
    images: int
    """Number of test images of all sites."""
    common: str
    """The class with the most test images of all sites."""
    share: float
    """That class's share of the test images: how often always answering it would be right."""
    missed: Mapping[str, int]
    """Class -> number of its test images, for classes of which no site recognised an image."""

    @property
    def beaten(self) -> bool:
        """Whether the whole interval lies above the constant answer."""
        return self.low > self.share


@dataclass(frozen=True)
class Verdict:
    """Whether the model is of use."""

    level: Literal["good", "mixed", "poor"]
    lead: str
    """The verdict in a sentence, and the classes that the model does not recognise."""
    numbers: str
    """Sentences with the numbers that the verdict follows from."""
    of_hundred: str
    """The same numbers for clinicians, counted of 100 images."""


class WorstSite(NamedTuple):
    """The site with the lowest test value."""

    site: str
    value: float
    images: int
    """Number of the site's test images."""


class Origin(NamedTuple):
    """Where the images of a run came from; one of the two texts is empty."""

    warning: str
    """Says that images are synthetic, so that numbers from them say nothing about patients."""
    sentence: str
    """Says that no images are synthetic, or that it is unknown."""


def baseline(run: Run, choices: Choices) -> Baseline | None:
    """Return how the selected model compares with a constant answer; None if not measured."""
    round_ = choices.reported
    accuracies = kept_round(run.metrics.named("accuracy"), "accuracy", round_)
    images = sum(choice.images for choice in accuracies.sites if choice.test is not None)
    support = {}
    """Class -> number of its test images at all sites."""
    for name in run.classes:
        support[name] = round(sum(site_test_values(run, f"support/{name}", round_).values()))
    if round_ is None or accuracies.pooled is None or not images or not any(support.values()):
        return None
    low, high = proportion_interval(accuracies.pooled, images)
    common = max(support, key=support.__getitem__)
    missed = {
        name: number
        for name, number in support.items()
        if number and not _is_recognised(run, name, round_)
    }
    return Baseline(
        round=round_,
        accuracy=accuracies.pooled,
        low=low,
        high=high,
        images=images,
        common=common,
        share=support[common] / images,
        missed=missed,
    )


def _is_recognised(run: Run, name: str, round_: int) -> bool:
    """Return whether any site recognised an image of a class, so that its F1 is above 0."""
    return any(site_test_values(run, f"f1/{name}", round_).values())


def verdict(
    run: Run,
    choices: Choices,
    baseline: Baseline | None,
    never_predicted: Collection[str] = (),
) -> Verdict | None:
    """Return what a reader must know of the selected model; None where it cannot be judged.

    Where an image may show several classes, or none, the AUROC decides: see
    :func:`_multi_label_verdict`. Otherwise the levels are

    - good: the whole interval of the accuracy lies above that of always answering the commonest
      class, and some images of every class are recognised
    - poor: the interval does not lie above it, and the balanced accuracy is not above guessing
    - mixed: everything else

    Args:
        run: the run.
        choices: say which round's model is judged.
        baseline: what :func:`baseline` returned for this run and these choices.
        never_predicted: classes that are known to be never predicted.
    """
    if not run.label_kind.exclusive:
        return _multi_label_verdict(run, choices.reported, never_predicted)
    if baseline is None or run.info.untrained:
        return None
    always = f"always answering “{baseline.common}”"
    numbers = (
        f"The selected model (round {baseline.round}) labels {_percent(baseline.accuracy)} % of "
        f"{count(baseline.images, f'test {run.unit}')} of all sites rightly (95 % interval "
        f"{_percent(baseline.low)} to {_percent(baseline.high)} %). Always answering "
        f"“{baseline.common}” would be right for {_percent(baseline.share)} %."
    )
    of_hundred = (
        f"Of 100 test {run.unit}s it labels {_of_hundred(baseline.accuracy)} rightly (95 % "
        f"interval {_of_hundred(baseline.low)} to {_of_hundred(baseline.high)}). Always answering "
        f"“{baseline.common}” would be right for {_of_hundred(baseline.share)}."
    )
    missed = _missed_sentences(baseline.missed, never_predicted, run.unit)
    if baseline.beaten:
        level: Literal["good", "mixed"] = "mixed" if missed else "good"
        return Verdict(level, f"Better than {always}.{missed}", numbers, of_hundred)
    if _tells_apart(run, baseline.round):
        lead = f"It tells classes apart, but is right no more often than {always}.{missed}"
        return Verdict("mixed", lead, numbers, of_hundred)
    return Verdict("poor", f"Of no use: not better than {always}.{missed}", numbers, of_hundred)


def _multi_label_verdict(
    run: Run, round_: int | None, never_predicted: Collection[str]
) -> Verdict | None:
    """Return what a reader must know of a multi-label model; None where it cannot be judged.

    - good: the macro AUROC is above chance, by the interval over sites, so is the mean AUROC of
      each class, and each class is predicted for some images
    - mixed: only the macro AUROC is above chance
    - poor: everything else
    """
    values = site_test_values(run, "auroc_macro", round_)
    if not values or run.info.untrained:
        return None
    auroc = _interval_over_sites(list(values.values()), "auroc_macro")
    interval = ""
    interval_of_hundred = ""
    if auroc.low is not None and auroc.high is not None:
        interval = f" (95 % interval over sites {auroc.low:.3f} to {auroc.high:.3f})"
        interval_of_hundred = (
            f" (95 % interval over sites {_of_hundred(auroc.low)} to {_of_hundred(auroc.high)})"
        )
    numbers = (
        f"The macro AUROC of the selected model (round {round_}) is {auroc.mean:.3f} on average "
        f"over {count(auroc.n, 'site')}{interval}. Guessing would reach 0.5."
    )
    of_hundred = (
        "Shown one image with a finding and one without it, it ranks the right one higher in "
        f"{_of_hundred(auroc.mean)} of 100 such pairs{interval_of_hundred}. Guessing would in 50."
    )
    if not _is_above(auroc, _CHANCE):
        return Verdict("poor", "Of no use: not better than guessing.", numbers, of_hundred)
    exceptions = []
    guessed = [name for name in run.classes if _is_guessed(run, name, round_)]
    if guessed:
        exceptions.append(f"not for {', '.join(guessed)}")
    if never_predicted:
        exceptions.append(f"it says of no image that it shows {', '.join(never_predicted)}")
    if exceptions:
        lead = f"Better than guessing, but {', and '.join(exceptions)}."
        return Verdict("mixed", lead, numbers, of_hundred)
    lead = "Better than guessing, for every class that was tested."
    return Verdict("good", lead, numbers, of_hundred)


def _is_above(interval: Interval, bound: float) -> bool:
    """Return whether a whole interval, or its mean where it has no ends, is above a bound."""
    lowest = interval.mean if interval.low is None else interval.low
    return lowest > bound


def _is_guessed(run: Run, name: str, round_: int | None) -> bool:
    """Return whether the mean AUROC of a class is known, and not above chance."""
    auroc = mean(site_test_values(run, f"auroc/{name}", round_).values())
    return auroc is not None and auroc <= _CHANCE


def _missed_sentences(
    missed: Mapping[str, int], never_predicted: Collection[str], unit: str
) -> str:
    """Return a sentence on classes that are never predicted, and one on those never recognised."""
    sentences = ""
    unpredicted = [name for name in missed if name in never_predicted]
    if unpredicted:
        classes = [f"“{name}” ({count(missed[name], f'test {unit}')})" for name in unpredicted]
        sentences += f" It never predicts {', '.join(classes)}."
    unrecognised = [name for name in missed if name not in never_predicted]
    if unrecognised:
        classes = [f"“{name}” ({missed[name]})" for name in unrecognised]
        sentences += f" It recognises none of the test {unit}s of {', '.join(classes)}."
    return sentences


def _tells_apart(run: Run, round_: int) -> bool:
    """Return whether the balanced accuracy's interval over sites lies above that of guessing."""
    gains = []
    for site, value in site_test_values(run, "balanced_accuracy", round_).items():
        classes = run.at(site, "test", round_)["balanced_accuracy"].classes
        # Guessing among K classes has a balanced accuracy of 1 / K.
        gains.append(value - 1 / max(len(classes), 1))
    if not gains:
        return False
    return _is_above(mean_and_interval(gains), 0)


def over_sites(selection: Selection) -> Interval | None:
    """Return the mean of a selection's test values with its 95 % t interval over sites.

    A score's interval stays within the score's bounds. The interval has no ends where all sites
    have the same value, because it would have no width. The result is None without a test value.
    """
    values = [choice.test for choice in selection.sites if choice.test is not None]
    return _interval_over_sites(values, selection.metric) if values else None


def _interval_over_sites(values: Sequence[float], metric: str) -> Interval:
    interval = mean_and_interval(values).of_score(metric)
    return replace(interval, low=None, high=None) if interval.sd == 0 else interval


def worst(selection: Selection) -> WorstSite | None:
    """Return the site with the lowest test value; None where no two sites differ."""
    sites = [
        WorstSite(choice.site, choice.test, choice.images)
        for choice in selection.sites
        if choice.test is not None
    ]
    if len({site.value for site in sites}) < 2:
        return None
    return min(sites, key=lambda site: site.value)


def headline(choices: Choices, compared: Sequence[ComparedRun], unit: str) -> list[str]:
    """Return sentences on a run's result, its differences from other runs, and its worst site."""
    end = choices.end
    interval = over_sites(end)
    if interval is None:
        return []
    rounds = ", ".join(map(str, end.rounds))
    when = f"After round {rounds}"
    if len(end.rounds) > 1:
        when = f"Over the last evaluations (rounds {rounds})"
    result = f"{when}, test {title_of(end.metric)} is {interval.mean:.3f} on average over sites"
    if interval.low is not None:
        result += f" (95 % interval over sites {interval.low:.3f} to {interval.high:.3f})"
    if end.pooled is not None:
        result += f", and {end.pooled:.3f} where each {unit} of all sites counts once"
    sentences = [f"{result}.", *differences(compared, end.metric)]
    lowest = worst(end)
    if lowest:
        images = count(lowest.images, f"test {unit}")
        sentences.append(f"It is worst at {lowest.site}: {lowest.value:.3f} ({images}).")
    return sentences


def differences(lines: Sequence[ComparedRun], metric: str) -> list[str]:
    """Return a sentence on each other run: the first line's result minus that of the other."""
    measured = [line for line in lines[1:] if line.choices.end.test is not None]
    return [_difference(lines[0], line, metric) for line in measured[:_MOST_COMPARED]]


def _difference(own: ComparedRun, other: ComparedRun, metric: str) -> str:
    difference = other.difference
    if difference is None:
        return (
            f"{own.name} and {other.name} have no site with the same test images, so their "
            "difference is not known."
        )
    return (
        f"{own.name} minus {other.name}: {_signed(difference)} in test {title_of(metric)} over "
        f"the last rounds, paired over {count(other.paired, 'site')}."
        f"{_judgement(difference)}{_lengths(own, other)}"
    )


def _signed(difference: Interval) -> str:
    """Return a difference with its sign, and with its interval if there is one."""
    if difference.low is None:
        return f"{difference.mean:+.3f}"
    interval = f"95 % interval {difference.low:+.3f} to {difference.high:+.3f}"
    return f"{difference.mean:+.3f} ({interval})"


def _judgement(difference: Interval) -> str:
    """Return a sentence on whether a difference is clear; empty without an interval."""
    if difference.low is None or difference.high is None:
        return ""
    if difference.low > 0:
        return " Clearly better."
    if difference.high < 0:
        return " Clearly worse."
    return " No clear difference."


def _lengths(own: ComparedRun, other: ComparedRun) -> str:
    """Return a sentence on runs of different lengths; empty if their lengths are the same."""
    last_rounds = {}
    for line in (own, other):
        if line.choices.end.rounds:
            last_rounds[line.name] = line.choices.end.rounds[-1]
    if len(set(last_rounds.values())) < 2:
        return ""
    lengths = [f"{name} has {count(rounds, 'round')}" for name, rounds in last_rounds.items()]
    return f" Their lengths differ: {' and '.join(lengths)}."


def origin(run: Run) -> Origin:
    """Return where the images of a run came from, as far as its sites said."""
    by_site = run.info.synthetic
    if not by_site:
        return Origin("", "This run does not record whether its images were synthetic.")
    sites = count(len(by_site), "site")
    synthetic = [site for site, drawn in by_site.items() if drawn]
    if not synthetic:
        sentence = f"Data: images of their own at {sites}, as each site said. No synthetic images."
        return Origin("", sentence)
    which = f"{len(synthetic)} of {sites} ({named(synthetic)})"
    if len(synthetic) == len(by_site):
        which = f"all {sites}"
    warning = (
        f"Synthetic data: {which} worked on images that fedward draws. These numbers say how the "
        "software behaves. They say nothing about patients."
    )
    return Origin(warning, "")


def unit(run: Run) -> str:
    """Return sentences on how a run's images are grouped for evaluation; empty if they are not."""
    if run.unit == "image":
        return ""
    return (
        "Evaluated by patient: the answer is the mean of the probabilities of a patient's images. "
        "What a site's file calls a group counts as a patient, such as a volume."
    )


def _percent(share: float) -> str:
    """Return a share in per cent, with one decimal."""
    return f"{share * 100:.1f}"


def _of_hundred(share: float) -> str:
    """Return a share as a whole number of 100."""
    return f"{share * 100:.0f}"
