"""What is wrong with a model, in clauses that the verdict and the advice to readers share."""

from collections.abc import Sequence

from fedward.errors import listed
from fedward.runs.sentences import named
from fedward.runs.verdict import Verdict

_LONGEST_LIST = 60
"""Characters of a list of names in a clause."""


def failures(verdict: Verdict) -> list[str]:
    """Return where the model fails, the worst first."""
    clauses = failures_of_training(verdict)
    if verdict.never:
        never = "the sites' own models never answer" if verdict.own_models else "it never answers"
        if not verdict.exclusive:
            never = "it never finds"
        clauses.append(f"{never} {few_names(verdict.never)}")
    if verdict.missed:
        clauses.append(
            f"it recognises none of the test {verdict.unit}s of {few_names(list(verdict.missed))}"
        )
    if verdict.weak:
        weak = [f"{one.name} ({one.right} of {one.n})" for one in verdict.weak]
        clauses.append(f"it finds fewer than half of the {verdict.unit}s of {few_names(weak)}")
    clauses += failures_in_subgroups(verdict)
    if verdict.guessed:
        clauses.append(f"it only guesses about {few_names(verdict.guessed)}")
    if verdict.alarms:
        them = "it" if len(verdict.alarms) == 1 else "them"
        clauses.append(
            f"it sees {few_names(verdict.alarms)} in more than half of the {verdict.unit}s "
            f"without {them}"
        )
    return clauses


def failures_of_training(verdict: Verdict) -> list[str]:
    """Return how training failed, or made the test worthless."""
    clauses = []
    if verdict.unimproved:
        clauses.append("no round of training improved it")
    if verdict.tested_on_training:
        what = " and ".join(f"{name}s" for name in verdict.tested_on_training)
        clauses.append(f"some of the test {what} are also in training")
    return clauses


def failures_in_subgroups(verdict: Verdict) -> list[str]:
    """Return in which groups the model is worse, in one clause; none without such groups."""
    if not verdict.low_subgroups:
        return []
    worse = "is right less often for" if verdict.exclusive else "finds less in"
    return [f"it {worse} {few_names([one.title for one in verdict.low_subgroups])}"]


def worse_than_others(verdict: Verdict) -> list[str]:
    """Return which compared runs are better, in one clause; none without such runs."""
    better_runs = [one.other for one in verdict.compared if one.is_worse]
    if not better_runs:
        return []
    return [f"it is worse than {named(better_runs, 'compared run')}"]


def few_names(names: Sequence[str]) -> str:
    """Return names as a list that says how many it leaves out, if it would be too long."""
    shown = list(names)
    while len(shown) > 1 and len(", ".join(shown)) > _LONGEST_LIST:
        shown.pop()
    names_shown = listed(shown)
    if len(names) > len(shown):
        return f"{names_shown} and {len(names) - len(shown)} more"
    return names_shown
