"""The first things a reader must know: is the model of any use, on whose images, and where does it
fail.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedward.evaluation.intervals import Interval, mean_and_interval, proportion_interval
from fedward.evaluation.selection import Selection, kept_round, mean
from fedward.report.comparison import Comparison
from fedward.report.words import named
from fedward.runs.choices import Choices, tested_values
from fedward.runs.run import Run
from fedward.runs.titles import title_of
from fedward.text import count

_CHANCE = 0.5
"""AUROC of guessing."""
_COMPARED = 5
"""So many other runs have a sentence each."""


@dataclass(frozen=True)
class Baseline:
    """The selected model's accuracy on all test images, beside that of always answering the
    commonest class.
    """

    round: int
    accuracy: float
    low: float
    high: float
    """95 % interval (Wilson) of the accuracy."""
    images: int
    common: str
    """The class with the most test images of all sites."""
    share: float
    """Its share of them: how often the answer that is always this class is right."""
    missed: Mapping[str, int]
    """Class -> test images, of the classes of which no site's image was recognised."""

    @property
    def beaten(self) -> bool:
        """Whether the whole interval lies above the baseline."""
        return self.low > self.share


@dataclass(frozen=True)
class Verdict:
    """Whether the model is of use."""

    level: Literal["good", "mixed", "poor"]
    lead: str
    """The verdict itself, and the classes that the model does not see."""
    told: str
    """The numbers it follows from."""
    plain: str
    """The same for clinicians, of 100 images."""


def baseline(run: Run, choices: Choices) -> Baseline | None:
    """Return how the selected model compares with no model; None where it, or no class of it, was
    measured.
    """
    round_ = choices.reported
    found = kept_round(run.metrics.named("accuracy"), "accuracy", round_)
    images = sum(choice.images for choice in found.sites if choice.test is not None)
    support = {
        name: round(sum(tested_values(run, f"support/{name}", round_).values()))
        for name in run.classes
    }
    if round_ is None or found.pooled is None or not images or not any(support.values()):
        return None
    low, high = proportion_interval(found.pooled, images)
    common = max(support, key=support.__getitem__)
    missed = {
        name: number
        for name, number in support.items()
        if number and not _recognised(run, name, round_)
    }
    return Baseline(
        round_, found.pooled, low, high, images, common, support[common] / images, missed
    )


def _recognised(run: Run, name: str, round_: int) -> bool:
    return any(tested_values(run, f"f1/{name}", round_).values())


def verdict(
    run: Run, choices: Choices, found: Baseline | None, never: Collection[str] = ()
) -> Verdict | None:
    """Return what a reader must know of the selected model; None where it cannot be judged.

    Where an image may show several classes, or none, it is by the AUROC: see :func:`_of_several`.
    Else:

    good: more images are labelled rightly than by always answering the commonest class, by the
    whole interval, and of every class some are recognised. poor: neither that, nor is the balanced
    accuracy above that of guessing. mixed: all else. ``never``: classes that are known to be never
    predicted.
    """
    if not run.label_kind.exclusive:
        return _of_several(run, choices.reported, never)
    if found is None or run.info.untrained:
        return None
    always = f"always answering “{found.common}”"
    told = (
        f"The selected model (round {found.round}) labels {_percent(found.accuracy)} % of "
        f"{count(found.images, f'test {run.unit}')} of all sites rightly (95 % interval {_percent(found.low)} to "
        f"{_percent(found.high)} %). Always answering “{found.common}” would be right for {_percent(found.share)} %."
    )
    plain = (
        f"Of 100 test {run.unit}s it labels {_of_hundred(found.accuracy)} rightly (95 % interval "
        f"{_of_hundred(found.low)} to {_of_hundred(found.high)}). Always answering “{found.common}” would be right for "
        f"{_of_hundred(found.share)}."
    )
    missed = _missed(found.missed, never, run.unit)
    if found.beaten:
        return Verdict("mixed" if missed else "good", f"Better than {always}.{missed}", told, plain)
    if _tells_apart(run, found.round):
        lead = f"It tells classes apart, but is right no more often than {always}.{missed}"
        return Verdict("mixed", lead, told, plain)
    return Verdict("poor", f"Of no use: not better than {always}.{missed}", told, plain)


