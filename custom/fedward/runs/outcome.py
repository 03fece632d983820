"""A finished run in one number: what its best model reaches on images that nothing was chosen by."""

from pathlib import Path
from typing import NamedTuple

from fedward.evaluation.selection import MetricRow, kept_round, last_round
from fedward.storage.info import Summary, read_info
from fedward.storage.rows import read_rows


class Outcome(NamedTuple):
    """The key metric on test images."""

    metric: str
    round: int
    """After which the model was kept as the best one; the last that was evaluated where none was.
    """
    value: float
    """Mean over the sites that have one, each counting once."""
    sites: int
    images: int
    """Test images of all these sites, or patients."""
    unit: str
    """Which of the two."""


def outcome(folder: Path, summary: Summary) -> Outcome | None:
    """Return what a finished run has reached; None for one that failed, or that was not evaluated."""
    log = folder / "metrics.jsonl"
    if summary.reason is not None or not log.exists():
        return None
    experiment = read_info(folder).experiment
    metric = str(experiment["key_metric"])
    unit = str(experiment["data"].get("evaluate_by", "image"))
    # A long run has hundreds of thousands of rows: most are told apart before they are parsed.
    rows = list(read_rows(log, MetricRow, [], containing=f'"{metric}"'))
    chosen = (
        last_round(rows, metric)
        if summary.best_round is None
        else kept_round(rows, metric, summary.best_round)
    )
    tested = [choice for choice in chosen.sites if choice.test is not None]
    if chosen.test is None or chosen.round is None:
        return None
    return Outcome(
        metric,
        chosen.round,
        chosen.test,
        len(tested),
        sum(choice.images for choice in tested),
        unit,
    )
