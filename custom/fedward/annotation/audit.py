"""The audit trail as a CSV: every answer that was ever given, including those taken back."""

import sqlite3
from pathlib import Path
from typing import Any

from fedward.annotation.checks import compared
from fedward.annotation.handover.content import appears_whole
from fedward.annotation.queue import Queue
from fedward.spreadsheet import ENCODING, write_rows

_COLUMNS = (
    "number",
    "time",
    "annotator",
    "sample_id",
    "counts_for",
    "answer",
    "adjudicates",
    "seconds",
    "source",
    "recorded",
    "takes_back",
    "unsure",
    "discuss",
    "comment",
    "purpose",
    "expected",
)


def write_audit(queue: Queue, path: Path) -> int:
    """Write a row for each answer, in the order in which they came.

    The column ``counts_for`` holds the other images of the lesion, by the site file as it is now.
    The column ``takes_back`` holds the number of the answer that an ``undo`` withdraws. Where
    ``purpose`` is ``repeat`` or ``known``, the answer checks its reader, and ``expected`` holds the
    reader's earlier answer or the known class. No cell begins as a formula, because people and
    files wrote some of them.

    Args:
        queue: the site's queue.
        path: the CSV, which must not exist yet.

    Returns:
        The number of answers.

    Raises:
        ConfigError: there is something at ``path``.
        DataError: the queue cannot be read, or the file cannot be written.
    """
    with queue.database.reading() as database:
        answers = database.execute("SELECT * FROM answers ORDER BY answer").fetchall()
        expected = {row.answer: text for row, text in compared(database, queue.rules)}
    with appears_whole(path) as target, target.open("w", newline="", encoding=ENCODING) as file:
        write_rows(file, [_COLUMNS])
        for row in answers:
            cells = _cells(row, queue) | {"expected": expected.get(row["answer"], "")}
            write_rows(file, [[cells[name] for name in _COLUMNS]])
    return len(answers)


def _cells(row: sqlite3.Row, queue: Queue) -> dict[str, Any]:
    """Return the cells of one answer, by column."""
    sample_id = row["sample_id"]
    other_ids = [name for name in queue.rules.together(sample_id) if name != sample_id]
    # `in` would search the values of a row; its columns are in keys().
    columns = row.keys()
    cells = {name: row[name] for name in _COLUMNS if name in columns}
    cells["number"] = row["answer"]
    cells["counts_for"] = " ".join(other_ids)
    cells["answer"] = row["label"] or row["kind"]
    cells["takes_back"] = row["undoes"]
    return cells