def _of_several(run: Run, round_: int | None, never: Collection[str]) -> Verdict | None:
    """Return what a reader must know of a multi-label model; None where it cannot be judged.

    good: its macro AUROC is above chance, by the interval over sites, so is the mean AUROC of each
    class, and it says each class of some images. mixed: the first alone. poor: else.
    """
    values = tested_values(run, "auroc_macro", round_)
    if not values or run.info.untrained:
        return None
    found = _of_sites([*values.values()], "auroc_macro")
    interval = hundred = ""
    if found.low is not None and found.high is not None:
        interval = f" (95 % interval over sites {found.low:.3f} to {found.high:.3f})"
        hundred = (
            f" (95 % interval over sites {_of_hundred(found.low)} to {_of_hundred(found.high)})"
        )
    told = (
        f"The macro AUROC of the selected model (round {round_}) is {found.mean:.3f} on average over "
        f"{count(found.n, 'site')}{interval}. Guessing would reach 0.5."
    )
    plain = (
        f"Shown one image with a finding and one without it, it ranks the right one higher in "
        f"{_of_hundred(found.mean)} of 100 such pairs{hundred}. Guessing would in 50."
    )
    if (found.mean if found.low is None else found.low) <= _CHANCE:
        return Verdict("poor", "Of no use: not better than guessing.", told, plain)
    by_class = {
        name: mean(tested_values(run, f"auroc/{name}", round_).values()) for name in run.classes
    }
    guessed = [name for name, value in by_class.items() if value is not None and value <= _CHANCE]
    but = [f"not for {', '.join(guessed)}"] if guessed else []
    but += [f"it says of no image that it shows {', '.join(never)}"] if never else []
    if but:
        return Verdict("mixed", f"Better than guessing, but {', and '.join(but)}.", told, plain)
    return Verdict("good", "Better than guessing, for every class that was tested.", told, plain)


def _missed(missed: Mapping[str, int], never: Collection[str], unit: str) -> str:
    """Return a sentence of the classes that are never predicted, and one of those whose images are
    never recognised.
    """
    predicted_never = [(name, number) for name, number in missed.items() if name in never]
    unsaid = ", ".join(
        f"“{name}” ({count(number, f'test {unit}')})" for name, number in predicted_never
    )
    blind = ", ".join(
        f"“{name}” ({number})" for name, number in missed.items() if name not in never
    )
    return (f" It never predicts {unsaid}." if unsaid else "") + (
        f" It recognises none of the test {unit}s of {blind}." if blind else ""
    )


def _tells_apart(run: Run, round_: int) -> bool:
    """Return whether balanced accuracy is above that of guessing at most sites, by its interval
    over sites.
    """
    values = tested_values(run, "balanced_accuracy", round_)
    guessing = {
        site: 1 / max(len(run.at(site, "test", round_)["balanced_accuracy"].classes), 1)
        for site in values
    }
    if not values:
        return False
    found = mean_and_interval([value - guessing[site] for site, value in values.items()])
    return (found.mean if found.low is None else found.low) > 0


def over_sites(selection: Selection) -> Interval | None:
    """Return the mean of a selection's test values with its 95 % t interval over sites, a score's
    within its bounds.

    None without a value. Without an interval where all sites have the same value: it would have no
    width.
    """
    values = [choice.test for choice in selection.sites if choice.test is not None]
    return _of_sites(values, selection.metric) if values else None


def _of_sites(values: Sequence[float], metric: str) -> Interval:
    found = mean_and_interval(values).of_score(metric)
    return replace(found, low=None, high=None) if found.sd == 0 else found


def worst(selection: Selection) -> tuple[str, float, int] | None:
    """Return the site with the lowest test value, that value, and its test images; None where no
    two sites differ.
    """
    measured = [(choice.test, choice) for choice in selection.sites if choice.test is not None]
    if len({value for value, _ in measured}) < 2:
        return None
    value, choice = min(measured, key=lambda pair: pair[0])
    return choice.site, value, choice.images


