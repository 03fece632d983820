"""Columns of a CSV that nothing uses, although they seem to say whose an image is."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from fedward.sites.any_csv import is_of_patients
from fedward.sites.patient_names import patient_names
from fedward.sites.patient_words import (
    are_of_few,
    are_torn,
    is_called_patients,
    may_be_of_persons,
    speaks_of_one_patient,
)
from fedward.sites.site_csv import Entry
from fedward.sites.site_file import ManifestSite

_ID = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_.\-]+")
"""An identifier such as ``P-012``: letters and digits without spaces."""


def like_patients(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns whose values may be patients, in their order.

    At least one value repeats and another differs. Besides, the column's name has a word for a
    patient; or each value is an identifier of letters and digits that few images share.

    Args:
        columns: name of a column that is used for nothing -> its cells, row by row.
    """
    return [name for name, cells in columns.items() if _may_be_patients(name, cells)]


def _may_be_patients(name: str, cells: Sequence[str]) -> bool:
    if not _some_repeat(cells):
        return False
    if speaks_of_one_patient(name):
        return True
    values = [cell for cell in cells if cell]
    return are_of_few(values) and all(_ID.fullmatch(value) for value in set(values))


def _some_repeat(cells: Sequence[str]) -> bool:
    """Return whether a value repeats and another differs."""
    values = [cell for cell in cells if cell]
    return 1 < len(set(values)) < len(values)


def torn_patients(
    columns: Mapping[str, Sequence[str]], used: Collection[str], groups: Sequence[str]
) -> list[str]:
    """Return the columns that are called as those of patients, some of whom have several groups.

    A group may be a batch, the arm of a trial or a lesion, and a patient have several of them.
    There is no such column if one with a well-known name of patients is used.

    Args:
        columns: name -> cells, row by row.
        used: the columns by which images stay together, and perhaps others that have a purpose.
        groups: what the image of each row stays together with: a group, or the image alone.
    """
    if any(map(is_of_patients, used)):
        return []
    return [
        name
        for name, cells in columns.items()
        if name not in used
        and is_called_patients(name)
        and are_torn(patient_names(cells).of_rows, groups)
    ]


def unused_patients(
    columns: Mapping[str, Sequence[str]], used: Collection[str], groups: Sequence[str]
) -> list[str]:
    """Return the columns that nothing uses and that may be patients, who are torn apart then.

    Where images stay together, only a column's name says enough (:func:`torn_patients`). Where none
    do, a column of names or birthdays may be that of patients, too. Arguments are those of
    :func:`torn_patients`.
    """
    if len(set(groups)) < len(groups):
        return torn_patients(columns, used, groups)
    return [
        name
        for name, cells in columns.items()
        if name not in used
        and (_may_be_patients(name, cells) or (may_be_of_persons(name) and _some_repeat(cells)))
    ]


def unused_patients_of_site(file: ManifestSite, entries: Sequence[Entry]) -> list[str]:
    """Return the columns of a site's CSV that may be patients (:func:`unused_patients`).

    Args:
        file: the site's file.
        entries: usable rows of its CSV.
    """
    if not entries:
        return []
    columns = file.columns
    labels = columns.label if isinstance(columns.label, tuple) else (columns.label or "",)
    used = {columns.sample_id, columns.image, columns.group or "", columns.split or "split"}
    used.update(labels, file.subgroups)
    cells = {name: [entry.cells[name] for entry in entries] for name in entries[0].cells if name}
    return unused_patients(cells, used, [entry.group for entry in entries])


def patients_note(names: Sequence[str], how_to_use: Callable[[str], str]) -> list[str]:
    """Return a note on columns that may be patients; empty without any.

    Args:
        names: of the columns.
        how_to_use: returns how a column is named as that of patients.
    """
    if not names:
        return []
    which = "column" if len(names) == 1 else "columns"
    verb = "says" if len(names) == 1 else "say"
    return [
        f"Nothing uses the {which} {', '.join(names)}, which perhaps {verb} whose an image is. "
        "Images of one patient would then be in training and in test, and the numbers too good. "
        f"If so, use it: {how_to_use(names[0])}."
    ]
