"""A site's data: its files, how they are read, labelled and split.

Importing this package does not import torch; the FedVC draw, which needs it, is in
:mod:`fedward.sites.sampling`.
"""

from collections.abc import Callable, Mapping, Sequence
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
from fedward.sites.site_csv import SiteRows, load_images, read_rows
from fedward.sites.site_file import (
    SERVER,
    ManifestSite,
    NpzSite,
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
    "open_site",
    "read_site",
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

    Returns:
        The site's images; the rows that could not be used are in ``rejected``. A site with one
        class, without labels, or without training images is fine.

    Raises:
        DataError: the site file, CSV or npz cannot be read; a group is in two splits; more than
            ``max_rejected`` of the rows are unusable; or nothing is left.
    """
    return open_site(read_site(site_file, spec), spec, cache, labelled)


def read_site(site_file: Path, spec: "DataSpec") -> SiteRows | NpzSite:
    """Read what describes a site's images, and open none: the rows of its CSV, or its site file.

    Raises:
        DataError: the site file or the CSV cannot be used.
    """
    file = read_site_file(site_file)
    check_label_fields(file, spec.classes, spec.label_kind)
    return (
        read_rows(file, spec.classes, spec.label_kind) if isinstance(file, ManifestSite) else file
    )


def open_site(
    site: SiteRows | NpzSite,
    spec: "DataSpec",
    cache: Path | None = None,
    labelled: float | None = None,
    after_each_file: Callable[[], None] = unnoticed,
) -> SiteData:
    """Load the images of a site as :func:`load_site` does, once :func:`read_site` has read it.

    ``after_each_file`` is called after each image file that was opened, in place of one taken from
    the cache.
    """
    subgroups: Mapping[str, tuple[str, ...]] = {}
    if isinstance(site, SiteRows):
        file: ManifestSite | NpzSite = site.file
        name = site.file.site
        rendering = site.file.rendering

        def decode(paths: Sequence[Path]) -> Decoded:
            return decode_files(
                paths, spec.image_size, spec.channels, cache, name, rendering, after_each_file
            )

        listed = load_images(site, decode)
        subgroups = {column: tuple(groups) for column, groups in site.file.subgroups.items()}
    else:
        file = site
        listed = load_npz(site, spec)
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