def headline(choices: Choices, compared: Sequence[Comparison], unit: str) -> list[str]:
    """Return the run's result, how it differs from the results of other runs, and where it is
    worst.
    """
    end = choices.end
    name = title_of(choices.end.metric)
    found = over_sites(end)
    if found is None:
        return []
    rounds = ", ".join(map(str, end.rounds))
    when = (
        f"Over the last evaluations (rounds {rounds})"
        if end.rounds[1:]
        else f"After round {rounds}"
    )
    interval = (
        ""
        if found.low is None
        else f" (95 % interval over sites {found.low:.3f} to {found.high:.3f})"
    )
    pooled = (
        ""
        if end.pooled is None
        else f", and {end.pooled:.3f} where each {unit} of all sites counts once"
    )
    result = f"{when}, test {name} is {found.mean:.3f} on average over sites{interval}{pooled}."
    lowest = worst(end)
    where = (
        [f"It is worst at {lowest[0]}: {lowest[1]:.3f} ({count(lowest[2], f'test {unit}')})."]
        if lowest
        else []
    )
    return [result, *differences(compared, end.metric), *where]


def differences(lines: Sequence[Comparison], metric: str) -> list[str]:
    """Return a sentence for each compared run: the first run's value minus its."""
    measured = [line for line in lines[1:] if line.choices.end.test is not None]
    return [_difference(lines[0], line, metric) for line in measured[:_COMPARED]]


def _difference(own: Comparison, other: Comparison, metric: str) -> str:
    name = own.name
    found = other.difference
    if found is None:
        return f"{name} and {other.name} have no site with the same test images, so their difference is not known."
    what = f"in test {title_of(metric)} over the last rounds, paired over {count(other.paired, 'site')}"
    return f"{name} minus {other.name}: {_signed(found)} {what}.{_clearly(found)}{_lengths(own, other)}"


def _lengths(own: Comparison, other: Comparison) -> str:
    ends = {
        line.name: line.choices.end.rounds[-1] for line in (own, other) if line.choices.end.rounds
    }
    if len(set(ends.values())) < 2:
        return ""
    each = " and ".join(f"{name} has {count(rounds, 'round')}" for name, rounds in ends.items())
    return f" Their lengths differ: {each}."


def _signed(found: Interval) -> str:
    interval = (
        "" if found.low is None else f" (95 % interval {found.low:+.3f} to {found.high:+.3f})"
    )
    return f"{found.mean:+.3f}{interval}"


def _clearly(found: Interval) -> str:
    if found.low is None or found.high is None:
        return ""
    return (
        " Clearly better."
        if found.low > 0
        else " Clearly worse."
        if found.high < 0
        else " No clear difference."
    )


def origin(run: Run) -> tuple[str, str]:
    """Return where the images came from, as (banner, quiet sentence); one of the two is empty.

    Synthetic images are a banner, since numbers from them say nothing about patients.
    """
    told = run.info.synthetic
    drawn = [site for site, synthetic in told.items() if synthetic]
    if drawn:
        every = len(drawn) == len(told)
        who = (
            f"all {count(len(told), 'site')}"
            if every
            else f"{len(drawn)} of {count(len(told), 'site')}"
        )
        which = "" if every else f" ({named(drawn)})"
        return (
            f"Synthetic data: {who}{which} worked on images that fedward draws. These numbers say how the software "
            "behaves. They say nothing about patients.",
            "",
        )
    if told:
        return (
            "",
            f"Data: images of their own at {count(len(told), 'site')}, as each site said. No synthetic images.",
        )
    return "", "This run does not record whether its images were synthetic."


def unit(run: Run) -> str:
    """Return what the numbers are of, where it is not single images."""
    if run.unit == "image":
        return ""
    return (
        "Evaluated by patient: the answer is the mean of the probabilities of a patient's images. What a site's file "
        "calls a group counts as a patient, such as a volume."
    )


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"


def _of_hundred(share: float) -> str:
    return f"{share * 100:.0f}"
