"""How much a result depends on the test images: the bootstrap over patients or lesions.

Images of one patient are alike, so whole groups are drawn, those of each site within the site.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fedward.evaluation.arrays import Counts, Values
from fedward.evaluation.confusion import ConfusionCounts
from fedward.evaluation.intervals import RESAMPLES
from fedward.evaluation.names import OF_ANSWERS
from fedward.lab.bench.records import DIGITS, Record
from fedward.seeds import numpy_generator

_HALF_WIDTH = 1.96
"""Half of a 95 % interval in standard deviations."""


@dataclass(frozen=True)
class Answered:
    """N test images of a site, each with its class, its group, and a model's answer."""

    labels: NDArray[np.int64]
    """(N,) class of each image, in [0, K)."""
    groups: NDArray[np.int64]
    """(N,) group of each image, from 0."""
    answers: NDArray[np.int64]
    """(N,) class that the model answers, in [0, K)."""


def bootstrap_standard_errors(
    sites: Sequence[Answered], classes: int
) -> dict[str, dict[str, float]]:
    """Return metric -> ``deviation``: its standard deviation over 1,000 resamples of groups.

    The value of a resample is the mean over sites, as everywhere. A site without test images has no
    value. The draw is the same in every call, so that equal answers have equal deviations.

    Args:
        sites: of one model, or of one model each.
        classes: number of classes K.
    """
    rng = numpy_generator(0, "test groups")
    resampled = [_resampled(site, classes, rng) for site in sites if len(site.labels)]
    if not resampled:
        return {}
    found: dict[str, dict[str, float]] = {}
    for metric in OF_ANSWERS:
        means = np.mean([values[metric] for values in resampled], axis=0)
        found[metric] = {"deviation": round(float(means.std(ddof=1)), DIGITS)}
    return found


def _resampled(site: Answered, classes: int, rng: np.random.Generator) -> dict[str, Values]:
    """Return metric -> its value (RESAMPLES,) at one site."""
    group_count = int(site.groups.max()) + 1
    # (G, K) counts in each of the site's G groups, of each class.
    images = np.zeros((group_count, classes), np.int64)
    true_positives = np.zeros_like(images)
    answers = np.zeros_like(images)
    right = site.answers == site.labels
    np.add.at(images, (site.groups, site.labels), 1)
    np.add.at(true_positives, (site.groups[right], site.labels[right]), 1)
    np.add.at(answers, (site.groups, site.answers), 1)
    # (RESAMPLES, G): how often each group is in a resample.
    drawn = rng.multinomial(group_count, np.full(group_count, 1 / group_count), RESAMPLES)
    return metrics_of(drawn @ images, drawn @ true_positives, drawn @ answers)


def metrics_of(images: Counts, true_positives: Counts, answers: Counts) -> dict[str, Values]:
    """Return metric -> its value in each of B resamples (B,), in [0, 1].

    They are those of :class:`~fedward.evaluation.one_label.OneLabelMetrics`.

    Args:
        images: (B, K) images of each class in each resample, at least one.
        true_positives: (B, K) images of each class that are answered by it.
        answers: (B, K) images that are answered by each class, rightly or not.
    """
    total = images.sum(axis=1, keepdims=True)
    confusion = ConfusionCounts(
        total=np.broadcast_to(total, images.shape),
        images=images,
        true_positives=true_positives,
        false_positives=answers - true_positives,
    )
    shares = images / total
    return {
        "accuracy": true_positives.sum(axis=1) / total[:, 0],
        "balanced_accuracy": np.nanmean(confusion.recall, axis=1),
        "f1_weighted": np.nansum(confusion.f1 * shares, axis=1),
        "f1_macro": np.nanmean(confusion.f1, axis=1),
        "precision_weighted": np.nansum(confusion.precision * shares, axis=1),
        "precision_macro": np.nanmean(confusion.precision, axis=1),
    }


def half_width_over_groups(records: Collection[Record], metric: str) -> float | None:
    """Return half the 95 % interval over groups of test images; None if it was not recorded.

    1.96 times the mean over repetitions of the standard deviation over resampled groups.

    Args:
        records: the repetitions of a row or a reference.
        metric: name of the metric.
    """
    if not records or any(metric not in record.by_group for record in records):
        return None
    return _HALF_WIDTH * fmean(record.by_group[metric]["deviation"] for record in records)
