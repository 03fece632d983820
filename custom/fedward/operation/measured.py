"""Whether sites would measure anything of a model, and what to do where they would not."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedward.config import DataSpec
from fedward.errors import command, in_shell, option
from fedward.evaluation.evaluated_images import fewest_measured, measured_classes
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.labels import Labels, class_counts
from fedward.sites.data import Images, SiteData
from fedward.sites.data_file import read_measuring_cut
from fedward.sites.leaks import sets_of


class Unmeasured(NamedTuple):
    """Why sites would measure nothing, and the cure."""

    problem: str
    cure: str
    """What to do, as sentences."""
    command: str
    """A command line that cuts the data so that they are measured; empty if none is known."""


def measured_by(spec: DataSpec, labels: Labels, groups: Sequence[str]) -> frozenset[int]:
    """Return the classes, by their places, of which a split of a site gives numbers.

    Args:
        spec: what the images are.
        labels: of the split's N images, (N,) or (N, K).
        groups: of N images what is evaluated as one; empty where each image is.
    """
    measured = measured_classes(labels, groups, len(spec.classes), spec.label_kind)
    return frozenset(np.flatnonzero(measured).tolist())


def unmeasured(
    spec: DataSpec,
    tests: Iterable[frozenset[int]],
    site_files: Path,
    whole: Callable[[], Iterable[SiteData]],
) -> Unmeasured | None:
    """Return why a run would say nothing about its model; None if it would.

    Args:
        spec: what the images are.
        tests: of each site the classes that it measures on its test images.
        site_files: folder of the site files; where ``fedward partition`` wrote it, it names a cut
            that measures more.
        whole: returns the data of all sites with all labels, hidden ones too.
    """
    measured = frozenset[int]().union(*tests)
    needed = fewest_measured(spec.label_kind)
    if len(measured) >= needed:
        return None
    found = "none"
    if measured:
        found = f"{spec.classes[next(iter(measured))]} alone"
    problem = (
        f"This run would say nothing about its model: sites need {SMALLEST_COUNT} test "
        f"{spec.evaluate_by}s of a class to measure it, and they measure {found} ({needed} of the "
        "classes needed)"
    )
    cut = read_measuring_cut(site_files) if in_shell() else ""
    if cut:
        return Unmeasured(problem, f"Cut the data again, so that more is measured:\n{cut}", cut)
    return Unmeasured(problem, _cure(spec, whole()), "")


def _cure(spec: DataSpec, sites: Iterable[SiteData]) -> str:
    """Return what gives a run numbers, by the labels of all sites together."""
    totals = Counter[int]()
    tested = Counter[int]()
    for data in sites:
        tested.update(_units(spec, data.test))
        for images in sets_of(data).values():
            totals.update(_units(spec, images))
    # Images without a label.
    del totals[-1]
    unit = spec.evaluate_by
    fewest = fewest_measured(spec.label_kind)
    common = sum(number >= SMALLEST_COUNT for number in tested.values())
    if common >= fewest:
        return (
            "Cut the data again into another folder, with test images that are evaluated together: "
            f"{command('partition', option('evaluate-together', True))}."
        )
    needed = sorted([*totals.values(), 0, 0], reverse=True)[fewest - 1]
    share = SMALLEST_COUNT / needed if needed else 1.0
    if share <= 0.5:
        together = (
            option("evaluate-together", True),
            option("val", 0),
            option("test", _rounded_up(share)),
        )
        return (
            "Cut the data again into another folder, with more test images that are evaluated "
            f"together: {command('partition', *together)}."
        )
    return (
        f"Add images until classes have 10 labelled {unit}s each or more, to train and to test, or "
        "evaluate the model elsewhere with fedward evaluate."
    )


def _units(spec: DataSpec, images: Images) -> dict[int, int]:
    """Return class -> how many images show it, or patients where these are evaluated."""
    if not images.groups:
        counts = class_counts(images.labels, len(spec.classes))
        return {place: int(number) for place, number in enumerate(counts)}
    label_of_group = dict(zip(images.groups, images.labels.tolist(), strict=True))
    return dict(Counter(label_of_group.values()))


def _rounded_up(share: float) -> float:
    """Return a share in steps of 0.05, with room for groups that do not divide evenly."""
    return min(0.5, (int(share * 20) + 2) / 20)
