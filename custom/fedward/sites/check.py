"""What sites' files say, and what is wrong with them, without an image being opened."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedward.errors import DataError, option
from fedward.sites import read_site
from fedward.sites.job_checks import check_rejected
from fedward.sites.npz import check_layout, labels_in
from fedward.sites.site_csv import SiteRows, listed_images
from fedward.sites.site_file import ManifestSite, NpzSite, find_site_file, read_site_file
from fedward.text import count

if TYPE_CHECKING:
    from fedward.config import DataSpec


class ReadSites(NamedTuple):
    """What the files of several sites say."""

    usable: Mapping[str, SiteRows | NpzSite]
    """Site -> what describes its images, of those whose files can be used."""
    problems: Mapping[str, str]
    """Site -> what is wrong, of those whose files are missing or cannot be used."""


def read_sites(names: Sequence[str], folders: Sequence[Path], spec: "DataSpec") -> ReadSites:
    """Read what describes the images of sites, and open none.

    A file cannot be used if it cannot be read, if it has labels that the job does not have, or if
    too many of its rows have no image or no known label.

    Args:
        names: of the sites.
        folders: where their files may lie.
        spec: what the job says of the images.
    """
    usable = {}
    problems = {}
    for name in names:
        try:
            usable[name] = _read(name, folders, spec)
        except DataError as error:
            problems[name] = str(error).removeprefix(f"site {name}, ")
    return ReadSites(usable, problems)


def described(site_file: Path) -> str:
    """Return in words what the data of a site file holds, which is opened without a job.

    Raises:
        DataError: the site file cannot be used, or its data is missing or cannot be read.
    """
    file = read_site_file(site_file)
    if isinstance(file, ManifestSite):
        return f"{count(listed_images(file), 'image')} listed, {file.folder}"
    return f"{count(labels_in(file), 'label')}, {file.file}"


def _read(name: str, folders: Sequence[Path], spec: "DataSpec") -> SiteRows | NpzSite:
    path = find_site_file(name, folders)
    if path is None:
        places = ", ".join(map(str, folders))
        raise DataError(
            f"{places} has no file {name}.yaml", f"Write it, or remove {option('sites')}."
        )
    site = read_site(path, spec)
    if isinstance(site, SiteRows):
        check_rejected(site.file, site.rejected_or_missing, site.total)
    else:
        check_layout(site, spec.label_kind)
    return site
