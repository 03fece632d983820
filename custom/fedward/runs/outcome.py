"""A finished run in one number: its best model's value on images that nothing was chosen by."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedward.evaluation.selection import MetricRow, kept_round, last_round
from fedward.storage.info import Summary, read_info
from fedward.storage.rows import read_rows
from fedward.text import count


class Outcome(NamedTuple):
    """The key metric on test images."""

    metric: str
    round: int
    """After which the model was kept as the best one; without one, the last that was evaluated."""
    value: float
    """Mean over the sites that have a test value, each counting once."""
    sites: int
    """Number of these sites."""
    images: int
    """Test images of these sites, or patients."""
    unit: str
    """``image`` or ``patient``."""
    synthetic: bool
    """Whether fedward drew images: the number then says nothing about patients."""

    @property
    def tested(self) -> str:
        """On what it was measured, such as ``120 synthetic images``."""
        return count(self.images, f"synthetic {self.unit}" if self.synthetic else self.unit)


def outcome(folder: Path, summary: Summary) -> Outcome | None:
    """Return what a finished run has reached; None for one that failed or was not evaluated."""
    log = folder / "metrics.jsonl"
    if summary.reason is not None or not log.exists():
        return None
    info = read_info(folder)
    experiment = info.experiment
    metric = str(experiment["key_metric"])
    # A long run has hundreds of thousands of rows: most are discarded before they are parsed.
    rows = list(read_rows(log, MetricRow, [], containing=f'"{metric}"'))
    selection = last_round(rows, metric)
    if summary.best_round is not None:
        selection = kept_round(rows, metric, summary.best_round)
    if selection.test is None or selection.round is None:
        return None
    tested = [choice for choice in selection.sites if choice.test is not None]
    return Outcome(
        metric=metric,
        round=selection.round,
        value=selection.test,
        sites=len(tested),
        images=sum(choice.images for choice in tested),
        unit=str(experiment["data"].get("evaluate_by", "image")),
        synthetic=any(info.synthetic.values()),
    )


def ending(folder: Path, summary: Summary, untrained: Sequence[str]) -> str:
    """Return how a run ended that did not fail; it has not finished well if it says nothing.

    Args:
        folder: of the run.
        summary: how it ended.
        untrained: prefixes of tensors that the run was not to train, so that it has no results.
    """
    rounds = count(summary.rounds or 0, "round")
    is_survey = (folder / "surveys.jsonl").exists()
    if untrained or is_survey or outcome(folder, summary):
        return f"finished after {rounds}"
    return f"trained for {rounds}, and nothing was measured on test images"
