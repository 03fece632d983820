"""What a row of a site's CSV says of its image: a class, findings in one cell, or a column for each
finding.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fedward.sites.data import Label
from fedward.sites.decoding import BadRow
from fedward.sites.labels import NO_FINDING

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind
    from fedward.sites.table import Record

Column: TypeAlias = str | tuple[str, ...] | None
"""That of the label, if there is one; or in a multi-label job columns of 0 and 1, of which each is
a finding.
"""
_CELLS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}
"""Of a column for each finding."""


def words(record: "Record", column: Column, label_kind: "LabelKind") -> list[str]:
    """Return what a row of a CSV says of its image, in the site's words; an empty one where it says
    nothing.
    """
    if not isinstance(column, tuple):
        return label_kind.split(record.cell(column))
    found = [name for name in column if _CELLS.get(record.cells[name])]
    return found or [NO_FINDING if any(record.cells[name] for name in column) else ""]


def read_label(
    record: "Record",
    column: Column,
    called: Mapping[str, str],
    classes: Sequence[str],
    label_kind: "LabelKind",
) -> Label:
    """Return the label of a row; BadRow where it is not one of the job.

    ``called``: the site's word -> the class.
    """
    if isinstance(column, tuple):
        check_columns(record, column)
    return label_kind.encode_words(words(record, column, label_kind), called, classes)


def check_columns(record: "Record", columns: Sequence[str]) -> None:
    """Raise BadRow unless all cells are 0 or 1, or all are empty."""
    cells = {name: record.cells[name] for name in columns}
    if any(cells.values()) and (wrong := [name for name in columns if cells[name] not in _CELLS]):
        found = f"{cells[wrong[0]]!r} for {wrong[0]}"
        raise BadRow(
            f"expected 0 or 1 for each finding, or an empty cell for all of them, found {found}"
        )
