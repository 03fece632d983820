"""Active learning in which nobody is asked: the sites that have as many labels as the job wants."""

from collections import Counter
from pathlib import Path

from fedward.config import Experiment
from fedward.methods import settings_of
from fedward.storage.rows import QueryRow, read_rows


def enough_labels(folder: Path, experiment: Experiment) -> dict[str, str]:
    """Return site -> why nobody is asked there, of the sites that have asked about no image and
    have labels enough.

    It is empty for a run that buys no labels. A site that stands here asks about nothing in later
    rounds either, as it has reached the job's ``target_fraction`` with the labels it began with.

    Args:
        folder: of a run, in whatever state.
        experiment: the run's.

    Raises:
        RunError: a line of the folder's log of questions is broken.
    """
    target: float | None = getattr(
        settings_of(experiment.method, experiment.options), "target_fraction", None
    )
    if target is None:
        return {}
    asked = Counter[str]()
    last = dict[str, QueryRow]()
    for row in read_rows(folder / "queries.jsonl", QueryRow, []):
        asked[row.site] += row.asked
        last[row.site] = row
    found = {}
    for site, row in sorted(last.items()):
        images = row.labelled + row.unlabelled
        if not asked[site] and row.labelled >= round(target * images):
            found[site] = f"{row.labelled} of {images} training images have a label"
    return found
