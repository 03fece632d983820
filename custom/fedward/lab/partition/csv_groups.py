"""What the rows of a CSV stay together with: a patient or, where that is unknown, a lesion."""

from collections.abc import Sequence

from fedward.lab.row_groups import RowGroups, filled
from fedward.sites.any_csv import is_of_patients
from fedward.sites.patient_names import PatientNames, patient_names
from fedward.sites.patient_words import are_torn
from fedward.sites.table import Record


def row_groups(
    records: Sequence[Record], column: str, further: Sequence[str], id_column: str = ""
) -> RowGroups:
    """Return what the rows of a CSV stay together with; see :func:`~fedward.lab.row_groups.filled`.

    Args:
        records: the rows, which are called by their lines.
        column: the column of groups. If it is empty, no row has a group.
        further: further columns of groups, those of patients before those of lesions.
        id_column: of the rows' own ids; empty: they have none.
    """
    if not column:
        return RowGroups({record.line: "" for record in records})
    ids_of = {name: _ids(records, name, id_column) for name in (column, *further)}
    return filled(ids_of[column], {name: ids_of[name] for name in further})


def column_of_torn_patients(records: Sequence[Record], column: str, further: Sequence[str]) -> str:
    """Return a column of patients some of whom have several groups; empty without one.

    A column ``group`` may name batches, or the arms of a trial, beside a column of patients.

    Args:
        records: the rows.
        column: the column of groups, whose name may be one of patients; empty: there is none.
        further: further columns of groups. One counts only if its values are of few images each.
    """
    if not column or is_of_patients(column):
        return ""
    groups = names_in(records, column).of_rows
    for name in filter(is_of_patients, further):
        if are_torn(names_in(records, name).of_rows, groups):
            return name
    return ""


def names_in(records: Sequence[Record], column: str, id_column: str = "") -> PatientNames:
    """Return whom the rows of a CSV name in a column of patients or lesions.

    Args:
        records: the rows.
        column: of the names.
        id_column: of the rows' own ids; empty: they have none.
    """
    ids = [record.cells[id_column] for record in records] if id_column else ()
    return patient_names([record.cells[column] for record in records], ids)


def _ids(records: Sequence[Record], column: str, id_column: str) -> dict[int, str]:
    """Return line of a row -> the id in a column; empty where it says that nobody knows."""
    lines = [record.line for record in records]
    return dict(zip(lines, names_in(records, column, id_column).of_rows, strict=True))
