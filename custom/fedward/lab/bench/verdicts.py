"""What is said of a study's claims: shown, not shown, opposite shown, or why not judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from fedward.evaluation import paired_difference
from fedward.evaluation.intervals import Interval
from fedward.lab.bench.claims import holm, p_value
from fedward.lab.bench.markdown import gap_text, metric_name
from fedward.lab.bench.results import NO_BOUNDS, Results
from fedward.lab.bench.study import Claim, Study

Place: TypeAlias = tuple[str, str]
"""Variant and row."""
LEVEL = 0.05
"""A claim counts as shown if its p-value, corrected by Holm, is not above this."""
SAME_DATA = "its repetitions are not of different images and labels"


@dataclass(frozen=True)
class Judged:
    """A claim with its test."""

    claim: Claim
    refusal: str
    """Why it is not judged; empty if it is."""
    gap: Interval | None = None
    """Difference of its rows, of the second its claimed share; None if it is not judged."""
    p: float = 1.0
    """Uncorrected; 1 if the claim is not judged, as it still counts among the page's claims."""
    p_overlapping: float = 1.0
    """Likewise, with allowance for divisions that overlap; see :func:`p_value`."""


def judged(results: Results, claim: Claim) -> Judged:
    """Test a claim, unless a rule of evidence forbids it."""
    places = claim.places(results.study.first_variant)
    pairs = _means(results, places, claim.metric)
    if len(pairs) < 2:
        return Judged(claim, "too few repetitions")
    reason = refusal(results, [place for pair in places for place in pair], claim.metric)
    if reason:
        return Judged(claim, reason)
    our_values = [ours for ours, _ in pairs]
    their_values = [claim.share * theirs for _, theirs in pairs]
    gap = paired_difference(our_values, their_values)
    variants = {variant for pair in places for variant, _ in pair}
    overlap = max(map(results.study.test_per_training, variants))
    p_overlapping = p_value(our_values, their_values, test_per_training=overlap)
    return Judged(claim, "", gap, p_value(our_values, their_values), p_overlapping)


def _means(
    results: Results, places: Sequence[tuple[Place, Place]], metric: str
) -> list[tuple[float, float]]:
    """Return the values of both rows in each repetition, as means over the pairs of places.

    Repetitions that one of the places lacks are left out.
    """
    values = [results.test_values(*place, metric) for pair in places for place in pair]
    seeds = sorted(set.intersection(*(set(of_place) for of_place in values)))
    return [
        (
            fmean(of_place[seed] for of_place in values[::2]),
            fmean(of_place[seed] for of_place in values[1::2]),
        )
        for seed in seeds
    ]


def refusal(results: Results, rows: Sequence[Place], metric: str) -> str:
    """Return the first rule of evidence that forbids to judge some rows; empty if none does.

    Where the rows are of several variants, it names that of the row which the rule concerns.

    Args:
        results: of the study.
        rows: (variant, row) of each.
        metric: one of the study.
    """
    study = results.study
    several_variants = len({variant for variant, _ in rows}) > 1
    for variant, _ in rows:
        reason = _refusal_of_variant(results, variant, metric)
        if reason:
            title = study.variants[variant].title or variant
            return f"*{title}*: {reason}" if several_variants else reason
    for variant, row in rows:
        name = name_of(study, variant, row) if several_variants else study.rows[row].title
        reason = results.unconverged(variant, row, metric)
        if reason:
            return f"*{name}*: {reason}"
        if not results.data_varied(variant, row):
            return f"*{name}*: {SAME_DATA}"
    return ""


def _refusal_of_variant(results: Results, variant: str, metric: str) -> str:
    """Return the first rule that forbids to judge any row of a variant; empty if none does."""
    if results.bounds_unknown(variant):
        return NO_BOUNDS
    return results.regime_refusal(variant) or results.bounds_refusal(variant, metric)


