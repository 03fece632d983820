"""The numbers of a verdict for clinicians, counted of 100 images."""

from fedward.errors import listed
from fedward.runs.over_sites import OverSites
from fedward.runs.verdict import UNNAMED, Verdict
from fedward.runs.verdict_words.shares import interval_of_hundred, of_hundred

_MOST_FOUND_LEAST = 4
"""Classes named with the share of their images that the model finds."""


def numbers(verdict: Verdict) -> str:
    """Return the numbers from which the verdict follows."""
    overall = verdict.overall
    if overall is None:
        return _ranking(verdict.auroc) if verdict.auroc else ""
    common = ""
    if verdict.common:
        common = (
            f" Always answering “{verdict.common.name}” would be right for "
            f"{of_hundred(verdict.common.value)}."
        )
    return (
        f"Of 100 test {verdict.unit}s it classifies {of_hundred(overall.value)} correctly "
        f"({interval_of_hundred(overall)}, {overall.n} tested).{common}"
    )


def _ranking(auroc: OverSites) -> str:
    """Return what a macro AUROC means, for a model that may name several classes."""
    low = of_hundred(auroc.low)
    high = of_hundred(auroc.high)
    ends = ""
    if auroc.has_width and auroc.is_interval:
        ends = f" (95 % interval over sites {low} to {high})"
    elif auroc.has_width:
        ends = f" ({low} to {high} at {auroc.sites} sites)"
    return (
        "Shown one image with a finding and one without it, it ranks the right one higher in "
        f"{of_hundred(auroc.mean)} of 100 such pairs{ends}. Guessing would give 50."
    )


def weakest(verdict: Verdict) -> str:
    """Return the worst class, how sites differ, and the worst group; may be empty."""
    sentences = [_worst_class(verdict), _by_site(verdict), _worst_group(verdict)]
    return " ".join(sentence for sentence in sentences if sentence)


def _worst_class(verdict: Verdict) -> str:
    worst = verdict.worst_class
    if worst is None:
        return ""
    unit = verdict.unit
    tested = f"({interval_of_hundred(worst)}, {worst.n} tested)"
    if worst.name == UNNAMED:
        return (
            f"Worst for rare classes together: of 100 such {unit}s it classifies "
            f"{of_hundred(worst.value)} correctly {tested}."
        )
    return (
        f"Worst class: of 100 {unit}s of {worst.name} it finds {of_hundred(worst.value)} {tested}."
    )


def _by_site(verdict: Verdict) -> str:
    """Return how sites differ; empty for a single site."""
    if len(verdict.sites) < 2:
        return ""
    worst = verdict.worst_site
    if worst is None:
        return "The number is the same at all sites."
    best = verdict.sites[-1]
    unit = verdict.unit
    lowest = of_hundred(worst.value)
    highest = of_hundred(best.value)
    if worst.low is None:  # An AUROC of a site has no interval.
        if lowest == highest:
            return f"At each site it ranks the right one higher in {lowest} of 100 pairs."
        return (
            f"By site: it ranks the right one higher in {lowest} of 100 pairs at {worst.name}, the "
            f"lowest, to {highest} at {best.name}."
        )
    if lowest == highest:
        return f"At each site it is right for {lowest} of 100 {unit}s."
    return (
        f"By site: it is right for {lowest} of 100 {unit}s at {worst.name}, the lowest "
        f"({interval_of_hundred(worst)}, {worst.n} tested), to {highest} at {best.name} "
        f"({best.n} tested)."
    )


def _worst_group(verdict: Verdict) -> str:
    """Return the worst of the groups whose whole intervals are below what is expected."""
    group = verdict.worst_subgroup
    if group is None or not group.is_below:
        return ""
    right = "it classifies" if verdict.exclusive else "it finds"
    of_what = f"{verdict.unit}s" if verdict.exclusive else "findings"
    correctly = " correctly" if verdict.exclusive else ""
    return (
        f"Worst group: of 100 {of_what} of {group.title} {right} "
        f"{of_hundred(group.measured.value)}{correctly} "
        f"({interval_of_hundred(group.measured)}, {group.measured.n} tested), and "
        f"{of_hundred(group.expected)} of 100 of all of the same classes and sites."
    )


def found_least(verdict: Verdict) -> str:
    """Return of 100 images how many it finds of each class that it finds least; may be empty.

    The class that it finds most often is never among them, nor one that it always finds.
    """
    candidates = verdict.classes[: len(verdict.classes) - 1][:_MOST_FOUND_LEAST]
    found_least = [one for one in candidates if one.value < 1]
    if not found_least:
        return ""
    least, *others = found_least
    shares = [f"{least.name} ({of_hundred(least.value)} of 100 {verdict.unit}s)"]
    shares += [f"{one.name} ({of_hundred(one.value)})" for one in others]
    classes = "Classes" if others else "Class"
    return f"{classes} that it finds least often: {listed(shares)}."
