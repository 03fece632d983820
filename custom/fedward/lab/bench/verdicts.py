"""What is said of a study's claims: shown, not shown, opposite shown, or why not judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Literal, TypeAlias

from fedward.evaluation import paired_difference
from fedward.evaluation.intervals import Interval
from fedward.lab.bench.claims import holm, p_value
from fedward.lab.bench.evidence import refusal, regime_refusal
from fedward.lab.bench.markdown import gap_text, metric_name
from fedward.lab.bench.results import Results
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import Claim

Outcome: TypeAlias = Literal["shown", "opposite shown", "not shown", "not judged"]
LEVEL = 0.05
"""A claim counts as shown if its p-value, corrected by Holm, is not above this."""


@dataclass(frozen=True)
class ClaimTest:
    """A claim with its test."""

    claim: Claim
    refusal: str
    """Why it is not judged; empty if it is."""
    gap: Interval | None = None
    """``row`` minus the claimed share of ``than``; None if it is not judged."""
    p: float = 1.0
    """Uncorrected; 1 if the claim is not judged, as it still counts among the page's claims."""
    p_overlapping: float = 1.0
    """Likewise, with allowance for divisions that overlap; see ``test_train_ratio`` of
    :func:`~fedward.lab.bench.claims.p_value`. It is 1 where the overlap is unknown.
    """
    is_overlap_known: bool = True
    """Whether the study says how the images of all compared rows are divided."""


def claim_test(results: Results, claim: Claim) -> ClaimTest:
    """Test a claim, unless a rule of evidence forbids it."""
    places = list(chain.from_iterable(claim.places(results.study.first_variant)))
    ours, theirs = claimed_values(results, claim)
    if len(ours) < 2:
        return ClaimTest(claim, "too few repetitions")
    reason = refusal(results, places, claim.metric)
    if reason:
        return ClaimTest(claim, reason)
    ratios = [results.study.test_train_ratio(variant, row) for variant, row in places]
    known = [ratio for ratio in ratios if ratio is not None]
    is_overlap_known = len(known) == len(ratios)
    p_overlapping = 1.0
    if is_overlap_known:
        p_overlapping = p_value(ours, theirs, test_train_ratio=max(known))
    return ClaimTest(
        claim,
        refusal="",
        gap=paired_difference(ours, theirs),
        p=p_value(ours, theirs),
        p_overlapping=p_overlapping,
        is_overlap_known=is_overlap_known,
    )


def claimed_values(results: Results, claim: Claim) -> tuple[list[float], list[float]]:
    """Return, for each repetition, the two values that a claim compares.

    They are the value of ``row``, and the claimed share of the value of ``than``; where the claim
    is on several variants, means over these. Repetitions that one of them lacks are left out.

    Raises:
        ConfigError: a line has no value of the claim's metric.
    """
    pairs = claim.places(results.study.first_variant)
    ours = [results.test_values(*our_place, claim.metric) for our_place, _ in pairs]
    theirs = [results.test_values(*their_place, claim.metric) for _, their_place in pairs]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in (*ours, *theirs))))
    our_means = [fmean(by_seed[seed] for by_seed in ours) for seed in seeds]
    their_means = [fmean(by_seed[seed] for by_seed in theirs) for seed in seeds]
    return our_means, [claim.share * value for value in their_means]


@dataclass(frozen=True)
class Verdict:
    """What a page says of a claim."""

    test: ClaimTest
    outcome: Outcome
    p: float
    """Corrected for the number of claims."""
    p_overlapping: float
    """Likewise, with allowance for divisions that overlap."""
    claim_count: int
    """Claims on the page, also those that are not judged."""

    @property
    def is_shown(self) -> bool:
        """Whether the claim or its opposite is shown."""
        return self.outcome in ("shown", "opposite shown")


