"""A CSV for people: fill in the empty cells of ``label`` and send it back."""

import csv
from pathlib import Path

from fedward.annotation.handover.content import Content
from fedward.annotation.records import Refused, Request, Return, Returned
from fedward.errors import DataError
from fedward.sites.table import read_table

_COLUMNS = ("sample_id", "label", "annotator", "time", "status", "strategy", "round", "score", "run")


def write(path: Path, content: Content) -> int:
    """Write a row for each image that waits, in the order of asking, then one for each decision.

    Returns:
        The number of images.
    """
    rows = [_row(request.sample_id, request) | {"status": "pending"} for request in content.pending]
    for decision in content.decisions:
        rows.append(
            _row(decision.sample_id, content.requests.get(decision.sample_id))
            | {"label": decision.text, "annotator": decision.annotator, "time": decision.time, "status": "decided"}
        )
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, _COLUMNS, restval="")
        table.writeheader()
        table.writerows(rows)
    return len({row["sample_id"] for row in rows})


def _row(sample_id: str, request: Request | None) -> dict[str, object]:
    if request is None:
        return {"sample_id": sample_id}
    return {
        "sample_id": sample_id,
        "strategy": request.strategy,
        "round": request.round,
        "score": "" if request.score is None else repr(request.score),
        "run": request.run,
    }


def read(path: Path) -> Return:
    """Read a CSV with the columns ``sample_id`` and ``label``; ``annotator`` and ``time`` are used where they are.

    Encodings and delimiters are those of a site's manifest: what a spreadsheet makes of the file is understood.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    try:
        records, aside = read_table(path, ("sample_id", "label"), "annotation")
    except DataError as error:
        remedy = "Send back the exported CSV with 'label' filled in."
        raise DataError(f"returned file {path}", expected=error.expected, found=error.found, remedy=remedy) from None
    answers = [
        Returned(
            where=f"line {record.line}",
            sample_id=record.cells["sample_id"],
            label=record.cells["label"],
            annotator=record.cells.get("annotator", ""),
            time=record.cells.get("time", ""),
        )
        for record in records
    ]
    given = [answer for answer in answers if answer.label]
    refused = [Refused(f"line {problem.row}", problem.sample_id, problem.reason) for problem in aside]
    return Return("CSV", given, refused, open=len(answers) - len(given))
