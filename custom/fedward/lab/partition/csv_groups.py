"""What the rows of a CSV stay together with: a patient or, where that is unknown, a lesion."""

from collections.abc import Sequence

from fedward.lab.row_groups import RowGroups, filled
from fedward.sites.patient_names import PatientNames, patient_names
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
    return filled(
        _ids(records, column, id_column),
        {name: _ids(records, name, id_column) for name in further},
    )


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
    names = names_in(records, column, id_column).of_rows
    return {record.line: name for record, name in zip(records, names, strict=True)}
