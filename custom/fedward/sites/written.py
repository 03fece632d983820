"""The label in a row of a site's CSV: a class, findings in one cell, or a column per finding."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fedward.labels import NO_FINDING, Label
from fedward.sites.decoding import BadRow

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind
    from fedward.sites.table import Record

Column: TypeAlias = str | tuple[str, ...] | None
"""The column of the label; None without one.

In a multi-label job it may be several columns of 0 and 1, each for a finding.
"""
_CELLS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}
"""Cell -> whether the image shows the finding of its column."""


def words(record: "Record", column: Column, label_kind: "LabelKind") -> list[str]:
    """Return the label of a row in the site's words; one empty word where there is none."""
    if not isinstance(column, tuple):
        return label_kind.split(record.cell(column))
    findings = [name for name in column if _CELLS.get(record.cells[name])]
    if findings:
        return findings
    answered = any(record.cells[name] for name in column)
    return [NO_FINDING if answered else ""]


def read_label(
    record: "Record",
    column: Column,
    called: Mapping[str, str],
    classes: Sequence[str],
    label_kind: "LabelKind",
) -> Label:
    """Return the label of a row.

    Args:
        record: the row.
        column: of the label.
        called: the site's word -> the class of the job.
        classes: of the job.
        label_kind: what an image may show.

    Raises:
        BadRow: it is not a label of the job.
    """
    if isinstance(column, tuple):
        check_columns(record, column)
    return label_kind.encode_words(words(record, column, label_kind), called, classes)


def check_columns(record: "Record", columns: Sequence[str]) -> None:
    """Raise BadRow unless all cells are 0 or 1, or all are empty."""
    cells = {name: record.cells[name] for name in columns}
    if not any(cells.values()):
        return
    for name, cell in cells.items():
        if cell not in _CELLS:
            raise BadRow(
                "expected 0 or 1 for each finding, or an empty cell for all of them, found "
                f"{cell!r} for {name}"
            )
