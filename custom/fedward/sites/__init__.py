"""A site's data: what there is, who labelled it, how it is split; in its own files.

Importing this package does not import torch; the FedVC draw, which needs it, is in
:mod:`fedward.sites.sampling`.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.seeds import numpy_generator
from fedward.sites.assemble import divide
from fedward.sites.data import Images, Rejected, SiteData
from fedward.sites.images import decode_files
from fedward.sites.job_checks import check_label_fields, check_rejected
from fedward.sites.manifest import load_manifest
from fedward.sites.npz import load_npz
from fedward.sites.site_file import (
    SERVER,
    ManifestSite,
    find_site_file,
    named_sites,
    read_site_file,
    site_files,
)

if TYPE_CHECKING:
    from fedward.config import DataSpec

__all__ = [
    "SERVER",
    "Images",
    "Rejected",
    "SiteData",
    "find_site_file",
    "load_site",
    "named_sites",
    "site_files",
]


def load_site(
    site_file: Path, spec: "DataSpec", cache: Path | None = None, labelled: float | None = None
) -> SiteData:
    """Load a site's data as its site file says.

    Splits, the labelled share and the order of the images (by sample id within each set) depend on
    the rows and the file's seed, not on the order of the rows. They are decided before an image is
    opened, so fixing one file moves no other image.

    Args:
        site_file: see :class:`fedward.sites.site_file.ManifestSite` and ``NpzSite``.
        spec: the job's classes, image size and channels.
        cache: folder for decoded images (see :func:`fedward.sites.images.decode_files`); not used
            for npz.
        labelled: share of the training labels that are seen; by default the file's.

    Returns:
        The site's images; the rows that could not be used are in ``rejected``. A site with one
        class, without labels, or without training images is fine.

    Raises:
        DataError: the site file, CSV or npz cannot be read; a group is in two splits; more than
            ``max_rejected`` of the rows are unusable; or nothing is left.
    """
    file = read_site_file(site_file)
    check_label_fields(file, spec.classes, spec.label_kind)
    if isinstance(file, ManifestSite):
        size = spec.image_size
        channels = spec.channels
        site = file.site
        rendering = file.rendering
        rows, pixels, rejected, total = load_manifest(
            file, spec, lambda paths: decode_files(paths, size, channels, cache, site, rendering)
        )
    else:
        rows, pixels, rejected, total = load_npz(file, spec)
    check_rejected(file, rejected, total)
    by_patient = spec.evaluate_by == "patient"
    rng = numpy_generator(file.split.seed, "labelled")
    data = divide(
        file.site,
        spec.classes,
        rows,
        pixels,
        file.labelled if labelled is None else labelled,
        rng,
        by_patient,
    )
    kept = ("device", "threads", "processes", "annotation", "wait_for_labels", "minutes_per_label")
    return replace(data, rejected=tuple(rejected), **{name: getattr(file, name) for name in kept})
