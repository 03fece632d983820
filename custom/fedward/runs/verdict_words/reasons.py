"""Why a human has to read every image."""

from fedward.runs.verdict import FOUND_ENOUGH, Verdict
from fedward.runs.verdict_words.failures import (
    failures,
    failures_in_subgroups,
    failures_of_training,
    few_names,
    worse_than_others,
)
from fedward.runs.verdict_words.shares import of_hundred


def why_ask_always(verdict: Verdict) -> str:
    """Return why a human has to read every image; empty where the surest answers may do.

    Where it is not empty, no page says how many images a human has to read.
    """
    tested = verdict.tested
    reasons = []
    if verdict.level == "poor":
        use = "of use" if verdict.exclusive else "better than guessing"
        reasons.append(f"it is not shown to be {use}")
    if verdict.exclusive:
        reasons += failures(verdict)
    else:
        # Findings that it misses or only guesses are named one by one, with how many images of each
        # a human has to read.
        reasons += [*failures_of_training(verdict), *failures_in_subgroups(verdict)]
    if tested.untested:
        reasons.append(f"it was not tested for {few_names(tested.untested)}")
    if tested.unnamed or tested.partly:
        reasons.append("some classes were tested on too few images, or not at every site")
    if tested.not_evaluated:
        reasons.append("it was not tested at every site")
    if tested.not_trained:
        reasons.append("not every site trained it")
    reasons += worse_than_others(verdict)
    if verdict.exclusive:
        reasons += _doubts_about_answers(verdict)
    return reasons[0] if reasons else ""


def _doubts_about_answers(verdict: Verdict) -> list[str]:
    """Return why the surest of its answers do not do without a human, where one is right."""
    doubts = []
    if not verdict.is_above_baseline and verdict.common:
        doubts.append(
            f"it is not shown to be right more often than always answering “{verdict.common.name}”"
        )
    if verdict.is_right_enough and verdict.doubtful:
        doubts.append(
            f"it is not shown to find {of_hundred(FOUND_ENOUGH)} of 100 {verdict.unit}s of "
            f"{few_names([one.name for one in verdict.doubtful])}"
        )
    if verdict.confidence is None:
        doubts.append(f"its confidence was not counted for all test {verdict.unit}s")
    # The lowest share of right answers that all of its answers together are not shown to reach.
    for wanted, share in verdict.referred[:1]:
        if share is None:
            doubts.append(
                f"not even its surest answers are shown to be right for {of_hundred(wanted)} of 100"
            )
    return doubts
