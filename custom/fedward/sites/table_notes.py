"""What a person should know of how the cells of a CSV of images are read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.sites.label_texts import names_nobody
from fedward.sites.patient_names import PatientNames
from fedward.sites.table import Record, guessed_encoding
from fedward.sites.written import CellRules, answer_in
from fedward.text import counted

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind


def padded_note(records: Sequence[Record], columns: Sequence[str]) -> list[str]:
    """Return a note of cells with white space at their ends in these columns, if there are any."""
    padded = 0
    for record in records:
        padded += not record.padded.isdisjoint(columns)
    if not padded:
        return []
    return [f"Labels with blanks at their ends, which are cut off: {padded}."]


def encoding_note(path: Path, names: Iterable[str]) -> list[str]:
    """Return a note of names with letters beyond ASCII in a CSV whose encoding is guessed.

    Args:
        path: of the CSV.
        names: the classes, paths and other names that are read from it.
    """
    foreign = sorted({name for name in names if not name.isascii()})
    encoding = guessed_encoding(path) if foreign else ""
    if not encoding:
        return []
    return [
        f"{path} is not UTF-8 and was read as {encoding} (Western European). Check names with "
        f"other letters, such as {', '.join(foreign[:3]):.200}. If they are wrong, save the CSV "
        "as UTF-8."
    ]


def group_notes(cells: Iterable[str], groups: PatientNames) -> list[str]:
    """Return notes of groups that only say that nobody knows, and of those in several spellings.

    Args:
        cells: that name the groups.
        groups: of these cells.
    """
    counts = Counter(cells)
    notes = []
    nobody = [f"{cell} {count}" for cell, count in counts.items() if names_nobody(cell)]
    if nobody:
        notes.append(
            f"Groups that name nobody, and count as empty cells do: {', '.join(nobody[:5])}."
        )
    several = [" and ".join(texts[:5]) for texts in groups.spellings.values()]
    if several:
        notes.append(
            "Groups that are written in several ways, each of which counts as one: "
            f"{len(several)}, as {', '.join(several[:3])}. If they are different patients, give "
            "them names that differ in a word or a number."
        )
    return notes


def cell_notes(
    records: Sequence[Record], columns: Sequence[str], rules: CellRules, label_kind: "LabelKind"
) -> list[str]:
    """Return notes of cells in columns of labels that are neither 0 nor 1, and what they mean."""
    undecided = "nothing, so that their rows are rejected"
    blank = Counter[str]()
    uncertain = Counter[str]()
    unanswered = 0
    for record in records:
        answers = {name: answer_in(record.cells[name]) for name in columns}
        if set(answers.values()) == {"blank"}:
            unanswered += 1
            continue
        blank.update(name for name, answer in answers.items() if answer == "blank")
        uncertain.update(name for name, answer in answers.items() if answer == "uncertain")
    notes = []
    if uncertain:
        reading = rules.reading("uncertain") or undecided
        notes.append(f"Uncertain findings (-1) count as {reading}: {counted(uncertain)}.")
    if blank:
        # The one class of a row is known by its 1.
        reading = rules.reading("blank") or ("negative" if label_kind.exclusive else undecided)
        notes.append(
            f"Empty cells beside others (not mentioned) count as {reading}: {counted(blank)}."
        )
    if unanswered:
        notes.append(f"Rows with empty cells alone, which count as unlabelled: {unanswered}.")
    return notes
