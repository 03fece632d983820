"""A CSV for people, who fill in the empty cells of ``label`` and return it."""

from pathlib import Path
from typing import Any

from fedward.annotation.handover.content import Content
from fedward.annotation.handover.returned import require_file
from fedward.annotation.records import Refused, Return, Returned
from fedward.errors import DataError, reason_of_system
from fedward.sites.table import read_table
from fedward.spreadsheet import ENCODING, as_it_was, write_rows

_COLUMNS = (
    "sample_id",
    "label",
    "annotator",
    "time",
    "status",
    "strategy",
    "round",
    "score",
    "run",
)
_REMEDY = "Send back the exported CSV with 'label' filled in."


def write(path: Path, content: Content) -> int:
    """Write a row for each image that waits, in the order of asking, then one for each decision.

    Returns:
        The number of images.
    """
    rows: list[dict[str, Any]] = []
    for request in content.pending:
        row = {"sample_id": request.sample_id, "status": "pending"}
        rows.append(row | content.about(request.sample_id))
    for decision in content.decisions:
        row = {
            "sample_id": decision.sample_id,
            "label": decision.text,
            "annotator": decision.annotator,
            "time": decision.time,
            "status": "decided",
        }
        rows.append(row | content.about(decision.sample_id))
    with path.open("w", newline="", encoding=ENCODING) as file:
        write_rows(file, [_COLUMNS])
        write_rows(file, ([row.get(name, "") for name in _COLUMNS] for row in rows))
    return len(content.ids)


def read(path: Path) -> Return:
    """Read a CSV with the columns ``sample_id`` and ``label``.

    The columns ``annotator`` and ``time`` are used if they exist. Encodings and delimiters may be
    those of a site's manifest, so a file that a spreadsheet has saved is understood. The quote that
    an export puts before a cell that looks like a formula is removed.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    try:
        require_file(path)
    except OSError as error:
        raise DataError(
            f"returned file {path}", _REMEDY, expected="a CSV file", found=reason_of_system(error)
        ) from None
    try:
        records, rejected = read_table(path, ("sample_id", "label"), "annotation")
    except DataError as error:
        problem = error.problem.removeprefix("site annotation, ")
        raise DataError(
            f"returned file {problem}", _REMEDY, expected=error.expected, found=error.found
        ) from None
    answers = [
        Returned(
            where=f"line {record.line}",
            sample_id=as_it_was(record.cells["sample_id"]),
            label=as_it_was(record.cells["label"]),
            annotator=as_it_was(record.cells.get("annotator", "")),
            time=record.cells.get("time", ""),
        )
        for record in records
    ]
    labelled = [answer for answer in answers if answer.label]
    refused = [
        Refused(f"line {problem.row}", problem.sample_id, problem.reason) for problem in rejected
    ]
    return Return("CSV", labelled, refused, open=len(answers) - len(labelled))
