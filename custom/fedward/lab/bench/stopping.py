"""One stopping rule for all rows: the round that is best on validation images."""

from fedward.evaluation.names import ERRORS
from fedward.lab.bench.records import Record


def chosen_value(record: Record, metric: str) -> float:
    """Return a test value in the round that is best on validation, as a mean over sites.

    Errors, such as that of calibration, choose no round: theirs are of the last rounds.

    Args:
        record: of a run or a reference.
        metric: one that the line keeps; ``pooled`` is the accuracy over all test images.
    """
    protocol = "last" if metric in ERRORS else "global"
    return record.test[protocol][metric]


def last_value(record: Record, metric: str) -> float:
    """Return a test value of the last rounds; of a reference, which has none, its value."""
    return record.test.get("last", record.test["global"])[metric]
