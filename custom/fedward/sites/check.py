"""What is wrong with the files of all sites of a run on one machine, as far as one can tell without opening images."""

from collections.abc import Sequence
from pathlib import Path

from fedward.errors import DataError
from fedward.sites.job_checks import check_labels, check_rejected
from fedward.sites.manifest import read_entries
from fedward.sites.site_file import ManifestSite, find_site_file, read_site_file


def site_problems(names: Sequence[str], folders: Sequence[Path], classes: Sequence[str]) -> dict[str, str]:
    """Return site -> what is wrong, of each site whose file is missing or cannot be used.

    That is a file that cannot be read, labels that the job has not, or too many rows without an image or a known label.

    Args:
        names: of the sites.
        folders: where their files may lie.
        classes: of the job.
    """
    found = {}
    for name in names:
        try:
            _check(name, folders, classes)
        except DataError as error:
            found[name] = str(error).removeprefix(f"site {name}, ")
    return found


def _check(name: str, folders: Sequence[Path], classes: Sequence[str]) -> None:
    path = find_site_file(name, folders)
    if path is None:
        where, remedy = ", ".join(map(str, folders)), "Write it, or leave --sites away."
        raise DataError(where, expected=f"a file {name}.yaml", found="none", remedy=remedy)
    file = read_site_file(path)
    check_labels(file, classes)
    if isinstance(file, ManifestSite):
        _, rejected, total = read_entries(file, classes)
        check_rejected(file, rejected, total)
    elif not file.file.is_file():
        raise DataError(f"{path}, field file", expected="an npz file", found=f"none at {file.file}", remedy="Fix it.")
