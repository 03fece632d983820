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
    """Difference of its rows, of the second its claimed share; None if it is not judged."""
    p: float
    """Uncorrected; 1 if the claim is not judged, as it still counts among the page's claims."""


def judged(results: Results, claim: Claim) -> Judged:
    """Test a claim, unless a rule of evidence forbids it."""
    ours, theirs = places(results.study, claim)
    pairs = results.paired(ours, theirs, claim.metric)
    if len(pairs) < 2:
        return Judged(claim, "too few repetitions", None, 1.0)
    reason = refusal(results, (ours, theirs), claim.metric)
    if reason:
        return Judged(claim, reason, None, 1.0)
    our_values = [ours for ours, _ in pairs]
    their_values = [claim.share * theirs for _, theirs in pairs]
    gap = paired_difference(our_values, their_values)
    return Judged(claim, "", gap, p_value(our_values, their_values))


def places(study: Study, claim: Claim) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return (variant, row) of both rows of a claim."""
    variant = claim.variant or study.reference
    return (variant, claim.row), (claim.than_variant or variant, claim.than)


def refusal(results: Results, rows: Sequence[tuple[str, str]], metric: str) -> str:
    """Return the first rule of evidence that forbids to judge some rows; empty if none does.

    Args:
        results: of the study.
        rows: (variant, row) of each.
        metric: one of the study.
    """
    for variant, _ in rows:
        if results.bounds_unknown(variant):
            return UNKNOWN_BOUNDS
        reason = results.regime_refusal(variant) or results.bounds_refusal(variant, metric)
        if reason:
            return reason
    for variant, row in rows:
        reason = results.unconverged(variant, row, metric)
        if reason:
            return f"*{results.study.rows[row].title}*: {reason}"
        if not results.data_varied(variant, row):
            return f"*{results.study.rows[row].title}*: {SAME_DATA}"
    return ""


@dataclass(frozen=True)
class Verdict:
    """What a page says of a claim."""

    judged: Judged
    outcome: str
    """``shown``, ``not shown``, ``opposite shown`` or ``not judged``."""
    p: float
    """Corrected for the number of claims."""
    claim_count: int
    """Claims on the page, also those that are not judged."""


def verdicts(results: Results, page: Sequence[Results]) -> list[Verdict]:
    """Return the verdict on each claim of a study, with Holm's correction over a page.

    Args:
        results: of the study.
        page: results of all studies whose tables stand on the page, ``results`` among them. Each of
            their claims counts, also those that are not judged.
    """
    family = [(other, judged(other, claim)) for other in page for claim in other.study.claims]
    corrected = holm([claim.p for _, claim in family])
    return [
        Verdict(claim, _outcome(claim, p), p, len(family))
        for (other, claim), p in zip(family, corrected, strict=True)
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
    ours, theirs = places(study, claim)
    our_name = name_of(study, *ours)
    their_name = name_of(study, *theirs)
    metric = metric_name(claim.metric)
    share = "" if claim.share == 1 else f"{100 * claim.share:g} % of "
    statement = f"{metric} of *{our_name}* is {claim.direction} than {share}that of *{their_name}*"
    gap = verdict.judged.gap
    if gap is None:
        return f"{statement}: **{verdict.outcome}**, {verdict.judged.refusal}."
    number = f"p = {verdict.p:.3f}" if verdict.p >= 0.001 else "p < 0.001"
    count = verdict.claim_count
    among = f"by Holm among the page's {count}" if count > 1 else "the page's only one"
    return f"{statement}: **{verdict.outcome}**, {gap_text(gap)}, {number} ({among})."


def name_of(study: Study, variant: str, row: str) -> str:
    """Return the title of a row with that of its variant, if the study names variants."""
    title = study.rows[row].title
    variant_title = study.variants[variant].title
    return f"{title}, {variant_title}" if variant_title else title