def verdicts(results: Results, studies_on_page: Sequence[Results]) -> list[Verdict]:
    """Return the verdict on each claim of a study, with Holm's correction over a page.

    Args:
        results: of the study.
        studies_on_page: results of all studies whose tables stand on the page, ``results`` among
            them. Each of their claims counts, also those that are not judged.
    """
    # The claims that are corrected together.
    family = [
        (other, claim_test(other, claim))
        for other in studies_on_page
        for claim in other.study.claims
    ]
    corrected = holm([judgement.p for _, judgement in family])
    corrected_overlapping = holm([judgement.p_overlapping for _, judgement in family])
    found = []
    for (other, judgement), p, p_overlapping in zip(
        family, corrected, corrected_overlapping, strict=True
    ):
        if other is results:
            outcome = _outcome(judgement, p)
            found.append(Verdict(judgement, outcome, p, p_overlapping, len(family)))
    return found


def _outcome(judgement: ClaimTest, p: float) -> Outcome:
    """Return what a claim's test says.

    Args:
        judgement: the claim with its test.
        p: its p-value, corrected.
    """
    if judgement.gap is None:
        return "not judged"
    if p > LEVEL:
        return "not shown"
    shown_direction = "higher" if judgement.gap.mean > 0 else "lower"
    return "shown" if shown_direction == judgement.claim.direction else "opposite shown"


def sentences(results: Results, studies_on_page: Sequence[Results]) -> list[str]:
    """Return a sentence for each claim of a study; see :func:`verdicts`."""
    return [_sentence(results, verdict) for verdict in verdicts(results, studies_on_page)]


def _sentence(results: Results, verdict: Verdict) -> str:
    study = results.study
    claim = verdict.test.claim
    our_name, their_name = names_of(study, claim)
    metric = metric_name(claim.metric)
    statement = in_its_variant(
        study,
        claim,
        f"{metric} of *{our_name}* is {claim.direction} than {share_of(claim)}that of "
        f"*{their_name}*{mean_of_variants(study, claim)}",
    )
    gap = verdict.test.gap
    if gap is None:
        return f"{statement}: **{verdict.outcome}**, {_why_not_judged(results, verdict.test)}."
    count = verdict.claim_count
    among = f"by Holm among the page's {count}" if count > 1 else "the page's only one"
    text = f"{statement}: **{verdict.outcome}**, {gap_text(gap)}, {p_text(verdict.p)} ({among})"
    if verdict.is_shown and verdict.test.is_overlap_known:
        text += f"; with allowance for overlapping divisions {p_text(verdict.p_overlapping)}"
    elif verdict.is_shown:
        text += "; how far the divisions of its images overlap is unknown"
    return f"{text}."


def _why_not_judged(results: Results, judgement: ClaimTest) -> str:
    """Return why a claim is not judged, without what the note on the regime says already."""
    places = chain.from_iterable(judgement.claim.places(results.study.first_variant))
    regimes = {regime_refusal(results, variant) for variant, _ in places} - {""}
    # A claim on several variants names the one whose regime refuses it.
    is_regime = any(judgement.refusal.endswith(regime) for regime in regimes)
    return "see **Regime**" if is_regime else judgement.refusal


def p_text(p: float) -> str:
    """Return a p-value as pages show it."""
    if p < 0.001:
        return "p < 0.001"
    # Near the level there are more digits, so that the reader sees on which side of it p is.
    digits = 5 if round(p, 3) == LEVEL else 3
    return f"p = {p:.{digits}f}"


def share_of(claim: Claim) -> str:
    """Return what pages write before the value that a claim takes a share of; empty for all of it.

    Such as ``99 % of``, with a space after it.
    """
    return "" if claim.share == 1 else f"{100 * claim.share:g} % of "


def names_of(study: Study, claim: Claim) -> tuple[str, str]:
    """Return what a sentence calls the two rows of a claim.

    Variants are named only if the rows are of two; else see :func:`in_its_variant`.
    """
    (our_variant, our_row), (their_variant, their_row) = claim.places(study.first_variant)[0]
    if our_variant == their_variant:
        return study.rows[our_row].title, study.rows[their_row].title
    return study.name_of(our_variant, our_row), study.name_of(their_variant, their_row)


def in_its_variant(study: Study, claim: Claim, sentence: str) -> str:
    """Return a sentence on a claim with the title of the variant of both its rows before it.

    It stays as it is if they are of two, are means over variants, or variants have no titles.
    """
    (our_variant, _), (their_variant, _) = claim.places(study.first_variant)[0]
    if claim.mean_over or our_variant != their_variant:
        return sentence
    return study.in_variant(our_variant, sentence)


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