@dataclass(frozen=True)
class Verdict:
    """What a page says of a claim."""

    judged: Judged
    outcome: str
    """``shown``, ``not shown``, ``opposite shown`` or ``not judged``."""
    p: float
    """Corrected for the number of claims."""
    p_overlapping: float
    """Likewise, with allowance for divisions that overlap; see :func:`p_value`."""
    claim_count: int
    """Claims on the page, also those that are not judged."""

    @property
    def is_shown(self) -> bool:
        """Whether the claim or its opposite is shown."""
        return self.outcome in ("shown", "opposite shown")


def verdicts(results: Results, page: Sequence[Results]) -> list[Verdict]:
    """Return the verdict on each claim of a study, with Holm's correction over a page.

    Args:
        results: of the study.
        page: results of all studies whose tables stand on the page, ``results`` among them. Each of
            their claims counts, also those that are not judged.
    """
    family = [(other, judged(other, claim)) for other in page for claim in other.study.claims]
    corrected = holm([claim.p for _, claim in family])
    overlapping = holm([claim.p_overlapping for _, claim in family])
    return [
        Verdict(claim, _outcome(claim, p), p, p_overlapping, len(family))
        for (other, claim), p, p_overlapping in zip(family, corrected, overlapping, strict=True)
        if other is results
    ]


def _outcome(judgement: Judged, p: float) -> str:
    if judgement.gap is None:
        return "not judged"
    if p > LEVEL:
        return "not shown"
    is_higher = judgement.gap.mean > 0
    return "shown" if is_higher == (judgement.claim.direction == "higher") else "opposite shown"


def sentences(results: Results, page: Sequence[Results]) -> list[str]:
    """Return a sentence for each claim of a study; see :func:`verdicts`."""
    return [_sentence(results.study, verdict) for verdict in verdicts(results, page)]


def _sentence(study: Study, verdict: Verdict) -> str:
    claim = verdict.judged.claim
    our_name, their_name = names_of(study, claim)
    metric = metric_name(claim.metric)
    share = "" if claim.share == 1 else f"{100 * claim.share:g} % of "
    statement = (
        f"{metric} of *{our_name}* is {claim.direction} than {share}that of *{their_name}*"
        f"{mean_of_variants(study, claim)}"
    )
    gap = verdict.judged.gap
    if gap is None:
        return f"{statement}: **{verdict.outcome}**, {verdict.judged.refusal}."
    count = verdict.claim_count
    among = f"by Holm among the page's {count}" if count > 1 else "the page's only one"
    text = f"{statement}: **{verdict.outcome}**, {gap_text(gap)}, {p_text(verdict.p)} ({among})"
    if verdict.is_shown:
        text += f"; with allowance for overlapping divisions {p_text(verdict.p_overlapping)}"
    return f"{text}."


def p_text(p: float) -> str:
    """Return a p-value as pages show it."""
    if p < 0.001:
        return "p < 0.001"
    digits = 3 if round(p, 3) != LEVEL else 5  # So that the reader sees on which side it is.
    return f"p = {p:.{digits}f}"


def names_of(study: Study, claim: Claim) -> tuple[str, str]:
    """Return what pages call the two rows of a claim, without the variants of a mean."""
    if claim.mean_over:
        return study.rows[claim.row].title, study.rows[claim.than].title
    ((ours, theirs),) = claim.places(study.first_variant)
    return name_of(study, *ours), name_of(study, *theirs)


def mean_of_variants(study: Study, claim: Claim) -> str:
    """Return the end of a comparison whose values are means over variants; empty for one variant.

    Such as ``, in the mean of all variants``.
    """
    if not claim.mean_over:
        return ""
    if set(claim.mean_over) == set(study.variants):
        return ", in the mean of all variants"
    titles = [study.variants[name].title or name for name in claim.mean_over]
    return f", in the mean of {'; '.join(titles)}"


def name_of(study: Study, variant: str, row: str) -> str:
    """Return the title of a row with that of its variant, if the study names variants."""
    title = study.rows[row].title
    variant_title = study.variants[variant].title
    return f"{title}, {variant_title}" if variant_title else title
