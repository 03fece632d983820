"""Whether the seeds of a study differ in their images, or in the training alone.

A study may say that its images are cut again for each seed. What counts is what the site files
hold: seeds whose test images or labels are the same are repetitions of the training alone.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedward.config import DataSpec
from fedward.digests import digest
from fedward.lab.bench.records import ImageDigests, Record, Repetition
from fedward.lab.bench.study import Study
from fedward.seeds import numpy_generator
from fedward.sites import named_sites
from fedward.sites.assemble import divide
from fedward.sites.data import Decoded, SiteData
from fedward.sites.decoding import Pixels
from fedward.sites.npz import usable_rows
from fedward.sites.site_csv import load_images, read_rows
from fedward.sites.site_file import ManifestSite, read_site_file


def compared_seeds(study: Study, seeds_in_file: Sequence[int]) -> tuple[int, ...]:
    """Return seeds whose images those of a study's seeds are compared with.

    A single seed needs another one: of the study's file or, where images are cut for any seed, the
    next number. Without a partition the files of another seed may not be there.
    """
    if len(study.seeds) > 1 or not study.partition:
        return study.seeds
    (seed,) = study.seeds
    others = [other for other in seeds_in_file if other != seed]
    return (seed, others[0] if others else seed + 1)


def cut_of(folder: Path, spec: DataSpec) -> ImageDigests:
    """Return which images the site files in a folder name for testing and with labels.

    No image is opened. Ids are those of the data set, so that test images are the same whichever
    site evaluates them.

    Raises:
        DataError: a site file, or what it names, cannot be used.
    """
    test: list[str] = []
    labels: dict[str, list[str]] = {}
    for site in named_sites(folder):
        data = _without_images(folder / f"{site}.yaml", spec)
        test += data.test.ids
        labels[site] = sorted(data.labelled.ids)
    return ImageDigests(test=digest(sorted(test)), labels=digest(labels))


def _without_images(site_file: Path, spec: DataSpec) -> SiteData:
    """Return a site's data as :func:`fedward.sites.load_site` does, with blank images."""
    file = read_site_file(site_file)
    if isinstance(file, ManifestSite):
        rows = load_images(read_rows(file, spec.classes, spec.label_kind), _blank).rows
    else:
        rows = usable_rows(file, spec)
    images = sum(len(row.parts) for row in rows)
    rng = numpy_generator(file.split.seed, "labelled")
    return divide(file.site, spec.classes, rows, _blank_pixels(images), file.labelled, rng)


def _blank(paths: Sequence[Path]) -> Decoded:
    """Return one blank pixel for each file."""
    return Decoded(_blank_pixels(len(paths)), {}, [[""] for _ in paths])


def _blank_pixels(count: int) -> Pixels:
    return np.zeros((count, 1, 1, 1), np.uint8)


def repetition_of(seed: int, cuts: Mapping[int, ImageDigests]) -> Repetition:
    """Return what differs between a seed and all others of a row.

    Args:
        seed: one of the row's.
        cuts: seed -> its images. Without another seed nothing shows that images differ.
    """
    own = cuts[seed]
    others = [cut for other, cut in cuts.items() if other != seed]
    if not others or any(cut.test == own.test or cut.labels == own.labels for cut in others):
        return "weights"
    return "data and weights"


def data_varied(records: Collection[Record]) -> bool:
    """Return whether the repetitions of a row differ in images and labels, not in weights only.

    Each line must say so, and no two may have the same test images or the same labels.
    """
    if any(record.repetition == "weights" for record in records):
        return False
    test_images = {record.cut.test for record in records}
    labels = {record.cut.labels for record in records}
    return len(test_images) == len(labels) == len(records)
