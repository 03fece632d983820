"""Which labels a row sees: only rows that see all labels may be the upper bound."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedward.lab.bench.results import Results, kept_with_results
from fedward.lab.bench.study_parts import RowOfVariant
from fedward.methods import settings_of


class LabelsSeen(NamedTuple):
    """What decides which labels a row trains on; it is equal for rows with the same labels."""

    division: str
    """How the images are divided; see :class:`~fedward.lab.bench.partitions.CutKey`.

    One site that trains on the images of all sees the labels of all.
    """
    bought_by: str
    """Row whose run bought the labels that this row uses; empty where none did."""
    bought_share: float
    """Share of the labels that the row ends with; 1 for a method that buys none."""
    synthetic: Any
    """Settings of the synthetic images; None where site files name the images."""


def same_labels(results: Results, variant: str, row: str, other: str) -> bool:
    """Return whether two rows of a variant have both run and see the same labels."""
    labels = _labels_seen(results)
    seen = labels.get((variant, row))
    return seen is not None and seen == labels.get((variant, other))


@kept_with_results
def _labels_seen(results: Results) -> dict[RowOfVariant, LabelsSeen]:
    """Return (variant, row) -> the labels that it sees, of the rows that have run."""
    of_training = {place: _labels_of(results, *place) for place in results.rows_that_ran()}
    return {place: _with_start(results, place, of_training) for place in of_training}


def _with_start(
    results: Results, place: RowOfVariant, of_training: Mapping[RowOfVariant, LabelsSeen]
) -> LabelsSeen:
    """Return which labels a row sees, those of the row whose weights it begins with among them.

    A row that begins with weights learned from all labels sees all of them. Other rows are told
    apart by the labels of their own training.
    """
    study = results.study
    variant, row = place
    start = study.rows[row].init
    while start:
        ran_in = study.variant_of(variant, start)
        labels = of_training.get((ran_in, start))
        if labels is not None and labels == of_training.get((ran_in, study.upper)):
            return of_training.get((variant, study.upper), labels)
        start = study.rows[start].init
    return of_training[place]


def _labels_of(results: Results, variant: str, row: str) -> LabelsSeen:
    """Return the labels that a row trains on itself, without those of its starting weights."""
    study = results.study
    first = results.repetitions(variant, row)[0]
    experiment = first.without(study.rows[row].removed_settings)
    settings = settings_of(experiment.method, experiment.options)
    # Methods without this setting buy no labels: they use all that the cut leaves.
    bought_share = getattr(settings, "target_fraction", 1.0)
    # Jobs differ in their synthetic images, which a row with site files does not use.
    has_site_files = bool(study.partition or study.rows[row].sites)
    synthetic = None if has_site_files else first.settings.get("synthetic")
    division = results.cut(variant, row).division
    return LabelsSeen(division, study.rows[row].labels, bought_share, synthetic)
