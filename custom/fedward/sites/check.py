"""What is wrong with sites' files, as far as it can be found without opening images."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import DataError, option
from fedward.sites.job_checks import check_label_fields, check_rejected
from fedward.sites.npz import check_layout, labels_in
from fedward.sites.site_csv import listed_images, read_entries
from fedward.sites.site_file import ManifestSite, find_site_file, read_site_file

if TYPE_CHECKING:
    from fedward.config import DataSpec


def site_problems(
    names: Sequence[str], folders: Sequence[Path], spec: "DataSpec"
) -> dict[str, str]:
    """Return site -> what is wrong, for each site whose file is missing or cannot be used.

    A file cannot be used if it cannot be read, if it has labels that the job does not have, or if
    too many of its rows have no image or no known label.

    Args:
        names: of the sites.
        folders: where their files may lie.
        spec: what the job says of the images.
    """
    problems = {}
    for name in names:
        try:
            _check(name, folders, spec)
        except DataError as error:
            problems[name] = str(error).removeprefix(f"site {name}, ")
    return problems


def described(site_file: Path) -> str:
    """Return in words what the data of a site file holds, which is opened without a job.

    Raises:
        DataError: the site file cannot be used, or its data is missing or cannot be read.
    """
    file = read_site_file(site_file)
    if isinstance(file, ManifestSite):
        return f"{listed_images(file)} images listed, {file.folder}"
    return f"{labels_in(file)} labels, {file.file}"


def _check(name: str, folders: Sequence[Path], spec: "DataSpec") -> None:
    path = find_site_file(name, folders)
    if path is None:
        places = ", ".join(map(str, folders))
        raise DataError(
            f"{places} has no file {name}.yaml", f"Write it, or remove {option('sites')}."
        )
    file = read_site_file(path)
    check_label_fields(file, spec.classes, spec.label_kind)
    if isinstance(file, ManifestSite):
        _, rejected, total = read_entries(file, spec.classes, spec.label_kind)
        check_rejected(file, rejected, total)
        return
    check_layout(file, spec.label_kind)
