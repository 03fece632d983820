"""When a human has to read what the model answers."""

from fedward.runs.verdict import RIGHT_ENOUGH, Verdict
from fedward.runs.verdict_words.findings import ask_about_findings
from fedward.runs.verdict_words.reasons import why_ask_always
from fedward.runs.verdict_words.shares import of_hundred


def ask_human(verdict: Verdict) -> str:
    """Return when a human has to read; "every image" unless all was tested.

    It is one sentence, or two where a model that may name several classes needs less for some.
    """
    if not verdict.exclusive:
        return ask_about_findings(verdict)
    unit = verdict.unit
    reason = why_ask_always(verdict)
    if reason:
        return f"Ask a human about every {unit}: {reason}."
    if verdict.needs_no_human:
        return (
            f"{unit.capitalize()}s like the tested ones need no human: it is right for 95 of 100."
        )
    wanted, share = _advised(verdict)
    if share is not None:
        return (
            f"Ask a human about the {of_hundred(share)} of 100 {unit}s that it is least sure "
            f"about: it is right for at least {of_hundred(wanted)} of 100 of the others."
        )
    return f"Ask a human about every {unit}: it is not shown to be right for 95 of 100."


def _advised(verdict: Verdict) -> tuple[float, float | None]:
    """Return the largest share of right answers that a referral reaches, and the share to refer.

    The share to refer is None where no referral reaches any.
    """
    for wanted, share in reversed(verdict.referred):
        if share is not None:
            return wanted, share
    return RIGHT_ENOUGH, None


def other_referrals(verdict: Verdict) -> list[str]:
    """Return what referrals other than the advised one bring, where each image has one answer.

    Where a human has to read every image, no number of images stands beside that. Empty for several
    findings.
    """
    if verdict.overall is None or why_ask_always(verdict):
        return []
    advised = _advised(verdict)
    return [
        _referral(verdict, wanted, share)
        for wanted, share in verdict.referred
        if (wanted, share) != advised
    ]


def _referral(verdict: Verdict, wanted: float, share: float | None) -> str:
    """Return what a human has to read so that enough of the other answers are right."""
    unit = verdict.unit
    if share is None:
        return (
            f"No number of {unit}s that a human reads is shown to be enough for "
            f"{of_hundred(wanted)} right answers of 100 to the others."
        )
    return (
        f"If a human reads the {of_hundred(share)} of 100 {unit}s that it is least sure about, it "
        f"is right for at least {of_hundred(wanted)} of 100 of the others."
    )
