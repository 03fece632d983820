"""The audit trail as a CSV: every answer that was ever given, those taken back too."""

import csv
from pathlib import Path

from fedward.annotation.handover.content import appears_whole
from fedward.annotation.queue import Queue
from fedward.spreadsheet import inert

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
)


def write_audit(queue: Queue, path: Path) -> int:
    """Write a row for each answer, in the order in which they came; return how many.

    ``counts_for``: the other images of its lesion, by the site file as it is now. ``takes_back``:
    the number of the answer that an ``undo`` withdraws. Of what a person typed or a file said,
    nothing begins as a formula.

    Raises:
        ConfigError: there is something at ``path``.
        DataError: the queue or the disk does not let it.
    """
    with queue.database.reading() as database:
        answers = database.execute("SELECT * FROM answers ORDER BY answer").fetchall()
    with appears_whole(path) as target, target.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, _COLUMNS, quoting=csv.QUOTE_ALL)
        table.writeheader()
        for row in answers:
            others = [
                name for name in queue.rules.together(row["sample_id"]) if name != row["sample_id"]
            ]
            said = {name: row[name] for name in _COLUMNS if name in row.keys()}  # noqa: SIM118 - a row has no `in`
            said |= {
                "number": row["answer"],
                "counts_for": " ".join(others),
                "takes_back": row["undoes"],
            }
            said["answer"] = row["label"] or row["kind"]
            table.writerow({name: inert(cell) for name, cell in said.items()})
    return len(answers)
