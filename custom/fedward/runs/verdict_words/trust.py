"""Whether the confidence of a model can be trusted."""

from fedward.evaluation.histograms import ConfidenceHistogram
from fedward.runs.measured import Measured
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words.shares import of_hundred

_CLOSE = 0.05
"""Largest calibration error, and half of an interval's width, at which confidence is trusted."""


def sentence(verdict: Verdict) -> str:
    """Return whether its confidence can be trusted; empty for several findings."""
    if verdict.overall is None:
        return ""
    if verdict.confidence is None:
        return (
            f"The counts of this run do not cover all test {verdict.unit}s, so the page cannot say "
            "when to trust its confidence."
        )
    return (
        f"{_judgement(verdict, verdict.confidence, verdict.overall)}: on average it is "
        f"{of_hundred(verdict.confidence.mean)}\u00a0% sure, and is right for "
        f"{of_hundred(verdict.overall.value)} of 100 {verdict.unit}s."
    )


def _judgement(verdict: Verdict, confidence: ConfidenceHistogram, right: Measured) -> str:
    """Return whether confidence can be trusted, as far as these answers show."""
    low = right.low or 0.0
    high = 1.0 if right.high is None else right.high
    if verdict.level == "poor":
        # A model that always gives one answer may be as sure as it is right.
        return "No, as it is not shown to be of use"
    if confidence.mean > high:
        return "No, it is surer than it is right"
    if confidence.mean < low:
        return "No, it is right more often than it is sure"
    if high - low > 2 * _CLOSE:
        return f"There are too few test {verdict.unit}s to say"
    if (confidence.calibration_error or 0.0) > _CLOSE:
        return "Only as a whole, as some of its answers are right more or less often than it says"
    return "On the whole yes"
