"""How a hand-over file's answers join those of the queue: nothing twice, nothing dropped, differences reported."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict

from fedward.annotation import times
from fedward.annotation.database import add_answer
from fedward.annotation.records import (
    CANNOT_TELL,
    DECISION,
    NO_FORMULA,
    Conflict,
    Decision,
    Imported,
    Refused,
    Return,
    Returned,
    is_formula,
)


def merge(
    database: sqlite3.Connection,
    returned: Return,
    words: Mapping[str, str],
    known_ids: Collection[str],
    blank: Decision,
) -> Imported:
    """Add the answers of a file to the queue, inside the caller's transaction.

    Args:
        database: in a writing transaction.
        returned: the file's content.
        words: what may stand for a class -> the class.
        known_ids: the ids of the site's images.
        blank: an answer without image and class, with what holds where the file says nothing: annotator, time (when
            the file was written) and source.

    Returns:
        What was added, and all that was not; conflicts concern the images of added answers only.
    """
    refused, added = list(returned.refused), set[str]()
    unknown, known, count = set[str](), 0, 0
    for answer in returned.answers:
        try:
            decision = _understood(answer, words, blank)
        except ValueError as problem:
            refused.append(Refused(answer.where, answer.sample_id, str(problem)))
            continue
        if decision.sample_id not in known_ids:
            unknown.add(decision.sample_id)
        if _is_known(database, decision, timed=bool(answer.time)):
            known += 1
            continue
        add_answer(database, kind=CANNOT_TELL if decision.label is None else "label", **asdict(decision))
        added.add(decision.sample_id)
        count += 1
    return Imported(
        blank.source,
        added=count,
        known=known,
        open=returned.open,
        unknown_ids=tuple(sorted(unknown)),
        refused=tuple(refused),
        conflicts=tuple(_conflicts(database, added)),
    )


def _understood(answer: Returned, words: Mapping[str, str], blank: Decision) -> Decision:
    if not answer.sample_id:
        raise ValueError("expected a sample_id, found none")
    if is_formula(answer.annotator):
        raise ValueError(f"expected {NO_FORMULA}, found {answer.annotator!r:.80}")
    cannot = answer.label.casefold() == CANNOT_TELL
    if not cannot and answer.label not in words:
        raise ValueError(f"expected {', '.join(words)} or {CANNOT_TELL}, found {answer.label!r:.80}")
    label, time = None if cannot else words[answer.label], times.parse(answer.time) if answer.time else blank.time
    return Decision(answer.sample_id, answer.annotator or blank.annotator, label, time, blank.source)


def _is_known(database: sqlite3.Connection, decision: Decision, *, timed: bool) -> bool:
    """Return whether the queue has the answer; one without a time is known too if its annotator says the same now."""
    same = "sample_id = ? AND annotator = ? AND kind IN ('label', 'cannot tell') AND label IS ?"
    query = f"SELECT EXISTS (SELECT 1 FROM answers WHERE {same} AND time = ?)"
    now = f"SELECT EXISTS (SELECT 1 FROM decisions WHERE {same})"
    values = [decision.sample_id, decision.annotator, decision.label]
    ever = database.execute(query, [*values, decision.time]).fetchone()[0]
    return bool(ever or (not timed and database.execute(now, values).fetchone()[0]))


def _conflicts(database: sqlite3.Connection, sample_ids: Collection[str]) -> Iterator[Conflict]:
    """Yield the images of which the answers ever given, undone ones left out, do not all say the same."""
    now = f"SELECT {DECISION} FROM decisions WHERE sample_id = ? ORDER BY label IS NULL, time DESC, answer DESC"
    ever = f"SELECT {DECISION} FROM standing WHERE sample_id = ? AND kind != 'skip' ORDER BY time DESC, answer DESC"
    for sample_id in sorted(sample_ids):
        kept = Decision(*database.execute(now, [sample_id]).fetchone())
        given = [Decision(*row) for row in database.execute(ever, [sample_id])]
        if others := tuple(other for other in given if other.label != kept.label):
            yield Conflict(sample_id, kept, others)
