"""The numbers of a verdict in per cent, with where the model is weakest."""

from fedward.runs.measured import Measured
from fedward.runs.verdict import UNNAMED, Verdict
from fedward.runs.verdict_words.shares import interval_in_percent, percent
from fedward.text import count


def numbers(verdict: Verdict) -> str:
    """Return the numbers from which the verdict follows."""
    if verdict.overall is None:
        return _ranking(verdict)
    common = ""
    if verdict.common:
        common = (
            f" Always answering “{verdict.common.name}” would be right for "
            f"{percent(verdict.common.value)}\u00a0%."
        )
    return (
        f"{_subject(verdict)} classifies {percent(verdict.overall.value)}\u00a0% of the "
        f"{count(verdict.overall.n, f'test {verdict.unit}')} of {_sites(verdict)} correctly "
        f"({interval_in_percent(verdict.overall)}).{common}"
    )


def _ranking(verdict: Verdict) -> str:
    """Return how well a model that may name several classes ranks images."""
    auroc = verdict.auroc
    if auroc is None:
        return ""
    subject = _subject(verdict)
    ends = f" ({auroc.ends()})" if auroc.has_width else ""
    return (
        f"The macro AUROC of {subject[0].lower()}{subject[1:]} is {auroc.mean:.3f} on average over "
        f"{_sites(verdict)}{ends}. Guessing would give 0.5."
    )


def _subject(verdict: Verdict) -> str:
    """Return what is judged, as the beginning of a sentence."""
    if verdict.own_models:
        return f"Each site's own model (round {verdict.round})"
    return f"The selected model (round {verdict.round})"


def _sites(verdict: Verdict) -> str:
    return count(len(verdict.tested.evaluated), "site")


def weakest(verdict: Verdict) -> str:
    """Return where the model is weakest: its worst class, site and group; may be empty."""
    sentences = [_worst_class(verdict), _worst_site(verdict), _worst_group(verdict)]
    return " ".join(sentence for sentence in sentences if sentence)


def _worst_class(verdict: Verdict) -> str:
    worst = verdict.worst_class
    if worst is None:
        return ""
    images = _images(verdict, worst)
    if worst.name == UNNAMED:
        return (
            f"Lowest by class: right for {percent(worst.value)}\u00a0% of the {images} of "
            f"{UNNAMED} ({interval_in_percent(worst)})."
        )
    return (
        f"Lowest class: it finds {percent(worst.value)}\u00a0% of the {images} of {worst.name} "
        f"({interval_in_percent(worst)})."
    )


def _worst_site(verdict: Verdict) -> str:
    site = verdict.worst_site
    if site is None:
        return ""
    images = _images(verdict, site)
    if site.low is None:  # An AUROC of a site has no interval.
        return f"Lowest site: macro AUROC {site.value:.3f} at {site.name} ({images})."
    return (
        f"Lowest site: right for {percent(site.value)}\u00a0% of the {images} of {site.name} "
        f"({interval_in_percent(site)})."
    )


def _worst_group(verdict: Verdict) -> str:
    """Return the subgroup that is furthest below what is expected; empty if none is below."""
    group = verdict.worst_subgroup
    if group is None:
        return ""
    share = group.measured
    right = "right for" if verdict.exclusive else "it finds"
    what = _images(verdict, share) if verdict.exclusive else count(share.n, "finding")
    return (
        f"Group with the largest shortfall: {right} {percent(share.value)}\u00a0% of the "
        f"{what} of {group.title} ({interval_in_percent(share)}); for all of the same classes and "
        f"sites it would be {percent(group.expected)}\u00a0%."
    )


def _images(verdict: Verdict, measured: Measured) -> str:
    return count(measured.n, f"test {verdict.unit}")
