"""A CSV for people: fill in the empty cells of ``label`` and send it back."""

import csv
from pathlib import Path

from fedward.annotation.handover.content import Content
from fedward.annotation.handover.returned import require_file
from fedward.annotation.records import Refused, Return, Returned
from fedward.errors import DataError
from fedward.sites.table import read_table
from fedward.spreadsheet import as_it_was, inert

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


def write(path: Path, content: Content) -> int:
    """Write a row for each image that waits, in the order of asking, then one for each decision.

    Returns:
        The number of images.
    """
    rows = [
        {"sample_id": each.sample_id, "status": "pending"} | content.about(each.sample_id)
        for each in content.pending
    ]
    for each in content.decisions:
        said = {
            "label": each.text,
            "annotator": each.annotator,
            "time": each.time,
            "status": "decided",
        }
        rows.append({"sample_id": each.sample_id} | said | content.about(each.sample_id))
    with path.open("w", newline="", encoding="utf-8") as file:
        # All quoted: a spreadsheet that splits cells at semicolons would find a formula inside one.
        table = csv.DictWriter(file, _COLUMNS, restval="", quoting=csv.QUOTE_ALL)
        table.writeheader()
        table.writerows({name: inert(cell) for name, cell in row.items()} for row in rows)
    return len(content.ids)


def read(path: Path) -> Return:
    """Read a CSV with the columns ``sample_id`` and ``label``; ``annotator`` and ``time`` are used
    where they are.

    Encodings and delimiters are those of a site's manifest: what a spreadsheet makes of the file is
    understood. The quote before what looks like a formula is taken away again.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    try:
        require_file(path)
    except OSError as error:
        expected = "a CSV file"
        remedy = "Send back the exported CSV with 'label' filled in."
        raise DataError(
            f"returned file {path}", expected=expected, found=f"{error.strerror}", remedy=remedy
        ) from None
    try:
        records, rejected = read_table(path, ("sample_id", "label"), "annotation")
    except DataError as error:
        remedy = "Send back the exported CSV with 'label' filled in."
        raise DataError(
            f"returned file {path}", expected=error.expected, found=error.found, remedy=remedy
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
    given = [answer for answer in answers if answer.label]
    refused = [
        Refused(f"line {problem.row}", problem.sample_id, problem.reason) for problem in rejected
    ]
    return Return("CSV", given, refused, open=len(answers) - len(given))
