"""The site files that the simulator is given: whether they fit its job, and what leaks in them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import ConfigError, DataError
from fedward.flare.places import SITES_VARIABLE, named_folder
from fedward.sites import find_site_file, open_site, read_site
from fedward.sites.check import read_sites
from fedward.sites.leaks import Place, dicom_images, leak_counts, leaks_between, pictures
from fedward.sites.site_csv import SiteRows

if TYPE_CHECKING:
    from fedward.config import DataSpec


def require_usable_site_files(
    job: str, sites: Sequence[str], folders: Sequence[Path], spec: "DataSpec"
) -> None:
    """Refuse a simulated job that cannot use the files that ``FEDWARD_SITES`` names.

    It comes before a site starts, so that one message says it, and not each site in each round.

    Args:
        job: the job's name.
        sites: names of its sites.
        folders: where their files may lie.
        spec: what the job says of the images.

    Raises:
        ConfigError: the variable is set, and a site has no file or one that the job cannot use. The
            text has the commands that run a job for these files.
    """
    folder = named_folder(SITES_VARIABLE)
    if folder is None:
        return
    problems = read_sites(sites, folders, spec).problems
    if not problems:
        return
    first = min(problems)
    # The first sentence says what is wrong. What to do follows from the job here.
    problem = problems[first].split(". ")[0].removesuffix(".")
    raise ConfigError(
        f"Job {job} does not fit the site files of {SITES_VARIABLE}, {folder}: {first}, {problem}",
        f"Export a job that does, `fedward jobs own --only {job} --site-files {folder}`, and run "
        f"own/{job}; or unset {SITES_VARIABLE} to train on synthetic images.",
    )


def simulated_leaks(
    sites: Sequence[str], folders: Sequence[Path], spec: "DataSpec"
) -> Mapping[str, Mapping[str, int]]:
    """Return how many pictures and patients are in several splits, over the sites of a simulation.

    All images are opened once more: the simulator's server is on the machine that has them. Between
    hospitals no server sees an image, and each hospital's doctor finds the leaks of its own.

    Args:
        sites: names of the sites. Those without a file, or whose data cannot be used, are left out.
        folders: where their files may lie.
        spec: what the job says of the images.

    Returns:
        What :func:`fedward.sites.leaks.leak_counts` does.
    """
    named: list[tuple[bytes, Place]] = []
    dicom: list[tuple[Path, Place]] = []
    for site in sites:
        path = find_site_file(site, folders)
        if path is None:
            continue
        try:
            site_rows = read_site(path, spec)
            data = open_site(site_rows, spec)
        except DataError:
            # The site says in its own answer what is wrong.
            continue
        if isinstance(site_rows, SiteRows):
            dicom += dicom_images(data, site_rows.files, site_rows.patients)
        named += pictures(data)
    return leak_counts(leaks_between(named, dicom))
