"""What is wrong with the files of all sites of a run on one machine, as far as one can tell without opening images."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import DataError
from fedward.sites.job_checks import check_label_fields, check_rejected
from fedward.sites.manifest import read_entries
from fedward.sites.npz import check_layout
from fedward.sites.site_file import ManifestSite, find_site_file, read_site_file

if TYPE_CHECKING:
    from fedward.config import DataSpec


def site_problems(names: Sequence[str], folders: Sequence[Path], spec: "DataSpec") -> dict[str, str]:
    """Return site -> what is wrong, of each site whose file is missing or cannot be used.

    That is a file that cannot be read, labels that the job has not, or too many rows without an image or a known label.

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


def _check(name: str, folders: Sequence[Path], spec: "DataSpec") -> None:
    path = find_site_file(name, folders)
    if path is None:
        where, remedy = ", ".join(map(str, folders)), "Write it, or leave --sites away."
        raise DataError(where, expected=f"a file {name}.yaml", found="none", remedy=remedy)
    file = read_site_file(path)
    check_label_fields(file, spec.classes, spec.multi_label)
    if isinstance(file, ManifestSite):
        _, rejected, total = read_entries(file, spec.classes, spec.multi_label)
        check_rejected(file, rejected, total)
        return
    if not file.file.is_file():
        raise DataError(f"{path}, field file", expected="an npz file", found=f"none at {file.file}", remedy="Fix it.")
    check_layout(file, spec.multi_label)
