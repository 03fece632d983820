"""A verdict in one sentence, in one line of a terminal, and in one paragraph."""

from fedward.runs.sentences import leaked
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words import comparisons, coverage, in_percent
from fedward.runs.verdict_words.failures import failures, few_names, worse_than_others
from fedward.runs.verdict_words.shares import percent
from fedward.text import count

_MOST_CHAINED = 2
"""Exceptions up to which "and" joins them."""


def lead(verdict: Verdict) -> str:
    """Return the verdict in one sentence: the answer, and what keeps it from being clear."""
    exceptions = [*failures(verdict), *_gaps(verdict), *worse_than_others(verdict)]
    answer = _answer(verdict)
    if exceptions:
        # The answer about a mixed model below the baseline has a "but" of its own.
        has_but = verdict.level == "mixed" and not verdict.is_above_baseline
        joint = ", and " if verdict.level == "poor" or has_but else ", but "
        # A long chain of "and" is not read to its end.
        between = ", and " if len(exceptions) <= _MOST_CHAINED else "; "
        answer += joint + between.join(exceptions)
    return f"{answer}."


def _answer(verdict: Verdict) -> str:
    """Return how the model compares with a constant answer or with guessing."""
    always = "guessing"
    if verdict.exclusive and verdict.common:
        always = f"always answering “{verdict.common.name}”"
    if verdict.is_above_baseline:
        return f"Better than {always}"
    if verdict.level == "mixed":
        if verdict.is_below_baseline:
            return f"It tells classes apart, but is right less often than {always}"
        return f"It tells classes apart, but is not shown to be right more often than {always}"
    if verdict.is_below_baseline:
        return f"Of no use: worse than {always}"
    return f"Not shown to be better than {always}"


def _gaps(verdict: Verdict) -> list[str]:
    """Return what was left out, in clauses."""
    gaps = []
    if verdict.tested.untested:
        gaps.append(f"it was not tested for {few_names(verdict.tested.untested)}")
    elif not verdict.tested.all_classes:
        gaps.append("not every class was tested at every site")
    if verdict.tested.not_trained:
        gaps.append("not every site trained it")
    if verdict.tested.not_evaluated:
        gaps.append("it was not tested at every site")
    return gaps


def line(verdict: Verdict) -> str:
    """Return the accuracy, and the lowest class, site and group, for a line of a terminal."""
    sentences = []
    if verdict.overall:
        sentences.append(
            f"Right for {percent(verdict.overall.value)} % of "
            f"{count(verdict.overall.n, f'test {verdict.unit}')}."
        )
    lowest = []
    for one in (verdict.worst_class, verdict.worst_site):
        if one and one.low is not None:
            lowest.append(f"{one.name} {percent(one.value)} % of {one.n}")
    group = verdict.worst_subgroup
    if group and group.is_below:
        lowest.append(f"{group.title} {percent(group.measured.value)} % of {group.measured.n}")
    if lowest:
        sentences.append(f"Lowest: {', '.join(lowest)}.")
    return " ".join(sentences)


def paragraph(verdict: Verdict) -> str:
    """Return the verdict for a notebook or a model card."""
    images = coverage.about_images(verdict)
    sentences = [
        lead(verdict),
        in_percent.numbers(verdict),
        in_percent.weakest(verdict),
        coverage.not_tested(verdict),
        coverage.took_no_part(verdict),
        *leaked(verdict.leaks),
        *comparisons.sentences(verdict),
        f"Intervals: {images[0].lower()}{images[1:]}" if images else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)
