"""Which images a human has to read for each finding, of a model that may name several."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedward.errors import listed
from fedward.runs.verdict import FOUND_ENOUGH, RIGHT_ENOUGH, Finding, Verdict
from fedward.runs.verdict_words.failures import few_names
from fedward.runs.verdict_words.reasons import why_ask_always
from fedward.runs.verdict_words.shares import of_hundred


def ask_about_findings(verdict: Verdict) -> str:
    """Return when a human has to read, for a model that may name several classes."""
    every = f"Ask a human about every {verdict.unit}"
    reason = why_ask_always(verdict)
    if reason:
        return f"{every}: {reason}."
    findings = _findings_to_read(verdict, [one.name for one in verdict.findings])
    if len(findings.not_shown) == len(verdict.findings):
        return f"{every}: it is not shown to find {of_hundred(FOUND_ENOUGH)} of 100 of any finding."
    always = [one.name for one in (*findings.missed, *findings.never_sure, *findings.not_shown)]
    if always:
        others = ""
        if findings.least_sure:
            names = few_names([finding.name for finding, _ in findings.least_sure])
            others = f" For {names}, about those that it is least sure of."
        return f"{every} for {few_names(always)}.{others}"
    if findings.least_sure:
        most, share = max(findings.least_sure, key=lambda pair: pair[1])
        return (
            f"Ask a human about the {verdict.unit}s that it is least sure of, up to "
            f"{of_hundred(share)} of 100 for {most.name}."
        )
    return f"{verdict.unit.capitalize()}s like the tested ones need no human."


def reasons_by_finding(verdict: Verdict, names: Sequence[str]) -> list[str]:
    """Return why a human has to read which images, of a model that may name several classes.

    Empty where a human has to read every image, and where each image has one answer.

    Args:
        verdict: on the model.
        names: of the findings to speak of.
    """
    if verdict.exclusive or why_ask_always(verdict):
        return []
    findings = _findings_to_read(verdict, names)
    wanted = of_hundred(RIGHT_ENOUGH)
    found = of_hundred(FOUND_ENOUGH)
    right = f"its answer, yes or no, is right for {wanted} of 100 images or more"
    reasons = []
    if findings.no_image:
        reasons.append(f"{_names(findings.no_image)}: {right} without a human.")
    if findings.not_shown:
        reasons.append(
            f"{_names(findings.not_shown)}: {right}, but it is not shown to find {found} of 100."
        )
    if findings.least_sure:
        shares = [
            f"{of_hundred(share)} of 100 for {one.name}" for one, share in findings.least_sure
        ]
        reasons.append(
            f"For {wanted} right answers of 100 to the others, a human has to read of the images "
            f"that it is least sure of: {', '.join(shares)}."
        )
    if findings.missed:
        reasons.append(
            f"{_names(findings.missed)}: it finds fewer than {found} of 100, however often its "
            "“no” is right."
        )
    if findings.never_sure:
        reasons.append(
            f"{_names(findings.never_sure)}: not even its surest answers are shown to be right "
            f"for {wanted} of 100 images."
        )
    return [
        *reasons,
        "For a rare finding, most correct answers are simply “no”. Also check in the table how "
        "many it finds.",
    ]


@dataclass(frozen=True)
class _FindingsToRead:
    """The findings of a model that may name several, by the images that a human has to read."""

    no_image: Sequence[Finding]
    """Answers are right often enough without a human, and the finding is found as often."""
    least_sure: Sequence[tuple[Finding, float]]
    """Findings with the share of images, the least certain ones, that a human has to read."""
    not_shown: Sequence[Finding]
    """Read all: answers were right, and the finding found, often enough on the tested images, but
    this is not shown for others."""
    missed: Sequence[Finding]
    """Read all: too many images with the finding are missed, whatever the share of right answers.
    """
    never_sure: Sequence[Finding]
    """Read all: even the surest answers are not right often enough."""


def _findings_to_read(verdict: Verdict, names: Sequence[str]) -> _FindingsToRead:
    """Divide the findings with these names by the images that a human has to read.

    The verdict is one that gives no reason to read every image: see :func:`why_ask_always`.
    """
    no_image = []
    least_sure = []
    not_shown = []
    missed = []
    never_sure = []
    for finding in verdict.findings:
        if finding.name not in names:
            continue
        share = finding.referred[-1]
        if finding.found.value < FOUND_ENOUGH:
            missed.append(finding)
        elif share is None:
            never_sure.append(finding)
        elif share > 0:
            least_sure.append((finding, share))
        elif _is_shown(finding):
            no_image.append(finding)
        else:
            not_shown.append(finding)
    return _FindingsToRead(no_image, least_sure, not_shown, missed, never_sure)


def _names(findings: Sequence[Finding]) -> str:
    return listed([finding.name for finding in findings])


def _is_shown(finding: Finding) -> bool:
    """Return whether answers are right, and the finding is found, often enough by all intervals."""
    return (finding.right.low or 0) >= RIGHT_ENOUGH and (finding.found.low or 0) >= FOUND_ENOUGH
