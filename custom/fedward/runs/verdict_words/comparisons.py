"""A model beside the models of other runs."""

from fedward.runs.verdict import Against, Verdict
from fedward.text import count

MOST_COMPARED = 5
"""Other runs that get a sentence each, at most."""


def sentences(verdict: Verdict) -> list[str]:
    """Return a sentence on each other run, of the first :data:`MOST_COMPARED`."""
    return [_sentence(one) for one in verdict.compared[:MOST_COMPARED]]


def _sentence(against: Against) -> str:
    difference = against.difference
    change = f"{difference.mean:+.3f}"
    if difference.low is not None and difference.high is not None:
        change += f" (95 % interval {difference.low:+.3f} to {difference.high:+.3f})"
    result = "Not shown to be better than"
    if against.is_better:
        result = "Better than"
    elif against.is_worse:
        result = "Worse than"
    return (
        f"{result} {against.other}: {change} in test {against.metric}, paired over "
        f"{count(difference.n, 'site')}."
    )
