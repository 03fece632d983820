"""A CSV that lists images: what its columns are for."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedward.errors import ConfigError, DataError, did_you_mean, option
from fedward.sites.data import Rejected
from fedward.sites.table import Record, read_header, read_table

_GAPS = re.compile(r"[\s_-]+")

_PATIENT_COLUMNS = ("patient", "patient_id", "patientid", "subject", "subject_id")
"""Well-known names of a column of patients."""
_GROUP_COLUMNS = ("group", "groups", *_PATIENT_COLUMNS, "case_id", "lesion_id", "lesion")
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
    "group": _GROUP_COLUMNS,
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
        # What concerns a site's file alone does not help here.
        speaks_of_site_file = "site file" in error.remedy
        raise DataError(
            error.problem.removeprefix("site (all), "),
            "Name another CSV, or fix this one." if speaks_of_site_file else error.remedy,
            expected=error.expected,
            found=error.found,
        ) from None
    return ImageList(records, malformed, columns)


def well_known_columns(
    columns: Sequence[str], named: Mapping[str, str], findings: Sequence[str] = ()
) -> dict[str, str]:
    """Return purpose -> column, whether or not the CSV has it; an empty name where there is none.

    Args:
        columns: names of all columns of the CSV.
        named: purpose -> column as the user named it; an empty name means that there is no such
            column. Other purposes are looked up by well-known names.
        findings: columns of 0 and 1 that the user named.

    Raises:
        ConfigError: an unknown purpose, or two columns that may both be meant, as their names
            differ only in case, blanks or hyphens.
    """
    unknown = [purpose for purpose in named if purpose not in WELL_KNOWN_COLUMNS]
    if unknown:
        raise ConfigError(
            option("columns"),
            f"Write for example {option('columns', {'label': 'diagnosis'})}.",
            expected=f"columns for {', '.join(WELL_KNOWN_COLUMNS)}",
            found=", ".join(
                f"{purpose}{did_you_mean(purpose, WELL_KNOWN_COLUMNS)}" for purpose in unknown
            ),
        )
    column_of: dict[str, str] = {}
    for purpose in WELL_KNOWN_COLUMNS:
        # Columns of findings are columns of labels, so no other one is looked for.
        is_named = purpose in named or (purpose == "label" and findings)
        column_of[purpose] = named.get(purpose, "") if is_named else well_known(purpose, columns)
    return column_of


def missing_columns(columns: Sequence[str], wanted: Sequence[str]) -> ConfigError | None:
    """Return the error that names wanted columns that a CSV does not have; None if it has all."""
    missing = [name for name in dict.fromkeys(wanted) if name and name not in columns]
    if not missing:
        return None
    return ConfigError(
        option("columns"),
        "Name one of them.",
        expected=f"columns of the CSV ({column_names(columns)})",
        found=", ".join(f"{name}{did_you_mean(name, columns)}" for name in missing),
    )


def no_image_column(path: Path, columns: Sequence[str], likely: str = "") -> DataError:
    """Return the error for a CSV without a column of images; ``likely``: one that may be it."""
    named = option("columns", {"image": likely or "NAME"})
    return DataError(
        f"{path}",
        f"Name the column of their files, as in {named}. The first line of the CSV must name its "
        "columns.",
        expected="a column of images",
        found=column_names(columns),
    )


def further_columns(purpose: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that may have a purpose: of images, those of files and not of ids."""
    names = set(WELL_KNOWN_COLUMNS[purpose]) - set(WELL_KNOWN_COLUMNS["sample_id"])
    return [name for name in columns if plain_name(name) in names]


def columns_of_groups(columns: Sequence[str]) -> list[str]:
    """Return the columns with a well-known name of groups, those of patients before lesions."""
    named = filter(is_of_groups, columns)
    return sorted(named, key=lambda name: _GROUP_COLUMNS.index(plain_name(name)))


def is_of_groups(column: str) -> bool:
    """Return whether a column has a well-known name of patients, lesions or other groups."""
    return plain_name(column) in _GROUP_COLUMNS


def is_of_patients(column: str) -> bool:
    """Return whether a column has a well-known name of patients."""
    return plain_name(column) in _PATIENT_COLUMNS


def plain_name(column: str) -> str:
    """Return a column's name in lower case, with ``_`` for blanks and hyphens."""
    return _GAPS.sub("_", column.lower())


def well_known(purpose: str, columns: Sequence[str]) -> str:
    """Return the column with the first well-known name of a purpose; empty without one."""
    for usual_name in WELL_KNOWN_COLUMNS[purpose]:
        present = [name for name in columns if plain_name(name) == usual_name]
        if len(present) > 1:
            raise ConfigError(
                option("columns"),
                f"Name the right one, as in {option('columns', {purpose: present[0]})}.",
                expected=f"one column of the name {usual_name}",
                found=" and ".join(map(repr, present)),
            )
        if present:
            return present[0]
    return ""


def column_names(columns: Sequence[str]) -> str:
    """Return the names of a CSV's columns for an error, at most 300 characters."""
    return f"{', '.join(name for name in columns if name):.300}"
