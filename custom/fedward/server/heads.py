"""Classes that a head in one round never predicts."""

import logging
from pathlib import Path

from fedward.config import Experiment
from fedward.runs.sentences import no_head
from fedward.storage.rows import HeadRow, read_rows

_log = logging.getLogger(__name__)


def classes_without_head(folder: Path, experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the classes that the run's head never predicts, and log a warning.

    Args:
        folder: of a run. Runs of other methods have no log of heads, and with encrypted updates
            there is none either.
        experiment: the run's experiment, which names the classes.

    Raises:
        RunError: a line of the log is broken.
    """
    names: tuple[str, ...] = ()
    for row in read_rows(folder / "heads.jsonl", HeadRow, []):
        names = tuple(experiment.data.classes[index] for index in row.absent)
    if names:
        _log.warning("%s", no_head(names))
    return names
