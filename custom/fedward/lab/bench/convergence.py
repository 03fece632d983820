"""What shows that a row has converged, and which curves fall.

A schedule flattens every curve at its end, so a flat curve shows nothing. Twice the rounds do.
"""

from collections.abc import Sequence
from statistics import fmean

from fedward.evaluation import mean_and_interval
from fedward.evaluation.selection import latest_best
from fedward.lab.bench.records import Record
from fedward.lab.bench.results import NOT_RUN, chosen_value, last_value

NOT_SHOWN = "convergence not shown"
"""What is said of a row without a run of twice the rounds."""
FEWEST_SEEDS = 5
"""A row with fewer seeds shows its numbers, and says that they are few.

Its interval is so wide that hardly any change is too large, so nothing shows that it has converged.
"""
NOT_CONVERGED = "not converged: "
"""How the text begins that says by how much twice the rounds change a value."""
LATE = 0.75
"""A best round after this share of the rounds is near the end, so that its curve does not fall."""


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % interval of the values' mean; None for one value.

    Raises:
        ConfigError: there is no value, or one is not finite.
    """
    interval = mean_and_interval(values)
    if interval.low is None or interval.high is None:
        return None
    return (interval.high - interval.low) / 2


def change_by_doubling(
    records: Sequence[Record], doubled: Sequence[Record], metric: str
) -> float | None:
    """Return how far twice the rounds change a test value; None if it was not measured.

    It is the mean over the seeds that ran with twice the rounds, since a claim is on means as well.

    Args:
        records: the row's results.
        doubled: those with twice the rounds. One counts if the row has a result of the same seed,
            with half as many rounds or fewer.
        metric: name of the metric.

    Returns:
        The change, at least 0, whatever its direction.
    """
    by_seed = {record.seed: record for record in records}
    changes = []
    for longer in doubled:
        usual = by_seed.get(longer.seed)
        if usual is not None and longer.rounds >= 2 * usual.rounds:
            changes.append(chosen_value(longer, metric) - chosen_value(usual, metric))
    return abs(fmean(changes)) if changes else None


def unconverged(records: Sequence[Record], doubled: Sequence[Record], metric: str) -> str:
    """Return why a row is not shown to have converged in a metric; empty if it is.

    Twice the rounds must change the value by less than half the interval over five repetitions or
    more, or by nothing. With fewer, a change that is too large still says that the row has not
    converged. A row of a single round, such as a classifier in closed form, needs no convergence.

    Args:
        records: the row's results.
        doubled: those with twice the rounds; see :func:`change_by_doubling`.
        metric: name of the metric.

    Raises:
        ConfigError: a line has no value of the metric.
    """
    if not records:
        return NOT_RUN
    if all(record.rounds <= 1 for record in records):
        return ""
    change = change_by_doubling(records, doubled, metric)
    half = half_interval([chosen_value(record, metric) for record in records])
    if change is None or half is None:
        return NOT_SHOWN
    if change == 0 or change < half:
        return "" if len(records) >= FEWEST_SEEDS else NOT_SHOWN
    return (
        f"{NOT_CONVERGED}twice the rounds change it by {change:.3f}, half the interval is "
        f"{half:.3f}"
    )


def _best_round(record: Record) -> float:
    """Return the round that counts, the mean over sites where each has its own.

    An older line does not name it: there it is that of the best value on the curve, which lacks the
    model before training.
    """
    if record.best_round:
        return fmean(record.best_round.values())
    values = record.curve.val_since_labels
    rounds = record.curve.round[-len(values) :]
    best = latest_best(dict(zip(rounds, values, strict=True)))
    assert best is not None, "it has values"
    return float(best)


def fall(records: Sequence[Record], metric: str) -> float | None:
    """Return by how much a row's test value falls after its best round; None if it does not.

    A curve falls if two things hold. The best round on validation images is, in the mean over
    repetitions, in the first three quarters of the rounds. On test images the last rounds are lower
    than the best round by more than half the interval over repetitions; a single repetition has no
    interval, and any loss counts.

    Args:
        records: the row's results, at least one.
        metric: name of the metric.

    Raises:
        ConfigError: a line has no value of the metric.
        ValueError: there is no result.
    """
    best_shares = []
    for record in records:
        if len(record.curve.val_since_labels) < 2:
            return None
        best_shares.append(_best_round(record) / record.curve.round[-1])
    if fmean(best_shares) > LATE:
        return None
    values = [chosen_value(record, metric) for record in records]
    loss = fmean(values) - fmean(last_value(record, metric) for record in records)
    return loss if loss > (half_interval(values) or 0.0) else None
