"""What a study's part of a page says first."""

from collections.abc import Mapping, Sequence

from fedward.lab.bench.evidence import bounds_refusal
from fedward.lab.bench.markdown import gap_text, interval_text, metric_name
from fedward.lab.bench.reference import TITLE_BEGIN
from fedward.lab.bench.results import Results, chosen_value
from fedward.lab.bench.verdicts import (
    LEVEL,
    Outcome,
    Verdict,
    in_its_variant,
    mean_of_variants,
    names_of,
    p_text,
    share_of,
    verdicts,
)

_ENDINGS: Mapping[Outcome, tuple[str, str, str]] = {
    "shown": ("is shown", "are shown", "All {} claims are shown."),
    "opposite shown": (
        "has its opposite shown",
        "have their opposite shown",
        "All {} claims have their opposite shown.",
    ),
    "not shown": ("is not shown", "are not shown", "None of the {} claims is shown."),
    "not judged": (
        "could not be judged",
        "could not be judged",
        "None of the {} claims could be judged.",
    ),
}
"""Outcome -> what is said of one claim, of several, and of all if there are several."""


def in_short(results: Results, studies_on_page: Sequence[Results]) -> str:
    """Return what is shown, the values of the most important rows, and the best reference.

    Args:
        results: of the study.
        studies_on_page: results of all studies whose tables stand on the same page, ``results``
            among them.
    """
    values = " ".join(text for text in (_of_values(results), _of_references(results)) if text)
    return "\n\n".join(part for part in (_of_claims(results, studies_on_page), values) if part)


def _of_claims(results: Results, studies_on_page: Sequence[Results]) -> str:
    """Return how many claims were confirmed, and a list of those."""
    if not results.study.claims:
        return (
            "**No difference between methods is shown**, as the study stated no claim before it "
            "ran."
        )
    by_outcome: dict[Outcome, list[Verdict]] = {outcome: [] for outcome in _ENDINGS}
    for verdict in verdicts(results, studies_on_page):
        by_outcome[verdict.outcome].append(verdict)
    shown = [_comparison(results, verdict) for verdict in by_outcome["shown"]]
    shown += [_comparison(results, verdict) for verdict in by_outcome["opposite shown"]]
    count = _count_text({outcome: len(those) for outcome, those in by_outcome.items()})
    if not shown:
        return f"**No difference between methods is shown.** {count}"
    lines = [f"- {text}" for text in shown]
    return "\n".join([f"{count} **What is shown:**", "", *lines])


def _count_text(counts: Mapping[Outcome, int]) -> str:
    """Return how many claims had which outcome, in one sentence."""
    total = sum(counts.values())
    parts = []
    for outcome, (singular, plural, of_all) in _ENDINGS.items():
        count = counts[outcome]
        if total == count == 1:
            return f"The only claim {singular}."
        if total == count:
            return of_all.format(total)
        if count:
            parts.append(f"{count} {singular if count == 1 else plural}")
    return f"Of {total} claims, {_joined(parts)}."


def _comparison(results: Results, verdict: Verdict) -> str:
    """Return what a claim has shown, which may be the opposite of it."""
    claim = verdict.test.claim
    gap = verdict.test.gap
    assert gap is not None, "a claim is shown by its difference"
    direction = "higher" if gap.mean > 0 else "lower"
    our_name, their_name = names_of(results.study, claim)
    compared = f"with *{their_name}*"
    if claim.share != 1:
        compared = f"{share_of(claim)}that of *{their_name}*"
    only = ""
    if not verdict.test.is_overlap_known:
        only = " It is shown only for divisions of these images, whose overlap is unknown."
    elif verdict.p_overlapping > LEVEL:
        p = p_text(verdict.p_overlapping)
        only = f" It is shown only for divisions of these images: with allowance for overlap, {p}."
    sentence = (
        f"{metric_name(claim.metric)} with *{our_name}* is {direction} "
        f"than {compared}{mean_of_variants(results.study, claim)}, {gap_text(gap)}.{only}"
    )
    return in_its_variant(results.study, claim, sentence)


def _of_values(results: Results) -> str:
    """Return the first metric of the rows of few labels, of the page and of all labels."""
    study = results.study
    metric = study.metrics[0]
    variant = study.first_variant
    if bounds_refusal(results, variant, metric):
        return ""
    parts = []
    repetitions = set[int]()
    for row in dict.fromkeys((study.lower, study.own, study.upper)):
        if row and results.has_run(variant, row):
            values = list(results.test_values(variant, row, metric).values())
            repetitions.add(len(values))
            parts.append(f"{interval_text(values, metric)} with *{study.rows[row].title}*")
    if not parts:
        return ""
    fewest, most = min(repetitions), max(repetitions)
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    variant_title = study.variants[variant].title
    where = f"{variant_title}, " if variant_title else ""
    plural = "" if most == 1 else "s"
    return (
        f"{metric_name(metric)} on test images ({where}{number} repetition{plural}) is "
        f"{_joined(parts)}."
    )


def _of_references(results: Results) -> str:
    """Return the value of the best reference that has the same few labels of all sites together."""
    metric = results.study.metrics[0]
    best = results.best_reference_of_few(results.study.first_variant)
    if best is None:
        return ""
    title, by_seed = best
    name = title.removeprefix(TITLE_BEGIN)
    values = [chosen_value(record, metric) for record in by_seed.values()]
    return (
        f"The reference with few labels that is best on validation images is *{name}*. Its "
        f"{metric_name(metric)} on test images is {interval_text(values, metric)}."
    )


def _joined(parts: Sequence[str]) -> str:
    """Return one or more texts as a list in a sentence: ``a, b and c``."""
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
