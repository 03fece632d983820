"""A CSV that lists images: what its columns are for, and which image files its cells name."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fedward.errors import ConfigError, DataError, did_you_mean
from fedward.sites.data import Rejected
from fedward.sites.decoding import BadRow
from fedward.sites.files import is_image, locate
from fedward.sites.table import Record, read_header, read_table

GROUP_COLUMNS = (
    "group",
    "groups",
    "patient",
    "patient_id",
    "patientid",
    "subject",
    "subject_id",
    "case_id",
    "lesion_id",
    "lesion",
)
"""Well-known names of a column that says which images must stay in one split.

Patients come before lesions, because a patient may have several lesions.
"""
WELL_KNOWN_COLUMNS = {
    "image": (
        "image",
        "image_path",
        "path",
        "filepath",
        "file_path",
        "file",
        "filename",
        "file_name",
        "img",
        "image_name",
        "image_id",
        "image_index",
        "isic_id",
        "sample_id",
        "id",
    ),
    "sample_id": ("sample_id", "image_id", "image_index", "isic_id", "id"),
    "label": (
        "label",
        "labels",
        "diagnosis",
        "dx",
        "class",
        "class_name",
        "target",
        "category",
        "finding_labels",
        "findings",
        "finding",
    ),
    "group": GROUP_COLUMNS,
    "split": ("split", "set", "subset", "partition"),
}
"""Purpose of a column -> its well-known names in lower case; the first name in a CSV is taken."""


class ImageList(NamedTuple):
    """The content of a CSV of images."""

    records: list[Record]
    malformed: list[Rejected]
    columns: list[str]
    """Names of all columns, in their order."""


def read_image_list(path: Path) -> ImageList:
    """Read a CSV as :mod:`fedward.sites.table` does; DataError if it cannot be read."""
    try:
        columns = read_header(path, "(all)")
        records, malformed = read_table(path, columns or ["image"], "(all)")
    except DataError as error:
        raise DataError(
            error.problem.removeprefix("site (all), "),
            "Name another CSV, or fix this one.",
            expected=error.expected,
            found=error.found,
        ) from None
    return ImageList(records, malformed, columns)


def columns_by_purpose(
    path: Path,
    columns: Sequence[str],
    named: Mapping[str, str],
    findings: Sequence[str] = (),
) -> dict[str, str]:
    """Return the name of the column for each purpose of :data:`WELL_KNOWN_COLUMNS`.

    Args:
        path: of the CSV, for errors.
        columns: names of all its columns.
        named: purpose -> column as the user named it; an empty name means that there is no such
            column. Other purposes are looked up by well-known names.
        findings: further columns that must exist.

    Returns:
        Purpose -> column; an empty name where there is none.

    Raises:
        ConfigError: an unknown purpose, or a named column that the CSV does not have.
        DataError: no column of images.
    """
    normalised = {
        name.lower().replace(" ", "_").replace("-", "_"): name for name in reversed(columns)
    }
    column_of: dict[str, str] = {}
    for purpose, well_known in WELL_KNOWN_COLUMNS.items():
        present = [normalised[name] for name in well_known if name in normalised]
        default = present[0] if present else ""
        column_of[purpose] = named.get(purpose, default)
    unknown = [purpose for purpose in named if purpose not in WELL_KNOWN_COLUMNS]
    if unknown:
        raise ConfigError(
            "--columns",
            "Write for example --columns label=diagnosis.",
            expected=f"columns for {', '.join(WELL_KNOWN_COLUMNS)}",
            found=", ".join(unknown),
        )
    wanted = dict.fromkeys([*column_of.values(), *findings])
    missing = [name for name in wanted if name and name not in columns]
    if missing:
        raise ConfigError(
            "--columns",
            "Name one of them.",
            expected=f"columns of the CSV ({column_names(columns)})",
            found=", ".join(f"{name}{did_you_mean(name, columns)}" for name in missing),
        )
    if not column_of["image"]:
        raise DataError(
            f"{path}",
            "Name the column of their files, as in --columns image=NAME.",
            expected="a column of images",
            found=column_names(columns),
        )
    return column_of


def column_names(columns: Sequence[str]) -> str:
    """Return the names of a CSV's columns for an error, at most 300 characters."""
    return f"{', '.join(name for name in columns if name):.300}"


class ImageFinder:
    """Finds image files in a folder, by relative path or by file name anywhere below it.

    The folder is searched once, when the first name needs it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _paths_by_name(self) -> dict[str, list[str]]:
        """File name, with its ending and without -> relative paths of the images so named."""
        paths: dict[str, list[str]] = defaultdict(list)
        for path in sorted(self._folder.rglob("*")):
            relative_path = path.relative_to(self._folder).as_posix()
            if path.is_file() and relative_path.isprintable() and is_image(path):
                paths[path.name].append(relative_path)
                paths[path.stem].append(relative_path)
        return paths

    def find(self, name: str) -> str:
        """Return the relative path of the image; raise BadRow if there is none, or several."""
        root = self._folder.resolve()
        if Path(name).is_absolute() and Path(name).is_relative_to(root):
            name = Path(name).relative_to(root).as_posix()
        with suppress(BadRow):
            locate(self._folder, name)
            return name
        paths = self._paths_by_name.get(Path(name).name, [])
        if not paths:
            raise BadRow(f"expected the image {name!r}, found none in {self._folder}")
        if len(paths) > 1:
            raise BadRow(f"expected the image {name!r}, found {len(paths)}: {', '.join(paths[:2])}")
        locate(self._folder, paths[0])
        return paths[0]
