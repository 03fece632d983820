"""Which columns of a CSV hold labels, and the label of each row: a class, or findings."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedward.errors import DataError, option
from fedward.lab.partition.faults import Faults
from fedward.lab.partition.label_choices import LabelChoices, with_decisions
from fedward.lab.partition.pool import is_label
from fedward.label_kinds import ONE_LABEL, SEVERAL_LABELS, LabelKind, kind_of_field
from fedward.labels import NO_FINDING, SEPARATOR
from fedward.sites.any_csv import column_names
from fedward.sites.decoding import BadRow
from fedward.sites.table import Record
from fedward.sites.table_notes import cell_notes, padded_note
from fedward.sites.written import Answer, CellRules, answer_in, check_columns, words
from fedward.text import count

_MOSTLY = 0.75
"""Share of rows with exactly one 1, from which columns may be meant as exclusive classes."""

_MUST_BE_DECIDED: tuple[tuple[Answer, str], ...] = (
    ("uncertain", "cells of doubt"),
    ("blank", "empty cells beside others"),
)
"""What cells of findings say that are neither 0 nor 1, and how an error calls them."""
_LIKELY_READINGS = CellRules(uncertain="unlabelled", blank="negative")
"""How cells are read that are neither 0 nor 1, until a person decides."""


class LabelColumns(NamedTuple):
    """Which columns of a CSV hold its labels, where no option and no well-known name says so."""

    names: tuple[str, ...]
    """Columns of 0 and 1; one alone may be the column of labels."""
    doubt: DataError | None
    """Why a person must name them; None: they are exclusive classes for sure."""


class RowLabels(NamedTuple):
    """The labels of a CSV."""

    texts: dict[int, str]
    """Line of a row -> its label, findings separated by a bar; empty: it has none."""
    problems: dict[int, str]
    """Line of any other row -> why its label cannot be used."""
    label_kind: LabelKind
    notes: list[str]
    left_out: frozenset[int] = frozenset()
    """Lines of rows that a person has decided to leave out."""


def label_columns(
    path: Path, header: Sequence[str], records: Sequence[Record], used: Collection[str]
) -> LabelColumns:
    """Return the columns of 0 and 1 of a CSV that has no other column of labels.

    They are exclusive classes where no other column is left and each row has one 1. So is the
    ground truth of the ISIC challenges: a column of images, and one of 0.0 and 1.0 for
    each class.

    Args:
        path: for errors.
        header: names of all columns.
        records: all rows.
        used: columns with another purpose.
    """
    others = [name for name in header if name and name not in used]
    answers = {name: {answer_in(record.cells[name]) for record in records} for name in others}
    filled = [name for name in others if answers[name] != {"blank"}]
    of_answers = [name for name in filled if "other" not in answers[name]]
    if len(filled) > 1 and of_answers == filled:
        rows = [_answers(record, filled) for record in records]
        if all(_is_one(row) for row in rows if not _is_empty(row)):
            return LabelColumns(tuple(filled), None)
    remedy = f"Name it, as in {option('columns', {'label': 'NAME'})}."
    if len(of_answers) > 1:
        words = [f"label={name}" for name in of_answers]
        remedy = (
            f"{remedy} If each class or finding has a column of 0 and 1, name these: "
            f"{option('columns', *words)}"
        )
    doubt = DataError(f"{path}", remedy, expected="a column of labels", found=column_names(header))
    return LabelColumns(tuple(of_answers), doubt)


def labels_in_column(
    path: Path,
    records: Sequence[Record],
    column: str,
    choices: LabelChoices,
    classes: Sequence[str],
    faults: Faults,
) -> RowLabels:
    """Return the labels in one column; without one (an empty name), no row has a label.

    A label with a bar in any row makes all of them findings. Faults are those of
    :func:`~fedward.lab.partition.label_choices.with_decisions`, and contradictions.
    """
    cells = {record.line: record.cells[column] if column else "" for record in records}
    has_findings = any(SEPARATOR in cell for cell in (*cells.values(), *choices.meanings.values()))
    several = has_findings if choices.kind is None else choices.kind == "several"
    label_kind = kind_of_field(several)
    words_of = {}
    for line, cell in cells.items():
        split = label_kind.split(cell) if is_label(cell) else []
        words_of[line] = [word for word in split if word]
    names = [*classes, NO_FINDING] if several else classes
    every_word = [word for row in words_of.values() for word in row]
    choices = with_decisions(f"{path}", every_word, choices, names, faults)
    if not several and any(SEPARATOR in meaning for meaning in choices.meanings.values()):
        # It is likely that an image shows several, which a person has yet to decide.
        label_kind = SEVERAL_LABELS
    texts = _texts(path, words_of, label_kind, choices, faults)
    notes = padded_note(records, [column])
    empty = sum(not text for text in texts.values())
    if empty and column:
        notes.append(f"Rows without a label: {empty}.")
    return RowLabels(texts, {}, label_kind, notes)


def labels_in_columns(
    path: Path,
    records: Sequence[Record],
    columns: Sequence[str],
    choices: LabelChoices,
    faults: Faults,
) -> RowLabels:
    """Return the labels in columns of 0 and 1: a class each, or findings.

    Faults are what a person must decide: what -1 or an empty cell means, whether classes exclude
    each other, and the contradictions of ``No Finding`` and a finding.
    """
    rows = {record.line: _answers(record, columns) for record in records}
    try:
        label_kind = _kind(path, rows, choices)
        doubtful = sorted(
            {
                record.cells[name]
                for record in records
                for name in columns
                if answer_in(record.cells[name]) == "uncertain"
            }
        )
        rules = _readings(path, columns, rows, label_kind, choices, faults, doubtful)
    except DataError as error:
        faults.note(error, label_kind="one")
        # Whether empty cells must be decided depends on the kind.
        label_kind = SEVERAL_LABELS
        rules = _LIKELY_READINGS
    words_of: dict[int, list[str]] = {}
    problems: dict[int, str] = {}
    left_out = set()
    for record in records:
        row = rows[record.line]
        is_readable = not {"other", "uncertain"} & set(row)
        if choices.kind == "one" and is_readable and row.count("1") != 1 and not _is_empty(row):
            left_out.add(record.line)
            continue
        try:
            check_columns(record, columns, label_kind, rules)
        except BadRow as problem:
            problems[record.line] = str(problem)
        else:
            words_of[record.line] = words(record, tuple(columns), label_kind, rules)
    every_word = [*columns, *(word for row in words_of.values() for word in row)]
    choices = with_decisions(f"{path}", every_word, choices, columns, faults)
    texts = _texts(path, words_of, label_kind, choices, faults)
    notes = [_kind_note(rows, len(columns), label_kind)]
    notes += cell_notes(records, columns, rules, label_kind)
    return RowLabels(texts, problems, label_kind, notes, frozenset(left_out))


def _kind_note(rows: Mapping[int, Sequence[Answer]], columns: int, label_kind: LabelKind) -> str:
    """Return how columns are read, and for findings how many of them rows have."""
    if label_kind.exclusive:
        return f"Each row has one of {columns} columns of classes, which is its label."
    ones = [row.count("1") for row in rows.values() if not _is_empty(row)]
    several = sum(number > 1 for number in ones)
    return (
        f"{columns} columns are findings. The rows have none ({ones.count(0)}), one "
        f"({ones.count(1)}) or several ({several}). For exclusive classes: "
        f"{option('label-kind', 'one')}."
    )


def _texts(
    path: Path,
    words_of: Mapping[int, Sequence[str]],
    label_kind: LabelKind,
    choices: LabelChoices,
    faults: Faults,
) -> dict[int, str]:
    """Return line -> label; a fault where nobody has decided what ``No Finding`` and more means."""
    texts = {}
    contradicting = Counter[str]()
    for line, row_words in words_of.items():
        meanings = list(dict.fromkeys(choices.decided(row_words)))
        if not label_kind.exclusive and NO_FINDING in meanings and len(meanings) > 1:
            meanings.remove(NO_FINDING)
            contradicting.update(meanings)
            if choices.no_finding == "unlabelled":
                meanings = []
        texts[line] = SEPARATOR.join(meanings)
    if contradicting and choices.no_finding is None:
        faults.note(
            DataError(
                f"{path}, labels",
                f"If the finding counts, as a support device may be beside {NO_FINDING}: "
                f"{option('no-finding', 'ignored')}. To take the label from such images: "
                f"{option('no-finding', 'unlabelled')}.",
                expected=f"{NO_FINDING} alone",
                found=f"it beside {_in_words(contradicting)}",
            ),
            no_finding="ignored",
        )
    return texts


def _in_words(counts: Counter[str]) -> str:
    """Return the commonest five names with their counts."""
    return ", ".join(f"{name} {number}" for name, number in counts.most_common(5))


def _answers(record: Record, columns: Sequence[str]) -> list[Answer]:
    return [answer_in(record.cells[name]) for name in columns]


def _is_empty(answers: Sequence[Answer]) -> bool:
    return set(answers) == {"blank"}


def _is_one(answers: Sequence[Answer]) -> bool:
    """Return whether one cell is 1, and no other says anything but 0."""
    return answers.count("1") == 1 and not {"other", "uncertain"} & set(answers)


def _kind(path: Path, rows: Mapping[int, Sequence[Answer]], choices: LabelChoices) -> LabelKind:
    """Return what a row of columns may show; DataError if that is not clear."""
    if choices.kind:
        return kind_of_field(choices.kind == "several")
    answered = {line: row for line, row in rows.items() if not _is_empty(row)}
    others = [line for line, row in answered.items() if not _is_one(row)]
    if not others:
        return ONE_LABEL if answered else SEVERAL_LABELS
    has_uncertain = any("uncertain" in row for row in rows.values())
    if has_uncertain or len(others) > (1 - _MOSTLY) * len(answered):
        return SEVERAL_LABELS
    lines = ", ".join(str(line) for line in others[:5])
    raise DataError(
        f"{path}, columns of labels",
        f"If an image has one of the classes, write {option('label-kind', 'one')}, and these rows "
        f"are left out. If it may show several or none, write {option('label-kind', 'several')}.",
        expected="one 1 in every row, or many rows with several or none",
        found=f"one in {count(len(answered) - len(others), 'row')}, and several or none in "
        f"{len(others)} (lines {lines})",
    )


def _readings(
    path: Path,
    columns: Sequence[str],
    rows: Mapping[int, Sequence[Answer]],
    label_kind: LabelKind,
    choices: LabelChoices,
    faults: Faults,
    doubtful: Sequence[str],
) -> CellRules:
    """Return how cells are read that are neither 0 nor 1; a fault where nobody has decided.

    ``doubtful``: the different cells that say that somebody doubts, as they are written.
    """
    rules = choices.cell_rules
    for answer, found in _MUST_BE_DECIDED:
        if rules.reading(answer) or (label_kind.exclusive and answer == "blank"):
            continue
        counts = Counter[str]()
        for row in rows.values():
            if not _is_empty(row):
                counts.update(
                    name for name, cell in zip(columns, row, strict=True) if cell == answer
                )
        if counts:
            faults.note(
                DataError(
                    f"{path}, columns of labels",
                    _reading_remedy(answer),
                    expected="0 or 1 for each finding",
                    found=f"{', '.join(doubtful) if answer == 'uncertain' else found} "
                    f"({_in_words(counts)})",
                ),
                **{answer: _LIKELY_READINGS.reading(answer) or ""},
            )
            # What decides the first also decides empty cells.
            break
    return CellRules(
        rules.uncertain or _LIKELY_READINGS.uncertain, rules.blank or _LIKELY_READINGS.blank
    )


def _reading_remedy(answer: Answer) -> str:
    """Return how a person decides what cells mean that are neither 0 nor 1."""
    if answer == "blank":
        return (
            f"Say what they count as: {option('blank', 'negative')} if they mean that the finding "
            f"is not there, or {option('blank', 'unlabelled')}, which takes the label from such "
            "images."
        )
    return (
        f"Say what it counts as: {option('uncertain', 'positive')}, "
        f"{option('uncertain', 'negative')}, or {option('uncertain', 'unlabelled')}, which takes "
        f"the label from such images. Empty cells beside others then count as negative, unless "
        f"{option('blank')} says otherwise."
    )
