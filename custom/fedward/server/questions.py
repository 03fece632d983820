"""Sites where nobody is asked in active learning, as they have as many labels as the job wants."""

from collections import Counter
from pathlib import Path

from fedward.config import Experiment
from fedward.methods import settings_of
from fedward.storage.rows import QueryRow, read_rows


def enough_labels(folder: Path, experiment: Experiment) -> dict[str, str]:
    """Return site -> why nobody is asked there.

    These are the sites that have asked about no image and have reached the job's
    ``target_fraction`` with the labels they began with. They ask about nothing in later rounds
    either. There are none in a run that buys no labels.

    Args:
        folder: of a run, whatever its status.
        experiment: the run's experiment.

    Raises:
        RunError: a line of the folder's log of questions is broken.
    """
    settings = settings_of(experiment.method, experiment.options)
    target: float | None = getattr(settings, "target_fraction", None)
    if target is None:
        return {}
    asked = Counter[str]()
    newest_row = dict[str, QueryRow]()
    for row in read_rows(folder / "queries.jsonl", QueryRow, []):
        asked[row.site] += row.asked
        newest_row[row.site] = row
    reasons = {}
    for site, row in sorted(newest_row.items()):
        images = row.labelled + row.unlabelled
        if asked[site] == 0 and row.labelled >= round(target * images):
            reasons[site] = f"{row.labelled} of {images} training images have a label"
    return reasons
