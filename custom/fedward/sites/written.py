"""The label in a row of a site's CSV: a class, findings in one cell, or a column for each."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fedward.labels import NO_FINDING, Label
from fedward.sites.answer_words import ABSENT, NO, YES
from fedward.sites.decoding import BadRow
from fedward.sites.label_texts import hint

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind
    from fedward.sites.table import Record

Column: TypeAlias = str | tuple[str, ...] | None
"""The column of the label; None without one.

It may be several columns of 0 and 1, each for a finding, or for one of several exclusive classes.
"""
CountsAs: TypeAlias = Literal["positive", "negative", "unlabelled"]
"""What a cell counts as that is neither 0 nor 1; ``unlabelled``: its image has no label."""
Answer: TypeAlias = Literal["1", "0", "uncertain", "blank", "other"]

_ANSWERS: dict[str, Answer] = {
    # In a column of a finding these letters answer, too. Elsewhere they may be names of classes.
    **dict.fromkeys((*YES, "t", "j", "x"), "1"),
    **dict.fromkeys((*NO, "f"), "0"),
    **dict.fromkeys(("-1", "?", "u", "uncertain"), "uncertain"),
    **dict.fromkeys(("", *ABSENT), "blank"),
}
"""Cell in lower case, numbers in their shortest form -> answer."""


class CellRules(NamedTuple):
    """How cells are read that are neither 0 nor 1, in a column for each finding."""

    uncertain: CountsAs | None = None
    """Of -1, as CheXpert writes it; None: nobody has decided."""
    blank: CountsAs | None = None
    """Of an empty cell beside others that are not; None: see :meth:`reading`."""

    def reading(self, answer: Answer) -> CountsAs | None:
        """Return what an answer counts as; None if nobody has decided.

        In a table whose -1 a person has decided, as CheXpert's, an empty cell says that the report
        does not mention the finding, which counts as negative.
        """
        if answer == "blank":
            return self.blank or ("negative" if self.uncertain else None)
        if answer == "uncertain":
            return self.uncertain
        if answer == "other":
            return None
        return "positive" if answer == "1" else "negative"


def answer_in(cell: str) -> Answer:
    """Return what a cell says of the finding of its column."""
    text = cell.casefold()
    if text not in _ANSWERS:
        # Decimal commas, and as many digits as a program likes.
        with suppress(ValueError):
            text = f"{float(text.replace(',', '.')) + 0.0:g}"
    return _ANSWERS.get(text, "other")


def words(record: "Record", column: Column, label_kind: "LabelKind", rules: CellRules) -> list[str]:
    """Return the label of a row in the site's words; one empty word where there is none."""
    if not isinstance(column, tuple):
        return label_kind.split(record.cell(column))
    answers = {name: answer_in(record.cells[name]) for name in column}
    readings = {name: rules.reading(answer) for name, answer in answers.items()}
    if set(answers.values()) == {"blank"} or "unlabelled" in readings.values():
        return [""]
    findings = [name for name in column if readings[name] == "positive"]
    return findings or [NO_FINDING]


def read_label(
    record: "Record",
    column: Column,
    called: Mapping[str, str],
    classes: Sequence[str],
    label_kind: "LabelKind",
    rules: CellRules,
) -> Label:
    """Return the label of a row.

    Args:
        record: the row.
        column: of the label.
        called: the site's word -> the class of the job.
        classes: of the job.
        label_kind: what an image may show.
        rules: for cells that are neither 0 nor 1.

    Raises:
        BadRow: it is not a label of the job.
    """
    if isinstance(column, tuple):
        check_columns(record, column, label_kind, rules)
    row_words = words(record, column, label_kind, rules)
    try:
        return label_kind.encode_words(row_words, called, classes)
    except BadRow as problem:
        names = [*called, *label_kind.label_names(classes)]
        unknown = [word for word in row_words if word not in names]
        unmapped = [name for name in classes if name not in called.values()]
        raise BadRow(f"{problem}{hint(unknown, names, (unmapped or classes)[-1])}") from None


def check_columns(
    record: "Record",
    columns: Sequence[str],
    label_kind: "LabelKind",
    rules: CellRules,
) -> None:
    """Raise BadRow unless the cells of a row are a label.

    Each cell is 0 or 1, or has a rule, or all are empty. Of exclusive classes one is 1.
    """
    answers = {name: answer_in(record.cells[name]) for name in columns}
    if set(answers.values()) == {"blank"}:
        return
    exclusive = label_kind.exclusive
    for name, answer in answers.items():
        # Among exclusive classes an empty cell beside a 1 says nothing that the 1 does not.
        if rules.reading(answer) is None and not (exclusive and answer == "blank"):
            raise BadRow(
                "expected 0 or 1 for each finding, or an empty cell for all of them, found "
                f"{record.cells[name]!r} for {name}{_REMEDIES.get(answer, '')}"
            )
    found = words(record, tuple(columns), label_kind, rules)
    positive = [name for name in columns if rules.reading(answers[name]) == "positive"]
    if exclusive and found != [""] and len(positive) != 1:
        names = " and ".join(positive) or "none"
        raise BadRow(f"expected a 1 in one of the columns of labels, found it in {names}")


_REMEDIES: dict[Answer, str] = {
    "uncertain": ' (for uncertain, write uncertain: "positive", "negative" or "unlabelled")',
    "blank": ' (for not mentioned, write blank: "negative" or "unlabelled")',
    "other": " (write 1 or 0 into the table)",
}
"""Answer that somebody must decide -> how, in a site file."""
