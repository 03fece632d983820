"""What is wrong with sites' files, as far as one can tell without opening images."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import DataError
from fedward.sites.job_checks import check_label_fields, check_rejected
from fedward.sites.manifest import listed_images, read_entries
from fedward.sites.npz import check_layout, labels_in
from fedward.sites.site_file import ManifestSite, find_site_file, read_site_file

if TYPE_CHECKING:
    from fedward.config import DataSpec


def site_problems(
    names: Sequence[str], folders: Sequence[Path], spec: "DataSpec"
) -> dict[str, str]:
    """Return site -> what is wrong, of each site whose file is missing or cannot be used.

    That is a file that cannot be read, labels that the job has not, or too many rows without an
    image or a known label.

    Args:
        names: of the sites.
        folders: where their files may lie.
        spec: what the job says of the images.
    """
    found = {}
    for name in names:
        try:
            _check(name, folders, spec)
        except DataError as error:
            found[name] = str(error).removeprefix(f"site {name}, ")
    return found


def opened(site_file: Path) -> str:
    """Open what a site file names, as far as this needs no job, and return what is there.

    Raises:
        DataError: the site file cannot be used, or what it names is not there or cannot be read.
    """
    file = read_site_file(site_file)
    if isinstance(file, ManifestSite):
        return f"{listed_images(file)} images listed, {file.folder}"
    return f"{labels_in(file)} labels, {file.file}"


def _check(name: str, folders: Sequence[Path], spec: "DataSpec") -> None:
    path = find_site_file(name, folders)
    if path is None:
        where = ", ".join(map(str, folders))
        remedy = "Write it, or leave --sites away."
        raise DataError(where, expected=f"a file {name}.yaml", found="none", remedy=remedy)
    file = read_site_file(path)
    check_label_fields(file, spec.classes, spec.label_kind)
    if isinstance(file, ManifestSite):
        _, rejected, total = read_entries(file, spec.classes, spec.label_kind)
        check_rejected(file, rejected, total)
        return
    check_layout(file, spec.label_kind)
