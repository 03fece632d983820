"""Adding the answers of a returned file to the queue: none twice, none dropped in silence."""

import sqlite3
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import asdict

from fedward.annotation import times
from fedward.annotation.database import add_answer, places
from fedward.annotation.questions import questions
from fedward.annotation.records import (
    DECISION,
    NO_FORMULA,
    NONE_OF_THESE,
    Conflict,
    Decision,
    Imported,
    Refused,
    Return,
    Returned,
    plain_name,
)
from fedward.annotation.rules import Rules
from fedward.spreadsheet import is_formula

_LONGEST_ID = 500
"""The most letters of an id that the site file does not name."""


def merge(
    database: sqlite3.Connection,
    returned: Return,
    words: Mapping[str, str],
    known_ids: Container[str],
    blank: Decision,
    rules: Rules,
) -> Imported:
    """Add the answers of a file to the queue, inside the caller's transaction.

    Args:
        database: in a writing transaction.
        returned: the file's content.
        words: a word that may stand for a class -> the class.
        known_ids: the ids of the site's images.
        blank: a decision without image and class. Its annotator, its time (when the file was
            written) and its source hold for answers without one.
        rules: what an answer may be, and which images share one.

    Returns:
        The account of the import. Its conflicts are those of the images of added answers.
    """
    refused = list(returned.refused)
    added_ids: set[str] = set()
    unknown_ids: set[str] = set()
    known_count = 0
    added_count = 0
    stored = _StoredAnswers(database, rules)
    for answer in returned.answers:
        try:
            decision = _decision(answer, words, blank, rules)
        except ValueError as problem:
            refused.append(Refused(answer.where, answer.sample_id, str(problem)))
            continue
        if decision.sample_id not in known_ids:
            if len(decision.sample_id) > _LONGEST_ID or not decision.sample_id.isprintable():
                reason = f"expected an id of the site, or up to {_LONGEST_ID} visible letters"
                refused.append(Refused(answer.where, f"{answer.sample_id:.80}", reason))
                continue
            unknown_ids.add(decision.sample_id)
        if stored.has(decision, timed=bool(answer.time)):
            known_count += 1
            continue
        add_answer(database, **asdict(decision))
        stored.add(decision)
        added_ids.add(decision.sample_id)
        added_count += 1
    return Imported(
        blank.source,
        added=added_count,
        known=known_count,
        open=returned.open,
        unknown_ids=tuple(sorted(unknown_ids)),
        refused=tuple(refused),
        conflicts=tuple(_conflicts(database, added_ids, rules)),
    )


def _decision(
    answer: Returned, words: Mapping[str, str], blank: Decision, rules: Rules
) -> Decision:
    """Return a returned answer as a decision.

    Raises:
        ValueError: it cannot be understood; the message says why.
    """
    if not answer.sample_id:
        raise ValueError("expected a sample_id, found none")
    annotator = _annotator(answer, blank)
    kind = answer.label.casefold()
    label = None
    if kind not in rules.no_class:
        # Only this one of the words in place of a class may be a label, and in any spelling.
        text = kind if kind == NONE_OF_THESE else answer.label
        kind = "label"
        try:
            label = rules.label(text, words)
        except ValueError as expected:
            others = ", ".join(rules.no_class)
            raise ValueError(f"expected {expected}, {others}, found {answer.label!r:.80}") from None
    time = times.parse(answer.time) if answer.time else blank.time
    return Decision(answer.sample_id, annotator, kind, label, time, blank.source)


def _annotator(answer: Returned, blank: Decision) -> str:
    annotator = blank.annotator
    if answer.annotator:
        try:
            annotator = plain_name(answer.annotator)
        except ValueError as expected:
            raise ValueError(f"expected {expected}, found {answer.annotator!r:.80}") from None
    if is_formula(annotator):
        raise ValueError(f"expected {NO_FORMULA}, found {annotator!r:.80}")
    return annotator


class _StoredAnswers:
    """The answers of the queue, including those that this import has added.

    They are read once. A query for each answer of the file would search all earlier ones about the
    same image, and no other process can change the queue meanwhile.
    """

    def __init__(self, database: sqlite3.Connection, rules: Rules) -> None:
        self._rules = rules
        self._identities: set[tuple[str | None, ...]] = set()
        """The identities of all answers that were ever given."""
        self._present: dict[tuple[str, str], Decision] = {}
        """Image and annotator -> the present decision."""
        for row in database.execute(f"SELECT {DECISION} FROM answers"):
            self._identities.add(self._identity(Decision(*row)))
        for row in database.execute(f"SELECT {DECISION} FROM decisions"):
            self._present[row["sample_id"], row["annotator"]] = Decision(*row)

    def has(self, decision: Decision, *, timed: bool) -> bool:
        """Return whether an answer is in the queue already.

        An answer without a time is also there if it is the same as its annotator's present one.
        """
        if self._identity(decision) in self._identities:
            return True
        if timed:
            return False
        for sample_id in self._rules.together(decision.sample_id):
            present = self._present.get((sample_id, decision.annotator))
            if present is not None and _is_same_answer(present, decision):
                return True
        return False

    def add(self, decision: Decision) -> None:
        """Note an answer that was added."""
        self._identities.add(self._identity(decision))
        present = self._present.get((decision.sample_id, decision.annotator))
        if present is None or decision.time >= present.time:
            self._present[decision.sample_id, decision.annotator] = decision

    def _identity(self, decision: Decision) -> tuple[str | None, ...]:
        """Return the fields in which answers must differ; all images of a lesion count as one."""
        first_id = self._rules.together(decision.sample_id)[0]
        return first_id, decision.annotator, decision.kind, decision.label, decision.time


def _is_same_answer(first: Decision, second: Decision) -> bool:
    return first.kind == second.kind and first.label == second.label


def _conflicts(
    database: sqlite3.Connection, sample_ids: Collection[str], rules: Rules
) -> Iterator[Conflict]:
    """Yield the images whose answers differ; answers that were taken back do not count."""
    standing: dict[str, Decision | None] = {}
    for question in questions(database, rules):
        for sample_id in question.ids:
            standing[sample_id] = question.standing
    for sample_id in sorted(sample_ids):
        ids = rules.together(sample_id)
        query = (
            f"SELECT {DECISION} FROM standing WHERE sample_id IN ({places(ids)}) "
            "AND kind != 'skip' ORDER BY time DESC, answer DESC"
        )
        history = [Decision(*row) for row in database.execute(query, ids)]
        if len({decision.text for decision in history}) > 1:
            kept = standing[sample_id]
            others = [decision for decision in history if not kept or decision.text != kept.text]
            yield Conflict(sample_id, kept, tuple(others))
