"""A site's data: its files, how they are read, labelled and split.

Importing this package does not import torch; the FedVC draw, which needs it, is in
:mod:`fedward.sites.sampling`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import ConfigError
from fedward.seeds import numpy_generator
from fedward.sites.assemble import divide
from fedward.sites.data import Decoded, Images, Rejected, SiteData
from fedward.sites.images import decode_files, unnoticed
from fedward.sites.job_checks import check_label_fields, check_rejected
from fedward.sites.npz import load_npz
from fedward.sites.site_csv import load_manifest
from fedward.sites.site_file import (
    SERVER,
    ManifestSite,
    find_site_file,
    named_sites,
    read_site_file,
    site_files,
)
from fedward.text import natural

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
    "require_one_site",
    "site_files",
]


_SHOWN_FILES = 5
"""Site files of a folder that a message names."""


def require_one_site(site_file: Path) -> None:
    """Refuse a folder where the file of one site is expected.

    Raises:
        ConfigError: it is a folder; the text names the site files in it, if there are any.
    """
    if not site_file.is_dir():
        return
    files = [f"{site_file / name}.yaml" for name in sorted(named_sites(site_file), key=natural)]
    if not files:
        raise ConfigError(
            f"{site_file}",
            "Name the file itself.",
            expected="the file of one site",
            found="a folder",
        )
    choice = ", ".join(files[:_SHOWN_FILES])
    if len(files) > _SHOWN_FILES:
        choice += f", and {len(files) - _SHOWN_FILES} more"
    raise ConfigError(
        f"{site_file}",
        f"Name one of these: {choice}.",
        expected="the file of one site",
        found="a folder",
    )


def load_site(
    site_file: Path,
    spec: "DataSpec",
    cache: Path | None = None,
    labelled: float | None = None,
    opened: Callable[[], None] = unnoticed,
) -> SiteData:
    """Load a site's data as its site file says.

    Splits, the labelled share and the order of the images (by sample id within each set) depend on
    the rows and the file's seed, not on the order of the rows. They are decided before an image is
    opened, so that repairing one file moves no other image.

    Args:
        site_file: see :class:`fedward.sites.site_file.ManifestSite` and ``NpzSite``.
        spec: the job's classes, image size and channels.
        cache: folder for decoded images (see :func:`fedward.sites.images.decode_files`); not used
            for npz.
        labelled: share of the training labels that are seen; by default the file's.
        opened: called after each image file that was opened, in place of one taken from the cache.

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
        site = file.site
        rendering = file.rendering

        def decode(paths: Sequence[Path]) -> Decoded:
            return decode_files(
                paths, spec.image_size, spec.channels, cache, site, rendering, opened
            )

        listed = load_manifest(file, spec, decode)
        subgroups = {column: tuple(groups) for column, groups in file.subgroups.items()}
    else:
        subgroups = {}
        listed = load_npz(file, spec)
    check_rejected(file, listed.rejected, listed.total)
    data = divide(
        file.site,
        spec.classes,
        listed.rows,
        listed.pixels,
        file.labelled if labelled is None else labelled,
        numpy_generator(file.split.seed, "labelled"),
        by_patient=spec.evaluate_by == "patient",
    )
    return replace(
        data,
        rejected=tuple(listed.rejected),
        device=file.device,
        threads=file.threads,
        processes=file.processes,
        annotation=file.annotation,
        wait_for_labels=file.wait_for_labels,
        minutes_per_label=file.minutes_per_label,
        card=file.card,
        subgroups=subgroups,
    )
