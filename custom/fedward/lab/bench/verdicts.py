"""What is said of a study's claims: shown, not shown, opposite shown, or why not judged."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.evaluation import paired_difference
from fedward.evaluation.intervals import Interval
from fedward.lab.bench.claims import holm, p_value
from fedward.lab.bench.markdown import gap_text, metric_name
from fedward.lab.bench.results import UNKNOWN_BOUNDS, Results
from fedward.lab.bench.study import Claim, Study

LEVEL = 0.05
"""A claim counts as shown if its p-value, corrected by Holm, is not above this."""
SAME_DATA = "its repetitions are not of different images and labels"


@dataclass(frozen=True)
class Judged:
    """A claim with its test."""

    claim: Claim
    refusal: str
    """Why it is not judged; empty if it is."""
    gap: Interval | None
    """Difference of its rows; None if it is not judged."""
    p: float
    """Uncorrected; 1 if the claim is not judged, as it still counts among the page's claims."""


def judged(results: Results, claim: Claim) -> Judged:
    """Test a claim, unless a rule of evidence forbids it."""
    ours, theirs = places(results.study, claim)
    pairs = results.paired(ours, theirs, claim.metric)
    refusal = "too few repetitions" if len(pairs) < 2 else _refusal(results, claim)
    if refusal:
        return Judged(claim, refusal, None, 1.0)
    our_values, their_values = zip(*pairs, strict=True)
    gap = paired_difference(our_values, their_values)
    return Judged(claim, "", gap, p_value(our_values, their_values))


def places(study: Study, claim: Claim) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return (variant, row) of both rows of a claim."""
    variant = claim.variant or study.reference
    return (variant, claim.row), (claim.than_variant or variant, claim.than)


def _refusal(results: Results, claim: Claim) -> str:
    """Return the first rule of evidence that a claim does not meet; empty if it meets all."""
    both = places(results.study, claim)
    for variant, _ in both:
        if results.bounds_unknown(variant):
            return UNKNOWN_BOUNDS
        refusal = results.regime_refusal(variant) or results.bounds_refusal(variant, claim.metric)
        if refusal:
            return refusal
    for variant, row in both:
        refusal = results.unconverged(variant, row, claim.metric)
        if refusal:
            return f"*{results.study.rows[row].title}*: {refusal}"
        if not results.data_varied(variant, row):
            return f"*{results.study.rows[row].title}*: {SAME_DATA}"
    return ""


def sentences(results: Results, page: Sequence[Results]) -> list[str]:
    """Return a sentence for each claim of a study, with Holm's correction over a page.

    Args:
        results: of the study.
        page: results of all studies whose tables stand on the page, ``results`` among them. Each of
            their claims counts, also those that are not judged.
    """
    family = [(other, judged(other, claim)) for other in page for claim in other.study.claims]
    corrected = holm([claim.p for _, claim in family])
    texts = []
    for (other, claim), p in zip(family, corrected, strict=True):
        if other is results:
            texts.append(_sentence(results.study, claim, p, len(family)))
    return texts


def _sentence(study: Study, judgement: Judged, p: float, claim_count: int) -> str:
    claim = judgement.claim
    ours, theirs = places(study, claim)
    our_name = _name(study, *ours)
    their_name = _name(study, *theirs)
    metric = metric_name(claim.metric)
    statement = f"{metric} of *{our_name}* is {claim.direction} than that of *{their_name}*"
    gap = judgement.gap
    if gap is None:
        return f"{statement}: **not judged**, {judgement.refusal}."
    if p > LEVEL:
        verdict = "not shown"
    else:
        verdict = "shown" if (gap.mean > 0) == (claim.direction == "higher") else "opposite shown"
    number = f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"
    among = f"by Holm among the page's {claim_count}" if claim_count > 1 else "the page's only one"
    return f"{statement}: **{verdict}**, {gap_text(gap)}, {number} ({among})."


def _name(study: Study, variant: str, row: str) -> str:
    title = study.rows[row].title
    variant_title = study.variants[variant].title
    return f"{title}, {variant_title}" if variant_title else title
